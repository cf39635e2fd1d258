#include "graph/ops/indices.h"

#include <type_traits>

namespace tessera {
namespace {

// A loop that compilers make vectors of: what lies below wraps to a large number.
template <typename T>
bool all_between(const T* indices, int64_t count, int64_t first, int64_t step, int64_t low, int64_t high) {
    using Place = std::make_unsigned_t<T>;
    const auto begin = static_cast<Place>(low), span = static_cast<Place>(high - low);
    Place outside = 0;
    auto look = [&](int64_t i) {
        outside |= static_cast<Place>(static_cast<Place>(indices[i]) - begin) >= span ? Place{1} : Place{0};
    };
    if (step == 1)
        for (int64_t i = first; i < count; ++i) look(i);
    else
        for (int64_t i = first; i < count; i += step) look(i);
    return outside == 0;
}

}  // namespace

bool all_indices_within(const Tensor& indices, int64_t extent, int64_t first, int64_t step) {
    const int64_t count = indices.elements();
    const void* data = indices.data();
    if (indices.dtype() == DType::i64)
        return all_between(static_cast<const int64_t*>(data), count, first, step, -extent, extent);
    // Those of 32 bits all lie inside of what is larger.
    if (extent > INT32_MAX) return true;
    return all_between(static_cast<const int32_t*>(data), count, first, step, -extent, extent);
}

}  // namespace tessera
