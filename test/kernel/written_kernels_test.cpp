// Ops whose kernels are written out as loops, on every back end.
#include "kernel/every_backend.h"
#include "kernel/from_graph/op_lowering.h"
#include "kernel/written/scan_rows.h"

namespace tessera::test::written_kernels_test {
namespace {

// Random indices in [-size, size), of which many are equal.
Fill indices(const std::string& name, int64_t size) {
    return [=](Inputs& inputs, std::mt19937& gen) {
        const Tensor& old = inputs.at(name).tensor();
        Tensor t = *Tensor::zeros(old.dtype(), old.sizes());
        std::uniform_int_distribution<int64_t> any(-size, size - 1);
        for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, any(gen));
        inputs[name] = Datum(t);
    };
}

const double kNan = std::nan(""), kInf = INFINITY;

std::vector<SymbolValues> usual_sizes() {
    return {
        {{"N", 3}, {"M", 5}}, {{"N", 1}, {"M", 1}}, {{"N", 17}, {"M", 37}}, {{"N", 0}, {"M", 4}}, {{"N", 4}, {"M", 0}}};
}

TEST(WrittenKernels, ScatterElements) {
    for (const char* reduction : {"none", "add", "mul", "max", "min"})
        for (const char* type : {"f32", "f16", "i32", "u8", "f64", "bf16"})
            for (int axis : {0, 1, -1})
                expect_everywhere(
                    fmt::format("graph g(x: {0}[6,5], i: i64[4,3], u: {0}[4,3]) {{ %a = scatter_elements(x, i, "
                                "u, axis={1}, reduction=\"{2}\") return %a }}",
                                type, axis, reduction),
                    {}, indices("i", 5));
    for (const SymbolValues& s : usual_sizes())
        expect_everywhere(
            "graph g(x: f32[N,7,M], i: i32[N,20,M], u: f32[N,20,M]) { %a = scatter_elements(x, i, u, axis=1, "
            "reduction=\"add\") return %a }",
            s, indices("i", 7));
    expect_everywhere("graph g(x: f32[300], i: i64[1000], u: f32[1000]) { %a = scatter_elements(x, i, u) return %a }",
                      {}, indices("i", 300));
    expect_everywhere("graph g(x: bool[9], i: i64[20], u: bool[20]) { %a = scatter_elements(x, i, u) return %a }", {},
                      indices("i", 9));
    for (const char* reduction : {"max", "min", "add"})
        expect_everywhere(fmt::format("graph g(x: f32[4], i: i64[6], u: f32[6]) {{ %a = scatter_elements(x, i, u, "
                                      "reduction=\"{}\") return %a }}",
                                      reduction),
                          {}, with("u", {1, kNan, kInf, -kInf, 2, -3}));
    expect_everywhere("graph g(x: f32[4], i: i64[2], u: f32[2]) { %a = scatter_elements(x, i, u) return %a }", {},
                      with("i", {1, 4}));
    expect_everywhere("graph g(x: f32[4], i: i64[2], u: f32[2]) { %a = scatter_elements(x, i, u) return %a }", {},
                      with("i", {-5, 0}));
    expect_everywhere(
        "graph g(x: f32[2,3], i: i64[3,1], u: f32[3,1]) { %a = scatter_elements(x, i, u, axis=1) return %a }", {},
        with("i", {0}));
}

TEST(WrittenKernels, ScatterNd) {
    for (const char* reduction : {"none", "add", "mul", "max", "min"})
        for (const char* type : {"f32", "f16", "i64"})
            for (const char* shape : {"[7,1], u: {0}[7,4,3]", "[7,2], u: {0}[7,3]", "[7,3], u: {0}[7]",
                                      "[0,2], u: {0}[0,3]", "[2,3,1], u: {0}[2,3,4,3]", "[1,0], u: {0}[1,5,4,3]"})
                expect_everywhere(
                    fmt::format(
                        "graph g(x: {0}[5,4,3], i: i64{1}) {{ %a = scatter_nd(x, i, u, reduction=\"{2}\") return %a }}",
                        type, fmt::format(fmt::runtime(shape), type), reduction),
                    {}, indices("i", 3));
    for (const SymbolValues& s : usual_sizes())
        expect_everywhere(
            "graph g(x: f32[4,N,M], i: i64[9,1], u: f32[9,N,M]) { %a = scatter_nd(x, i, u, "
            "reduction=\"add\") return %a }",
            s, indices("i", 4));
    expect_everywhere(
        "graph g(x: f32[3,2000], i: i64[5,1], u: f32[5,2000]) { %a = scatter_nd(x, i, u) %b = relu(%a) return %b }", {},
        indices("i", 3));
    expect_everywhere("graph g(x: f32[3,4], i: i64[2,2], u: f32[2]) { %a = scatter_nd(x, i, u) return %a }", {},
                      with("i", {0, 1, 2, 4}));
}

TEST(WrittenKernels, RunningSums) {
    for (const char* op : {"cum_sum", "cum_prod"})
        for (const char* attrs : {"", ", exclusive=1", ", reverse=1", ", exclusive=1, reverse=1"})
            for (int axis : {0, 1, 2, -1})
                for (const char* type : {"f32", "i32"})
                    expect_everywhere(
                        fmt::format("graph g(x: {}[3,4,5]) {{ %a = {}(x, {}{}) return %a }}", type, op, axis, attrs));
    for (const SymbolValues& s : usual_sizes())
        for (int axis : {0, 1})
            for (const char* type : {"f32", "f16", "f64"})
                expect_everywhere(fmt::format("graph g(x: {}[N,M]) {{ %a = cum_sum(x, {}) return %a }}", type, axis),
                                  s);
    expect_everywhere("graph g(x: f32[5]) { %a = cum_sum(x, 0) %b = exp(%a) return %b }", {},
                      with("x", {1, kInf, 2, -kInf, kNan}));
    expect_everywhere("graph g(x: u8[40,3]) { %a = cum_prod(x, 0) return %a }");
    // Rows in pieces, and pieces in tiles, by blocks of threads.
    for (const char* attrs : {"", ", exclusive=1, reverse=1"}) {
        for (const char* sizes : {"f32[2,17]", "f16[1,257]", "i64[1,5000]"})
            expect_everywhere(fmt::format("graph g(x: {}) {{ %a = cum_sum(x, 1{}) return %a }}", sizes, attrs));
        expect_everywhere(fmt::format("graph g(x: f32[2,100,3]) {{ %a = cum_sum(x, 1{}) return %a }}", attrs));
        for (int axis : {0, 1})
            expect_everywhere(fmt::format("graph g(x: i32[N,M]) {{ %a = cum_sum(x, {}{}) return %a }}", axis, attrs),
                              {{"N", 300}, {"M", axis == 0 ? 3 : 20}});
        expect_everywhere(fmt::format("graph g(x: i32[M]) {{ %a = cum_sum(x, 0{}) return %a }}", attrs), {{"M", 9000}});
    }
}

// Where there are enough rows, a block takes one tile of a row after the other.
TEST(WrittenKernels, RunningSumsOfLongRows) {
    auto graph = graph_of("graph g(x: i32[2,5000]) { %a = cum_sum(x, 1) return %a }");
    const Node& node = *graph->nodes().front();
    KernelWriter w(node, {.blocks = true, .busy = 2});
    Elements x = w.in(0), y = w.out(0);
    auto written = w.finish(scan_rows(w, {.rows = 2,
                                          .n = 5000,
                                          .dtype = DType::i32,
                                          .element =
                                              [&](const Expr& row, const Expr& i) {
                                                  return x.at({row, i});
                                              },
                                          .keep =
                                              [&](const Expr& row, const Expr& i, const Expr& sum) {
                                                  return y.set({row, i}, sum);
                                              }}));
    EXPECT_EQ(written.params.size(), 2u) << "nothing is added up before";
    const Inputs inputs = random_inputs(*graph, {}, 3);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok());
    std::vector<Tensor> buffers = {inputs.at("x").tensor(), *Tensor::zeros(DType::i32, {2, 5000})};
    ASSERT_TRUE(interpret(written.kernel, buffers).ok());
    expect_close(Datum(buffers[1]), (*want)[0]);
}

