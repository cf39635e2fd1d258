#include "base/dtype.h"

namespace tessera {
namespace {

struct Row {
    std::string_view name;
    int bits;
    size_t bytes;
};
constexpr Row kRows[kDTypeCount] = {
    {"f64", 64, 8},    {"f32", 32, 4},   {"f16", 16, 2},        {"bf16", 16, 2},  {"f8e4m3fn", 8, 1},
    {"f8e4m3fnuz", 8, 1}, {"f8e5m2", 8, 1}, {"f8e5m2fnuz", 8, 1}, {"f8e8m0", 8, 1}, {"f4e2m1", 4, 1},
    {"i64", 64, 8},    {"i32", 32, 4},   {"i16", 16, 2},        {"i8", 8, 1},     {"i4", 4, 1},       {"i2", 2, 1},
    {"u64", 64, 8},    {"u32", 32, 4},   {"u16", 16, 2},        {"u8", 8, 1},     {"u4", 4, 1},       {"u2", 2, 1},
    {"bool", 1, 1},    {"str", 0, 0},    {"c64", 64, 8},        {"c128", 128, 16},
};

}  // namespace

std::string_view dtype_name(DType t) { return kRows[static_cast<int>(t)].name; }
int dtype_bits(DType t) { return kRows[static_cast<int>(t)].bits; }
size_t dtype_bytes(DType t) { return kRows[static_cast<int>(t)].bytes; }

std::optional<DType> dtype_from_name(std::string_view name) {
    for (int i = 0; i < kDTypeCount; ++i)
        if (kRows[i].name == name) return static_cast<DType>(i);
    return std::nullopt;
}

}  // namespace tessera
