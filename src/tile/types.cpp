#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tile/program.h"

namespace tessera::tile {
namespace {

int class_of(DType t) { return t == DType::boolean ? 0 : is_float(t) ? 2 : 1; }

DType wider_int(DType a, DType b) {
    if (a == DType::boolean) return b;
    if (b == DType::boolean) return a;
    const int bits_a = dtype_bits(a), bits_b = dtype_bits(b);
    if (is_signed_int(a) == is_signed_int(b)) return bits_a > bits_b ? a : b;
    const DType of_unsigned = is_unsigned_int(a) ? a : b, of_signed = is_unsigned_int(a) ? b : a;
    return dtype_bits(of_unsigned) >= dtype_bits(of_signed) ? of_unsigned : of_signed;
}

}  // namespace

std::string Type::to_string() const {
    std::string text(dtype_name(dtype));
    if (then) text = fmt::format("ptr<{}>", dtype_name(*then));
    if (pointer) text = fmt::format("ptr<{}>", text);
    if (!shape.empty()) text += fmt::format("[{}]", fmt::join(shape, ", "));
    return text;
}

std::string Place::to_string() const { return fmt::format("file {}, line {}, column {}", file, line, column); }

int64_t element_count(const Type& type) {
    int64_t count = 1;
    for (int64_t size : type.shape) count *= size;
    return count;
}

Result<DType> common_type(DType a, bool a_literal, DType b, bool b_literal, bool divided) {
    if (a_literal != b_literal) {
        const DType literal = a_literal ? a : b, other = a_literal ? b : a;
        if (class_of(literal) <= class_of(other))
            return divided && (other == DType::f16 || other == DType::bf16) ? DType::f32 : other;
    }
    const auto either = [&](DType t) { return a == t || b == t; };
    if (either(DType::f64)) return DType::f64;
    if (either(DType::f32)) return DType::f32;
    if (either(DType::f16)) return divided ? DType::f32 : DType::f16;
    if (either(DType::bf16)) return a == b && !divided ? DType::bf16 : DType::f32;
    if (is_float(a) && is_float(b)) return a == b ? a : DType::f16;
    if (is_float(a) || is_float(b))
        return Error(Code::E0208, "{} and {} have no common type", dtype_name(a), dtype_name(b));
    if (divided && is_signed_int(a) != is_signed_int(b))
        return Error(Code::E0208,
                     "Cannot use {} and {} in a division because they have different signedness: one has a sign, the "
                     "other has none",
                     dtype_name(a), dtype_name(b))
            .hint("cast one of them first");
    return wider_int(a, b);
}

DType literal_type(const Operand& literal) {
    if (std::holds_alternative<bool>(literal)) return DType::boolean;
    if (const auto* number = std::get_if<int64_t>(&literal)) {
        if (*number >= std::numeric_limits<int32_t>::min() && *number <= std::numeric_limits<int32_t>::max())
            return DType::i32;
        return *number >= 0 && *number <= std::numeric_limits<uint32_t>::max() ? DType::u32 : DType::i64;
    }
    const double real = std::abs(std::get<double>(literal));
    const bool narrow = real == 0 || !std::isfinite(real) ||
                        (real <= static_cast<double>(std::numeric_limits<float>::max()) &&
                         real >= static_cast<double>(std::numeric_limits<float>::min()));
    return narrow ? DType::f32 : DType::f64;
}

Result<std::vector<int64_t>> common_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    const size_t rank = std::max(a.size(), b.size());
    std::vector<int64_t> shape(rank);
    for (size_t i = 0; i < rank; ++i) {
        const int64_t size_a = i + a.size() < rank ? 1 : a[i + a.size() - rank];
        const int64_t size_b = i + b.size() < rank ? 1 : b[i + b.size() - rank];
        if (size_a != size_b && size_a != 1 && size_b != 1)
            return Error(
                Code::E0210,
                "Cannot make_shape_compatible: incompatible dimensions at index {}: {} and {}; shapes [{}] and "
                "[{}] do not broadcast",
                i, size_a, size_b, fmt::join(a, ", "), fmt::join(b, ", "));
        shape[i] = size_a == 1 ? size_b : size_a;
    }
    return shape;
}

}  // namespace tessera::tile
