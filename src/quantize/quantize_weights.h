// Weights as integers of 8 bits, and biases as integers of 32.
#pragma once

#include "base/error.h"
#include "graph/tensor.h"
#include "tessera/quantize.h"

namespace tessera {

struct QuantizedWeight {
    Tensor values;              // i8, symmetric
    std::vector<float> scales;  // one, or one for each position on the axis
    double snr = 0;             // in dB
};

// Scales of f32 weights: by channels on `axis`, or one for all. `least` are lower bounds, by channel.
std::vector<float> weight_scales(const Tensor& weight, std::optional<int64_t> axis, const std::string& scheme);
Result<QuantizedWeight> quantize_weight(const Tensor& weight, std::optional<int64_t> axis, std::vector<float> scales);

// round(bias / (input_scale * scale)) of each channel.
Result<Tensor> quantize_bias(const Tensor& bias, float input_scale, const std::vector<float>& scales);
// Raises the scales so that no element of the bias exceeds 32 bits.
void fit_bias(const Tensor& bias, float input_scale, std::vector<float>& scales);

double decibels(double signal, double noise);  // infinite without noise

}  // namespace tessera
