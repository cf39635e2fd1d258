#include "base/numeric.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"

namespace tessera {
namespace {

enum class Specials : uint8_t {
    Ieee,       // the largest exponent holds infinity and NaN
    FiniteNan,  // no infinity; all ones below the sign is NaN
    Uz,         // no infinity, no negative zero; the bits of negative zero are NaN
    None,       // neither infinity nor NaN
};

struct Format {
    int exponent, mantissa, bias;
    Specials specials;
    constexpr int bits() const { return 1 + exponent + mantissa; }
    constexpr uint64_t sign() const { return 1ull << (exponent + mantissa); }
    constexpr uint64_t infinity() const { return ((1ull << exponent) - 1) << mantissa; }  // Ieee
    constexpr uint64_t nan() const {
        if (specials == Specials::Ieee) return infinity() | 1ull << (mantissa - 1);
        return specials == Specials::FiniteNan ? sign() - 1 : sign();  // None: negative zero stands in
    }
    constexpr uint64_t largest() const {  // finite
        if (specials == Specials::Ieee) return infinity() - 1;
        return specials == Specials::FiniteNan ? sign() - 2 : sign() - 1;
    }
};

template <DType t>
constexpr Format format_of() {
    if constexpr (t == DType::f16) return {5, 10, 15, Specials::Ieee};
    if constexpr (t == DType::bf16) return {8, 7, 127, Specials::Ieee};
    if constexpr (t == DType::f8e4m3fn) return {4, 3, 7, Specials::FiniteNan};
    if constexpr (t == DType::f8e4m3fnuz) return {4, 3, 8, Specials::Uz};
    if constexpr (t == DType::f8e5m2) return {5, 2, 15, Specials::Ieee};
    if constexpr (t == DType::f8e5m2fnuz) return {5, 2, 16, Specials::Uz};
    return {2, 1, 1, Specials::None};  // f4e2m1
}

constexpr uint64_t kSign64 = 1ull << 63;

template <DType t>
double decode(uint64_t bits) {
    constexpr Format f = format_of<t>();
    const uint64_t magnitude = bits & (f.sign() - 1);
    const uint64_t sign = (bits & f.sign()) ? kSign64 : 0;
    if constexpr (f.specials == Specials::Uz)
        if (sign && !magnitude) return std::numeric_limits<double>::quiet_NaN();
    if constexpr (f.specials == Specials::FiniteNan)
        if (magnitude == f.nan()) return std::bit_cast<double>(sign | 0x7ff8ull << 48);
    if constexpr (f.specials == Specials::Ieee)
        if (magnitude >= f.infinity())
            return std::bit_cast<double>(sign | 0x7ffull << 52 |
                                         (magnitude & ((1ull << f.mantissa) - 1)) << (52 - f.mantissa));
    if (magnitude >> f.mantissa == 0) {
        // Subnormal: magnitude * 2^(1 - bias - mantissa), exact.
        const double unit = std::bit_cast<double>(uint64_t(1023 + 1 - f.bias - f.mantissa) << 52);
        return std::bit_cast<double>(sign | std::bit_cast<uint64_t>(static_cast<double>(magnitude) * unit));
    }
    return std::bit_cast<double>(sign | ((magnitude << (52 - f.mantissa)) + (uint64_t(1023 - f.bias) << 52)));
}

template <DType t>
uint64_t encode(double value, Overflow overflow) {
    constexpr Format f = format_of<t>();
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    const uint64_t sign = bits & kSign64 ? f.sign() : 0;
    const uint64_t magnitude = bits & ~kSign64;
    const int exponent = static_cast<int>(magnitude >> 52) - 1023;
    if (magnitude > 0x7ffull << 52) {
        constexpr bool unsigned_nan = f.specials == Specials::Uz || f.specials == Specials::None;
        return unsigned_nan ? f.nan() : sign | f.nan();
    }
    uint64_t result = f.infinity() + f.sign();  // what a value too large for the exponent counts as
    if (exponent <= f.bias + 1) {
        constexpr int lowest = 1 - f.bias;  // the smallest exponent of a normal number
        const int shift = 52 - f.mantissa + (exponent < lowest ? lowest - exponent : 0);
        const uint64_t significand = (magnitude & ((1ull << 52) - 1)) | 1ull << 52;
        uint64_t rounded = 0;
        if (shift <= 54) {
            rounded = significand >> shift;
            const uint64_t rest = significand & ((1ull << shift) - 1), half = 1ull << (shift - 1);
            if (rest > half || (rest == half && (rounded & 1))) ++rounded;
        }
        const int biased = (exponent < lowest ? lowest : exponent) + f.bias;
        result = (static_cast<uint64_t>(biased) << f.mantissa) + rounded - (1ull << f.mantissa);  // a carry moves up
    }
    if (result > f.largest()) {
        if (overflow == Overflow::Saturate || f.specials == Specials::None) return sign | f.largest();
        if (f.specials == Specials::Ieee) return sign | f.infinity();
        return f.specials == Specials::Uz ? f.nan() : sign | f.nan();
    }
    if (f.specials == Specials::Uz && result == 0) return 0;
    return sign | result;
}

// Powers of two from 2^-127 to 2^127; 255 is NaN. There is no sign and no zero; a tie rounds up.
double decode_e8m0(uint64_t bits) {
    bits &= 255;
    if (bits == 255) return std::numeric_limits<double>::quiet_NaN();
    return std::bit_cast<double>((bits + 1023 - 127) << 52);
}

uint64_t encode_e8m0(double value, Overflow overflow) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    if (std::isnan(value) || value < 0) return 255;
    const int64_t exponent = static_cast<int64_t>((bits + (1ull << 51)) >> 52 & 0x7ff) - 1023 + 127;
    if (exponent >= 0 && exponent <= 254) return static_cast<uint64_t>(exponent);
    if (overflow == Overflow::Special) return 255;
    return exponent < 0 ? 0 : 254;
}

float encode_f32(double value, Overflow overflow) {
    const float rounded = static_cast<float>(value);
    if (overflow == Overflow::Saturate && std::isinf(rounded))
        return std::copysign(std::numeric_limits<float>::max(), rounded);
    return rounded;
}

double encode_f64(double value, Overflow overflow) {
    if (overflow == Overflow::Saturate && std::isinf(value))
        return std::copysign(std::numeric_limits<double>::max(), value);
    return value;
}

// Converts toward an odd last bit, so that rounding the result once more to a narrower type rounds v only once.
double sticky_real(int64_t v) {
    const double d = static_cast<double>(v);
    const uint64_t magnitude = v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
    if (magnitude >> 53 == 0) return d;
    const int shift = 64 - std::countl_zero(magnitude) - 53;
    uint64_t kept = magnitude >> shift;
    if (kept << shift != magnitude) kept |= 1;
    const double out = std::ldexp(static_cast<double>(kept), shift);
    return v < 0 ? -out : out;
}

constexpr double kTwo63 = 9223372036854775808.0;

int64_t truncated(double v) {
    if (std::isnan(v)) return 0;
    if (v >= kTwo63) return std::numeric_limits<int64_t>::max();
    if (v < -kTwo63) return std::numeric_limits<int64_t>::min();
    return static_cast<int64_t>(v);
}

int64_t truncated_u64(double v) {
    if (!(v >= kTwo63)) return truncated(v);
    if (v >= 2 * kTwo63) return -1;
    return static_cast<int64_t>(static_cast<uint64_t>(v));
}

template <int bits>
int8_t sign_extended(int64_t v) {
    return static_cast<int8_t>(static_cast<int8_t>(static_cast<uint8_t>(v) << (8 - bits)) >> (8 - bits));
}

// How elements of each type are stored, read and written. `Stored` is one element in memory; real() and integer() read,
// from_real() and from_integer() write.
template <typename S, bool as_float>
struct Plain {
    using Stored = S;
    static double real(S s) { return static_cast<double>(s); }
    static int64_t integer(S s) {
        if constexpr (as_float) return truncated(s);
        return static_cast<int64_t>(s);
    }
    static S from_real(double v) {
        if constexpr (as_float) return static_cast<S>(v);
        if constexpr (std::is_same_v<S, uint64_t>) return static_cast<S>(truncated_u64(v));
        return static_cast<S>(truncated(v));
    }
    static S from_integer(int64_t v) { return static_cast<S>(v); }
};

template <DType t>
struct Small {  // f16, bf16, f8, f4
    using Stored = std::conditional_t<t == DType::f16 || t == DType::bf16, uint16_t, uint8_t>;
    static double real(Stored s) {
        if constexpr (sizeof(Stored) == 1) {
            static const auto table = [] {
                struct {
                    double at[256];
                } made;
                for (int i = 0; i < 256; ++i) made.at[i] = t == DType::f8e8m0 ? decode_e8m0(i) : decode<t>(i);
                return made;
            }();
            return table.at[s];
        } else {
            return decode<t>(s);
        }
    }
    static int64_t integer(Stored s) { return truncated(real(s)); }
    static Stored from_real(double v) {
        if constexpr (t == DType::f8e8m0) return static_cast<Stored>(encode_e8m0(v, Overflow::Special));
        return static_cast<Stored>(encode<t>(v, Overflow::Special));
    }
    static Stored from_integer(int64_t v) { return from_real(sticky_real(v)); }
};

template <int bits, bool is_signed>
struct Nibble {  // i4, i2, u4, u2
    using Stored = std::conditional_t<is_signed, int8_t, uint8_t>;
    static int64_t integer(Stored s) {
        if constexpr (is_signed) return sign_extended<bits>(s);
        return s & ((1 << bits) - 1);
    }
    static double real(Stored s) { return static_cast<double>(integer(s)); }
    static Stored from_integer(int64_t v) { return static_cast<Stored>(integer(static_cast<Stored>(v))); }
    static Stored from_real(double v) { return from_integer(truncated(v)); }
};

struct Bool {
    using Stored = uint8_t;
    static int64_t integer(uint8_t s) { return s != 0; }
    static double real(uint8_t s) { return s != 0; }
    static uint8_t from_integer(int64_t v) { return v != 0; }
    static uint8_t from_real(double v) { return v != 0; }
};

// f(type) with the type's storage rules.
template <typename F>
auto with_storage(DType t, F&& f) {
    switch (t) {
        case DType::f64: return f(Plain<double, true>{});
        case DType::f32: return f(Plain<float, true>{});
        case DType::f16: return f(Small<DType::f16>{});
        case DType::bf16: return f(Small<DType::bf16>{});
        case DType::f8e4m3fn: return f(Small<DType::f8e4m3fn>{});
        case DType::f8e4m3fnuz: return f(Small<DType::f8e4m3fnuz>{});
        case DType::f8e5m2: return f(Small<DType::f8e5m2>{});
        case DType::f8e5m2fnuz: return f(Small<DType::f8e5m2fnuz>{});
        case DType::f8e8m0: return f(Small<DType::f8e8m0>{});
        case DType::f4e2m1: return f(Small<DType::f4e2m1>{});
        case DType::i64: return f(Plain<int64_t, false>{});
        case DType::i32: return f(Plain<int32_t, false>{});
        case DType::i16: return f(Plain<int16_t, false>{});
        case DType::i8: return f(Plain<int8_t, false>{});
        case DType::i4: return f(Nibble<4, true>{});
        case DType::i2: return f(Nibble<2, true>{});
        case DType::u64: return f(Plain<uint64_t, false>{});
        case DType::u32: return f(Plain<uint32_t, false>{});
        case DType::u16: return f(Plain<uint16_t, false>{});
        case DType::u8: return f(Plain<uint8_t, false>{});
        case DType::u4: return f(Nibble<4, false>{});
        case DType::u2: return f(Nibble<2, false>{});
        case DType::boolean: return f(Bool{});
        default: break;
    }
    check_failed(__FILE__, __LINE__, "a number", std::string(dtype_name(t)));
}

// out[i] = convert(data[start + i * stride]); the unit stride is its own loop so that it is vectorised.
template <typename In, typename Out, typename Convert>
void gather(const In* data, int64_t start, int64_t stride, int64_t count, Out* __restrict out, Convert convert) {
    const In* __restrict from = data + start;
    if (stride == 1) {
        for (int64_t i = 0; i < count; ++i) out[i] = convert(from[i]);
    } else {
        for (int64_t i = 0; i < count; ++i) out[i] = convert(from[i * stride]);
    }
}

template <typename In, typename Out, typename Convert>
void scatter(Out* data, int64_t start, int64_t stride, int64_t count, const In* __restrict in, Convert convert) {
    Out* __restrict to = data + start;
    if (stride == 1) {
        for (int64_t i = 0; i < count; ++i) to[i] = convert(in[i]);
    } else {
        for (int64_t i = 0; i < count; ++i) to[i * stride] = convert(in[i]);
    }
}

}  // namespace