TEST(WrittenKernels, TopK) {
    for (const char* attrs : {"", ", largest=0", ", sorted=0"})
        for (const char* type : {"f32", "f16", "i64", "u8", "f64"})
            for (int k : {0, 1, 2, 5, 6})
                expect_everywhere(fmt::format(
                    "graph g(x: {}[3,6,2]) {{ %v, %i = top_k(x, [{}], axis=1{}) return %v, %i }}", type, k, attrs));
    for (int64_t n : {1, 7, 100, 1000})
        expect_everywhere(fmt::format("graph g(x: f32[2,{0}]) {{ %v, %i = top_k(x, [{0}]) return %v, %i }}", n));
    expect_everywhere("graph g(x: i32[4,500]) { %v, %i = top_k(x, [50], largest=0) return %v, %i }");
    // Few are kept in order, more in a heap; whole numbers have many equals.
    for (int k : {1, 15, 16, 17})
        for (const char* type : {"i32[3,40]", "i64[2,300]", "f32[2,300]", "f16[3,40]"})
            expect_everywhere(fmt::format("graph g(x: {}) {{ %v, %i = top_k(x, [{}]) return %v, %i }}", type, k));
    for (const SymbolValues& s :
         std::vector<SymbolValues>{{{"N", 3}, {"M", 9}}, {{"N", 1}, {"M", 3}}, {{"N", 0}, {"M", 40}}})
        expect_everywhere("graph g(x: f32[N,M]) { %v, %i = top_k(x, [3]) return %v, %i }", s);
    for (const char* attrs : {"", ", largest=0"})
        expect_everywhere(fmt::format("graph g(x: f32[8]) {{ %v, %i = top_k(x, [6]{}) return %v, %i }}", attrs), {},
                          with("x", {1, kNan, kInf, -kInf, 1, kNan, -0.0, 0.0}));
    // Many of a row: all are sorted.
    for (const char* sizes : {"f32[2,65]) { %v, %i = top_k(x, [65])", "i32[3,100,2]) { %v, %i = top_k(x, [26], axis=1)",
                              "f16[1,300]) { %v, %i = top_k(x, [299], largest=0)"})
        expect_everywhere(fmt::format("graph g(x: {} return %v, %i }}", sizes));
    expect_everywhere("graph g(x: f32[2,70]) { %v, %i = top_k(x, [70]) return %v, %i }", {},
                      with("x", {1, kNan, kInf, -kInf, 1, kNan, -0.0, 0.0, 3}));
    for (int64_t m : {0, 1, 2, 3, 17})
        expect_everywhere(
            "graph g(x: i32[N,M]) { %s = shape(x, start=1) %v, %i = top_k(x, %s, largest=0) return %v, %i }",
            {{"N", 2}, {"M", m}});
    // The best one: lanes are parts of a row, or rows.
    for (const char* shape : {"i32[2,37]", "i32[9,18]", "f32[9,5]", "i64[7,40]"})
        for (int axis : {0, 1})
            expect_everywhere(
                fmt::format("graph g(x: {}) {{ %v, %i = top_k(x, [1], axis={}) return %v, %i }}", shape, axis));
    for (const char* shape : {"20", "2,10", "10,2"})
        for (const char* attrs : {"", ", largest=0"})
            expect_everywhere(
                fmt::format("graph g(x: f32[{}]) {{ %v, %i = top_k(x, [1], axis=0{}) return %v, %i }}", shape, attrs),
                {},
                with("x", {1, 5, 2, -kInf, 0.0, -0.0, 5, kNan, 3, kInf, 1, 5, kNan, -kInf, 0.0, kInf, 5, 2, 3, kNan}));
    // Blocks of threads: one piece of a row, pieces of which few are kept, pieces that are merged.
    for (const char* sizes : {"i32[3,33]) { %v, %i = top_k(x, [3])", "f16[2,64]) { %v, %i = top_k(x, [64])",
                              "i32[2,65]) { %v, %i = top_k(x, [1])", "f16[1,1025]) { %v, %i = top_k(x, [1])",
                              "i32[1,1100]) { %v, %i = top_k(x, [1100])", "i32[1,2500]) { %v, %i = top_k(x, [50])",
                              "f32[70,2]) { %v, %i = top_k(x, [9], axis=0)"})
        expect_everywhere(fmt::format("graph g(x: {} return %v, %i }}", sizes));
    for (const char* largest : {"0", "1"})
        expect_everywhere(
            fmt::format("graph g(x: f32[2,130]) {{ %v, %i = top_k(x, [7], largest={}) return %v, %i }}", largest), {},
            with("x", {3, kNan, 2, -kInf, 0.0, 7, kInf}));
    for (int64_t m : {5, 2049})
        expect_everywhere("graph g(x: i32[N,M], k: i64[1]) { %v, %i = top_k(x, k) return %v, %i }",
                          {{"N", 1}, {"M", m}}, with("k", {double(m)}));
    expect_everywhere("graph g(x: i32[N,M]) { %v, %i = top_k(x, [5]) return %v, %i }", {{"N", 1}, {"M", 3000}});
    expect_everywhere("graph g(x: f32[3,6]) { %v, %i = top_k(x, [2], axis=-2) return %i }");
    expect_everywhere("graph g(x: f32[3,6]) { %v, %i = top_k(x, [2], axis=0) %a = exp(%v) return %a }");
}

