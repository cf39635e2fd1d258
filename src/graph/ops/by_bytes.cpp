// Products of dequantized tensors, as products of the bytes that they were made of.
#include <algorithm>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/ops/common.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

constexpr DTypes kByteTypes{DType::i8, DType::u8};

// (bytes - zero) * scale, a scalar or one for each position along an axis.
struct Dequantized {
    Value *bytes, *scale, *zero;  // no zero: null
    std::optional<int64_t> axis;  // of a scale that is a vector
};

bool is_scalar(const Value& v) {
    const Shape& shape = v.type().tensor().shape;
    return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is_int(1); });
}

bool all_zero(const Value& v) {
    if (!v.is_constant()) return false;
    for (int64_t i = 0; i < v.tensor()->elements(); ++i)
        if (v.tensor()->int_at(i) != 0) return false;
    return true;
}

std::optional<Dequantized> match_dequantized(const Value& v) {
    const Node* node = v.node();
    if (!node || node->op().name != "dequantize_linear") return {};
    const OpView op = node->view();
    if (!kByteTypes.has(op.dtype(0)) || op.dtype(1) != DType::f32 || op.out().dtype != DType::f32) return {};
    for (const Value* input : node->inputs())
        if (input && !input->type().tensor().shape.ranked()) return {};
    Dequantized d{node->input(0), node->input(1), op.has(2) ? node->input(2) : nullptr, {}};
    if (d.zero && all_zero(*d.zero)) d.zero = nullptr;
    if (is_scalar(*d.scale)) return d.zero && !is_scalar(*d.zero) ? std::nullopt : std::optional(d);
    if (op.rank(1) != 1 || op.integer("block_size") != 0) return {};
    const int64_t axis = op.integer("axis");
    d.axis = axis < 0 ? axis + op.rank(0) : axis;
    return d;
}

// The operands of a product, and the axis of the second along which the columns (or channels) of the result lie.
struct Operands {
    Dequantized a, b;
};

std::optional<Operands> match_operands(const Value& left, const Value& right, int64_t columns) {
    auto a = match_dequantized(left), b = match_dequantized(right);
    if (!a || !b || a->axis || (b->axis && *b->axis != columns)) return {};
    return Operands{*a, *b};
}

// The largest of |byte - zero|.
int64_t largest(const Dequantized& d) {
    const auto [low, high] = d.bytes->type().tensor().dtype == DType::u8 ? std::pair(0, 255) : std::pair(-128, 127);
    if (!d.zero) return std::max(high, -low);
    if (!d.zero->is_constant()) return high - low;
    int64_t most = 0;
    for (int64_t i = 0; i < d.zero->tensor()->elements(); ++i) {
        const int64_t zero = d.zero->tensor()->int_at(i);
        most = std::max({most, high - zero, zero - low});
    }
    return most;
}

// Whether sums of so many products are numbers of 32 bits, whatever the bytes are.
bool sums_fit(const Operands& o, const std::optional<int64_t>& terms) {
    return terms && *terms <= INT32_MAX / std::max<int64_t>(1, largest(o.a) * largest(o.b));
}

Value* scalar_of(Builder& b, Value* v) { return v && v->type().tensor().shape.rank() ? b.reshape(v, {}) : v; }

// The sum in floats; what is a vector lies along the last axis but `after`.
Value* rescaled(Builder& b, const Operands& o, Value* sum, size_t after) {
    Value* scale = o.b.axis ? o.b.scale : scalar_of(b, o.b.scale);
    scale = b.mul(scalar_of(b, o.a.scale), scale);
    if (o.b.axis && after) {
        std::vector<int64_t> axes;
        for (size_t i = 0; i < after; ++i) axes.push_back(static_cast<int64_t>(i) + 1);
        scale = b.unsqueeze(scale, axes);
    }
    return b.mul(b.cast(sum, DType::f32), scale);
}