double float_from_bits(DType t, uint64_t bits) {
    switch (t) {
        case DType::f64: return std::bit_cast<double>(bits);
        case DType::f32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
        case DType::f16: return decode<DType::f16>(bits);
        case DType::bf16: return decode<DType::bf16>(bits);
        case DType::f8e4m3fn: return decode<DType::f8e4m3fn>(bits);
        case DType::f8e4m3fnuz: return decode<DType::f8e4m3fnuz>(bits);
        case DType::f8e5m2: return decode<DType::f8e5m2>(bits);
        case DType::f8e5m2fnuz: return decode<DType::f8e5m2fnuz>(bits);
        case DType::f8e8m0: return decode_e8m0(bits);
        case DType::f4e2m1: return decode<DType::f4e2m1>(bits);
        default: break;
    }
    check_failed(__FILE__, __LINE__, "a float", std::string(dtype_name(t)));
}

uint64_t float_to_bits(DType t, double value, Overflow overflow) {
    switch (t) {
        case DType::f64: return std::bit_cast<uint64_t>(encode_f64(value, overflow));
        case DType::f32: return std::bit_cast<uint32_t>(encode_f32(value, overflow));
        case DType::f16: return encode<DType::f16>(value, overflow);
        case DType::bf16: return encode<DType::bf16>(value, overflow);
        case DType::f8e4m3fn: return encode<DType::f8e4m3fn>(value, overflow);
        case DType::f8e4m3fnuz: return encode<DType::f8e4m3fnuz>(value, overflow);
        case DType::f8e5m2: return encode<DType::f8e5m2>(value, overflow);
        case DType::f8e5m2fnuz: return encode<DType::f8e5m2fnuz>(value, overflow);
        case DType::f8e8m0: return encode_e8m0(value, overflow);
        case DType::f4e2m1: return encode<DType::f4e2m1>(value, overflow);
        default: break;
    }
    check_failed(__FILE__, __LINE__, "a float", std::string(dtype_name(t)));
}

