#include "graph/ops/indices.h"

namespace tessera {
namespace {

// A loop that compilers make vectors of.
template <typename T>
bool all_between(const T* indices, int64_t count, int64_t first, int64_t step, int64_t low, int64_t high) {
    bool inside = true;
    if (step == 1)
        for (int64_t i = first; i < count; ++i) inside &= (indices[i] >= low) & (indices[i] < high);
    else
        for (int64_t i = first; i < count; i += step) inside &= (indices[i] >= low) & (indices[i] < high);
    return inside;
}

}  // namespace

bool all_indices_within(const Tensor& indices, int64_t extent, int64_t first, int64_t step) {
    const int64_t count = indices.elements();
    const void* data = indices.data();
    return indices.dtype() == DType::i64
               ? all_between(static_cast<const int64_t*>(data), count, first, step, -extent, extent)
               : all_between(static_cast<const int32_t*>(data), count, first, step, -extent, extent);
}

}  // namespace tessera
