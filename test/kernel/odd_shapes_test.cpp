// Ops with attributes and sizes drawn at random, also symbolic, of one and of none: as kernels for machines with short
// and with long vectors, against the evaluator. Every access is checked. A failure prints the seed and the graph.
#include "kernel/lower_text.h"
#include "rewrite/edit.h"

namespace tessera::test::odd_shapes_test {
namespace {

class OddShapes : public testing::TestWithParam<unsigned> {
  protected:
    std::mt19937 gen{GetParam()};

    int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(gen); }
    bool chance(double p) { return std::bernoulli_distribution(p)(gen); }
    int64_t pick(std::initializer_list<int64_t> list) { return list.begin()[draw(0, int64_t(list.size()) - 1)]; }

    static std::string joined(const std::vector<int64_t>& list) {
        std::string text;
        for (int64_t n : list) text += (text.empty() ? "" : ",") + std::to_string(n);
        return text;
    }

    static int64_t elements(const std::vector<int64_t>& sizes) {
        int64_t n = 1;
        for (int64_t d : sizes) n *= d;
        return n;
    }

    // A type with some dimensions left open, whose sizes go to symbols_.
    std::string type(const std::vector<int64_t>& sizes, double open, bool first_two = true) {
        std::string text;
        for (size_t i = 0; i < sizes.size(); ++i) {
            std::string dim = std::to_string(sizes[i]);
            if ((first_two || i != 1) && chance(open)) {
                dim = fmt::format("S{}", symbols_.size());
                symbols_[dim] = sizes[i];
            }
            text += (i ? "," : "") + dim;
        }
        return "f32[" + text + "]";
    }

    // Inputs called w are constants half of the time.
    std::shared_ptr<const Graph> drawn_graph(const std::string& text) {
        auto graph = parse(text);
        EXPECT_TRUE(graph.ok()) << graph.error().to_string();
        if (chance(0.5))
            for (const auto& input : (*graph)->inputs()) {
                auto sizes = input->type().tensor().shape.sizes();
                if (input->name() != "w" || !sizes) continue;
                put_in_place(*input, *(*graph)->constant(random_tensor(DType::f32, *sizes, gen)), false);
            }
        return std::shared_ptr<const Graph>(std::move(*graph));
    }

    void expect(const std::string& text) {
        SCOPED_TRACE(fmt::format("seed {}: {}", GetParam(), text));
        auto graph = drawn_graph(text);
        Inputs inputs = random_inputs(*graph, symbols_, 7);
        auto want = evaluate(*graph, inputs);
        ASSERT_TRUE(want.ok()) << want.error().to_string();
        Machine neon;
        neon.lane_multiply = true;
        neon.features = {"dotprod"};
        Machine wide;
        wide.vector_bytes = 64;
        wide.load_broadcast = wide.masked = true;
        wide.features = {"avx512vnni"};
        for (const Machine& machine : {neon, wide})
            for (int threads : {1, 3}) {
                SCOPED_TRACE(fmt::format("vectors of {} bytes, {} threads", machine.vector_bytes, threads));
                LowerOptions options;
                options.machine = machine;
                options.threads = threads;
                auto program = from_graph(graph, options);
                ASSERT_TRUE(program.ok()) << program.error().to_string();
                for (const Choice& c : program->choices)
                    EXPECT_TRUE(c.decision || !c.subject.starts_with("schedule "))
                        << c.subject << ": " << c.decision.reason();
                auto got = run_program(*program, inputs);
                ASSERT_TRUE(got.ok()) << got.error().to_string();
                for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
            }
        symbols_.clear();
    }

