#include "base/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera::numeric_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

const DType kSmallFloats[] = {DType::f16,    DType::bf16,       DType::f8e4m3fn, DType::f8e4m3fnuz,
                              DType::f8e5m2, DType::f8e5m2fnuz, DType::f8e8m0,   DType::f4e2m1};

uint64_t patterns(DType t) { return 1ull << dtype_bits(t); }

TEST(numeric, every_bit_pattern_round_trips) {
    for (DType t : kSmallFloats)
        for (uint64_t bits = 0; bits < patterns(t); ++bits) {
            double value = float_from_bits(t, bits);
            uint64_t back = float_to_bits(t, value);
            if (std::isnan(value))
                EXPECT_TRUE(std::isnan(float_from_bits(t, back))) << dtype_name(t) << " " << bits;
            else
                EXPECT_EQ(back, bits) << dtype_name(t) << " " << value;
        }
}

// Between two neighbours the nearer wins, and the tie goes to the even one, from double directly.
TEST(numeric, rounds_to_nearest_even) {
    for (DType t : kSmallFloats) {
        if (t == DType::f8e8m0) continue;
        uint64_t largest = float_to_bits(t, float_max(t));
        for (uint64_t bits = 0; bits < largest; ++bits) {
            double low = float_from_bits(t, bits), high = float_from_bits(t, bits + 1);
            double middle = (low + high) / 2;
            EXPECT_EQ(float_to_bits(t, std::nextafter(middle, -1)), bits) << dtype_name(t);
            EXPECT_EQ(float_to_bits(t, middle), bits & 1 ? bits + 1 : bits) << dtype_name(t);
            EXPECT_EQ(float_to_bits(t, std::nextafter(middle, kInf)), bits + 1) << dtype_name(t);
        }
    }
}

TEST(numeric, known_values) {
    EXPECT_EQ(float_max(DType::f16), 65504);
    EXPECT_EQ(float_max(DType::bf16), 0x1.fep127);
    EXPECT_EQ(float_max(DType::f8e4m3fn), 448);
    EXPECT_EQ(float_max(DType::f8e4m3fnuz), 240);
    EXPECT_EQ(float_max(DType::f8e5m2), 57344);
    EXPECT_EQ(float_max(DType::f8e5m2fnuz), 57344);
    EXPECT_EQ(float_max(DType::f8e8m0), 0x1p127);
    EXPECT_EQ(float_max(DType::f4e2m1), 6);
    EXPECT_EQ(float_max(DType::f32), std::numeric_limits<float>::max());
    EXPECT_EQ(float_to_bits(DType::f16, 1.0), 0x3c00u);
    EXPECT_EQ(float_to_bits(DType::f16, -2.0), 0xc000u);
    EXPECT_EQ(float_to_bits(DType::f16, 0x1p-24), 1u);
    EXPECT_EQ(float_to_bits(DType::f16, 0x1p-25), 0u);
    EXPECT_EQ(float_to_bits(DType::bf16, 3.140625), 0x4049u);
    EXPECT_EQ(float_from_bits(DType::f4e2m1, 1), 0.5);
    EXPECT_EQ(float_from_bits(DType::f8e8m0, 127), 1.0);
    EXPECT_EQ(float_to_bits(DType::f8e8m0, 1.5), 128u);
    EXPECT_EQ(float_to_bits(DType::f8e8m0, 1.4999), 127u);
}

// 1 + 2^-11 + 2^-40 rounds up to the next f16, but through f32 it would first become the tie and round down.
TEST(numeric, rounds_once) { EXPECT_EQ(float_to_bits(DType::f16, 1 + 0x1p-11 + 0x1p-40), 0x3c01u); }

TEST(numeric, overflow) {
    struct Row {
        DType t;
        double value;
        uint64_t special, saturated;
    };
    const Row rows[] = {
        {DType::f8e4m3fn, 464, 0x7e, 0x7e},
        {DType::f8e4m3fn, 465, 0x7f, 0x7e},
        {DType::f8e4m3fn, kInf, 0x7f, 0x7e},
        {DType::f8e4m3fn, -kInf, 0xff, 0xfe},
        {DType::f8e4m3fnuz, 247.9, 0x7f, 0x7f},
        {DType::f8e4m3fnuz, 248, 0x80, 0x7f},
        {DType::f8e4m3fnuz, -kInf, 0x80, 0xff},
        {DType::f8e5m2, 61439, 0x7b, 0x7b},
        {DType::f8e5m2, 61440, 0x7c, 0x7b},
        {DType::f8e5m2, -kInf, 0xfc, 0xfb},
        {DType::f8e5m2fnuz, 1e9, 0x80, 0x7f},
        {DType::f4e2m1, 1e9, 7, 7},
        {DType::f4e2m1, -kInf, 15, 15},
        {DType::f16, 65520, 0x7c00, 0x7bff},
        {DType::f16, 65519.99, 0x7bff, 0x7bff},
        {DType::f8e8m0, 0, 255, 0},
        {DType::f8e8m0, kInf, 255, 254},
        {DType::f8e8m0, -1, 255, 255},
        {DType::f32, 1e39, 0x7f800000, 0x7f7fffff},
        {DType::f8e4m3fnuz, -0.0, 0, 0},
        {DType::f8e4m3fn, -0.0, 0x80, 0x80},
        {DType::f8e5m2fnuz, -1e-30, 0, 0},
    };
    for (const Row& r : rows) {
        EXPECT_EQ(float_to_bits(r.t, r.value, Overflow::Special), r.special) << dtype_name(r.t) << " " << r.value;
        EXPECT_EQ(float_to_bits(r.t, r.value, Overflow::Saturate), r.saturated) << dtype_name(r.t) << " " << r.value;
    }
}

