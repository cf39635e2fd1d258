// Operators of com.microsoft on quantized tensors. Products are exact in integers; what is element-wise is computed on
// dequantized values and rounded once.
#include "graph/ops/block_product.h"
#include "graph/ops/common.h"
#include "graph/ops/foreign.h"

namespace tessera {
namespace {

Value* dequantized(ForeignCall& c, Value* x, Value* scale, Value* zero_point) {
    std::vector<Value*> in{x, scale};
    if (zero_point) in.push_back(zero_point);
    return c.b.op("dequantize_linear", in);
}
Value* dequantized_in(ForeignCall& c, size_t at) { return dequantized(c, c.in(at), c.in(at + 1), c.in(at + 2)); }

// To `like`'s element type where no zero point says another.
Value* quantized_as(ForeignCall& c, Value* y, Value* scale, Value* zero_point, DType like) {
    return c.b.op("quantize_linear", {y, scale, zero_point ? zero_point : c.b.scalar(0, like)});
}

Value* integer_product(ForeignCall& c, Value* x, Value* y, Value* x_zero, Value* y_zero) {
    std::vector<Value*> in{x, y, x_zero, y_zero};
    while (!in.back()) in.pop_back();
    return c.b.op("matmul_integer", in);
}

// The product of integers as floats: times both scales, the first one's as one number.
Value* scaled_product(ForeignCall& c, Value* product, Value* x_scale, Value* y_scale, Value* bias) {
    Value* scale = c.b.mul(x_scale, y_scale);
    Value* y = c.b.mul(c.b.cast(product, DType::f32), scale);
    return bias ? c.b.add(y, bias) : y;
}

Status build_matmul_integer_to_float(ForeignCall& c) {
    Value* product = integer_product(c, c.in(0), c.in(1), c.in(4), c.in(5));
    return c.finish({scaled_product(c, product, c.in(2), c.in(3), c.in(6))});
}

Status build_dynamic_quantize_matmul(ForeignCall& c) {
    auto x = c.b.ops("dynamic_quantize_linear", {c.in(0)}, {}, 3);
    Value* product = integer_product(c, x[0], c.in(1), x[2], c.in(3));
    return c.finish({scaled_product(c, product, x[1], c.in(2), c.in(4))});
}

Status build_dynamic_quantize_lstm(ForeignCall& c) {
    std::vector<Value*> in;
    for (size_t i = 0; i < 12; ++i) in.push_back(c.in(i));
    AttrMap attrs = c.pick(
        {"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget"});
    return c.finish(c.b.ops("dynamic_quantize_lstm", in, std::move(attrs), 3));
}

Status build_qgemm(ForeignCall& c) {
    Builder& b = c.b;
    enum { kA, kAScale, kAZero, kB, kBScale, kBZero, kC, kYScale, kYZero };
    const bool turn_a = c.integer("transA", 0) != 0, turn_b = c.integer("transB", 0) != 0;
    Value* x = turn_a ? b.transpose(c.in(kA), {1, 0}) : c.in(kA);
    Value* y = turn_b ? b.transpose(c.in(kB), {1, 0}) : c.in(kB);
    Value* product = integer_product(c, x, y, c.in(kAZero), c.in(kBZero));
    if (c.has(kC)) product = b.add(product, c.in(kC));
    const float alpha = c.real("alpha", 1);
    Value* scale = b.mul(c.in(kAScale), c.in(kBScale));
    if (alpha != 1) scale = b.mul(scale, b.scalar(alpha, DType::f32));
    Value* z = b.cast(product, DType::f32);
    if (!c.has(kYScale)) return c.finish({b.mul(z, scale)});
    // The scales are one number before they meet the product, so that it is rounded once.
    Value* rounded = b.op("round", {b.mul(z, b.div(scale, c.in(kYScale)))});
    Value* one = b.scalar(1, DType::f32);
    return c.finish({b.op("quantize_linear", {rounded, one, c.in(kYZero)})});
}

template <typename F>
Status build_binary(ForeignCall& c, F&& f) {
    Value* y = f(dequantized_in(c, 0), dequantized_in(c, 3));
    return c.finish({quantized_as(c, y, c.in(6), c.in(7), c.dtype(0))});
}
Status build_qlinear_add(ForeignCall& c) {
    return build_binary(c, [&](Value* x, Value* y) { return c.b.add(x, y); });
}
Status build_qlinear_mul(ForeignCall& c) {
    return build_binary(c, [&](Value* x, Value* y) { return c.b.mul(x, y); });
}

template <typename F>
Status build_unary(ForeignCall& c, F&& f) {
    return c.finish({quantized_as(c, f(dequantized_in(c, 0)), c.in(3), c.in(4), c.dtype(0))});
}
Status build_qlinear_sigmoid(ForeignCall& c) {
    return build_unary(c, [&](Value* x) { return c.b.op("sigmoid", {x}); });
}
Status build_qlinear_leaky_relu(ForeignCall& c) {
    const float alpha = c.real("alpha", 0.01f);
    return build_unary(c, [&](Value* x) { return c.b.op("leaky_relu", {x}, {{"alpha", Attr(alpha)}}); });
}
Status build_qlinear_softmax(ForeignCall& c) {
    const int64_t opset = c.integer("opset", 13), axis = c.integer("axis", opset < 13 ? 1 : -1);
    const int64_t rank = c.rank(0);
    c.require(opset >= 13 || axis == -1 || axis == rank - 1, "softmax over several dimensions");
    return build_unary(c, [&](Value* x) { return c.b.op("softmax", {x}, {{"axis", Attr(axis)}}); });
}
Status build_qlinear_reduce_mean(ForeignCall& c) {
    AttrMap attrs = c.pick({"keepdims"});
    std::vector<int64_t> axes = c.ints("axes");
    return build_unary(c, [&](Value* x) {
        return axes.empty() ? c.b.op("reduce_mean", {x}, attrs) : c.b.op("reduce_mean", {x, c.b.ints(axes)}, attrs);
    });
}

std::vector<int64_t> moved_channels(int64_t rank, bool to_front) {
    std::vector<int64_t> perm{0};
    if (to_front) perm.push_back(rank - 1);
    for (int64_t d = to_front ? 1 : 2; d < (to_front ? rank - 1 : rank); ++d) perm.push_back(d);
    if (!to_front) perm.push_back(1);
    return perm;
}

template <typename F>
Status build_pool(ForeignCall& c, F&& pool) {
    const bool last = c.integer("channels_last", 0) != 0;
    const int64_t rank = c.rank(0);
    c.require(rank >= 3, "needs [N, C, D1, ...]");
    if (c.b.failed()) return c.finish({});
    Value* x = dequantized_in(c, 0);
    if (last) x = c.b.transpose(x, moved_channels(rank, true));
    Value* y = pool(x);
    if (last) y = c.b.transpose(y, moved_channels(rank, false));
    return c.finish({quantized_as(c, y, c.in(3), c.in(4), c.dtype(0))});
}
Status build_qlinear_average_pool(ForeignCall& c) {
    AttrMap attrs = c.pick({"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"});
    return build_pool(c, [&](Value* x) { return c.b.op("average_pool", {x}, attrs); });
}
Status build_qlinear_global_average_pool(ForeignCall& c) {
    return build_pool(c, [&](Value* x) { return c.b.op("global_average_pool", {x}); });
}

Status build_qlinear_concat(ForeignCall& c) {
    std::vector<Value*> parts;
    c.require(c.input_count() >= 5 && (c.input_count() - 2) % 3 == 0,
              "takes tensors with their scales and zero points");
    if (c.b.failed()) return c.finish({});
    for (size_t i = 2; i + 2 < c.input_count(); i += 3) parts.push_back(dequantized_in(c, i));
    return c.finish({quantized_as(c, c.b.concat(parts, c.integer("axis")), c.in(0), c.in(1), c.dtype(2))});
}

Status build_qlinear_where(ForeignCall& c) {
    Value* y = c.b.op("where", {c.in(0), dequantized_in(c, 1), dequantized_in(c, 4)});
    return c.finish({quantized_as(c, y, c.in(7), c.in(8), c.dtype(1))});
}

Status build_qlinear_conv(ForeignCall& c) {
    const bool last = c.integer("channels_last", 0) != 0;
    const int64_t rank = c.rank(0);
    std::vector<Value*> in;
    for (size_t i = 0; i < c.input_count(); ++i) in.push_back(c.in(i));
    if (last && !c.b.failed()) in[0] = c.b.transpose(in[0], moved_channels(rank, true));
    Value* y =
        c.b.op("qlinear_conv", in, c.pick({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
    return c.finish({last ? c.b.transpose(y, moved_channels(rank, false)) : y});
}

Status build_matmul_nbits(ForeignCall& c) {
    Builder& b = c.b;
    enum { kA, kB, kScales, kZeros, kGroups, kBias };
    const int64_t k = c.integer("K"), n = c.integer("N"), bits = c.integer("bits", 4), block = c.integer("block_size");
    const int64_t level = c.integer("accuracy_level", 0);
    c.integer("weight_prepacked", 0);
    c.require(bits == 2 || bits == 4 || bits == 8, "bits must be 2, 4 or 8");
    c.require(k > 0 && n > 0 && block > 0 && k < (int64_t{1} << 40) && block < (int64_t{1} << 40),
              "sizes out of range");
    c.require(!c.has(kGroups), "g_idx is not supported");
    if (c.b.failed()) return c.finish({});
    const int64_t blocks = (k + block - 1) / block;
    const DType type = c.dtype(kA);
    Value* zeros = b.scalar(double(int64_t{1} << (bits - 1)), type);
    if (c.has(kZeros)) {
        zeros = c.in(kZeros);
        if (c.dtype(kZeros) == DType::u8) {
            const int64_t row = (blocks * bits + 7) / 8;  // bytes
            zeros = unpacked_bits(b, b.reshape(zeros, {n, row}), bits, {n, row * 8 / bits});
            zeros = b.slice(zeros, {0}, {blocks}, {1});
        }
        zeros = b.cast(b.reshape(zeros, {n, blocks}), type);
    }
    Value* y = b.op("matmul_nbits", {c.in(kA), c.in(kB), b.reshape(c.in(kScales), {n, blocks}), zeros},
                    {{"accuracy_level", Attr(level)},
                     {"bits", Attr(bits)},
                     {"block_size", Attr(block)},
                     {"k", Attr(k)},
                     {"n", Attr(n)}});
    return c.finish({c.has(kBias) ? b.add(y, c.in(kBias)) : y});
}

// Rows of a table in blocks along its last axis.
Status build_gather_block_quantized(ForeignCall& c) {
    Builder& b = c.b;
    const int64_t bits = c.integer("bits", 4), block = c.integer("block_size", 128), axis = c.integer("gather_axis", 0);
    const int64_t rank = c.rank(0), quantize_axis = c.integer("quantize_axis", 1);
    c.require(axis == 0 && (quantize_axis == rank - 1 || quantize_axis == -1),
              "only rows of blocks along the last axis");
    c.require(c.dtype(0) == DType::u8 && (bits == 4 || bits == 8), "data must be uint8 of 4 or 8 bits");
    const DType type = c.dtype(2);
    auto rows = [&](Value* x) { return b.op("gather", {x, c.in(1)}, {{"axis", Attr(int64_t{0})}}); };
    auto wide = [&](Value* x) {  // the last axis, unpacked
        if (bits == 8) return x;
        Value* mask = b.scalar(15, DType::u8);
        Value* high = b.op("bit_shift", {x, b.scalar(4, DType::u8)}, {{"direction", Attr(std::string("RIGHT"))}});
        Value* both = b.concat({b.unsqueeze(b.op("bitwise_and", {x, mask}), {-1}), b.unsqueeze(high, {-1})}, -1);
        std::vector<int64_t> same(size_t(b.failed() ? 0 : x->type().tensor().rank() - 1), 0);
        same.push_back(-1);
        return b.reshape(both, same);
    };
    Value* w = b.cast(wide(rows(c.in(0))), type);
    if (b.failed()) return c.finish({});
    const int64_t out = w->type().tensor().rank();
    std::vector<int64_t> split(size_t(out - 1), 0);
    std::vector<int64_t> joined = split;
    split.insert(split.end(), {-1, block});
    joined.push_back(-1);
    Value* zeros = b.scalar(bits == 8 ? 128 : 8, type);
    if (c.has(3)) zeros = b.unsqueeze(b.cast(wide(rows(c.in(3))), type), {-1});
    Value* y = b.mul(b.sub(b.reshape(w, split), zeros), b.unsqueeze(rows(c.in(2)), {-1}));
    return c.finish({b.reshape(y, joined)});
}

}  // namespace

std::vector<ForeignOp> quantized_foreign_ops() {
    return {
        {kMicrosoft, "MatMulIntegerToFloat", build_matmul_integer_to_float, "matmul_integer and its scales"},
        {kMicrosoft, "DynamicQuantizeMatMul", build_dynamic_quantize_matmul, "dynamic_quantize_linear, matmul_integer"},
        {kMicrosoft, "DynamicQuantizeLSTM", build_dynamic_quantize_lstm, "dynamic_quantize_lstm"},
        {kMicrosoft, "QGemm", build_qgemm, "matmul_integer and its scales"},
        {kMicrosoft, "QLinearAdd", build_qlinear_add, "add of dequantized values"},
        {kMicrosoft, "QLinearMul", build_qlinear_mul, "mul of dequantized values"},
        {kMicrosoft, "QLinearSigmoid", build_qlinear_sigmoid, "sigmoid of dequantized values"},
        {kMicrosoft, "QLinearLeakyRelu", build_qlinear_leaky_relu, "leaky_relu of dequantized values"},
        {kMicrosoft, "QLinearSoftmax", build_qlinear_softmax, "softmax of dequantized values"},
        {kMicrosoft, "QLinearReduceMean", build_qlinear_reduce_mean, "reduce_mean of dequantized values"},
        {kMicrosoft, "QLinearAveragePool", build_qlinear_average_pool, "average_pool of dequantized values"},
        {kMicrosoft, "QLinearGlobalAveragePool", build_qlinear_global_average_pool,
         "global_average_pool of dequantized values"},
        {kMicrosoft, "QLinearConcat", build_qlinear_concat, "concat of dequantized values"},
        {kMicrosoft, "QLinearWhere", build_qlinear_where, "where of dequantized values"},
        {kMicrosoft, "QLinearConv", build_qlinear_conv, "qlinear_conv"},
        {kMicrosoft, "MatMulNBits", build_matmul_nbits, "matmul_nbits"},
        {kMicrosoft, "GatherBlockQuantized", build_gather_block_quantized, "gather of dequantized blocks"},
    };
}

}  // namespace tessera
