// Random graphs for blocks of threads, thread by thread: products of odd sizes, convolutions by tiles, selections, sums
// and scatters along rows, and tile kernels of a model that reach far outside of their tensors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "graph/text/print.h"
#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_random_test {
namespace {

using Races = InterpretOptions::Races;

// Those of TESSERA_SEED and TESSERA_COUNT, where they are given.
template <typename F>
void for_seeds(unsigned count, F&& check) {
    const char *given = std::getenv("TESSERA_SEED"), *many = std::getenv("TESSERA_COUNT");
    const auto first = static_cast<unsigned>(given ? std::atoi(given) : 1);
    if (given || many) count = static_cast<unsigned>(many ? std::atoi(many) : 1);
    for (unsigned seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) check(seed);
}

class Chooser {
  public:
    explicit Chooser(unsigned seed) : random_(seed) {}
    template <typename T>
    T of(std::initializer_list<T> all) {
        return all.begin()[random_() % all.size()];
    }
    bool one_in(unsigned n) { return random_() % n == 0; }

  private:
    std::mt19937 random_;
};

void expect_what_is_evaluated(const std::shared_ptr<const Graph>& graph, const SymbolValues& symbols, unsigned seed,
                              const char* target) {
    SCOPED_TRACE(fmt::format("seed {} for {}\n{}", seed, target, print(*graph)));
    const Inputs inputs = random_inputs(*graph, symbols, seed);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    LowerOptions options;
    options.machine = *describe_target(target);
    auto program = from_graph(graph, options);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    for (bool backwards : {false, true}) {
        auto got = run_program(*program, inputs, {.backwards = backwards, .races = Races::Find});
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
}

std::string random_product(Chooser& choose) {
    auto size = [&] { return choose.of<int64_t>({1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 40, 64, 65, 72, 100, 128, 130}); };
    const int64_t m = size(), n = size(), k = size();
    const std::string type = choose.of<const char*>({"f16", "f16", "bf16", "f32"});
    const std::string batch = choose.of<const char*>({"", "", "1,", "2,", "3,"});
    const bool left = choose.one_in(3), right = choose.one_in(3), shared = choose.one_in(2);
    const std::string batch_b = shared ? "" : batch;
    const std::string a = left ? fmt::format("{},{}", k, m) : fmt::format("{},{}", m, k);
    const std::string b = right ? fmt::format("{},{}", n, k) : fmt::format("{},{}", k, n);
    auto turned = [](const std::string& name, const std::string& of, bool with_batch) {
        return fmt::format("  %{} = transpose({}, perm=[{}])\n", name, of, with_batch ? "0,2,1" : "1,0");
    };
    std::string text =
        fmt::format("graph g(a: {0}[{1}{2}], b: {0}[{3}{4}], c: {0}[{5}]) {{\n", type, batch, a, batch_b, b, n);
    if (left) text += turned("at", "a", !batch.empty());
    if (right) text += turned("bt", "b", !batch_b.empty());
    text += fmt::format("  %p = matmul({}, {})\n", left ? "%at" : "a", right ? "%bt" : "b");
    text += choose.of<const char*>({"  return %p\n}\n", "  %q = add(%p, c)\n  return relu(%q)\n}\n",
                                    "  %q = mul(%p, c)\n  return transpose(%q)\n}\n"});
    return text;
}

TEST(GpuRandom, Products) {
    for_seeds(12, [](unsigned seed) {
        Chooser choose(seed);
        const std::string text = random_product(choose);
        expect_what_is_evaluated(graph_of(text), {}, seed, choose.of<const char*>({"sm_80", "sm_90", "sm_90a"}));
    });
}

// Of bytes, less zero points or not, which are one number or lie along a side.
std::string random_product_of_bytes(Chooser& choose) {
    auto size = [&] { return choose.of<int64_t>({1, 2, 7, 15, 16, 17, 31, 33, 40, 64, 65, 72, 100, 128, 130}); };
    const int64_t m = size(), n = size(), k = size();
    const char *a = choose.of<const char*>({"i8", "u8"}), *b = choose.of<const char*>({"i8", "u8"});
    const std::string batch = choose.of<const char*>({"", "", "2,"});
    const bool right = batch.empty() && choose.one_in(2), requantized = choose.one_in(2);
    auto zero = [&](const char* name, int64_t side) {
        const std::string given = choose.one_in(2) ? "" : fmt::format("{}", side);
        return fmt::format("{}[{}]", name, given);
    };
    std::string text = fmt::format("graph g(a: {0}[{2}{3},{4}], b: {1}[{2}{5},{6}], p: {7}, q: {8}, z: u8[]) {{\n", a,
                                   b, batch, m, k, right ? n : k, right ? k : n, zero(a, m), zero(b, n));
    if (right) text += "  %t = transpose(b, perm=[1,0])\n";
    const char* of = right ? "%t" : "b";
    if (requantized) return text + fmt::format("  return qlinear_matmul(a, 0.25, p, {}, 0.5, q, 64.0, z)\n}}\n", of);
    return text + fmt::format("  return matmul_integer(a, {}{})\n}}\n", of,
                              choose.of<const char*>({"", ", p", ", _, q", ", p, q"}));
}

TEST(GpuRandom, ProductsOfBytes) {
    for_seeds(16, [](unsigned seed) {
        Chooser choose(seed);
        const std::string text = random_product_of_bytes(choose);
        expect_what_is_evaluated(graph_of(text), {}, seed, choose.of<const char*>({"sm_80", "sm_90", "sm_90a"}));
    });
}

std::string random_convolution_of_bytes(Chooser& choose) {
    const int64_t groups = choose.of<int64_t>({1, 1, 2}), c = choose.of<int64_t>({3, 8, 17, 32, 48, 64});
    const int64_t o = groups * choose.of<int64_t>({1, 16, 20, 33}), h = choose.of<int64_t>({1, 3});
    const char *x = choose.of<const char*>({"i8", "u8"}), *w = choose.of<const char*>({"i8", "u8"});
    const std::string attrs = fmt::format("group={}, pads=[{},{},{},1], strides=[{},1]", groups, choose.of({0, 1}),
                                          choose.of({0, 2}), choose.of({0, 1}), choose.of({1, 2}));
    std::string text = fmt::format(
        "graph g(x: {0}[{2},{3},7,6], w: {1}[{4},{5},{6},3], p: {0}[], q: {1}{7}, s: f32[]) {{\n", x, w,
        choose.of({1, 2}), groups * c, o, c, h, choose.one_in(2) ? std::string("[]") : fmt::format("[{}]", o));
    if (choose.one_in(2))
        return text + fmt::format("  return qlinear_conv(x, 0.25, p, w, 0.5, q, 128.0, p, {})\n}}\n", attrs);
    return text + fmt::format("  return conv_integer(x, w{}, {})\n}}\n",
                              choose.of<const char*>({"", ", p", ", _, q", ", p, q"}), attrs);
}

TEST(GpuRandom, ConvolutionsOfBytes) {
    for_seeds(16, [](unsigned seed) {
        Chooser choose(seed);
        const std::string text = random_convolution_of_bytes(choose);
        expect_what_is_evaluated(graph_of(text), {}, seed, choose.of<const char*>({"sm_80", "sm_90a"}));
    });
}

// Convolutions by Winograd tiles, asked for or not, with what is transformed at once or one axis after the other.
std::shared_ptr<Graph> random_convolution(Chooser& choose, unsigned seed) {
    struct Kernel2 {
        int64_t h, w, tiles_h, tiles_w;
    };
    const auto k = choose.of<Kernel2>({{3, 3, 4, 4},
                                       {3, 3, 2, 3},
                                       {1, 7, 1, 4},
                                       {7, 1, 4, 1},
                                       {5, 5, 2, 2},
                                       {5, 1, 4, 1},
                                       {2, 2, 4, 4},
                                       {1, 3, 1, 4},
                                       {3, 5, 4, 2}});
    const int64_t c = choose.of<int64_t>({1, 3, 8, 16, 17}), o = choose.of<int64_t>({1, 5, 16, 32});
    const int64_t h = choose.of<int64_t>({1, 4, 7, 9}) + k.h - 1, w = choose.of<int64_t>({1, 4, 5, 11}) + k.w - 1;
    auto graph = std::make_shared<Graph>("g");
    Value* x = graph->add_input("x", Type(DType::f32, Shape{choose.of<int64_t>({1, 2}), c, h, w}));
    Tensor weight = *Tensor::zeros(DType::f32, {o, c, k.h, k.w});
    std::mt19937 random(seed);
    for (int64_t i = 0; i < weight.elements(); ++i) weight.set_real(i, double(random() % 2001) / 1000 - 1);
    NodeSpec spec{find_op("conv"), {x, graph->constant(weight)}};
    const int64_t top = choose.of<int64_t>({0, k.h / 2}), left = choose.of<int64_t>({0, k.w / 2});
    spec.attrs["pads"] = Attr(std::vector<int64_t>{top, left, choose.of<int64_t>({top, k.h - 1}), left});
    spec.attrs["tiles"] = Attr(std::vector<int64_t>{k.tiles_h, k.tiles_w});
    Value* y = (*graph->add(std::move(spec)))->output();
    if (choose.one_in(2)) y = (*graph->add({find_op("relu"), {y}}))->output();
    graph->add_output(y, "y");
    return graph;
}

TEST(GpuRandom, Convolutions) {
    for_seeds(12, [](unsigned seed) {
        Chooser choose(seed);
        auto graph = random_convolution(choose, seed);
        expect_what_is_evaluated(
            graph, {}, seed,
            choose.of<const char*>({"sm_80", "sm_90a", "x86_64-avx512", "x86_64-avx2", "aarch64-neon"}));
    });
}

// Rows that share a block where there are many and they are short, and such that just do not.
std::string random_rows(Chooser& choose) {
    const auto rows = choose.of<int64_t>({2046, 2047, 2048, 2049, 2050, 2052, 2056, 2064});
    const auto columns = choose.of<int64_t>({63, 64, 65, 66, 68, 72, 80, 96, 100, 127, 128, 129, 136});
    if (choose.one_in(4)) return fmt::format("graph g(x: f16[{},{}]) {{\n  return softmax(x)\n}}\n", rows, columns);
    const bool folded = choose.one_in(4);
    const std::string row = folded ? fmt::format("{},8", columns / 8) : std::to_string(columns);
    const std::string shape = fmt::format("{}{},{}", choose.one_in(3) ? "2," : "", rows, row);
    std::string text = fmt::format("graph g(x: f32[{0}], s: f32[{1}], b: f32[{1}]) {{\n", shape, row);
    text += choose.of<const char*>({"  %a = mul(x, s)\n", "  %a = add(x, b)\n", "  %a = identity(x)\n"});
    const std::string axes = folded ? "[-2,-1]" : "[-1]";
    const std::string sum = choose.of<const char*>({"reduce_sum", "reduce_max", "reduce_mean", "reduce_l2"});
    const std::string all = fmt::format("  %r = {}(%a, {}, keepdims=1)\n", sum, axes);
    if (choose.one_in(4)) return text + all + "  return %r\n}\n";
    if (choose.one_in(3)) return text + all + "  %d = sub(%a, %r)\n  return %d, exp(%d)\n}\n";
    if (folded || choose.one_in(3)) {
        text += all + "  %d = sub(%a, %r)\n  %e = mul(%d, %d)\n";
        return text + fmt::format("  %q = reduce_mean(%e, {}, keepdims=1)\n  return mul(%d, %q)\n}}\n", axes);
    }
    text += choose.of<const char*>({"  %y = softmax(%a, axis=-1)\n", "  %y = log_softmax(%a, axis=-1)\n",
                                    "  %y = layer_normalization(%a, s, b)\n"});
    return text + choose.of<const char*>({"  return %y\n}\n", "  return relu(%y)\n}\n", "  return mul(%y, s)\n}\n"});
}

TEST(GpuRandom, ManyShortRows) {
    for_seeds(4, [](unsigned seed) {
        Chooser choose(seed);
        const std::string text = random_rows(choose);
        expect_what_is_evaluated(graph_of(text), {}, seed, choose.of<const char*>({"sm_80", "sm_90a"}));
    });
}

// Elements of y at random places become those of x at random places and what an instance is. Each place is of one
// instance: what several write depends on their order.
std::string random_tile_kernel(Chooser& choose, bool wide) {
    const std::string type = wide ? "i64" : "i32";
    std::string lines;
    int next = 10;
    auto line = [&](const std::string& of, const std::string& value) {
        lines += fmt::format(" %{}: {} = {} ", next, of, value);
        return fmt::format("%{}", next++);
    };
    const int64_t lanes = choose.of<int64_t>({1, 2, 32, 64, 256});
    const std::string many = fmt::format("{}[{}]", type, lanes), pointers = fmt::format("ptr<f32>[{}]", lanes);
    auto constant = [&](int64_t value) {
        return line(many, "broadcast(" + line(type, fmt::format("constant {{{}_{}}}()", value, type)) + ")");
    };
    auto small_number = [&] { return constant(choose.of<int64_t>({1, -1, 3, -7, 64, 100})); };
    // Places may overflow, and what is computed for them in 64 bits. Masks must not.
    auto number = [&](bool of_place = false) {
        const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
        if (wide && choose.one_in(2))
            return constant(
                choose.of({most, least + 1, most / 2 + 1, least / 4, int64_t{1} << 32, (int64_t{1} << 32) + 1}));
        if (of_place && choose.one_in(2))
            return constant(choose.of<int64_t>({INT32_MAX, INT32_MIN + 1, 1 << 30, 65537}));
        return small_number();
    };
    std::string places = line(fmt::format("i32[{}]", lanes), fmt::format("arange() [0, {}]", lanes));
    std::string instance = line("i32", "program_id() [0]");
    if (wide)
        places = line(many, "map {i64(x0)}(" + places + ")"), instance = line("i64", "map {i64(x0)}(" + instance + ")");
    const std::string spread = line(many, "broadcast(" + instance + ")");
    auto some_place = [&] {
        std::string at = choose.one_in(2) ? places : line(many, fmt::format("map {{x0 + x1}}({}, {})", places, spread));
        for (int i = 0; i < 3; ++i)
            if (choose.one_in(2))
                at = line(many, fmt::format("map {{x0 {} x1}}({}, {})", choose.of<const char*>({"*", "+", "-"}), at,
                                            number()));
        return at;
    };
    auto pointer_to = [&](const std::string& array) {
        std::string at =
            line(pointers, fmt::format("offset({}, {})", line(pointers, "broadcast(" + array + ")"), some_place()));
        if (choose.one_in(2)) at = line(pointers, fmt::format("offset({}, {})", at, number(true)));
        return at;
    };
    auto loaded = [&] {
        const std::string from = pointer_to("x"), all = fmt::format("[{}]", lanes);
        if (choose.one_in(2)) return line("f32" + all, "load(" + from + ")");
        const std::string word = choose.of<const char*>({"<", "<=", ">", ">="});
        const std::string limit = small_number(), at = choose.one_in(2) ? places : spread;
        const std::string mask = line("bool" + all, fmt::format("map {{x0 {} x1}}({}, {})", word, at, limit));
        const std::string other = line("f32" + all, "broadcast(" + line("f32", "constant {0.5}()") + ")");
        return line("f32" + all, fmt::format("load({}, {}, {})", from, mask, other));
    };
    const std::string one = loaded(), other = loaded();
    const std::string sum = line(fmt::format("f32[{}]", lanes), fmt::format("map {{x0 + x1}}({}, {})", one, other));
    std::string at = line(many, fmt::format("map {{x0 * x1 + x2}}({}, {}, {})", spread, constant(lanes), places));
    if (choose.one_in(2)) at = line(many, fmt::format("map {{x0 + x1}}({}, {})", at, number()));
    std::string to = line(pointers, fmt::format("offset({}, {})", line(pointers, "broadcast(y)"), at));
    if (choose.one_in(2)) to = line(pointers, fmt::format("offset({}, {})", to, number(true)));
    const std::string grid = choose.of<const char*>({"1", "2", "in0.d0", "in0.d0 + 3", "0 * in0.d0", "in0.d0 - 3"});
    return fmt::format(
        "graph g(x: f32[N]) {{\n  return tile_kernel(x, arguments=[\"out0\", \"in0\"], grid=[\"{}\"], kernel=\"tile "
        "wild(y: ptr<f32>, x: ptr<f32>) {{{} store({}, {}) }}\", outputs=[\"f32[in0.d0 + 5]\"])\n}}\n",
        grid, lines, to, sum);
}

TEST(GpuRandom, WildTileKernels) {
    for_seeds(40, [](unsigned seed) {
        Chooser choose(seed);
        const std::string text = random_tile_kernel(choose, choose.one_in(2));
        expect_what_is_evaluated(graph_of(text), {{"N", choose.of<int64_t>({1, 3, 17, 70})}}, seed,
                                 choose.of<const char*>({"sm_80", "sm_90a", "x86_64-avx2", "aarch64-neon"}));
    });
}

// The kernel of a graph `graph g(x: f32[..]) { return tile_kernel(x, ..) }` between ops on elements.
std::string with_neighbours(Chooser& choose, const std::string& text, const std::string& in, const std::string& out) {
    const std::string head = "return tile_kernel(x,";
    const size_t at = text.find(head), end = text.rfind(")\n}");
    const std::string half = choose.one_in(4) ? "f16" : "f32";
    std::string made = fmt::format("graph g(x: {}[{}], b: f32[{}], c: f32[{}], d: f32[1]) {{\n", half, in, in, out);
    made += half == "f16" ? "  %v = cast(x, to=1)\n" : "  %v = neg(x)\n";
    made += choose.of<const char*>({"  %s = add(%v, b)\n", "  %s = exp(%v)\n", "  %s = mul(%v, 0.5)\n",
                                    "  %s = sub(%v, d)\n", "  %m = mul(b, %v)\n  %s = add(%m, 1.0)\n",
                                    "  %s = relu(%v)\n"});
    made += "  %y = tile_kernel(%s," + text.substr(at + head.size(), end - at - head.size()) + ")\n";
    made += choose.of<const char*>({"  %z = add(%y, c)\n", "  %z = mul(%y, %y)\n", "  %z = add(%y, 1.0)\n",
                                    "  %z = cast(%y, to=10)\n", "  %t = mul(%y, d)\n  %z = abs(%t)\n"});
    return made + "  return %z\n}\n";
}

TEST(GpuRandom, WildTileKernelsWithNeighbours) {
    for_seeds(40, [](unsigned seed) {
        Chooser choose(seed);
        const std::string text = with_neighbours(choose, random_tile_kernel(choose, choose.one_in(2)), "N", "N + 5");
        expect_what_is_evaluated(graph_of(text), {{"N", choose.of<int64_t>({1, 3, 17, 70})}}, seed,
                                 choose.of<const char*>({"sm_80", "sm_90a", "x86_64-avx2", "aarch64-neon"}));
    });
}

// Blocks of rows and columns, as people write them; some leave elements out.
std::string random_block_kernel(Chooser& choose, const std::string& rows, const std::string& columns) {
    const int64_t high = choose.of<int64_t>({1, 4, 16}), wide = choose.of<int64_t>({8, 16, 32});
    std::string kernel = "tile blocks(y: ptr<f32>, x: ptr<f32>, m: i32, n: i32, end: i32) {";
    int next = 10;
    auto line = [&](const std::string& of, const std::string& value) {
        kernel += fmt::format(" %{}: {} = {} ", next, of, value);
        return fmt::format("%{}", next++);
    };
    const std::string all = fmt::format("[{}, {}]", high, wide);
    auto along = [&](int axis, int64_t each) {
        const std::string lanes = fmt::format("i32[{}]", each);
        const std::string at = line(lanes, fmt::format("arange() [0, {}]", each));
        const std::string size = line("i32", fmt::format("constant {{{}_i32}}()", each + choose.one_in(8)));
        const std::string first = line(
            "i32", fmt::format("map {{x0 * x1}}({}, {})", line("i32", fmt::format("program_id() [{}]", axis)), size));
        const std::string sum =
            line(lanes, fmt::format("map {{x0 + x1}}({}, {})", at, line(lanes, "broadcast(" + first + ")")));
        const std::string turned = axis ? fmt::format("[1, {}]", each) : fmt::format("[{}, 1]", each);
        return line("i32" + all, "broadcast(" + line("i32" + turned, "reshape(" + sum + ")") + ")");
    };
    const std::string row = along(0, high), column = along(1, wide);
    const std::string m = line("i32" + all, "broadcast(m)"), n = line("i32" + all, "broadcast(n)");
    const std::string place = line("i32" + all, fmt::format("map {{x0 * x1 + x2}}({}, {}, {})", row, n, column));
    std::string mask =
        line("bool" + all, fmt::format("map {{x0 < x1}}({}, {})", column, line("i32" + all, "broadcast(end)")));
    if (!choose.one_in(4))
        mask =
            line("bool" + all, fmt::format("map {{x0 && x1}}({}, {})",
                                           line("bool" + all, fmt::format("map {{x0 < x1}}({}, {})", row, m)), mask));
    auto pointer = [&](const char* array) {
        const std::string base = line("ptr<f32>" + all, fmt::format("broadcast({})", array));
        return line("ptr<f32>" + all, fmt::format("offset({}, {})", base, place));
    };
    const std::string loaded = line("f32" + all, fmt::format("load({}, {})", pointer("x"), mask));
    const std::string to = pointer("y");
    kernel += fmt::format(" store({}, {}, {}) }}", to, loaded, mask);
    const std::string grid =
        fmt::format("\"{}(in0.d0, {})\", \"cdiv(in0.d1, {})\"", choose.one_in(8) ? "floordiv" : "cdiv", high, wide);
    return fmt::format(
        "graph g(x: f32[{}, {}]) {{\n  return tile_kernel(x, arguments=[\"out0\", \"in0\", \"in0.d0\", \"in0.d1\", "
        "\"{}\"], grid=[{}], kernel=\"{}\", outputs=[\"f32[in0.d0, in0.d1]\"])\n}}\n",
        rows, columns, choose.one_in(8) ? "in0.d1 - 1" : "in0.d1", grid, kernel);
}

TEST(GpuRandom, BlockKernelsWithNeighbours) {
    for_seeds(60, [](unsigned seed) {
        Chooser choose(seed);
        const bool open = choose.one_in(2);
        const auto m = choose.of<int64_t>({1, 3, 16, 17}), n = choose.of<int64_t>({1, 8, 31, 33, 70});
        const bool multiple = open && choose.one_in(3);  // of a number, for vectors
        const std::string some = multiple ? choose.of<const char*>({"2*N", "8*N", "16*N"}) : "N";
        const std::string rows = open ? "M" : std::to_string(m), columns = open ? some : std::to_string(n);
        const std::string sizes = rows + ", " + columns;
        std::string text = with_neighbours(choose, random_block_kernel(choose, rows, columns), sizes, sizes);
        if (multiple) text.insert(text.find("d: f32[1]"), "of: f32[N], ");
        expect_what_is_evaluated(graph_of(text), {{"M", m}, {"N", n}}, seed,
                                 choose.of<const char*>({"sm_80", "sm_90a", "x86_64-avx2", "aarch64-neon"}));
    });
}

std::string random_rows(Chooser& choose, int64_t n, const std::string& size) {
    const std::string type = choose.of<const char*>({"f32", "f32", "f16", "bf16", "f64", "i32", "i64"});
    const std::string outer = choose.of<const char*>({"", "1,", "2,", "3,"});
    const std::string inner = choose.of<const char*>({"", "", ",1", ",3"});
    const int axis = outer.empty() ? 0 : 1;
    const std::string x = fmt::format("x: {}[{}{}{}]", type, outer, size, inner);
    switch (choose.of<int>({0, 0, 1, 1, 2, 3})) {
        case 0: {
            const int64_t k = choose.of<int64_t>({1, 1, 2, 7, (n + 1) / 2, n});
            return fmt::format("graph g({}) {{\n  %v, %i = top_k(x, [{}], axis={}, largest={})\n  return %v, %i\n}}\n",
                               x, std::min(k, n), axis, choose.of<int>({0, 1}));
        }
        case 1:
            return fmt::format("graph g({}) {{\n  return cum_sum(x, {}, exclusive={}, reverse={})\n}}\n", x, axis,
                               choose.of<int>({0, 1}), choose.of<int>({0, 1}));
        case 2: {
            const std::string reduction = choose.of<const char*>({"none", "add", "mul", "max", "min"});
            const auto updates = choose.of<int64_t>({1, 9, 40});
            return fmt::format(
                "graph g({0}, i: i64[{1}{2}{3}], u: {4}[{1}{2}{3}]) {{\n  %j = mod(i, [{5}])\n"
                "  return scatter_elements(x, %j, u, axis={6}, reduction=\"{7}\")\n}}\n",
                x, outer, updates, inner, type, n, axis, reduction);
        }
        default: return fmt::format("graph g({}) {{\n  %p = relu(x)\n  return non_zero(%p)\n}}\n", x);
    }
}

TEST(GpuRandom, Rows) {
    for_seeds(25, [](unsigned seed) {
        Chooser choose(seed);
        const auto n = choose.of<int64_t>({1, 2, 5, 16, 17, 32, 33, 64, 65, 100, 255, 257, 513, 1024, 1025, 2100});
        const std::string text = random_rows(choose, n, choose.one_in(3) ? "N" : std::to_string(n));
        expect_what_is_evaluated(graph_of(text), {{"N", n}}, seed, choose.of<const char*>({"sm_80", "sm_90a"}));
    });
}

}  // namespace
}  // namespace tessera::test::gpu_random_test