    SymbolValues symbols_;
};

struct Spatial {
    std::vector<int64_t> kernel, strides, dilations, pads, sizes;
};

TEST_P(OddShapes, Convolutions) {
    const size_t rank = size_t(pick({1, 1, 2, 2, 2, 3}));
    const bool transposed = chance(0.4);
    int64_t group = pick({1, 1, 1, 2, 3}), in = group * draw(1, 4), out = group * draw(1, 5);
    if (chance(0.3))
        group = in = out = draw(1, 9);
    else if (transposed && chance(0.5))
        in = group * draw(12, 40);  // as many as are worth products of all taps
    Spatial s;
    std::vector<int64_t> ends;
    for (size_t i = 0; i < rank; ++i) {
        s.kernel.push_back(pick({1, 2, 3, 3, 4, 5, rank == 1 ? 40 : 3}));
        s.strides.push_back(draw(1, 4));
        s.dilations.push_back(s.kernel.back() < 6 ? pick({1, 1, 2, 3}) : 1);
        const int64_t extent = (s.kernel.back() - 1) * s.dilations.back() + 1;
        s.pads.push_back(draw(0, std::min<int64_t>(3, extent - 1)));
        ends.push_back(draw(0, std::min<int64_t>(3, extent - 1)));
        const int64_t most = rank == 1 ? 90 : i + 1 == rank ? 33 : rank == 2 ? 9 : 4;
        s.sizes.push_back(transposed ? draw(2, std::max<int64_t>(2, most / 2)) : extent + draw(0, most));
    }
    s.pads.insert(s.pads.end(), ends.begin(), ends.end());
    std::vector<int64_t> x{draw(1, 2), in}, w{transposed ? in : out, (transposed ? out : in) / group};
    x.insert(x.end(), s.sizes.begin(), s.sizes.end());
    w.insert(w.end(), s.kernel.begin(), s.kernel.end());
    const std::string bias = chance(0.5) ? ", b" : "";
    std::string text = fmt::format(
        "graph g(x: {}, w: f32[{}], b: f32[{}]) {{ %a = {}(x, w{}, group={}, strides=[{}], dilations=[{}], pads=[{}]) "
        "{} return %y }}",
        type(x, chance(0.4) ? 0.5 : 0, false), joined(w), out, transposed ? "conv_transpose" : "conv", bias, group,
        joined(s.strides), joined(s.dilations), joined(s.pads), chance(0.5) ? "%y = relu(%a)" : "%y = mul(%a, 2.0)");
    expect(text);
}

// One channel and a kernel as long as the step, or longer: resampling, filter banks.
TEST_P(OddShapes, LongKernels) {
    const int64_t kernel = draw(25, 70), step = draw(kernel / 3, kernel + 2), out = pick({1, 3, 8, 33});
    const int64_t before = draw(0, 7), after = draw(0, kernel - 1);
    std::vector<int64_t> x{draw(1, 3), kernel + draw(0, 4 * step)};
    expect(
        fmt::format("graph g(x: {}, w: f32[{},1,1,{}]) {{ %u = unsqueeze(x, [1,2]) "
                    "%a = conv(%u, w, strides=[1,{}], pads=[0,{},0,{}]) %b = transpose(%a, perm=[0,3,2,1]) "
                    "%y = reshape(%b, [0,-1]) return %y }}",
                    type(x, chance(0.7) ? 0.9 : 0), out, kernel, step, before, after));
}

// Bytes of either sign, with and without zero points, known or not; sums of any length.
TEST_P(OddShapes, ProductsOfBytes) {
    const std::string a = chance(0.5) ? "u8" : "i8", b = chance(0.5) ? "u8" : "i8", y = chance(0.5) ? "u8" : "i8";
    std::string inputs, constants;
    for (const auto& [name, of] : {std::pair{"za", a}, {"zb", b}, {"zy", y}}) {
        if (chance(0.5))
            constants += fmt::format("const {}: {}[] = {} ", name, of, of == "u8" ? draw(0, 255) : draw(-128, 127));
        else
            inputs += fmt::format(", {}: {}[]", name, of);
    }
    const std::string zeros = chance(0.3) ? "" : chance(0.5) ? ", za" : ", za, zb";
    const int64_t m = pick({1, 2, 3, 9, 17}), n = draw(1, 40), k = pick({1, 4, 11, 20, 37, 64, 130});
    const std::string rows = chance(0.3) ? "M" : std::to_string(m);
    auto check = [&](const std::string& given, const std::string& body) {
        symbols_ = {{"M", m}, {"H", 3 + k % 7}};
        expect(fmt::format("graph g({}{}) {{ {} {} }}", given, inputs, constants, body));
    };
    check(fmt::format("x: {}[{},{}], w: {}[{},{}]", a, rows, k, b, k, n),
          fmt::format("%a = matmul_integer(x, w{}) return %a", zeros));
    const int64_t in = pick({1, 3, 4, 8, 12}), out = draw(1, 9), side = draw(1, 3), pad = draw(0, side - 1);
    const std::string pads = fmt::format("pads=[{0},{0},{0},{0}]", pad);
    const std::string weights = fmt::format("w: {}[{},{},{},{}]", b, out, in, side, side);
    check(fmt::format("x: {}[1,{},H,7], {}, s: f32[{}], bias: i32[{}]", a, in, weights, out, out),
          fmt::format("%c = conv_integer(x, w{}, {}, strides=[{},1]) "
                      "%d = qlinear_conv(x, 0.5, za, w, s, zb, 2.0, zy, bias, {}) return %c, %d",
                      zeros, pads, draw(1, 2), pads));
    check(fmt::format("x: {}[1,{},9,7], {}, s: f32[{}], c: f32[{}]", a, in, weights, out, out),
          fmt::format("%p = dequantize_linear(x, 0.5, za) %q = dequantize_linear(w, {}, axis=0) "
                      "%y = conv(%p, %q, c, {}) return %y",
                      chance(0.5) ? "s" : "0.25", pads));
    check(fmt::format("x: {}[{},{}], w: {}[{},{}], c: f32[{}]", a, m, k, b, n, k, n),
          "%p = dequantize_linear(x, 0.5, za) %q = dequantize_linear(w, 0.25, zb) "
          "%y = gemm(%p, %q, c, transB=1) %z = transpose(%q) %m = matmul(%p, %z) return %y, %m");
}

// More taps than are written out, one channel after the other.
TEST_P(OddShapes, LargeDepthwiseWindows) {
    const int64_t channels = draw(1, 5), high = draw(3, 9), wide = draw(6, 13), d = draw(1, 3);
    std::vector<int64_t> x{draw(1, 2), channels, (high - 1) * d + draw(1, 6), wide + draw(0, 20)};
    expect(
        fmt::format("graph g(x: {}, w: f32[{},1,{},{}]) {{ %y = conv(x, w, group={}, strides=[{},{}], "
                    "dilations=[{},1], pads=[{},{},{},{}]) return %y }}",
                    type(x, chance(0.5) ? 0.6 : 0, false), channels, high, wide, channels, draw(1, 2), draw(1, 3), d,
                    draw(0, 2), draw(0, 5), draw(0, 2), draw(0, 5)));
}

// Groups with a few rows each, and pools: windows in steps, spread out and padded, in one to three dimensions.
TEST_P(OddShapes, PaddedWindows) {
    const size_t rank = size_t(draw(1, 3));
    const int64_t groups = chance(0.3) ? 1 : draw(1, 4), inputs = chance(0.5) ? 1 : draw(1, 5), rows = draw(1, 9);
    std::vector<int64_t> x{draw(1, 2), groups * inputs}, kernel, strides, dilations, pads, ends;
    for (size_t i = 0; i < rank; ++i) {
        kernel.push_back(draw(1, i + 1 == rank ? 7 : 3));
        strides.push_back(draw(1, 4));
        dilations.push_back(draw(1, 3));
        x.push_back((kernel.back() - 1) * dilations.back() + draw(1, i + 1 == rank ? 40 : 9));
        pads.push_back(draw(0, kernel.back() - 1));
        ends.push_back(draw(0, kernel.back() - 1));
    }
    pads.insert(pads.end(), ends.begin(), ends.end());
    const double open = chance(0.5) ? 0.6 : 0;
    const std::string window =
        fmt::format("strides=[{}], dilations=[{}], pads=[{}]", joined(strides), joined(dilations), joined(pads));
    const char* after[] = {"", "%z = relu(%y)", "%z = tanh(%y)"};
    const char* then = after[draw(0, 2)];
    expect(
        fmt::format("graph g(x: {}, w: f32[{},{},{}], b: f32[{}]) {{ %y = conv(x, w, b, group={}, {}) {} return {} }}",
                    type(x, open, false), groups * rows, inputs, joined(kernel), groups * rows, groups, window, then,
                    *then ? "%z" : "%y"));
    expect(fmt::format("graph g(x: {}) {{ %y = max_pool(x, kernel_shape=[{}], {}) return %y }}", type(x, open, false),
                       joined(kernel), window));
    expect(
        fmt::format("graph g(x: {}) {{ %y = average_pool(x, kernel_shape=[{}], {}, count_include_pad={}) return %y }}",
                    type(x, open, false), joined(kernel), window, draw(0, 1)));
}

TEST_P(OddShapes, Paddings) {
    std::vector<int64_t> x, pads, ends;
    const size_t rank = size_t(draw(1, 4));
    for (size_t i = 0; i < rank; ++i) {
        x.push_back(draw(2, i + 1 == rank ? 30 : 6));
        pads.push_back(chance(0.6) ? draw(-1, x.back() - 1) : 0);
        ends.push_back(chance(0.6) ? draw(0, x.back() - 1) : 0);
    }
    pads.insert(pads.end(), ends.begin(), ends.end());
    const char* modes[] = {"constant", "reflect", "edge", "wrap"};
    const double open = chance(0.4) ? 0.6 : 0;
    const char* mode = modes[draw(0, 3)];
    expect(fmt::format("graph g(x: {}) {{ %y = pad(x, [{}], mode=\"{}\") return %y }}", type(x, open), joined(pads),
                       mode));
    if (rank < 2) return;
    expect(fmt::format("graph g(x: {}, w: f32[{},3]) {{ %p = pad(x, [{}], mode=\"{}\") %y = matmul(%p, w) return %y }}",
                       type(x, 0), x[rank - 1] + pads[rank - 1] + pads[2 * rank - 1], joined(pads), mode));
    expect(fmt::format("graph g(x: {}) {{ %y = trilu(x, upper={}) return %y }}", type(x, open), draw(0, 1)));
}

TEST_P(OddShapes, Resizes) {
    const char* modes[] = {"linear", "linear", "nearest", "cubic"};
    const char* places[] = {"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"};
    const char* factors[] = {"2.0", "0.5", "1.5", "3.0", "0.75", "1.0"};
    std::vector<int64_t> x{draw(1, 2), draw(1, 5), draw(1, 9), draw(1, 25)};
    const char* nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    const std::string attrs =
        fmt::format("mode=\"{}\", coordinate_transformation_mode=\"{}\", exclude_outside={}, nearest_mode=\"{}\"",
                    modes[draw(0, 3)], places[draw(0, 4)], draw(0, 1), nearest[draw(0, 3)]);
    const std::string scales = fmt::format("1.0,1.0,{},{}", factors[draw(0, 5)], factors[draw(0, 5)]);
    const std::string conv = chance(0.4) ? "%y = conv(%r, w, pads=[1,1,1,1])" : "%y = neg(%r)";
    expect(fmt::format("graph g(x: {}, w: f32[3,{},3,3]) {{ %r = resize(x, _, [{}], {}) {} return %y }}",
                       type(x, chance(0.3) ? 0.4 : 0, false), x[1], scales, attrs, conv));
}

// Points inside, on the edges and outside, in one to three dimensions.
TEST_P(OddShapes, GridSamples) {
    const char *paddings[] = {"zeros", "border", "reflection"}, *modes[] = {"linear", "linear", "nearest"};
    const size_t spatial = size_t(draw(1, 3));
    std::vector<int64_t> x{draw(1, 2), draw(1, 9)}, grid{x[0]};
    for (size_t i = 0; i < spatial; ++i) {
        x.push_back(draw(1, 9));
        grid.push_back(draw(1, 7));
    }
    grid.push_back(int64_t(spatial));
    expect(
        fmt::format("graph g(x: {}, p: f32[{}]) {{ %g = mul(p, 0.75) %y = grid_sample(x, %g, mode=\"{}\", "
                    "padding_mode=\"{}\", align_corners={}) return %y }}",
                    type(x, 0, false), joined(grid), modes[draw(0, 2)], paddings[draw(0, 2)], draw(0, 1)));
}

TEST_P(OddShapes, Pools) {
    const size_t rank = size_t(pick({1, 2, 2, 3}));
    Spatial s;
    for (size_t i = 0; i < rank; ++i) {
        s.kernel.push_back(pick({1, 2, 3, 3, 5}));
        s.strides.push_back(draw(1, 3));
        s.pads.push_back(draw(0, s.kernel.back() / 2));
        s.sizes.push_back(s.kernel.back() + draw(0, i + 1 == rank ? 40 : 5));
    }
    s.pads.insert(s.pads.end(), s.pads.begin(), s.pads.end());
    std::vector<int64_t> x{draw(1, 2), draw(1, 5)};
    x.insert(x.end(), s.sizes.begin(), s.sizes.end());
    expect(fmt::format("graph g(x: {}) {{ %a = {}(x, kernel_shape=[{}], strides=[{}], pads=[{}]) return %a }}",
                       type(x, chance(0.4) ? 0.5 : 0, false), chance(0.5) ? "max_pool" : "average_pool",
                       joined(s.kernel), joined(s.strides), joined(s.pads)));
}

// Windows that are taken along one axis after the other.
TEST_P(OddShapes, LargePools) {
    const size_t rank = size_t(draw(2, 3));
    std::vector<int64_t> x{draw(1, 2), draw(1, 5)}, kernel, strides, dilations, pads, ends;
    for (size_t i = 0; i < rank; ++i) {
        kernel.push_back(pick({1, 3, 5, 9}));
        strides.push_back(draw(1, 3));
        dilations.push_back(draw(1, 2));
        x.push_back((kernel.back() - 1) * dilations.back() + draw(1, i + 1 == rank ? 40 : 6));
        pads.push_back(draw(0, kernel.back() - 1));
        ends.push_back(draw(0, kernel.back() - 1));
    }
    pads.insert(pads.end(), ends.begin(), ends.end());
    expect(fmt::format(
        "graph g(x: {}) {{ %a = max_pool(x, kernel_shape=[{}], strides=[{}], dilations=[{}], pads=[{}], ceil_mode={}) "
        "return %a }}",
        type(x, chance(0.4) ? 0.5 : 0, false), joined(kernel), joined(strides), joined(dilations), joined(pads),
        draw(0, 1)));
}

TEST_P(OddShapes, Transposes) {
    const size_t rank = size_t(draw(2, 4));
    std::vector<int64_t> x, order;
    for (size_t i = 0; i < rank; ++i) {
        x.push_back(chance(0.3) ? draw(9, 40) : draw(1, 8));
        order.push_back(int64_t(i));
    }
    std::shuffle(order.begin(), order.end(), gen);
    for (double open : {0.0, 0.5, 1.0})
        expect(fmt::format("graph g(x: {}) {{ %a = transpose(x, [{}]) return %a }}", type(x, open), joined(order)));
}

TEST_P(OddShapes, Reductions) {
    const size_t rank = size_t(draw(1, 4));
    std::vector<int64_t> x, axes;
    for (size_t i = 0; i < rank; ++i) {
        x.push_back(chance(0.04) ? 0 : chance(0.2) ? draw(20, rank == 1 ? 40000 : 70) : draw(1, 9));
        if (chance(0.5)) axes.push_back(int64_t(i));
    }
    if (axes.empty()) axes.push_back(draw(0, int64_t(rank) - 1));
    const char* ops[] = {"reduce_sum", "reduce_mean", "reduce_max", "reduce_l2", "reduce_sum_square", "reduce_min"};
    const char* op = ops[draw(0, 5)];
    const bool empty = std::count(x.begin(), x.end(), 0) > 0;
    expect(fmt::format("graph g(x: {}) {{ %a = {}(x, [{}], keepdims={}) return %a }}", type(x, chance(0.4) ? 0.5 : 0),
                       empty ? "reduce_sum" : op, joined(axes), draw(0, 1)));
    // Some of one element beside those of many, which stay or go; sums of few terms and of many, in a number that is
    // open.
    std::vector<int64_t> y = x;
    for (int64_t& n : y) n = pick({1, 1, 3, 20, 70, 130});
    if (!empty && elements(y) < 20000)
        expect(fmt::format("graph g(x: {}) {{ %e = abs(x) %a = {}(%e, [{}], keepdims={}) return %a }}",
                           type(y, chance(0.4) ? 0.5 : 0), op, joined(axes), draw(0, 1)));
    expect(fmt::format("graph g(x: {}) {{ %a = reduce_sum(x, [0], keepdims=1) return %a }}",
                       type({draw(2, 9), pick({8, 40}), 1}, chance(0.4) ? 0.5 : 0)));
    const int64_t axis = draw(0, int64_t(rank) - 1);
    if (!empty) expect(fmt::format("graph g(x: {}) {{ %a = softmax(x, axis={}) return %a }}", type(x, 0.2), axis));
}

TEST_P(OddShapes, Products) {
    const int64_t m = pick({1, 1, 2, 3, 9, 30}), n = draw(1, 60), k = draw(1, 40);
    const bool batch = chance(0.4);
    std::vector<int64_t> a{m, k}, b{k, n};
    if (batch) a.insert(a.begin(), draw(1, 3));
    std::string right = fmt::format("f32[{},{}]", k, n);
    if (chance(0.4)) {
        right = fmt::format("f32[{},N]", k);
        symbols_["N"] = n;
    }
    std::string left = joined(a);
    if (chance(0.4)) {
        left = batch ? fmt::format("{},M,{}", a[0], k) : fmt::format("M,{}", k);
        symbols_["M"] = m;
    }
    expect(fmt::format("graph g(a: f32[{}], b: {}) {{ %y = matmul(a, b) return %y }}", left, right));
}

TEST_P(OddShapes, FourierTransforms) {
    const int64_t length = pick({1, 2, 5, 8, 12, 60, 97, 100, 128, 144}), rows = draw(1, 4), parts = draw(1, 2);
    const int64_t given = chance(0.3) ? length + draw(-1, 3) : length;
    const bool inverse = chance(0.3), onesided = parts == 1 && !inverse && chance(0.6);
    const std::string attrs = fmt::format("inverse={}, onesided={}", int(inverse), int(onesided));
    expect(fmt::format("graph g(x: {}) {{ %a = dft(x, {}, 1, {}) return %a }}",
                       type({rows, std::max<int64_t>(1, given), parts}, 0.0), length, attrs));
    const int64_t frames = draw(1, 5), step = draw(1, length);
    symbols_["N"] = rows;
    expect(fmt::format("graph g(x: f32[N,{},1], w: f32[{}]) {{ %a = stft(x, {}, w, {}) return %a }}",
                       length + step * (frames - 1) + draw(0, step - 1), length, step, length));
}

INSTANTIATE_TEST_SUITE_P(Seeds, OddShapes, testing::Range(1u, 25u));

}  // namespace
}  // namespace tessera::test::odd_shapes_test
