#include "quantize/match_qdq.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

bool is_byte(DType t) { return t == DType::u8 || t == DType::i8; }
bool is_op(const Value* v, std::string_view name) { return v && v->node() && v->node()->op().name == name; }
bool all_zero(const Value& v) {
    if (!v.is_constant()) return false;
    for (int64_t i = 0; i < v.tensor()->elements(); ++i)
        if (v.tensor()->int_at(i) != 0) return false;
    return true;
}

// The integers that were folded to floats, if these are exactly what dequantizing them gives.
std::optional<Tensor> unfolded(const Tensor& bias, float x_scale, const ByteWeights& w) {
    if (bias.dtype() != DType::f32 || bias.rank() != 1) return {};
    const auto floats = bias.as<float>();
    if (w.scales.size() != floats.size() && w.scales.size() != 1) return {};
    std::vector<int32_t> made;
    for (size_t i = 0; i < floats.size(); ++i) {
        const float scale = x_scale * w.scales[w.scales.size() == 1 ? 0 : i];
        const double q = std::nearbyint(double(floats[i]) / double(scale));
        if (std::fabs(q) > double(INT32_MAX)) return {};
        // A float has fewer bits than a large integer: then it is one of several.
        if (float(q * double(scale)) != floats[i]) return {};
        made.push_back(int32_t(q));
    }
    return Tensor::of({int64_t(made.size())}, made);
}

}  // namespace

std::pair<int64_t, int64_t> byte_range(DType dtype) {
    return dtype == DType::u8 ? std::pair<int64_t, int64_t>(0, 255) : std::pair<int64_t, int64_t>(-128, 127);
}

bool is_ranked_f32(const Value* v) {
    return v && v->type().is_tensor() && v->type().tensor().dtype == DType::f32 && v->type().tensor().shape.ranked();
}

bool used_once(const Value* v) { return v->uses().size() == 1 && v->uses()[0].node; }

std::optional<ByteQuantization> quantization_of(const Node& node) {
    const Value *scale = node.input(1), *zero = node.input(2);
    const OpView op = node.view();
    const DType t = node.op().name == "quantize_linear" ? op.out().dtype : op.dtype(0);
    if (!is_byte(t) || !scale->is_constant() || scale->tensor()->elements() != 1) return {};
    if (scale->tensor()->dtype() != DType::f32) return {};
    if (zero && (!zero->is_constant() || zero->tensor()->elements() != 1)) return {};
    const float s = scale->tensor()->as<float>()[0];
    if (!(s > 0) || !std::isfinite(s)) return {};
    return ByteQuantization{s, zero ? zero->tensor()->int_at(0) : 0, t};
}

std::optional<QuantizedValue> match_dequantized(const Value* v) {
    if (!is_op(v, "dequantize_linear") || !is_ranked_f32(v)) return {};
    const auto by = quantization_of(*v->node());
    if (!by || !v->node()->input(0)->type().tensor().shape.ranked()) return {};
    return QuantizedValue{v->node()->input(0), *by};
}

std::optional<ByteWeights> match_weights(const Value* v, int64_t axis) {
    if (!is_op(v, "dequantize_linear")) return {};
    const Node& node = *v->node();
    const Value *bytes = node.input(0), *scale = node.input(1), *zero = node.input(2);
    if (!bytes->is_constant() || bytes->tensor()->dtype() != DType::i8 || !scale->is_constant()) return {};
    if (scale->tensor()->dtype() != DType::f32 || scale->tensor()->rank() > 1) return {};
    const OpView op = node.view();
    if (op.integer("block_size") != 0 || (zero && !all_zero(*zero))) return {};
    const auto scales = scale->tensor()->as<float>();
    const int64_t given = op.integer("axis"), rank = bytes->tensor()->rank();
    if (scales.size() > 1 && (given < 0 ? given + rank : given) != axis) return {};
    return ByteWeights{node.input(0), {scales.begin(), scales.end()}};
}

std::optional<Tensor> match_bias(const Value* v, float x_scale, const ByteWeights& w) {
    if (v->is_constant()) return unfolded(*v->tensor(), x_scale, w);
    if (!is_op(v, "dequantize_linear")) return {};
    const Node& node = *v->node();
    const Value *values = node.input(0), *scale = node.input(1), *zero = node.input(2);
    if (!values->is_constant() || values->tensor()->dtype() != DType::i32 || values->tensor()->rank() != 1) return {};
    if (!scale->is_constant() || scale->tensor()->dtype() != DType::f32 || (zero && !all_zero(*zero))) return {};
    const auto scales = scale->tensor()->as<float>();
    if (scales.size() != w.scales.size() && scales.size() != 1) return {};
    for (size_t i = 0; i < w.scales.size(); ++i) {
        const float wanted = x_scale * w.scales[i], given = scales[scales.size() == 1 ? 0 : i];
        if (std::fabs(given - wanted) > 1e-6f * wanted) return {};
    }
    return *values->tensor();
}

const Value* before_bounds(const Value* v, Rectified& bounds) {
    for (;;) {
        if (!used_once(v) || !v->node()) return v;
        const Node& node = *v->node();
        Rectified own;
        if (node.op().name == "relu") {
            own.low = 0;
        } else if (node.op().name == "clip") {
            for (size_t i : {1, 2})
                if (node.input(i) && !(node.input(i)->is_constant() && node.input(i)->tensor()->elements() == 1))
                    return v;
            if (node.input(1)) own.low = node.input(1)->tensor()->real_at(0);
            if (node.input(2)) own.high = node.input(2)->tensor()->real_at(0);
        } else {
            return v;
        }
        bounds.low = std::max(bounds.low, own.low);
        bounds.high = std::min(bounds.high, own.high);
        v = node.input(0);
    }
}

std::pair<int64_t, int64_t> byte_bounds(const Rectified& bounds, const ByteQuantization& by) {
    const auto [least, most] = byte_range(by.dtype);
    const auto byte = [&, least = least, most = most](double x) {
        return int64_t(
            std::clamp(std::nearbyint(double(float(x / by.scale))) + double(by.zero), double(least), double(most)));
    };
    return {byte(bounds.low), byte(bounds.high)};
}

}  // namespace tessera
