#include "runtime/collectives/combine_elements.h"

#include <algorithm>
#include <cmath>

#include "base/numeric.h"

namespace tessera::shard {
namespace {

constexpr int64_t kStrip = 1024;

double combined(ReduceOp op, double a, double b) {
    switch (op) {
        case ReduceOp::Sum: return a + b;
        case ReduceOp::Prod: return a * b;
        case ReduceOp::Min: return std::isnan(a) || a < b ? a : b;
        case ReduceOp::Max: return std::isnan(a) || a > b ? a : b;
    }
    return a;
}

int64_t combined(ReduceOp op, int64_t a, int64_t b, bool is_unsigned) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    const bool less = is_unsigned ? x < y : a < b;
    switch (op) {
        case ReduceOp::Sum: return static_cast<int64_t>(x + y);
        case ReduceOp::Prod: return static_cast<int64_t>(x * y);
        case ReduceOp::Min: return less ? a : b;
        case ReduceOp::Max: return less ? b : a;
    }
    return a;
}

}  // namespace

void combine_elements(ReduceOp op, DType dtype, const std::vector<const void*>& terms, int64_t count, void* out) {
    double reals[kStrip], next_reals[kStrip];
    int64_t ints[kStrip], next_ints[kStrip];
    for (int64_t at = 0; at < count; at += kStrip) {
        const int64_t n = std::min(kStrip, count - at);
        if (is_float(dtype)) {
            read_reals(dtype, terms[0], at, 1, n, reals);
            for (size_t t = 1; t < terms.size(); ++t) {
                read_reals(dtype, terms[t], at, 1, n, next_reals);
                for (int64_t i = 0; i < n; ++i) reals[i] = combined(op, reals[i], next_reals[i]);
            }
            write_reals(dtype, out, at, 1, n, reals);
        } else {
            read_ints(dtype, terms[0], at, 1, n, ints);
            for (size_t t = 1; t < terms.size(); ++t) {
                read_ints(dtype, terms[t], at, 1, n, next_ints);
                for (int64_t i = 0; i < n; ++i) ints[i] = combined(op, ints[i], next_ints[i], is_unsigned_int(dtype));
            }
            write_ints(dtype, out, at, 1, n, ints);
        }
    }
}

}  // namespace tessera::shard
