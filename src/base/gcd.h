// The greatest common divisor of any two numbers, the smallest one included, whose negation std::gcd cannot hold.
#pragma once

#include <cstdint>
#include <numeric>

namespace tessera {

// Never negative; 0 for two zeros; 1 where it would be 2^63.
inline int64_t gcd_of(int64_t a, int64_t b) {
    auto magnitude = [](int64_t v) { return v < 0 ? ~static_cast<uint64_t>(v) + 1 : static_cast<uint64_t>(v); };
    const uint64_t g = std::gcd(magnitude(a), magnitude(b));
    return g >> 63 ? 1 : static_cast<int64_t>(g);
}

}  // namespace tessera
