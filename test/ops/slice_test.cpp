#include "graph/builder.h"
#include "ops/run_op.h"

namespace tessera::test::slice_test {
namespace {

constexpr int64_t kMost = INT64_MAX, kLeast = INT64_MIN;

Tensor count_to(int64_t n) {
    std::vector<float> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = float(i);
    return floats({n}, values);
}

std::vector<double> sliced(int64_t n, int64_t start, int64_t end, int64_t step) {
    return reals(run_op("slice", {count_to(n), Tensor::ints({start}), Tensor::ints({end}), Tensor::ints({0}),
                                  Tensor::ints({step})})[0]);
}

// What Python's range semantics, with ONNX's clamping, pick out of [0, n).
std::vector<double> expected(int64_t n, int64_t start, int64_t end, int64_t step) {
    auto place = [&](int64_t i, int64_t low, int64_t high) { return std::min(std::max(i < 0 ? i + n : i, low), high); };
    std::vector<double> out;
    if (step > 0)
        for (int64_t i = place(start, 0, n); i < place(end, 0, n); i += step) out.push_back(double(i));
    else
        for (int64_t i = place(start, 0, n - 1); i > place(end, -1, n - 1); i += step) out.push_back(double(i));
    return out;
}

TEST(Slice, EveryCombinationOfEndsAndSteps) {
    for (int64_t n : {0, 1, 5})
        for (int64_t start : {-9, -2, -1, 0, 1, 3, 9})
            for (int64_t end : {-9, -2, -1, 0, 2, 5, 9})
                for (int64_t step : {-3, -1, 1, 2})
                    EXPECT_EQ(sliced(n, start, end, step), expected(n, start, end, step))
                        << n << ": " << start << " " << end << " " << step;
}

TEST(Slice, ExtremesDoNotOverflow) {
    EXPECT_EQ(sliced(4, kLeast, kMost, 1), (std::vector<double>{0, 1, 2, 3}));
    EXPECT_EQ(sliced(4, kMost, kLeast, -1), (std::vector<double>{3, 2, 1, 0}));
    EXPECT_EQ(sliced(4, 1, kMost, kMost), (std::vector<double>{1}));
    EXPECT_EQ(sliced(4, -1, kLeast, kLeast), (std::vector<double>{3}));
}

TEST(Slice, Refuses) {
    Tensor x = count_to(4), one = Tensor::ints({1});
    EXPECT_EQ(error_of("slice", {x, one, one, one}), "E0212");
    EXPECT_EQ(error_of("slice", {x, one, one, Tensor::ints({0}), Tensor::ints({0})}), "E0212");
    EXPECT_EQ(error_of("slice", {x, Tensor::ints({1, 1}), one}), "E0210");
    EXPECT_EQ(error_of("slice", {x, Tensor::ints({1, 1}), Tensor::ints({1, 1}), Tensor::ints({0, -1})}), "E0210");
}

TEST(Slice, SymbolicSizes) {
    Graph g;
    Builder b(g);
    Dim n = symbol("N");
    Value* x = g.add_input("x", Type(DType::f32, {n, 8}));
    auto extent = [&](int64_t start, int64_t end) {
        Value* y = b.slice(x, {start}, {end}, {0});
        return y ? y->type().tensor().shape[0] : Dim(-1);
    };
    EXPECT_EQ(extent(0, kMost), n);
    EXPECT_EQ(extent(0, 5), min(n, Dim(5)));
    EXPECT_EQ(extent(1, kMost), max(n - 1, Dim(0)));
    EXPECT_EQ(extent(0, -1), max(n - 1, Dim(0)));
    EXPECT_EQ(extent(-3, kMost), min(Dim(3), n));
    Value* rest = b.op("slice", {x, b.ints({1}), b.op("gather", {b.op("shape", {x}), b.ints({0})}), b.ints({0})});
    ASSERT_TRUE(b.status().ok()) << b.status().error().to_string();
    for (int64_t size : {0, 1, 7})
        EXPECT_EQ(evaluate_int(rest->type().tensor().shape[0], {{"N", size}}), std::max<int64_t>(size - 1, 0));
}

std::vector<double> padded(const Tensor& x, std::vector<int64_t> pads, const char* mode) {
    return reals(run_op("pad", {x, Tensor::ints(pads)}, {{"mode", Attr(std::string(mode))}})[0]);
}

TEST(Pad, Modes) {
    Tensor x = count_to(3);
    EXPECT_EQ(padded(x, {1, 2}, "constant"), (std::vector<double>{0, 0, 1, 2, 0, 0}));
    EXPECT_EQ(padded(x, {2, 1}, "edge"), (std::vector<double>{0, 0, 0, 1, 2, 2}));
    EXPECT_EQ(padded(x, {5, 3}, "reflect"), (std::vector<double>{1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1}));
    EXPECT_EQ(padded(x, {4, 2}, "wrap"), (std::vector<double>{2, 0, 1, 2, 0, 1, 2, 0, 1}));
    EXPECT_EQ(padded(floats({1}, {7}), {2, 1}, "reflect"), (std::vector<double>{7, 7, 7, 7}));
    EXPECT_EQ(padded(x, {-1, 1}, "constant"), (std::vector<double>{1, 2, 0}));
    EXPECT_EQ(padded(x, {-1, 2}, "reflect"), (std::vector<double>{1, 2, 1, 2}));
}

TEST(Pad, ValueAxesAndErrors) {
    Tensor x = floats({1, 2}, {1, 2});
    expect_tensor(run_op("pad", {x, Tensor::ints({1, 0}), floats({}, {9}), Tensor::ints({-1})})[0], {1, 3}, {9, 1, 2});
    EXPECT_EQ(run_op("pad", {Tensor::strings({1}, {"a"}), Tensor::ints({0, 1}), Tensor::strings({}, {"z"})})[0]
                  .as_strings()[1],
              "z");
    EXPECT_EQ(error_of("pad", {x, Tensor::ints({1, 0})}), "E0210");
    EXPECT_EQ(error_of("pad", {x, Tensor::ints({0, -3, 0, 0})}), "E0210");
    EXPECT_EQ(error_of("pad", {x, Tensor::ints({kMost, 0, kMost, 0})}), "E0212");
    EXPECT_EQ(error_of("pad", {x, Tensor::ints({1, 0}), {}, Tensor::ints({2})}), "E0212");
    EXPECT_EQ(error_of("pad", {x, Tensor::ints({0, 0, 0, 0})}, {{"mode", Attr(std::string("mirror"))}}), "E0212");
    EXPECT_EQ(error_of("pad", {floats({0}, {}), Tensor::ints({1, 0})}, {{"mode", Attr(std::string("edge"))}}), "E0406");
}

TEST(CenterCropPad, CropsAndPads) {
    expect_tensor(run_op("center_crop_pad", {count_to(5), Tensor::ints({2})})[0], {2}, {1, 2});
    expect_tensor(run_op("center_crop_pad", {count_to(2), Tensor::ints({5})})[0], {5}, {0, 0, 1, 0, 0});
    EXPECT_EQ(error_of("center_crop_pad", {count_to(2), Tensor::ints({-1})}), "E0212");
    EXPECT_EQ(error_of("center_crop_pad", {count_to(2), Tensor::ints({1, 1})}), "E0210");
}

TEST(Trilu, DiagonalsAndExtremes) {
    Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
    expect_tensor(run_op("trilu", {x})[0], {2, 3}, {1, 2, 3, 0, 5, 6});
    expect_tensor(run_op("trilu", {x, Tensor::scalar<int64_t>(-1)}, {{"upper", Attr(int64_t{0})}})[0], {2, 3},
                  {0, 0, 0, 4, 0, 0});
    expect_tensor(run_op("trilu", {x, Tensor::scalar(kMost)})[0], {2, 3}, {0, 0, 0, 0, 0, 0});
    expect_tensor(run_op("trilu", {x, Tensor::scalar(kLeast)})[0], {2, 3}, {1, 2, 3, 4, 5, 6});
    EXPECT_EQ(error_of("trilu", {count_to(2)}), "E0210");
}

}  // namespace
}  // namespace tessera::test::slice_test
