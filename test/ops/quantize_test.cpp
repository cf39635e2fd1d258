// quantize, integer_product.
#include "graph/ops/common.h"
#include "ops/run_op.h"

namespace tessera::test::quantize_test {
namespace {

Tensor y(std::string_view op, const Given& in, const AttrMap& attrs = {}) { return run_op(op, in, attrs)[0]; }
Tensor i8s(Sizes sizes, const std::vector<double>& v) { return typed(DType::i8, std::move(sizes), v); }

TEST(Quantize, RoundsToEvenAndSaturates) {
    Tensor x = floats({6}, {0.5f, 1.5f, 2.5f, -3, 1000, -1000});
    expect_tensor(y("quantize_linear", {x, floats({}, {1}), bytes({}, {1})}), {6}, {1, 3, 3, 0, 255, 0});
    expect_tensor(y("quantize_linear", {x, floats({}, {1}), i8s({}, {0})}), {6}, {0, 2, 2, -3, 127, -128});
    Tensor d = y("quantize_linear", {x, floats({1}, {2})});
    EXPECT_EQ(d.dtype(), DType::u8);
    expect_tensor(y("quantize_linear", {x, floats({}, {1})}, {{"output_dtype", dtype_attr_value(DType::i4)}}), {6},
                  {0, 2, 2, -3, 7, -8});
}

TEST(Quantize, ByAxisAndByBlock) {
    Tensor x = floats({2, 3}, {2, 4, 6, 8, 10, 12});
    expect_tensor(y("quantize_linear", {x, floats({3}, {1, 2, 3})}), {2, 3}, {2, 2, 2, 8, 5, 4});
    expect_tensor(y("quantize_linear", {x, floats({2}, {1, 2})}, {{"axis", Attr(int64_t{-2})}}), {2, 3},
                  {2, 4, 6, 4, 5, 6});
    AttrMap blocks = {{"axis", Attr(int64_t{1})}, {"block_size", Attr(int64_t{2})}};
    expect_tensor(y("quantize_linear", {x, floats({2, 2}, {1, 2, 4, 6}), bytes({2, 2}, {0, 1, 0, 0})}, blocks), {2, 3},
                  {2, 4, 4, 2, 2, 2});
    expect_tensor(y("dequantize_linear", {bytes({2, 3}, {1, 1, 1, 2, 2, 2}), floats({2, 2}, {1, 2, 4, 6})}, blocks),
                  {2, 3}, {1, 1, 2, 8, 8, 12});
    EXPECT_EQ(error_of("quantize_linear", {x, floats({2}, {1, 2})}), "E0210");
    EXPECT_EQ(error_of("quantize_linear", {x, floats({2, 3}, {1, 1, 1, 1, 1, 1})}, blocks), "E0210");
    EXPECT_EQ(error_of("quantize_linear", {x, floats({3}, {1, 2, 3})}, {{"axis", Attr(int64_t{2})}}), "E0212");
    EXPECT_EQ(error_of("quantize_linear", {x, floats({3}, {1, 2, 3}), bytes({2}, {0, 0})}), "E0210");
    blocks["block_size"] = Attr(int64_t{-1});
    EXPECT_EQ(error_of("quantize_linear", {x, floats({2, 2}, {1, 2, 4, 6})}, blocks), "E0212");
}

TEST(Quantize, TypesMustAgree) {
    Tensor x = floats({1}, {1}), one = floats({}, {1});
    EXPECT_EQ(error_of("quantize_linear", {x, one, bytes({}, {0})}, {{"output_dtype", dtype_attr_value(DType::i8)}}),
              "E0208");
    EXPECT_EQ(error_of("quantize_linear", {x, one}, {{"output_dtype", dtype_attr_value(DType::i64)}}), "E0213");
    EXPECT_EQ(error_of("dequantize_linear", {bytes({1}, {1}), one, i8s({}, {0})}), "E0208");
    EXPECT_EQ(error_of("dequantize_linear", {bytes({1}, {1}), one}, {{"output_dtype", dtype_attr_value(DType::i8)}}),
              "E0213");
}

TEST(Quantize, DivisionHasThePrecisionOfTheScale) {
    // In double the quotient stays below the tie; in f16 it is the tie.
    Tensor x = floats({1}, {2.4999f}), scale = typed(DType::f16, {}, {1});
    expect_tensor(y("quantize_linear", {floats({1}, {1.4999f}), scale}), {1}, {2});
    expect_tensor(y("quantize_linear", {floats({1}, {1.4999f}), scale}, {{"precision", dtype_attr_value(DType::f32)}}),
                  {1}, {1});
}

TEST(Quantize, ByTheDataItself) {
    auto out = run_op("dynamic_quantize_linear", {floats({3}, {0, 2, -1})}, {}, 3);
    expect_tensor(out[1], {}, {3 / 255.0});
    expect_tensor(out[2], {}, {85});
    expect_tensor(out[0], {3}, {85, 255, 0});
    out = run_op("dynamic_quantize_linear", {floats({2}, {0, 0})}, {}, 3);
    expect_tensor(out[0], {2}, {0, 0});
}

TEST(IntegerProduct, ZeroPointsByRowAndColumn) {
    Tensor a = bytes({2, 2}, {1, 2, 3, 4}), b = bytes({2, 2}, {1, 0, 0, 1});
    expect_tensor(y("matmul_integer", {a, b}), {2, 2}, {1, 2, 3, 4});
    expect_tensor(y("matmul_integer", {a, b, bytes({}, {1}), bytes({1}, {0})}), {2, 2}, {0, 1, 2, 3});
    expect_tensor(y("matmul_integer", {a, b, bytes({2}, {1, 3}), bytes({2}, {0, 1})}), {2, 2}, {0, 0, 0, 0});
    expect_tensor(y("matmul_integer", {bytes({2}, {1, 2}), bytes({2}, {3, 4})}), {}, {11});
    EXPECT_EQ(error_of("matmul_integer", {a, b, bytes({3}, {1, 2, 3})}), "E0210");
    EXPECT_EQ(error_of("matmul_integer", {a, bytes({3, 1}, {1, 2, 3})}), "E0210");
}

TEST(IntegerProduct, Rescaled) {
    Tensor a = bytes({1, 2}, {3, 5}), b = bytes({2, 2}, {2, 1, 4, 1}), one = floats({}, {1}), zero = bytes({}, {0});
    expect_tensor(y("qlinear_matmul",
                    {a, one, bytes({}, {1}), b, floats({2}, {1, 0.25f}), zero, floats({}, {2}), bytes({}, {10})}),
                  {1, 2}, {20, 11});
    expect_tensor(y("qlinear_matmul", {a, floats({}, {100}), zero, b, one, zero, one, zero}), {1, 2}, {255, 255});
}

TEST(IntegerProduct, ConvolutionPadsWithTheZeroPoint) {
    Tensor x = bytes({1, 1, 3}, {2, 3, 4}), w = bytes({1, 1, 2}, {1, 1});
    AttrMap pads = {{"pads", Attr(std::vector<int64_t>{1, 0})}};
    expect_tensor(y("conv_integer", {x, w, bytes({}, {1})}, pads), {1, 1, 3}, {1, 3, 5});
    expect_tensor(y("conv_integer", {x, w}, pads), {1, 1, 3}, {2, 5, 7});
    expect_tensor(y("qlinear_conv", {x, floats({}, {1}), bytes({}, {1}), w, floats({1}, {0.5f}), bytes({1}, {0}),
                                     floats({}, {1}), bytes({}, {3}), typed(DType::i32, {1}, {4})}),
                  {1, 1, 2}, {3 + 4, 3 + 4});
    EXPECT_EQ(error_of("conv_integer", {x, w, bytes({2}, {1, 2})}), "E0210");
    EXPECT_EQ(error_of("conv_integer", {x, bytes({1, 2, 2}, {1, 1, 1, 1})}), "E0210");
}

}  // namespace
}  // namespace tessera::test::quantize_test