double float_max(DType t) {
    return float_from_bits(t, float_to_bits(t, std::numeric_limits<double>::infinity(), Overflow::Saturate));
}

int64_t int_min(DType t) {
    if (!is_signed_int(t)) return 0;
    return static_cast<int64_t>(~0ull << (dtype_bits(t) - 1));
}

int64_t int_max(DType t) {
    if (is_signed_int(t)) return ~int_min(t);
    return dtype_bits(t) == 64 ? -1 : (int64_t{1} << dtype_bits(t)) - 1;
}

int64_t int_wrap(DType t, int64_t v) {
    if (t == DType::boolean) return v != 0;
    const int spare = 64 - dtype_bits(t);
    const uint64_t shifted = static_cast<uint64_t>(v) << spare;
    return is_signed_int(t) ? static_cast<int64_t>(shifted) >> spare : static_cast<int64_t>(shifted >> spare);
}

double read_real(DType t, const void* data, int64_t index) {
    return with_storage(t, [&](auto s) {
        using S = decltype(s);
        return S::real(static_cast<const typename S::Stored*>(data)[index]);
    });
}

int64_t read_int(DType t, const void* data, int64_t index) {
    return with_storage(t, [&](auto s) {
        using S = decltype(s);
        return S::integer(static_cast<const typename S::Stored*>(data)[index]);
    });
}

