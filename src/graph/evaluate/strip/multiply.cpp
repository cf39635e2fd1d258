#include "graph/evaluate/strip/multiply.h"

#include <algorithm>
#include <cstring>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

namespace tessera::strip {
namespace {

typedef double Pair __attribute__((vector_size(16)));

inline Pair load_pair(const double* p) {
    Pair v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <bool fused>
inline Pair add_product(Pair c, double a, Pair b) {
#ifdef __aarch64__
    if constexpr (fused) return vfmaq_n_f64(c, b, a);
#endif
    return c + Pair{a, a} * b;
}

// Rows and pairs of columns that fit the registers.
#ifdef __aarch64__
constexpr int kRows = 6, kPairs = 4;
#else
constexpr int kRows = 4, kPairs = 2;
#endif
static_assert(kColumnGroup % (2 * kPairs) == 0);

template <int rows, bool fused>
void block(const double* a, int64_t lda, const double* b, int64_t ldb, double* c, int64_t ldc, int64_t k) {
    Pair sum[rows][kPairs];
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < kPairs; ++p) sum[r][p] = load_pair(c + r * ldc + 2 * p);
    for (int64_t i = 0; i < k; ++i) {
        Pair right[kPairs];
        for (int p = 0; p < kPairs; ++p) right[p] = load_pair(b + i * ldb + 2 * p);
        for (int r = 0; r < rows; ++r) {
            const double left = a[r * lda + i];
            for (int p = 0; p < kPairs; ++p) sum[r][p] = add_product<fused>(sum[r][p], left, right[p]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < kPairs; ++p) std::memcpy(c + r * ldc + 2 * p, &sum[r][p], sizeof(Pair));
}

template <bool fused>
void rows_by_columns(const double* a, int64_t lda, const double* b, int64_t ldb, double* c, int64_t ldc, int64_t m,
                     int64_t n, int64_t k) {
    for (int64_t j = 0; j < n; j += 2 * kPairs) {
        const double* bj = b + j;
        int64_t i = 0;
        for (; i + kRows <= m; i += kRows) block<kRows, fused>(a + i * lda, lda, bj, ldb, c + i * ldc + j, ldc, k);
        for (; i + 2 <= m; i += 2) block<2, fused>(a + i * lda, lda, bj, ldb, c + i * ldc + j, ldc, k);
        for (; i < m; ++i) block<1, fused>(a + i * lda, lda, bj, ldb, c + i * ldc + j, ldc, k);
    }
}

constexpr int64_t kRowBlock = 60;  // rows of a that stay in the cache while the columns go by

}  // namespace

void multiply_add(const double* a, int64_t lda, const double* b, int64_t ldb, double* c, int64_t ldc, int64_t m,
                  int64_t n, int64_t k, bool exact) {
    for (int64_t i = 0; i < m; i += kRowBlock) {
        const int64_t rows = std::min(kRowBlock, m - i);
        auto* part = exact ? rows_by_columns<true> : rows_by_columns<false>;
        part(a + i * lda, lda, b, ldb, c + i * ldc, ldc, rows, n, k);
    }
}

void multiply_add(const int64_t* a, int64_t lda, const int64_t* b, int64_t ldb, int64_t* c, int64_t ldc, int64_t m,
                  int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i)
        for (int64_t l = 0; l < k; ++l) {
            const uint64_t left = static_cast<uint64_t>(a[i * lda + l]);
            const int64_t* right = b + l * ldb;
            int64_t* sum = c + i * ldc;
            for (int64_t j = 0; j < n; ++j)
                sum[j] = static_cast<int64_t>(static_cast<uint64_t>(sum[j]) + left * static_cast<uint64_t>(right[j]));
        }
}

}  // namespace tessera::strip