TEST(WrittenKernels, Regions) {
    auto rois = [](Inputs& inputs, std::mt19937& gen) {
        Tensor t = *Tensor::zeros(DType::f32, inputs.at("r").tensor().sizes());
        std::uniform_real_distribution<double> at(-3, 14);
        for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, at(gen));
        inputs["r"] = Datum(t);
        if (inputs.contains("b")) indices("b", 1)(inputs, gen);
        if (inputs.contains("b"))
            inputs["b"] = Datum(Tensor::of<int64_t>({5}, std::vector<int64_t>{0, 1, 1, 0, 1}));
        else
            for (int64_t i = 0; i < t.size(0); ++i) t.set_real(i * 5, double(i % 2));
    };
    for (const char* mode : {"avg", "max"})
        for (const char* transform : {"half_pixel", "output_half_pixel"})
            for (int ratio : {0, 2})
                expect_everywhere(
                    fmt::format(
                        "graph g(x: f32[2,3,9,11], r: f32[5,4], b: i64[5]) {{ %a = roi_align(x, r, b, mode=\"{}\", "
                        "coordinate_transformation_mode=\"{}\", sampling_ratio={}, output_height=3, output_width=2, "
                        "spatial_scale=0.7) return %a }}",
                        mode, transform, ratio),
                    {}, rois);
    expect_everywhere(
        "graph g(x: f32[2,3,9,11], r: f32[5,5]) { %a = max_roi_pool(x, r, pooled_shape=[2,3]) return %a }", {}, rois);
    expect_everywhere(
        "graph g(x: f16[2,C,9,11], r: f16[R,5]) { %a = max_roi_pool(x, r, pooled_shape=[2,3]) return %a }",
        {{"C", 2}, {"R", 0}});
    expect_everywhere("graph g(x: f32[2,3,9,11], r: f32[2,4], b: i64[2]) { %a = roi_align(x, r, b) return %a }", {},
                      with("b", {0, 2}));
    expect_everywhere("graph g(x: f32[2,3,9,11], r: f32[2,4], b: i64[2]) { %a = roi_align(x, r, b) return %a }", {},
                      [](Inputs& inputs, std::mt19937& gen) {
                          with("b", {0})(inputs, gen);
                          with("r", {0, 1, 2, kInf})(inputs, gen);
                      });
}

