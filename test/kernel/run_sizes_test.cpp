// Sizes that only a run knows, on every back end: inferred from what an operand holds.
#include "kernel/every_backend.h"

namespace tessera::test::run_sizes_test {
namespace {

Fill all_of(std::vector<Fill> fills) {
    return [=](Inputs& inputs, std::mt19937& gen) {
        for (const Fill& fill : fills) fill(inputs, gen);
    };
}

TEST(RunSizes, Slice) {
    using Case = std::vector<std::vector<double>>;  // starts, ends, steps
    constexpr const char* kAfter[] = {" %b = relu(%a)", " %b = reduce_sum(%a, [1], keepdims=0)", "",
                                      " %b = concat(%a, %a, axis=0)", " %b = transpose(%a, perm=[1,0])"};
    size_t next = 0;
    for (const Case& c :
         {Case{{1, 0}, {4, 9}, {1, 1}}, Case{{-3, 2}, {100, -1}, {1, 2}}, Case{{4, -1}, {-100, 0}, {-1, -2}},
          Case{{2, 5}, {2, 3}, {1, 1}}, Case{{0, 0}, {5, 7}, {3, 4}}, Case{{-50, 6}, {50, 6}, {2, -1}}}) {
        const char* after = kAfter[next++ % std::size(kAfter)];
        expect_everywhere(fmt::format("graph g(x: f32[5,7], s: i64[2], e: i64[2], p: i64[2]) {{ %a = slice(x, s, e, "
                                      "[0,1], p){} return {} }}",
                                      after, *after ? "%b" : "%a"),
                          {}, all_of({with("s", c[0]), with("e", c[1]), with("p", c[2])}));
    }
    for (int64_t n : {1, 6, 40})
        expect_everywhere(
            "graph g(x: f32[N,3], e: i64[1]) { %a = slice(x, [0], e) %b = mul(%a, %a) %c = shape(%b) return %b, %c }",
            {{"N", n}}, with("e", {5}));
    // Axes that only a run knows, and a step of 0.
    expect_everywhere("graph g(x: f32[4,6], d: i64[1]) { %a = slice(x, [1], [3], d) return %a }", {}, with("d", {-1}));
    expect_everywhere("graph g(x: f32[4,6], p: i64[1]) { %a = slice(x, [1], [3], [0], p) return %a }", {},
                      with("p", {0}));
    expect_everywhere("graph g(x: f16[9], s: i32[1]) { %a = slice(x, s, [8]) %b = exp(%a) return %b }", {},
                      with("s", {3}));
}

TEST(RunSizes, SliceByComputedBounds) {
    expect_everywhere(
        "graph g(x: f32[12,4], i: i64[3]) { %m = reduce_max(i, [0], keepdims=1) %a = slice(x, [0], %m) "
        "%b = matmul(%a, transpose(x, perm=[1,0])) %c = softmax(%b, axis=1) return %c }",
        {}, with("i", {2, 7, 5}));
}

TEST(RunSizes, Pad) {
    for (const char* mode : {"constant", "edge", "reflect", "wrap"})
        for (const std::vector<double>& pads : {std::vector<double>{1, 2, 0, 1}, {-1, 0, 2, -2}})
            expect_everywhere(
                fmt::format("graph g(x: f32[4,5], p: i64[4]) {{ %a = pad(x, p, mode=\"{}\") %b = neg(%a) return %b }}",
                            mode),
                {}, with("p", pads));
    expect_everywhere("graph g(x: f32[4,5], p: i64[4]) { %a = pad(x, p) return %a }", {}, with("p", {-3, 0, -3, 0}));
}

TEST(RunSizes, ExpandTileReshape) {
    for (const std::vector<double>& shape : {std::vector<double>{2, 3, 4}, {5, 1, 1}, {0, 3, 4}, {1, 3, 1}, {2, 2, 2}})
        expect_everywhere("graph g(x: f32[3,1], s: i64[3]) { %a = expand(x, s) %b = add(%a, x) return %b }", {},
                          with("s", shape));
    for (const std::vector<double>& repeats : {std::vector<double>{2, 3}, {1, 1}, {0, 2}, {7, 5}})
        expect_everywhere("graph g(x: f32[3,2], r: i64[2]) { %a = tile(x, r) %b = relu(%a) return %b }", {},
                          with("r", repeats));
    for (const std::vector<double>& shape : {std::vector<double>{2, 12}, {-1, 4}, {0, -1}, {24, 1}, {5, 5}, {4, 6}})
        expect_everywhere("graph g(x: f32[4,6], s: i64[2]) { %a = reshape(x, s) %b = softmax(%a, axis=-1) return %b }",
                          {}, with("s", shape));
}

// Sizes that the model declares are seen to hold before anything is read by them.
TEST(RunSizes, Declared) {
    std::string_view text = "graph g(x: f32[N], s: i64[2]) { %a = reshape(x, s) : f32[3,4] %b = relu(%a) return %b }";
    for (int64_t n : {12, 10}) expect_everywhere(text, {{"N", n}}, with("s", {3, 4}));
    auto executable = compile(*Model::parse(text), {.threads = 1, .cache = ""});
    ASSERT_TRUE(executable.ok()) << executable.error().to_string();
    auto got = executable->run({{"x", *Tensor::zeros(DType::f32, {12})}, {"s", Tensor::of<int64_t>({2}, {4, 3})}});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code(), Code::E0411);
}

// A window over an open axis that is empty: where its size is not that of others, the error says why.
TEST(RunSizes, WindowsOverNothing) {
    std::string_view text = "graph g(x: f32[1,2,H,5]) { %a = max_pool(x, kernel_shape=[3,3]) return %a }";
    auto executable = compile(*Model::parse(text), {.threads = 1, .cache = ""});
    ASSERT_TRUE(executable.ok()) << executable.error().to_string();
    // No formula covers these sizes, so that it is compiled for them alone.
    auto got = executable->run({{"x", *Tensor::zeros(DType::f32, {1, 2, 0, 5})}});
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    EXPECT_EQ((*got)[0].tensor().sizes(), (Sizes{1, 2, 0, 3}));
    EXPECT_TRUE(executable->run({{"x", *Tensor::zeros(DType::f32, {1, 2, 3, 5})}}).ok());
}

// What is made in its place in a concat waits for the sizes of the others, unless they are inferred from it.
TEST(RunSizes, PartsOfConcats) {
    for (int axis : {0, 1})
        expect_everywhere(
            fmt::format("graph g(x: f32[N,3], w: f32[3,4], r: f32[1,1], s: i64[2]) {{ %a = matmul(x, w) "
                        "%e = expand(r, s) %c = concat(%a, %e, axis={}) %d = relu(%a) return %c, %d }}",
                        axis),
            {{"N", 5}}, with("s", axis == 0 ? std::vector<double>{2, 4} : std::vector<double>{5, 2}));
    expect_everywhere("graph g(x: f32[2,3], w: f32[3,7]) { %a = matmul(x, w) %i = non_zero(%a) %f = cast(%i, to=1) "
                      "%c = concat(%a, %f, axis=1) %d = relu(%a) return %c, %d }");
    // Each waits for the sizes that are inferred from the other.
    expect_everywhere("graph g(x: f32[2,3], w: f32[3,7], v: f32[3,9]) { %a = matmul(x, w) %b = matmul(x, v) "
                      "%i = non_zero(%a) %f = cast(%i, to=1) %j = non_zero(%b) %h = cast(%j, to=1) "
                      "%c = concat(%a, %h, axis=1) %e = concat(%b, %f, axis=1) %d = relu(%a) %k = relu(%b) "
                      "return %c, %e, %d, %k }");
}

TEST(RunSizes, RangeAndFill) {
    using Case = std::vector<double>;
    for (const char* type : {"i64", "i32", "f32", "f64"})
        for (const Case& c : {Case{0, 10, 1}, Case{5, 5, 1}, Case{10, 0, -3}, Case{2, 40, 7}, Case{3, 1, 1}})
            expect_everywhere(fmt::format("graph g(u: {0}[], v: {0}[], w: {0}[]) {{ %a = range(u, v, w) %b = add(%a, "
                                          "%a) return %b }}",
                                          type),
                              {}, all_of({with("u", {c[0]}), with("v", {c[1]}), with("w", {c[2]})}));
    expect_everywhere("graph g(u: i64[], v: i64[], w: i64[]) { %a = range(u, v, w) return %a }", {}, with("w", {0}));
    for (const Case& shape : {Case{3, 5}, Case{1, 1}, Case{0, 4}, Case{-1, 2}})
        expect_everywhere("graph g(s: i64[2], x: f32[1]) { %a = constant_of_shape(s) %b = add(%a, x) return %a, %b }",
                          {}, with("s", shape));
}

TEST(RunSizes, Choices) {
    for (double k : {0.0, 1.0, 4.0, 9.0, 10.0})
        expect_everywhere("graph g(x: f32[3,9], k: i64[1]) { %a, %b = top_k(x, k) %c = neg(%a) return %c, %b }", {},
                          with("k", {k}));
    expect_everywhere("graph g(x: f32[3,9], k: i64[1]) { %a, %b = top_k(x, k) return %b }", {}, with("k", {4}));
    for (double depth : {1.0, 5.0})
        expect_everywhere("graph g(i: i64[4], d: i64[], v: f32[2]) { %a = one_hot(i, d, v) %b = relu(%a) return %b }",
                          {}, with("d", {depth}));
    for (const std::vector<double>& parts : {std::vector<double>{2, 3}, {0, 5}, {5, 0}, {2, 2}})
        expect_everywhere(
            "graph g(x: f32[5,3], p: i64[2]) { %a, %b = split(x, p, axis=0) %c = relu(%b) return %a, %c }", {},
            with("p", parts));
}

TEST(RunSizes, Resize) {
    for (const char* mode : {"nearest", "linear", "cubic"})
        for (const std::vector<double>& sizes : {std::vector<double>{1, 2, 6, 8}, {1, 2, 1, 9}})
            expect_everywhere(fmt::format("graph g(x: f32[1,2,3,4], s: i64[4]) {{ %a = resize(x, _, _, s, "
                                          "mode=\"{}\") %b = relu(%a) return %b }}",
                                          mode),
                              {}, with("s", sizes));
    for (const char* mode : {"nearest", "linear"})
        expect_everywhere(
            fmt::format("graph g(x: f32[1,2,3,4], s: f32[4]) {{ %a = resize(x, _, s, mode=\"{}\") return %a }}", mode),
            {}, with("s", {1, 1, 1.5, 2.25}));
    expect_everywhere("graph g(x: f32[1,2,3,4], s: f32[4]) { %a = resize(x, _, s) return %a }", {},
                      with("s", {1, 1, 0, 2}));
}

const double kNan = std::nan("");

TEST(RunSizes, NonZero) {
    for (const char* type : {"f32[3,5]", "f16[7]", "i64[2,3,4]", "bool[5,5]", "u8[1]", "f64[0,3]", "f32[]"})
        expect_everywhere(fmt::format("graph g(x: {}) {{ %a = non_zero(x) return %a }}", type));
    for (const std::vector<double>& values : {std::vector<double>{0}, {1}, {0, kNan, -0.0, 2}, {0, 0, 0, 0, 0, 0, 3}})
        expect_everywhere("graph g(x: f32[4,9]) { %a = non_zero(x) %b = transpose(%a, perm=[1,0]) return %a, %b }", {},
                          with("x", values));
    for (int n : {1000, 5000})
        for (const std::vector<double>& values : {std::vector<double>{0}, {1}, {0, 1, 1, 0, 0, 0, 1}})
            expect_everywhere(fmt::format("graph g(x: f32[{}]) {{ %a = non_zero(x) return %a }}", n), {},
                              with("x", values));
    for (int64_t n : {0, 1, 7, 5000})
        expect_everywhere(
            "graph g(x: f32[N,2], y: f32[N]) { %l = less(y, [1.0]) %a = non_zero(%l) "
            "%i = reshape(%a, [-1]) %b = gather(x, %i, axis=0) %c = relu(%b) %d = reduce_sum(%c, [0], keepdims=0) "
            "return %c, %d }",
            {{"N", n}});
}

TEST(RunSizes, Compress) {
    for (const char* axis : {"", ", axis=0", ", axis=1", ", axis=-1"})
        for (const std::vector<double>& values : {std::vector<double>{0}, {1}, {0, 1, 1}, {1, 0, 0}})
            expect_everywhere(
                fmt::format("graph g(x: f32[3,4], c: bool[3]) {{ %a = compress(x, c{}) %b = neg(%a) return %b }}",
                            axis),
                {}, with("c", values));
    for (const char* type : {"i64", "f16", "bf16", "bool", "f8e4m3fn"})
        expect_everywhere(
            fmt::format("graph g(x: {}[6,2], c: bool[6]) {{ %a = compress(x, c, axis=0) return %a }}", type));
    // A condition that is longer than the axis, false and true beyond its end.
    expect_everywhere("graph g(x: f32[3], c: bool[5]) { %a = compress(x, c, axis=0) return %a }", {},
                      with("c", {1, 0, 1, 0, 0}));
    expect_everywhere("graph g(x: f32[3], c: bool[5]) { %a = compress(x, c, axis=0) return %a }", {},
                      with("c", {1, 0, 1, 0, 1}));
    for (int64_t n : {0, 1, 9000})
        expect_everywhere("graph g(x: f32[N], c: bool[N]) { %a = compress(x, c) %b = mul(%a, %a) return %b }",
                          {{"N", n}});
}

TEST(RunSizes, Unique) {
    auto graph = [&](const char* type, const char* how) {
        return fmt::format("graph g(x: {}) {{ %a, %b, %c, %d = unique(x{}) return %a, %b, %c, %d }}", type, how);
    };
    for (const char* how : {"", ", sorted=0"}) {
        for (const char* type : {"i64[13]", "bool[5]", "u8[4,6]", "f16[7]", "f32[1]", "i64[0]", "f32[]"})
            expect_everywhere(graph(type, how));
        expect_everywhere(graph("f32[12]", how), {}, with("x", {3, kNan, 1, kNan, -1, 3, 0, -0.0, 1}));
        expect_everywhere(graph("u64[6]", how), {}, with("x", {9e18, 1, 1.8e19, 1}));
    }
    for (const char* how : {", axis=0", ", axis=1", ", axis=-1, sorted=0"})
        expect_everywhere(graph("i64[5,2,3]", how), {}, with("x", {1, 0, 0, 1, 0, 0, 0, 2, 0}));
    for (int64_t n : {0, 1, 2, 100})
        expect_everywhere("graph g(x: i64[N]) { %a, %b, %c, %d = unique(x) %e = mul(%a, %d) return %e, %c }",
                          {{"N", n}});
    expect_everywhere("graph g(x: i64[9]) { %a = unique(x) return %a }");
}

TEST(RunSizes, NonMaxSuppression) {
    const Fill boxes = [](Inputs& inputs, std::mt19937& gen) {
        Tensor t = *Tensor::zeros(DType::f32, inputs.at("b").tensor().sizes());
        std::uniform_int_distribution<int64_t> at(0, 6), side(0, 4);
        for (int64_t i = 0; i + 3 < t.elements(); i += 4)
            for (int64_t k : {0, 1}) {
                const int64_t from = at(gen), to = from + side(gen);
                t.set_real(i + k, double(k + i % 3 == 1 ? to : from));
                t.set_real(i + k + 2, double(k + i % 3 == 1 ? from : to));
            }
        inputs["b"] = Datum(t);
    };
    auto limits = [&](double most, double overlap, double least) {
        return all_of({boxes, with("m", {most}), with("o", {overlap}), with("t", {least})});
    };
    for (int center : {0, 1})
        for (const auto& [most, overlap, least] : {std::array{3.0, 0.5, 0.1}, {100.0, 0.0, -9.0}, {0.0, 0.5, 0.0}})
            expect_everywhere(
                fmt::format("graph g(b: f32[2,17,4], s: f32[2,3,17], m: i64[1], o: f32[1], t: f32[1]) {{ %a = "
                            "non_max_suppression(b, s, m, o, t, center_point_box={}) return %a }}",
                            center),
                {}, limits(most, overlap, least));
    // Blocks of threads take the boxes of a class.
    for (const auto& [most, overlap, least] : {std::array{7.0, 0.5, 0.1}, {100.0, 0.3, -9.0}, {40.0, 1.0, 0.9}})
        expect_everywhere(
            "graph g(b: f32[2,40,4], s: f32[2,2,40], m: i64[1], o: f32[1], t: f32[1]) { %a = "
            "non_max_suppression(b, s, m, o, t) return %a }",
            {}, limits(most, overlap, least));
    expect_everywhere(
        "graph g(b: f32[1,40,4], s: f32[1,2,40], m: i64[]) { %a = non_max_suppression(b, s, m) return %a }", {},
        all_of({boxes, with("m", {15}), with("s", {1, kNan, 2, 2, kNan})}));
    expect_everywhere("graph g(b: f32[1,9,4], s: f32[1,2,9], m: i64[]) { %a = non_max_suppression(b, s, m) return %a }",
                      {}, all_of({boxes, with("m", {5}), with("s", {1, kNan, 2, 2, kNan})}));
    expect_everywhere("graph g(b: f32[1,9,4], s: f32[1,2,9]) { %a = non_max_suppression(b, s) return %a }", {}, boxes);
    for (int64_t n : {0, 1, 300})
        expect_everywhere(
            "graph g(b: f32[1,N,4], s: f32[1,1,N], o: f32[]) { %a = non_max_suppression(b, s, [20], o) "
            "%i = gather(%a, 2, axis=1) %c = gather(b, %i, axis=1) return %a, %c }",
            {{"N", n}}, all_of({boxes, with("o", {0.3})}));
}

TEST(RunSizes, StepsOfThem) {
    EXPECT_EQ(step_labels(lowered("graph g(x: f32[9]) { %a = non_zero(x) %b = relu(%a) return %a }")),
              (std::vector<std::string>{"non_zero", "sizes non_zero", "non_zero"}));
    EXPECT_EQ(step_labels(lowered("graph g(x: f32[9], e: i64[1]) { %a = slice(x, [0], e) %b = relu(%a) return %b }")),
              (std::vector<std::string>{"sizes slice", "relu"}));
}

}  // namespace
}  // namespace tessera::test::run_sizes_test