Value* conv_of(Builder& b, const OpView& op, const Operands& o) {
    AttrMap attrs;
    for (const char* name : {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"})
        if (auto found = op.attrs().find(name); found != op.attrs().end()) attrs.insert(*found);
    Value* zero = o.b.axis ? o.b.zero : scalar_of(b, o.b.zero);
    return b.op("conv_integer", {o.a.bytes, o.b.bytes, scalar_of(b, o.a.zero), zero}, std::move(attrs));
}

// Of a convolution; none where a size is not known.
std::optional<int64_t> terms_of(const Value& weights) {
    const Shape& w = weights.type().tensor().shape;
    int64_t terms = 1;
    for (int64_t d = 1; d < w.rank(); ++d) {
        const auto size = w[d].as_int();
        if (!size) return {};
        terms *= *size;
    }
    return terms;
}

// Few channels in a group are no sum that is worth it, unless there are several places of them.
bool wide_groups(const Value& weights) {
    constexpr int64_t kManyChannels = 8, kFewChannels = 3, kManyTerms = 24;
    const Shape& w = weights.type().tensor().shape;
    if (w.rank() < 3) return false;
    const int64_t channels = w[1].as_int().value_or(0);
    int64_t terms = channels;
    for (int64_t d = 2; d < w.rank(); ++d) terms *= w[d].as_int().value_or(1);
    return channels >= kManyChannels || (channels >= kFewChannels && terms >= kManyTerms);
}

Result<std::vector<Value*>> conv_by_bytes(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    auto o = match_operands(*in[0], *in[1], 0);
    if (!o || !wide_groups(*o->b.bytes) || !sums_fit(*o, terms_of(*o->b.bytes))) return std::vector<Value*>{};
    const size_t spatial = static_cast<size_t>(op.rank(0)) - 2;
    Value* y = rescaled(b, *o, conv_of(b, op, *o), spatial);
    if (op.has(2)) {
        std::vector<int64_t> axes;
        for (size_t i = 0; i < spatial; ++i) axes.push_back(static_cast<int64_t>(i) + 1);
        y = b.add(y, b.unsqueeze(in[2], axes));
    }
    return b.finish({y});
}

Result<std::vector<Value*>> matmul_by_bytes(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    if (op.rank(0) < 2 || op.rank(1) < 2) return std::vector<Value*>{};
    auto o = match_operands(*in[0], *in[1], op.rank(1) - 1);
    if (!o || (o->b.axis && op.rank(1) != 2)) return std::vector<Value*>{};
    if (!sums_fit(*o, op.shape(0)[-1].as_int())) return std::vector<Value*>{};
    Value* zero = o->b.axis ? o->b.zero : scalar_of(b, o->b.zero);
    Value* sum = b.op("matmul_integer", {o->a.bytes, o->b.bytes, scalar_of(b, o->a.zero), zero});
    return b.finish({rescaled(b, *o, sum, 0)});
}

Result<std::vector<Value*>> gemm_by_bytes(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    if (op.integer("transA") || op.real("alpha") != 1 || op.real("beta") != 1) return std::vector<Value*>{};
    const bool transposed = op.integer("transB") != 0;
    auto o = match_operands(*in[0], *in[1], transposed ? 0 : 1);
    if (!o || !sums_fit(*o, op.shape(0)[-1].as_int())) return std::vector<Value*>{};
    Value* right = transposed ? b.transpose(o->b.bytes, {1, 0}) : o->b.bytes;
    Value* zero = o->b.axis ? o->b.zero : scalar_of(b, o->b.zero);
    Value* sum = b.op("matmul_integer", {o->a.bytes, right, scalar_of(b, o->a.zero), zero});
    Value* y = rescaled(b, *o, sum, 0);
    return b.finish({op.has(2) ? b.add(y, in[2]) : y});
}

// Whether a value is a wider float of what 8 bits hold, turned or not.
bool is_byte_float(const Value& v) {
    constexpr DTypes kByteFloats{DType::f8e4m3fn, DType::f8e5m2};
    const Node* node = v.node();
    while (node && node->op().name == "transpose") node = node->input(0)->node();
    if (!node || (node->op().name != "dequantize_linear" && node->op().name != "cast")) return false;
    const OpView op = node->view();
    if (!kByteFloats.has(op.dtype(0)) || !kFloats.has(op.out().dtype)) return false;
    return node->op().name != "dequantize_linear" || op.integer("block_size") == 0;
}

// Tiles of these are multiplied.
bool is_large_product(const Node& product) {
    constexpr int64_t kFewestRows = 16, kFewestColumns = 64, kDeep = 16;
    const OpView op = product.view();
    if (!op.shape(0).ranked() || !op.shape(1).ranked() || op.rank(0) < 2 || op.rank(1) < 2) return false;
    const Shape &a = op.shape(0), &y = op.out().shape;
    const auto depth = a[-1].as_int(), rows = y[-2].as_int(), columns = y[-1].as_int();
    return depth && *depth % kDeep == 0 && rows.value_or(kFewestRows) >= kFewestRows &&
           columns.value_or(kFewestColumns) >= kFewestColumns;
}

bool all_multiply(const Value& v) {
    return !v.uses().empty() && std::all_of(v.uses().begin(), v.uses().end(), [&](const Use& use) {
        if (use.node && use.node->op().name == "transpose") return all_multiply(*use.node->output());
        const bool product = use.node && (use.node->op().name == "matmul" || use.node->op().name == "gemm");
        if (!product || use.index != 1 || !is_large_product(*use.node)) return false;
        const Value& other = *use.node->input(0);
        return !other.is_constant() && is_byte_float(other);
    });
}

// From 16 bits to f32.
bool is_cast_from_half(const Value& v) {
    if (!v.node() || v.node()->op().name != "cast" || !v.type().is_tensor()) return false;
    const DType from = v.node()->input(0)->type().tensor().dtype;
    return (from == DType::f16 || from == DType::bf16) && v.type().tensor().dtype == DType::f32;
}

// Convolutions of single places, of images that are cast too.
bool all_are_weights_of_places(const Value& v) {
    const Shape& shape = v.type().tensor().shape;
    if (shape.rank() != 4 || !shape[2].is_int(1) || !shape[3].is_int(1) || v.uses().empty()) return false;
    return std::all_of(v.uses().begin(), v.uses().end(), [&](const Use& use) {
        if (!use.node || use.node->op().name != "conv" || use.index != 1) return false;
        const Value& image = *use.node->input(0);
        return !image.is_constant() && is_cast_from_half(image);
    });
}

}  // namespace

ForKernels by_bytes(const OpDef& op) {
    if (op.name == "conv") return conv_by_bytes;
    if (op.name == "matmul") return matmul_by_bytes;
    if (op.name == "gemm") return gemm_by_bytes;
    return nullptr;
}

bool feeds_bytes(const Node& node) {
    if (!match_dequantized(*node.output()) || node.output()->uses().empty()) return false;
    return std::all_of(node.output()->uses().begin(), node.output()->uses().end(), [&](const Use& use) {
        if (!use.node || use.index != 1 || !by_bytes(use.node->op())) return false;
        const Value& other = *use.node->input(0);
        return !other.is_constant() && match_dequantized(other);
    });
}

bool feeds_byte_floats(const Node& node) {
    if (node.output_count() != 1 || node.op().name == "transpose") return false;
    if (is_cast_from_half(*node.output())) return all_are_weights_of_places(*node.output());
    return is_byte_float(*node.output()) && all_multiply(*node.output());
}

}  // namespace tessera