TEST(WrittenKernels, MaxUnpool) {
    std::string_view there_and_back =
        "graph g(x: f32[N,2,6,8]) { %p, %i = max_pool(x, kernel_shape=[2,2], strides=[2,2]) %a = max_unpool(%p, %i, "
        "kernel_shape=[2,2], strides=[2,2]) return %a }";
    for (int64_t n : {0, 1, 3}) expect_everywhere(there_and_back, {{"N", n}});
    expect_everywhere(
        "graph g(x: f32[1,1,2,2], i: i64[1,1,2,2]) { %a = max_unpool(x, i, [1,1,5,5], kernel_shape=[2,2], "
        "strides=[2,2]) "
        "return %a }",
        {}, with("i", {5, 7, 13, 15}));
    expect_everywhere("graph g(x: f32[1,1,2], i: i64[1,1,2]) { %a = max_unpool(x, i, kernel_shape=[2]) return %a }", {},
                      with("i", {0, 3}));
}

TEST(WrittenKernels, Det) {
    for (int n : {0, 1, 2, 3, 8})
        expect_everywhere(fmt::format("graph g(x: f32[3,{0},{0}]) {{ %a = det(x) return %a }}", n));
    expect_everywhere("graph g(x: f64[N,5,5]) { %a = det(x) return %a }", {{"N", 2}});
    expect_everywhere("graph g(x: f32[3,3]) { %a = det(x) return %a }", {}, with("x", {0, 1, 2, 0, 3, 4, 0, 5, 6}));
    expect_everywhere("graph g(x: f32[2,2]) { %a = det(x) return %a }", {}, with("x", {0, 2, 3, 0}));
}

