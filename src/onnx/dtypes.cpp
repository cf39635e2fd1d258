#include "onnx/dtypes.h"

#include <fmt/format.h>

#include "base/check.h"

namespace tessera::onnx {
namespace {

struct Row {
    int32_t number;
    const char* name;
    std::optional<DType> dtype;
};
constexpr Row kRows[] = {
    {0, "UNDEFINED", std::nullopt},
    {1, "FLOAT", DType::f32},
    {2, "UINT8", DType::u8},
    {3, "INT8", DType::i8},
    {4, "UINT16", DType::u16},
    {5, "INT16", DType::i16},
    {6, "INT32", DType::i32},
    {7, "INT64", DType::i64},
    {8, "STRING", DType::string},
    {9, "BOOL", DType::boolean},
    {10, "FLOAT16", DType::f16},
    {11, "DOUBLE", DType::f64},
    {12, "UINT32", DType::u32},
    {13, "UINT64", DType::u64},
    {14, "COMPLEX64", DType::c64},
    {15, "COMPLEX128", DType::c128},
    {16, "BFLOAT16", DType::bf16},
    {17, "FLOAT8E4M3FN", DType::f8e4m3fn},
    {18, "FLOAT8E4M3FNUZ", DType::f8e4m3fnuz},
    {19, "FLOAT8E5M2", DType::f8e5m2},
    {20, "FLOAT8E5M2FNUZ", DType::f8e5m2fnuz},
    {21, "UINT4", DType::u4},
    {22, "INT4", DType::i4},
    {23, "FLOAT4E2M1", DType::f4e2m1},
    {24, "FLOAT8E8M0", DType::f8e8m0},
    {25, "UINT2", DType::u2},
    {26, "INT2", DType::i2},
    {27, "FLOAT6E2M3", std::nullopt},
    {28, "FLOAT6E3M2", std::nullopt},
};

}  // namespace

std::optional<DType> dtype_from_onnx(int32_t data_type) {
    for (const Row& row : kRows)
        if (row.number == data_type) return row.dtype;
    return std::nullopt;
}

int32_t dtype_to_onnx(DType t) {
    for (const Row& row : kRows)
        if (row.dtype == t) return row.number;
    CHECK(false, "{} has no ONNX number", dtype_name(t));
    return 0;
}

std::string data_type_name(int32_t data_type) {
    for (const Row& row : kRows)
        if (row.number == data_type) return row.dtype ? row.name : fmt::format("{} ({})", row.name, row.number);
    return fmt::format("unknown type {}", data_type);
}

}  // namespace tessera::onnx
