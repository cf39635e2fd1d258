#include "runtime/difference.h"

#include <cmath>

namespace tessera {

double relative_difference(const Tensor& got, const Tensor& want) {
    if (got.sizes() != want.sizes() || got.dtype() != want.dtype()) return INFINITY;
    double most = 0, size = 0;
    for (int64_t i = 0; i < got.elements(); ++i) {
        const double g = got.real_at(i), w = want.real_at(i);
        if (g == w || (std::isnan(g) && std::isnan(w))) {
            if (std::isfinite(w)) size = std::max(size, std::abs(w));
            continue;
        }
        if (!std::isfinite(g) || !std::isfinite(w)) return INFINITY;
        most = std::max(most, std::abs(g - w));
        size = std::max(size, std::abs(w));
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
