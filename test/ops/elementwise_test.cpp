// arithmetic, math, compare, activation.
#include "ops/run_op.h"

namespace tessera::test::elementwise_test {
namespace {

Tensor y(std::string_view op, const Given& in, const AttrMap& attrs = {}) { return run_op(op, in, attrs)[0]; }
AttrMap real(const char* name, float v) { return {{name, Attr(v)}}; }

TEST(Arithmetic, BroadcastsBothWays) {
    expect_tensor(y("add", {floats({2, 1}, {1, 2}), floats({3}, {10, 20, 30})}), {2, 3}, {11, 21, 31, 12, 22, 32});
    expect_tensor(y("sub", {floats({}, {1}), floats({0, 3}, {})}), {0, 3}, {});
    EXPECT_EQ(error_of("mul", {floats({2}, {1, 2}), floats({3}, {1, 2, 3})}), "E0210");
    EXPECT_EQ(error_of("mul", {floats({1}, {1}), longs({1}, {1})}), "E0208");
}

TEST(Arithmetic, IntegersTruncateAndWrap) {
    expect_tensor(y("div", {longs({4}, {7, -7, 7, -7}), longs({4}, {2, 2, -2, 0})}), {4}, {3, -3, -3, 0});
    expect_tensor(y("add", {bytes({2}, {250, 1}), bytes({2}, {10, 1})}), {2}, {4, 2});
    expect_tensor(y("mod", {longs({4}, {7, -7, 7, -7}), longs({4}, {3, 3, -3, -3})}), {4}, {1, 2, -2, -1});
    expect_tensor(y("mod", {longs({4}, {7, -7, 7, -7}), longs({4}, {3, 3, -3, -3})}, {{"fmod", Attr(int64_t{1})}}), {4},
                  {1, -1, 1, -1});
}

TEST(Arithmetic, PowKeepsTheBaseType) {
    expect_tensor(y("pow", {longs({3}, {2, 3, -2}), longs({}, {3})}), {3}, {8, 27, -8});
    Tensor r = y("pow", {typed(DType::i32, {2}, {4, 9}), floats({}, {0.5f})});
    EXPECT_EQ(r.dtype(), DType::i32);
    expect_tensor(r, {2}, {2, 3});
    expect_tensor(y("pow", {floats({2}, {2, 4}), typed(DType::i32, {2}, {-1, 2})}), {2}, {0.5, 16});
}

TEST(Arithmetic, VariadicOpsNeedOne) {
    expect_tensor(y("mean", {floats({2}, {1, 2}), floats({}, {3}), floats({2}, {2, 4})}), {2}, {2, 3});
    expect_tensor(y("max", {floats({2}, {1, float(kNan)}), floats({2}, {3, 4})}), {2}, {3, kNan});
    EXPECT_EQ(error_of("sum", {}), "E0207");
    EXPECT_EQ(error_of("min", {floats({2}, {1, 2}), floats({3}, {1, 2, 3})}), "E0210");
}

TEST(Arithmetic, ShiftsBeyondTheWidth) {
    auto shift = [](const char* d, Tensor x, Tensor by) {
        return y("bit_shift", {x, by}, {{"direction", Attr(std::string(d))}});
    };
    expect_tensor(shift("LEFT", bytes({3}, {1, 255, 255}), bytes({3}, {7, 8, 200})), {3}, {128, 0, 0});
    expect_tensor(shift("RIGHT", typed(DType::i8, {4}, {-8, -8, 8, -8}), typed(DType::i8, {4}, {1, 8, 8, -1})), {4},
                  {-4, -1, 0, -1});
    expect_tensor(shift("LEFT", typed(DType::i8, {3}, {1, 1, 64}), typed(DType::i8, {3}, {-1, 9, 1})), {3},
                  {0, 0, -128});
    EXPECT_EQ(error_of("bit_shift", {bytes({1}, {1}), bytes({1}, {1})}, {{"direction", Attr(std::string("UP"))}}),
              "E0212");
    EXPECT_EQ(error_of("bit_shift", {bytes({1}, {1}), bytes({1}, {1})}), "E0206");
}

TEST(Math, HalvesRoundToEven) {
    expect_tensor(y("round", {floats({5}, {0.5f, 1.5f, 2.5f, -0.5f, -2.5f})}), {5}, {0, 2, 2, 0, -2});
    expect_tensor(y("erf", {longs({2}, {0, 3})}), {2}, {0, 0});  // computed in reals, truncated
    expect_tensor(y("log", {floats({3}, {0, -1, 1})}), {3}, {-kInf, kNan, 0});
}

TEST(Math, RsqrtRoundsOnce) {
    expect_tensor(y("rsqrt", {floats({2, 2}, {4, 0.25f, 1, 16})}), {2, 2}, {0.5, 2, 1, 0.25});
    expect_tensor(y("rsqrt", {floats({4}, {0, -0.0f, -1, float(kInf)})}), {4}, {kInf, -kInf, kNan, 0});
    expect_tensor(y("rsqrt", {floats({1, 0}, {})}), {1, 0}, {});
    EXPECT_EQ(error_of("rsqrt", {longs({1}, {4})}), "E0208");
}

TEST(Math, InfinitiesBySign) {
    Tensor x = floats({4}, {float(kInf), -float(kInf), float(kNan), 1});
    auto inf = [&](int64_t negative, int64_t positive) {
        return y("is_inf", {x}, {{"detect_negative", Attr(negative)}, {"detect_positive", Attr(positive)}});
    };
    expect_tensor(inf(1, 1), {4}, {1, 1, 0, 0});
    expect_tensor(inf(0, 1), {4}, {1, 0, 0, 0});
    expect_tensor(inf(1, 0), {4}, {0, 1, 0, 0});
    expect_tensor(inf(0, 0), {4}, {0, 0, 0, 0});
    expect_tensor(y("is_nan", {x}), {4}, {0, 0, 1, 0});
}

TEST(Compare, StringsBroadcast) {
    Tensor a = Tensor::strings({2, 1}, {"x", "y"}), b = Tensor::strings({3}, {"x", "y", ""});
    expect_tensor(y("equal", {a, b}), {2, 3}, {1, 0, 0, 0, 1, 0});
    expect_tensor(y("equal", {Tensor::strings({0, 2}, {}), Tensor::strings({1, 1}, {"x"})}), {0, 2}, {});
    EXPECT_EQ(error_of("less", {a, b}), "E0208");
}

TEST(Compare, NanIsUnequalAndUnsignedIsUnsigned) {
    Tensor nan = floats({1}, {float(kNan)});
    expect_tensor(y("equal", {nan, nan}), {1}, {0});
    expect_tensor(y("greater_or_equal", {nan, nan}), {1}, {0});
    Tensor top = typed(DType::u64, {1}, {0});
    top.set_int(0, -1);
    expect_tensor(y("less", {top, typed(DType::u64, {1}, {1})}), {1}, {0});
}

TEST(Compare, LogicAndChoice) {
    Tensor a = Tensor::of<bool>({4}, {true, true, false, false}), b = Tensor::of<bool>({4}, {true, false, true, false});
    expect_tensor(y("and", {a, b}), {4}, {1, 0, 0, 0});
    expect_tensor(y("or", {a, b}), {4}, {1, 1, 1, 0});
    expect_tensor(y("xor", {a, b}), {4}, {0, 1, 1, 0});
    expect_tensor(y("not", {a}), {4}, {0, 0, 1, 1});
    Tensor s = y("where", {Tensor::of<bool>({2, 1}, {true, false}), Tensor::strings({2}, {"a", "b"}),
                           Tensor::strings({}, {"-"})});
    EXPECT_EQ(s.as_strings(), (std::vector<std::string>{"a", "b", "-", "-"}));
}

TEST(Activation, KeepsNanAndSurvivesExtremes) {
    Tensor x = floats({5}, {-200, -1, 0, 1, 200});
    expect_tensor(y("relu", {floats({2}, {float(kNan), -1})}), {2}, {kNan, 0});
    expect_tensor(y("sigmoid", {x}), {5}, {0, 1 / (1 + std::exp(1.0)), 0.5, 1 / (1 + std::exp(-1.0)), 1});
    expect_tensor(y("softplus", {x}), {5},
                  {0, std::log1p(std::exp(-1.0)), std::log(2.0), std::log1p(std::exp(1.0)), 200});
    expect_tensor(y("elu", {x}, real("alpha", 2)), {5}, {-2, 2 * std::expm1(-1.0), 0, 1, 200});
    expect_tensor(y("celu", {x}, real("alpha", 2)), {5}, {-2, 2 * std::expm1(-0.5), 0, 1, 200});
    expect_tensor(y("mish", {x}), {5},
                  {0, -std::tanh(std::log1p(std::exp(-1.0))), 0, std::tanh(std::log1p(std::exp(1.0))), 200});
    expect_tensor(y("swish", {x}, real("alpha", 1)), {5},
                  {0, -1 / (1 + std::exp(1.0)), 0, 1 / (1 + std::exp(-1.0)), 200});
    EXPECT_EQ(error_of("gelu", {x}, {{"approximate", Attr(std::string("erf"))}}), "E0212");
}

TEST(Activation, ShrinkOfIntegers) {
    AttrMap attrs = {{"lambd", Attr(1.5f)}, {"bias", Attr(1.5f)}};
    expect_tensor(y("shrink", {typed(DType::i32, {5}, {-3, -1, 0, 2, 3})}, attrs), {5}, {-1, 0, 0, 0, 1});
}

TEST(Activation, ClipTakesEitherLimit) {
    Tensor x = floats({3}, {-2, 0, 2});
    expect_tensor(y("clip", {x, floats({}, {-1}), {}}), {3}, {-1, 0, 2});
    expect_tensor(y("clip", {x, {}, floats({}, {1})}), {3}, {-2, 0, 1});
    expect_tensor(y("clip", {x, floats({}, {1}), floats({}, {-1})}), {3}, {-1, -1, -1});
    EXPECT_EQ(error_of("clip", {x, floats({3}, {1, 2, 3})}), "E0210");
}

TEST(Activation, SlopesBroadcastOneWay) {
    expect_tensor(y("prelu", {floats({2, 2}, {-1, 2, -3, 4}), floats({2, 1}, {10, 100})}), {2, 2}, {-10, 2, -300, 4});
    EXPECT_EQ(error_of("prelu", {floats({2}, {1, 2}), floats({2, 2}, {1, 2, 3, 4})}), "E0210");
    EXPECT_EQ(error_of("swiglu", {floats({2}, {1, 2}), floats({1}, {1})}), "E0210");
}

TEST(Softmax, AlongAnyAxis) {
    Tensor x = floats({2, 3}, {1, 2, 3, 1000, 1000, 1000});
    double a = std::exp(-2.0), b = std::exp(-1.0), s = a + b + 1, third = 1 / 3.0;
    expect_tensor(y("softmax", {x}), {2, 3}, {a / s, b / s, 1 / s, third, third, third});
    expect_tensor(y("softmax", {x}, {{"axis", Attr(int64_t{-2})}}), {2, 3}, {0, 0, 0, 1, 1, 1});
    expect_tensor(y("log_softmax", {x}), {2, 3},
                  {-2 - std::log(s), -1 - std::log(s), -std::log(s), -std::log(3.0), -std::log(3.0), -std::log(3.0)});
    expect_tensor(y("hardmax", {floats({2, 3}, {1, 3, 3, 5, 4, 5})}), {2, 3}, {0, 1, 0, 1, 0, 0});
    expect_tensor(y("hardmax", {floats({2, 3}, {1, 3, 3, 5, 3, 5})}, {{"axis", Attr(int64_t{0})}}), {2, 3},
                  {0, 1, 0, 1, 0, 1});
    expect_tensor(y("softmax", {floats({0, 3}, {})}), {0, 3}, {});
    EXPECT_EQ(error_of("softmax", {x}, {{"axis", Attr(int64_t{2})}}), "E0212");
    EXPECT_EQ(error_of("softmax", {floats({}, {1})}), "E0212");
}

}  // namespace
}  // namespace tessera::test::elementwise_test
