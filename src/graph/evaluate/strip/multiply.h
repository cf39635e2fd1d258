// The inner loop of contractions: c += a * b on small row-major matrices.
#pragma once

#include <cstdint>

namespace tessera::strip {

// Columns are computed in groups of this many: b and c have room up to the next multiple.
inline constexpr int64_t kColumnGroup = 8;

// `exact` says that every product of an element of a and one of b is exact in a double, so that fusing the addition
// changes nothing.
void multiply_add(const double* a, int64_t lda, const double* b, int64_t ldb, double* c, int64_t ldc, int64_t m,
                  int64_t n, int64_t k, bool exact);
void multiply_add(const int64_t* a, int64_t lda, const int64_t* b, int64_t ldb, int64_t* c, int64_t ldc, int64_t m,
                  int64_t n, int64_t k);

}  // namespace tessera::strip
