#include "runtime/difference.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

// Part of the largest value that results may be apart for what lies between to be one too: further apart they are of
// two branches, say.
constexpr double kFarApart = 16;

// Sums that differ in their last bits of f32 may round to neighbours in bf16, which are up to 0.8 % apart.
bool rounds_to_neighbours(DType dtype, double a, double b) {
    constexpr int kBits = 8;
    if (dtype != DType::bf16) return false;
    int exponent = 0;
    std::frexp(std::max(std::abs(a), std::abs(b)), &exponent);
    return std::abs(a - b) <= std::ldexp(1.0, exponent - kBits);
}

// Of a and b, and of what lies between them where they are at most `apart`, what is nearest to x. Where one of them is
// no finite number, it is the other.
double nearest_allowed(double x, double a, double b, double apart) {
    if (!std::isfinite(x)) return x == b || (std::isnan(x) && std::isnan(b)) ? b : a;
    if (!std::isfinite(a) || !std::isfinite(b)) return std::isfinite(b) ? b : a;
    if (std::abs(a - b) <= apart) return std::clamp(x, std::min(a, b), std::max(a, b));
    return std::abs(x - a) < std::abs(x - b) ? a : b;
}

double largest_of(const Tensor& t) {
    double most = 0;
    for (int64_t i = 0; i < t.elements(); ++i)
        if (const double x = t.real_at(i); std::isfinite(x)) most = std::max(most, std::abs(x));
    return most;
}

}  // namespace

double relative_difference(const Tensor& got, const Tensor& want, const Tensor* wide) {
    if (got.sizes() != want.sizes() || got.dtype() != want.dtype()) return INFINITY;
    if (wide && (wide->sizes() != want.sizes() || wide->dtype() != want.dtype())) wide = nullptr;
    double size = largest_of(want);
    if (wide && size == 0) size = largest_of(*wide);
    const double apart = size / kFarApart;
    double most = 0;
    for (int64_t i = 0; i < got.elements(); ++i) {
        const double g = got.real_at(i);
        const double w = nearest_allowed(g, want.real_at(i), wide ? wide->real_at(i) : want.real_at(i), apart);
        if (g == w || (std::isnan(g) && std::isnan(w))) continue;
        if (!std::isfinite(g) || !std::isfinite(w)) return INFINITY;
        if (!rounds_to_neighbours(got.dtype(), g, w)) most = std::max(most, std::abs(g - w));
    }
    return most == 0 ? 0 : most / std::max(size, 1e-30);
}

double relative_difference(const std::vector<Datum>& got, const std::vector<Datum>& want) {
    if (got.size() != want.size()) return INFINITY;
    double most = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        if (!got[i].is_tensor() || !want[i].is_tensor()) return INFINITY;
        if (got[i].tensor().dtype() == DType::string) continue;
        most = std::max(most, relative_difference(got[i].tensor(), want[i].tensor()));
    }
    return most;
}

}  // namespace tessera
