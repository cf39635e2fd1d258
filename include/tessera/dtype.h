// The element types and their properties. Sub-byte types take one byte per element in memory and are packed in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class DType : uint8_t {
    f64, f32, f16, bf16, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1,
    i64, i32, i16, i8, i4, i2,
    u64, u32, u16, u8, u4, u2,
    boolean, string, c64, c128,
};
inline constexpr int kDTypeCount = 26;

std::string_view dtype_name(DType t);                      // "f32", "bool", "str", ...
std::optional<DType> dtype_from_name(std::string_view name);
int dtype_bits(DType t);                                   // width of one element's value: 4 for i4, 1 for bool
size_t dtype_bytes(DType t);                               // width in memory: 1 for i4; 0 for string

constexpr bool is_float(DType t) { return t <= DType::f4e2m1; }
constexpr bool is_signed_int(DType t) { return t >= DType::i64 && t <= DType::i2; }
constexpr bool is_unsigned_int(DType t) { return t >= DType::u64 && t <= DType::u2; }
constexpr bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }
constexpr bool is_complex(DType t) { return t == DType::c64 || t == DType::c128; }

}  // namespace tessera
