// Element types, which the public API shares, and sets of them.
#pragma once

#include <initializer_list>

#include "tessera/dtype.h"

namespace tessera {

// A set of element types.
class DTypes {
   public:
    constexpr DTypes() = default;
    constexpr DTypes(DType t) : bits_(1u << static_cast<int>(t)) {}
    constexpr DTypes(std::initializer_list<DType> ts) {
        for (DType t : ts) bits_ |= 1u << static_cast<int>(t);
    }
    constexpr bool has(DType t) const { return bits_ >> static_cast<int>(t) & 1; }
    constexpr DTypes operator|(DTypes o) const { return DTypes(bits_ | o.bits_); }
    constexpr DTypes without(DTypes o) const { return DTypes(bits_ & ~o.bits_); }
    constexpr bool operator==(const DTypes&) const = default;

   private:
    explicit constexpr DTypes(uint32_t bits) : bits_(bits) {}
    uint32_t bits_ = 0;
};

inline constexpr DTypes kWideFloats{DType::f64, DType::f32, DType::f16, DType::bf16};
inline constexpr DTypes kNarrowFloats{DType::f8e4m3fn,   DType::f8e4m3fnuz, DType::f8e5m2,
                                      DType::f8e5m2fnuz, DType::f8e8m0,     DType::f4e2m1};
inline constexpr DTypes kFloats = kWideFloats | kNarrowFloats;
inline constexpr DTypes kSignedInts{DType::i64, DType::i32, DType::i16, DType::i8, DType::i4, DType::i2};
inline constexpr DTypes kUnsignedInts{DType::u64, DType::u32, DType::u16, DType::u8, DType::u4, DType::u2};
inline constexpr DTypes kInts = kSignedInts | kUnsignedInts;
inline constexpr DTypes kNumbers = kFloats | kInts;
inline constexpr DTypes kComplex{DType::c64, DType::c128};
inline constexpr DTypes kAllTypes = kNumbers | kComplex | DTypes{DType::boolean, DType::string};
inline constexpr DTypes kBodyTypes = kNumbers | DTypes{DType::boolean};  // what a body can compute with

}  // namespace tessera