TEST(numeric, ints) {
    EXPECT_EQ(int_min(DType::i4), -8);
    EXPECT_EQ(int_max(DType::i4), 7);
    EXPECT_EQ(int_max(DType::u2), 3);
    EXPECT_EQ(int_min(DType::u8), 0);
    EXPECT_EQ(int_max(DType::u64), -1);
    EXPECT_EQ(int_min(DType::i64), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(int_max(DType::boolean), 1);
    EXPECT_EQ(int_wrap(DType::i8, 200), -56);
    EXPECT_EQ(int_wrap(DType::u8, -1), 255);
    EXPECT_EQ(int_wrap(DType::i4, 8), -8);
    EXPECT_EQ(int_wrap(DType::u4, -9), 7);
    EXPECT_EQ(int_wrap(DType::boolean, 256), 1);
    EXPECT_EQ(int_wrap(DType::i64, -5), -5);
}

TEST(numeric, float_to_int_truncates_and_wraps) {
    int64_t buffer = 0;
    auto through = [&](DType t, double v) {
        write_real(t, &buffer, 0, v);
        return read_int(t, &buffer, 0);
    };
    EXPECT_EQ(through(DType::i32, -1.9), -1);
    EXPECT_EQ(through(DType::i8, 200.7), -56);
    EXPECT_EQ(through(DType::u8, -1.0), 255);
    EXPECT_EQ(through(DType::i4, -9.0), 7);
    EXPECT_EQ(through(DType::u2, -3.0), 1);
    EXPECT_EQ(through(DType::i64, 1e300), std::numeric_limits<int64_t>::max());
    EXPECT_EQ(through(DType::i64, kNan), 0);
    EXPECT_EQ(through(DType::u64, 0x1p63), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(through(DType::boolean, 0.25), 1);
    EXPECT_EQ(through(DType::boolean, kNan), 1);
    EXPECT_EQ(through(DType::boolean, -0.0), 0);
}

TEST(numeric, u64_is_its_bits) {
    uint64_t big = 0xffffffffffffff00ull;
    EXPECT_EQ(read_int(DType::u64, &big, 0), -256);
    EXPECT_EQ(read_real(DType::u64, &big, 0), static_cast<double>(big));
}

TEST(numeric, int_to_narrow_float_rounds_once) {
    // 2^62 + 2^54 + 1 lies just above a tie of bf16; through a double it would become the tie.
    int64_t v = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
    uint16_t out = 0;
    write_int(DType::bf16, &out, 0, v);
    EXPECT_EQ(out, float_to_bits(DType::bf16, 0x1p62) + 1);
}

TEST(numeric, runs_agree_with_single_elements) {
    for (int k = 0; k < kDTypeCount; ++k) {
        DType t = static_cast<DType>(k);
        if (!kBodyTypes.has(t)) continue;
        std::vector<uint64_t> data(64), copy(64);  // 30 + 8 * 2 elements of the widest type, and more
        for (size_t i = 0; i < data.size(); ++i) data[i] = 0x9e3779b97f4a7c15ull * (i + 1);
        if (t == DType::boolean)
            for (uint64_t& d : data) d &= 0x0101010101010101ull;
        for (int64_t stride : {1, 2, -3, 0}) {
            std::vector<double> reals(9);
            std::vector<int64_t> ints(9);
            read_reals(t, data.data(), 30, stride, 9, reals.data());
            read_ints(t, data.data(), 30, stride, 9, ints.data());
            for (int64_t i = 0; i < 9; ++i) {
                double want = read_real(t, data.data(), 30 + i * stride);
                EXPECT_TRUE(reals[i] == want || (std::isnan(want) && std::isnan(reals[i]))) << dtype_name(t);
                EXPECT_EQ(ints[i], read_int(t, data.data(), 30 + i * stride)) << dtype_name(t);
            }
            if (stride == 0) continue;
            if (is_float(t))
                write_reals(t, copy.data(), 30, stride, 9, reals.data());
            else
                write_ints(t, copy.data(), 30, stride, 9, ints.data());
            for (int64_t i = 0; i < 9; ++i) {
                double want = read_real(t, data.data(), 30 + i * stride),
                       got = read_real(t, copy.data(), 30 + i * stride);
                EXPECT_TRUE(got == want || (std::isnan(want) && std::isnan(got))) << dtype_name(t);
            }
        }
    }
}

}  // namespace
}  // namespace tessera::numeric_test
