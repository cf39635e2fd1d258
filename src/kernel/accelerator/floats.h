// f32 arithmetic of the accelerator: rounded to nearest even, subnormal operands and results 0, one NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera::accelerator {

constexpr uint32_t kNan = 0x7fc00000;

inline float float_of(int32_t bits) {
    const float f = std::bit_cast<float>(bits);
    return std::abs(f) < std::numeric_limits<float>::min() ? std::copysign(0.0f, f) : f;
}

inline int32_t bits_of(float f) { return std::isnan(f) ? int32_t(kNan) : std::bit_cast<int32_t>(f); }

// A result that double holds exactly, or to more than twice f32's precision. What is subnormal after it was rounded to
// 24 bits is 0.
inline float rounded(double exact) {
    constexpr double kLeast = std::numeric_limits<float>::min();
    if (std::abs(exact) >= kLeast || std::isnan(exact)) [[likely]]
        return float(exact);
    const double scaled = double(float(exact * 0x1p64)) * 0x1p-64;
    return std::abs(scaled) < kLeast ? std::copysign(0.0f, float(exact)) : float(scaled);
}

inline float multiply(float a, float b) { return rounded(double(a) * double(b)); }
inline float divide(float a, float b) { return rounded(double(a) / double(b)); }
inline float add(float a, float b) { return float_of(bits_of(a + b)); }  // a subnormal sum is exact

inline int32_t saturated(int64_t x) {
    if (x > std::numeric_limits<int32_t>::max()) return std::numeric_limits<int32_t>::max();
    return x < std::numeric_limits<int32_t>::min() ? std::numeric_limits<int32_t>::min() : int32_t(x);
}

// Half to even, saturating; NaN gives 0.
inline int32_t to_integer(float f) {
    if (std::isnan(f)) return 0;
    if (f >= 0x1p31f) return std::numeric_limits<int32_t>::max();
    if (f <= -0x1p31f) return std::numeric_limits<int32_t>::min();
    return int32_t(std::nearbyint(f));
}

}  // namespace tessera::accelerator