TEST(WrittenKernels, BitCast) {
    for (int to : {1, 6, 12})
        for (const char* from : {"f32", "i32", "u32"})
            expect_everywhere(fmt::format("graph g(x: {}[N]) {{ %a = bit_cast(x, to={}) return %a }}", from, to),
                              {{"N", 37}});
    for (int to : {4, 5, 10, 16})
        expect_everywhere(fmt::format("graph g(x: f16[3,4]) {{ %a = bit_cast(x, to={}) return %a }}", to), {},
                          with("x", {1, kNan, kInf, -2, -0.0}));
    for (int to : {2, 3, 9, 17, 20})
        expect_everywhere(fmt::format("graph g(x: u8[9]) {{ %a = bit_cast(x, to={}) return %a }}", to));
    expect_everywhere("graph g(x: u4[9]) { %a = bit_cast(x, to=22) return %a }", {}, with("x", {0, 7, 8, 15}));
    expect_everywhere("graph g(x: u8[0]) { %a = bit_cast(x, to=3) return %a }");
}

// Rows beyond whole tiles, columns beyond whole panels, blocks of few and of many words.
TEST(WrittenKernels, NibbleProducts) {
    const char* kFloats =
        "graph g(x: f32[N,2,{0}], w: i32[{1},2,{2},16], s: f32[{1},2,16], z: f32[{3}]) {{ %a = nibble_product(x, w, s, "
        "z, n={4}, panels={5}, signed_words=0, tile={6}) return %a }}";
    const char* kBytes =
        "graph g(x: i8[N,2,{0}], w: i32[{1},2,{2},16], s: f32[{1},2,16], z: i32[{3}], t: f32[N,2,1], u: i32[N,2,1]) {{ "
        "%a = nibble_product_of_bytes(x, w, s, z, t, u, n={4}, panels={5}, signed_words={7}, tile={6}) return %a }}";
    for (const char* text : {kFloats, kBytes})
        for (int rows : {0, 1, 13})
            for (const auto& [words, panels, n, at_once, tile] :
                 {std::array{2, 4, 50, 4, 4}, std::array{4, 2, 32, 2, 8}, std::array{6, 1, 3, 1, 1}})
                for (bool one : {true, false})
                    expect_everywhere(
                        fmt::format(fmt::runtime(text), words * 8, panels, words,
                                    one ? "1,1,1" : fmt::format("{},2,16", panels), n, at_once, tile, rows % 2),
                        {{"N", rows}});
}

// Every op that the evaluator computes says why.
TEST(WrittenKernels, WhatIsLeftSaysWhy) {
    for (const OpDef* op : all_ops())
        if (op_lowering(*op) == OpLowering::Host) {
            EXPECT_NE(host_reason(*op), "has no body") << op->name;
        }
}

}  // namespace
}  // namespace tessera::test::written_kernels_test
