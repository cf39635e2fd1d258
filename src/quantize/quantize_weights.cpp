#include "quantize/quantize_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr double kMostWeight = 127;
constexpr double kMostBias = 2147483520;  // the largest f32 below 2^31
constexpr int kClipSteps = 40;            // scales that the scheme mse compares, down to half of the largest element

struct Channels {
    size_t count = 1, inner;  // of elements next to each other
    size_t of(size_t element) const { return element / inner % count; }
};

Channels channels_of(const Tensor& weight, std::optional<int64_t> axis) {
    Channels c{1, size_t(std::max<int64_t>(weight.elements(), 1))};
    if (!axis) return c;
    c.count = size_t(weight.size(*axis));
    c.inner = 1;
    for (int64_t d = *axis + 1; d < weight.rank(); ++d) c.inner *= size_t(weight.size(d));
    return c;
}

float usable(double scale) { return std::isnormal(float(scale)) ? float(scale) : 1; }

int8_t rounded(float w, float scale) {
    return int8_t(std::clamp(std::nearbyint(double(w) / double(scale)), -kMostWeight, kMostWeight));
}

}  // namespace

double decibels(double signal, double noise) {
    return noise > 0 ? 10 * std::log10(std::max(signal, 1e-300) / noise) : std::numeric_limits<double>::infinity();
}

std::vector<float> weight_scales(const Tensor& weight, std::optional<int64_t> axis, const std::string& scheme) {
    const auto w = weight.as<float>();
    const Channels channels = channels_of(weight, axis);
    std::vector<double> most(channels.count, 0);
    for (size_t i = 0; i < w.size(); ++i) most[channels.of(i)] = std::max(most[channels.of(i)], double(std::abs(w[i])));
    std::vector<float> scales;
    for (double m : most) scales.push_back(usable(m / kMostWeight));
    if (scheme != "mse") return scales;
    std::vector<double> best(channels.count, std::numeric_limits<double>::infinity());
    for (int step = 0; step < kClipSteps; ++step) {
        std::vector<float> tried;
        for (double m : most) tried.push_back(usable(m * (1 - 0.5 * step / kClipSteps) / kMostWeight));
        std::vector<double> error(channels.count, 0);
        for (size_t i = 0; i < w.size(); ++i) {
            const size_t c = channels.of(i);
            const double off = double(w[i]) - double(rounded(w[i], tried[c])) * tried[c];
            error[c] += off * off;
        }
        for (size_t c = 0; c < channels.count; ++c)
            if (error[c] < best[c]) best[c] = error[c], scales[c] = tried[c];
    }
    return scales;
}

Result<QuantizedWeight> quantize_weight(const Tensor& weight, std::optional<int64_t> axis, std::vector<float> scales) {
    QuantizedWeight made{TRY(Tensor::zeros(DType::i8, weight.sizes())), std::move(scales), 0};
    const auto w = weight.as<float>();
    auto q = made.values.mutable_as<int8_t>();
    const Channels channels = channels_of(weight, axis);
    double signal = 0, noise = 0;
    for (size_t i = 0; i < w.size(); ++i) {
        const float scale = made.scales[channels.of(i)];
        q[i] = rounded(w[i], scale);
        const double off = double(w[i]) - double(q[i]) * scale;
        signal += double(w[i]) * w[i];
        noise += off * off;
    }
    made.snr = decibels(signal, noise);
    return made;
}

void fit_bias(const Tensor& bias, float input_scale, std::vector<float>& scales) {
    for (int64_t i = 0; i < bias.elements(); ++i) {
        float& scale = scales[scales.size() == 1 ? 0 : size_t(i)];
        const double least = std::abs(bias.real_at(i)) / kMostBias / double(input_scale);
        if (least > scale) scale = std::nextafter(float(least), std::numeric_limits<float>::infinity());
    }
}

Result<Tensor> quantize_bias(const Tensor& bias, float input_scale, const std::vector<float>& scales) {
    Tensor made = TRY(Tensor::zeros(DType::i32, bias.sizes()));
    for (int64_t i = 0; i < bias.elements(); ++i) {
        const double scale = double(input_scale * scales[scales.size() == 1 ? 0 : size_t(i)]);
        made.set_int(i, int64_t(std::clamp(std::nearbyint(bias.real_at(i) / scale), -kMostBias, kMostBias)));
    }
    return made;
}

}  // namespace tessera
