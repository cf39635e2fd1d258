// Matches of quantize_linear and dequantize_linear nodes of bytes, whose scales and zero points are constants.
#pragma once

#include <limits>
#include <optional>

#include "graph/graph.h"

namespace tessera {

// The quantization of a whole tensor.
struct ByteQuantization {
    float scale = 1;
    int64_t zero = 0;
    DType dtype = DType::u8;
    bool operator==(const ByteQuantization&) const = default;
};
std::pair<int64_t, int64_t> byte_range(DType dtype);

bool is_ranked_f32(const Value* v);
bool used_once(const Value* v);

// Of a quantize_linear or dequantize_linear node.
std::optional<ByteQuantization> quantization_of(const Node& node);

struct QuantizedValue {
    Value* bytes;
    ByteQuantization by;
};
std::optional<QuantizedValue> match_dequantized(const Value* v);

// Constant int8 weights with one scale, or one for each position along `axis`, and without zero points.
struct ByteWeights {
    Value* bytes;
    std::vector<float> scales;
};
std::optional<ByteWeights> match_weights(const Value* v, int64_t axis);

// Integers at the product of both scales: dequantized, or folded to the floats that they stand for.
std::optional<Tensor> match_bias(const Value* v, float x_scale, const ByteWeights& w);

// What rectifiers leave of a value.
struct Rectified {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};
// Goes to what a chain of rectifiers, which nobody else reads, is computed from.
const Value* before_bounds(const Value* v, Rectified& bounds);
std::pair<int64_t, int64_t> byte_bounds(const Rectified& bounds, const ByteQuantization& by);

}  // namespace tessera