void write_real(DType t, void* data, int64_t index, double value) {
    with_storage(t, [&](auto s) {
        using S = decltype(s);
        static_cast<typename S::Stored*>(data)[index] = S::from_real(value);
    });
}

void write_int(DType t, void* data, int64_t index, int64_t value) {
    with_storage(t, [&](auto s) {
        using S = decltype(s);
        static_cast<typename S::Stored*>(data)[index] = S::from_integer(value);
    });
}

void read_reals(DType t, const void* data, int64_t start, int64_t stride, int64_t count, double* out) {
    with_storage(t, [&](auto s) {
        using S = decltype(s);
        gather(static_cast<const typename S::Stored*>(data), start, stride, count, out,
               [](auto v) { return S::real(v); });
    });
}

void read_ints(DType t, const void* data, int64_t start, int64_t stride, int64_t count, int64_t* out) {
    with_storage(t, [&](auto s) {
        using S = decltype(s);
        gather(static_cast<const typename S::Stored*>(data), start, stride, count, out,
               [](auto v) { return S::integer(v); });
    });
}

void write_reals(DType t, void* data, int64_t start, int64_t stride, int64_t count, const double* in) {
    with_storage(t, [&](auto s) {
        using S = decltype(s);
        scatter(static_cast<typename S::Stored*>(data), start, stride, count, in,
                [](auto v) { return S::from_real(v); });
    });
}

void write_ints(DType t, void* data, int64_t start, int64_t stride, int64_t count, const int64_t* in) {
    with_storage(t, [&](auto s) {
        using S = decltype(s);
        scatter(static_cast<typename S::Stored*>(data), start, stride, count, in,
                [](auto v) { return S::from_integer(v); });
    });
}

}  // namespace tessera
