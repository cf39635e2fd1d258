#include "runtime/difference.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

// Sums that differ in their last bits of f32 may round to neighbours in bf16, which are up to 0.8 % apart.
bool rounds_to_neighbours(DType dtype, double a, double b) {
    constexpr int kBits = 8;
    if (dtype != DType::bf16) return false;
    int exponent = 0;
    std::frexp(std::max(std::abs(a), std::abs(b)), &exponent);
    return std::abs(a - b) <= std::ldexp(1.0, exponent - kBits);
}

// Of what lies between a and b, what is nearest to x. Where one of them is no finite number, it is the other.
double nearest_allowed(double x, double a, double b) {
    if (!std::isfinite(x)) return x == b || (std::isnan(x) && std::isnan(b)) ? b : a;
    if (std::isfinite(a) && std::isfinite(b)) return std::clamp(x, std::min(a, b), std::max(a, b));
    return std::isfinite(b) ? b : a;
}

}  // namespace

double relative_difference(const Tensor& got, const Tensor& want, const Tensor* wide) {
    if (got.sizes() != want.sizes() || got.dtype() != want.dtype()) return INFINITY;
    if (wide && (wide->sizes() != want.sizes() || wide->dtype() != want.dtype())) wide = nullptr;
    double most = 0, size = 0;
    for (int64_t i = 0; i < got.elements(); ++i) {
        const double g = got.real_at(i);
        const double w = nearest_allowed(g, want.real_at(i), wide ? wide->real_at(i) : want.real_at(i));
        if (g == w || (std::isnan(g) && std::isnan(w))) {
            if (std::isfinite(w)) size = std::max(size, std::abs(w));
            continue;
        }
        if (!std::isfinite(g) || !std::isfinite(w)) return INFINITY;
        size = std::max(size, std::abs(w));
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
