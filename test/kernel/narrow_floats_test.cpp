// Floats of 8 bits and fewer on every back end: every value there is, and everything around the places where rounding
// changes its mind.
#include "kernel/every_backend.h"

namespace tessera::test::narrow_floats_test {
namespace {

struct Named {
    DType dtype;
    int number;  // ONNX's
};
constexpr Named kTypes[] = {
    {DType::f8e4m3fn, 17}, {DType::f8e4m3fnuz, 18}, {DType::f8e5m2, 19}, {DType::f8e5m2fnuz, 20}, {DType::f4e2m1, 23}};

Fill all_values(DType t) {
    return [=](Inputs& inputs, std::mt19937&) {
        Tensor x = *Tensor::zeros(t, {256});
        for (int i = 0; i < 256; ++i)
            static_cast<uint8_t*>(x.mutable_data())[i] = uint8_t(t == DType::f4e2m1 ? i % 16 : i);
        inputs["x"] = Datum(x);
    };
}

// All values, the middles between neighbours, and the floats on either side of both.
Fill around_values(DType t, DType as) {
    return [=](Inputs& inputs, std::mt19937&) {
        Tensor x = *Tensor::zeros(t, {256});
        for (int i = 0; i < 256; ++i)
            static_cast<uint8_t*>(x.mutable_data())[i] = uint8_t(t == DType::f4e2m1 ? i % 16 : i);
        std::vector<double> values = {0.0,   -0.0,  INFINITY, -INFINITY, NAN,   1e30,  -1e30,
                                      1e-30, 448.5, 464,      480,       57344, 61440, 65536};
        for (int i = 0; i + 1 < 256; ++i) {
            double a = x.real_at(i), b = x.real_at(i + 1);
            for (double v : {a, (a + b) / 2})
                for (int side : {-1, 0, 1}) {
                    float f = float(v);
                    if (side) f = std::nextafterf(f, side * INFINITY);
                    values.push_back(f);
                }
        }
        Tensor made = *Tensor::zeros(as, {int64_t(values.size())});
        for (size_t i = 0; i < values.size(); ++i) made.set_real(int64_t(i), values[i]);
        inputs["x"] = Datum(made);
    };
}

TEST(NarrowFloats, Read) {
    for (const Named& t : kTypes)
        for (int to : {1, 10, 11, 16})
            expect_everywhere(
                fmt::format("graph g(x: {}[256]) {{ %a = cast(x, to={}) return %a }}", dtype_name(t.dtype), to), {},
                all_values(t.dtype));
    expect_everywhere("graph g(x: f8e8m0[256]) { %a = cast(x, to=11) return %a }", {}, all_values(DType::f8e8m0));
}

TEST(NarrowFloats, Written) {
    for (const Named& t : kTypes)
        for (int saturate : {0, 1})
            for (DType from : {DType::f32, DType::f64, DType::f16})
                expect_everywhere(fmt::format("graph g(x: {}[N]) {{ %a = cast(x, to={}, saturate={}) return %a }}",
                                              dtype_name(from), t.number, saturate),
                                  {{"N", 3}}, around_values(t.dtype, from));
    for (const Named& t : kTypes)
        expect_everywhere(fmt::format("graph g(x: i32[9]) {{ %a = cast(x, to={}) return %a }}", t.number), {},
                          with("x", {0, 1, -1, 7, 17, 255, 1000, -100000, 33}));
}

TEST(NarrowFloats, FromOneToAnother) {
    for (const Named& from : kTypes)
        for (const Named& to : kTypes)
            expect_everywhere(fmt::format("graph g(x: {}[256]) {{ %a = cast(x, to={}) return %a }}",
                                          dtype_name(from.dtype), to.number),
                              {}, all_values(from.dtype));
}

TEST(NarrowFloats, Moved) {
    expect_everywhere(
        "graph g(x: f8e4m3fn[256]) { %a = reshape(x, [16,16]) %b = transpose(%a, [1,0]) %c = concat(%b, %a, axis=0) %d "
        "= "
        "slice(%c, [3], [9]) return %c, %d }",
        {}, all_values(DType::f8e4m3fn));
    expect_everywhere("graph g(x: f8e5m2[256], i: i64[7]) { %a = gather(x, i) return %a }", {},
                      all_values(DType::f8e5m2));
}

TEST(NarrowFloats, Quantized) {
    expect_everywhere(
        "graph g(x: f32[N,6]) { const z: f8e4m3fn[] = 0 %q = quantize_linear(x, 0.5, z) %d = dequantize_linear(%q, "
        "0.5, z) "
        "return %q, %d }",
        {{"N", 5}});
    expect_everywhere(
        "graph g(x: f16[4,6], s: f16[4]) { %t = abs(s) %q = quantize_linear(x, %t, axis=0, output_dtype=19) %d = "
        "dequantize_linear(%q, %t, axis=0) return %q, %d }");
}

}  // namespace
}  // namespace tessera::test::narrow_floats_test
