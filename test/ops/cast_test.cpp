#include "graph/ops/common.h"
#include "ops/run_op.h"

namespace tessera::test::cast_test {
namespace {

Tensor cast_to(DType to, const Tensor& x, AttrMap attrs = {}) {
    attrs["to"] = dtype_attr_value(to);
    return run_op("cast", {x}, attrs)[0];
}
std::string cast_error(DType to, const Tensor& x) { return error_of("cast", {x}, {{"to", dtype_attr_value(to)}}); }

TEST(Cast, NumbersTruncateAndWrap) {
    expect_tensor(cast_to(DType::i32, floats({4}, {1.9f, -1.9f, 0, 2})), {4}, {1, -1, 0, 2});
    expect_tensor(cast_to(DType::i8, typed(DType::i16, {2}, {200, -200})), {2}, {-56, 56});
    expect_tensor(cast_to(DType::boolean, floats({3}, {0, 0.25f, float(kNan)})), {3}, {0, 1, 1});
    expect_tensor(cast_to(DType::f16, floats({2}, {1e6f, -1e6f})), {2}, {kInf, -kInf});
    expect_tensor(cast_to(DType::i4, floats({3}, {-8, 7, -1})), {3}, {-8, 7, -1});
}

TEST(Cast, EightBitFloatsSaturateUnlessTold) {
    Tensor x = floats({3}, {1e6f, float(kInf), float(kNan)});
    expect_tensor(cast_to(DType::f8e4m3fn, x), {3}, {448, 448, kNan});
    expect_tensor(cast_to(DType::f8e4m3fn, x, {{"saturate", Attr(int64_t{0})}}), {3}, {kNan, kNan, kNan});
    expect_tensor(cast_to(DType::f8e5m2, x, {{"saturate", Attr(int64_t{0})}}), {3}, {kInf, kInf, kNan});
    expect_tensor(cast_to(DType::f4e2m1, floats({3}, {100, -100, 0.3f})), {3}, {6, -6, 0.5});
}

TEST(Cast, PowersOfTwoRoundAsAsked) {
    Tensor x = floats({5}, {1, 1.25f, 1.5f, 3.9f, 0});
    double low = std::ldexp(1.0, -127);
    expect_tensor(cast_to(DType::f8e8m0, x), {5}, {1, 2, 2, 4, low});
    expect_tensor(cast_to(DType::f8e8m0, x, {{"round_mode", Attr(std::string("down"))}}), {5}, {1, 1, 1, 2, low});
    expect_tensor(cast_to(DType::f8e8m0, x, {{"round_mode", Attr(std::string("nearest"))}}), {5}, {1, 1, 2, 4, low});
    expect_tensor(cast_to(DType::f8e8m0, typed(DType::f64, {2}, {1e300, kInf}), {{"saturate", Attr(int64_t{0})}}), {2},
                  {kNan, kNan});
    EXPECT_EQ(
        error_of("cast", {x}, {{"to", dtype_attr_value(DType::f8e8m0)}, {"round_mode", Attr(std::string("left"))}}),
        "E0212");
}

TEST(Cast, TextBothWays) {
    Tensor s = cast_to(DType::string, floats({6}, {1, -0.1f, 1e20f, float(kInf), -float(kInf), float(kNan)}));
    EXPECT_EQ(s.as_strings(),
              (std::vector<std::string>{"1.0", "-0.1", "100000002004087734272.0", "INF", "-INF", "NaN"}));
    EXPECT_EQ(cast_to(DType::string, longs({1}, {-5})).as_strings()[0], "-5");
    Tensor text = Tensor::strings({8}, {"1.5", "1E8", "-inf", "+INF", "nan", "+3", "1e-400", "-1e400"});
    expect_tensor(cast_to(DType::f32, text), {8}, {1.5, 1e8, -kInf, kInf, kNan, 3, 0, -kInf});
    expect_tensor(cast_to(DType::i64, Tensor::strings({3}, {"9007199254740993", "100.5", "-7"})), {3},
                  {9007199254740993.0, 100, -7}, 0);
    EXPECT_EQ(cast_to(DType::u64, Tensor::strings({1}, {"18446744073709551615"})).int_at(0), -1);
    EXPECT_EQ(cast_to(DType::string, Tensor::strings({1}, {"x"})).as_strings()[0], "x");
    EXPECT_EQ(cast_error(DType::f32, Tensor::strings({1}, {"one"})), "E0407");
    EXPECT_EQ(cast_error(DType::i32, Tensor::strings({1}, {""})), "E0407");
}

TEST(Cast, UnknownTypes) {
    Tensor x = floats({1}, {1});
    EXPECT_EQ(error_of("cast", {x}, {{"to", Attr(int64_t{99})}}), "E0213");
    EXPECT_EQ(error_of("cast", {x}, {{"to", Attr(int64_t{1} << 40)}}), "E0213");
    EXPECT_EQ(cast_error(DType::c64, x), "E0213");
    EXPECT_EQ(error_of("cast", {x}), "E0206");
}

TEST(Cast, LikeAnother) {
    Tensor r = run_op("cast_like", {floats({2}, {1.5f, -2.5f}), bytes({0}, {})})[0];
    EXPECT_EQ(r.dtype(), DType::u8);
    expect_tensor(r, {2}, {1, 254});
}

TEST(BitCast, SameBits) {
    auto as = [](DType to, const Tensor& x) { return run_op("bit_cast", {x}, {{"to", dtype_attr_value(to)}})[0]; };
    EXPECT_EQ(as(DType::i32, floats({1}, {1})).int_at(0), 0x3F800000);
    expect_tensor(as(DType::f32, typed(DType::i32, {1}, {0x40000000})), {1}, {2});
    expect_tensor(as(DType::i4, typed(DType::u4, {3}, {7, 8, 15})), {3}, {7, -8, -1});
    expect_tensor(as(DType::u4, typed(DType::i4, {2}, {-1, 7})), {2}, {15, 7});
    expect_tensor(as(DType::f4e2m1, typed(DType::u4, {2}, {7, 15})), {2}, {6, -6});
    expect_tensor(as(DType::u8, Tensor::of<bool>({2}, {true, false})), {2}, {1, 0});
    EXPECT_EQ(error_of("bit_cast", {floats({1}, {1})}, {{"to", dtype_attr_value(DType::i64)}}), "E0212");
}

}  // namespace
}  // namespace tessera::test::cast_test
