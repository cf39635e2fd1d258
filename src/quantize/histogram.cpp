// Histograms whose bins are powers of two wide and lie at multiples of their width.
#include <algorithm>
#include <cmath>

#include "quantize/profile.h"

namespace tessera {
namespace {

constexpr int kLeastExponent = -140;  // bins of denormal numbers

int64_t bin_of(double x, int exponent) { return int64_t(std::floor(std::ldexp(x, -exponent))); }

// The smallest exponent at which [min, max] takes at most kBins bins.
int exponent_for(double min, double max) {
    const double most = std::max(std::abs(min), std::abs(max));
    // Below this exponent, either the number of bins or the number of a bin would exceed what fits.
    int exponent = kLeastExponent;
    if (max > min) exponent = std::max(exponent, std::ilogb(max - min) - 12);
    if (most > 0) exponent = std::max(exponent, std::ilogb(most) - 50);
    while (bin_of(max, exponent) - bin_of(min, exponent) >= int64_t(ValueProfile::kBins)) ++exponent;
    return exponent;
}

// Halves the resolution until bins are 2^exponent wide, then covers [min, max].
void widen(ValueProfile& v, int exponent, double min, double max) {
    const int64_t first = bin_of(min, exponent), last = bin_of(max, exponent);
    std::vector<int64_t> bins(size_t(last - first + 1));
    const int by = exponent - v.exponent;
    for (size_t i = 0; i < v.bins.size(); ++i)
        if (v.bins[i]) bins[size_t(((v.first + int64_t(i)) >> std::min(by, 63)) - first)] += v.bins[i];
    v.bins = std::move(bins);
    v.first = first;
    v.exponent = exponent;
}

void cover(ValueProfile& v, double min, double max) {
    if (v.count) {
        min = std::min(min, v.min);
        max = std::max(max, v.max);
        if (min == v.min && max == v.max) return;
    } else {
        v.exponent = kLeastExponent;
        v.bins.clear();
    }
    widen(v, exponent_for(min, max), min, max);
    v.min = min;
    v.max = max;
}

}  // namespace

void ValueProfile::add(const float* data, size_t n) {
    if (n == 0) return;
    const auto [low, high] = std::minmax_element(data, data + n);
    cover(*this, *low, *high);
    // Products with a power of two are exact unless they leave the range of double, which f32 does not.
    const double by = std::ldexp(1.0, -exponent);
    for (size_t i = 0; i < n; ++i) ++bins[size_t(int64_t(std::floor(double(data[i]) * by)) - first)];
    count += int64_t(n);
}

void ValueProfile::merge(const ValueProfile& other) {
    if (other.count == 0) return;
    if (count == 0) {
        *this = other;
        return;
    }
    cover(*this, other.min, other.max);
    const int by = std::min(exponent - other.exponent, 63);
    for (size_t i = 0; i < other.bins.size(); ++i)
        if (other.bins[i]) bins[size_t(((other.first + int64_t(i)) >> by) - first)] += other.bins[i];
    count += other.count;
    if (channel_max.size() != other.channel_max.size()) {
        channel_max.clear();
        channel_sum.clear();
    }
    for (size_t c = 0; c < channel_max.size(); ++c) {
        channel_max[c] = std::max(channel_max[c], other.channel_max[c]);
        channel_sum[c] += other.channel_sum[c];
    }
}

}  // namespace tessera
