// Graphs nested in host steps run as programs of their own, and give what the evaluator gives.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"
#include "kernel/from_graph/from_graph.h"
#include "tessera/compile.h"

namespace tessera::nested_test {
namespace {

Tensor numbers(Sizes sizes) {
    Tensor t = *Tensor::zeros(DType::f32, sizes);
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, std::sin(double(i) * 1.7));
    return t;
}

void expect_as_evaluated(std::string_view text, const Inputs& inputs, size_t least_kernels) {
    SCOPED_TRACE(text);
    auto graph = parse(text);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    auto want = evaluate(**graph, inputs);
    auto executable = compile(Model((*graph)->clone()), {.threads = 2, .cache = ""});
    ASSERT_TRUE(executable.ok()) << executable.error().to_string();
    EXPECT_GE(executable->report().kernels, least_kernels);
    const auto cache = std::filesystem::temp_directory_path() / fmt::format("tessera-nested-{}", getpid());
    auto kept = compile(Model((*graph)->clone()), {.threads = 2, .cache = cache.string()});
    ASSERT_TRUE(kept.ok()) << kept.error().to_string();
    auto found = compile(Model((*graph)->clone()), {.threads = 2, .cache = cache.string()});
    std::filesystem::remove_all(cache);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(found->report().phases.back().first, "load");  // as a program: nothing was lowered
    for (const Executable* each : {&*executable, &*executable, &*kept, &*found}) {
        auto got = each->run(inputs);
        ASSERT_EQ(got.ok(), want.ok()) << (got.ok() ? want : got).error().to_string();
        if (!want.ok()) {
            EXPECT_EQ(got.error().code(), want.error().code());
            continue;
        }
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < want->size(); ++i) {
            const Tensor &a = (*got)[i].tensor(), &b = (*want)[i].tensor();
            ASSERT_EQ(a.sizes(), b.sizes());
            for (int64_t k = 0; k < b.elements(); ++k) EXPECT_NEAR(a.real_at(k), b.real_at(k), 1e-5);
        }
    }
}

TEST(Nested, Branches) {
    std::string_view text =
        "graph g(c: bool[], x: f32[N,4], w: f32[4,4]) { %y = exp(x) %a = if(c, then_branch=graph t() { %p = matmul(%y, "
        "w) return "
        "%p }, "
        "else_branch=graph e() { %q = sub(%y, x) return %q }) %b = relu(%a) return %b }";
    for (bool c : {false, true})
        for (int64_t n : {0, 1, 5})
            expect_as_evaluated(
                text, {{"c", Datum(Tensor::scalar(c))}, {"x", Datum(numbers({n, 4}))}, {"w", Datum(numbers({4, 4}))}},
                3);
}

TEST(Nested, Loops) {
    std::string_view text =
        "graph g(m: i64[], x: f32[3,4], w: f32[4,4]) { %y, %all = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: "
        "f32[3,4]) { %p "
        "= matmul(s, w) %q = tanh(%p) return go, %q, %p }) return %y, %all }";
    for (int64_t m : {1, 2, 7})
        expect_as_evaluated(
            text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({3, 4}))}, {"w", Datum(numbers({4, 4}))}}, 1);
}

// The last of what iterations make, begun with something else: the body does not read it, and its size changes.
TEST(Nested, StatesThatTheBodyDoesNotRead) {
    std::string_view text =
        "graph g(m: i64[], x: f32[3,4], w: f32[4,4], k: f32[2]) { %y, %last = loop(m, _, x, k, body=graph b(i: i64[], "
        "go: bool[], s: f32[3,4], t: f32[...]) { %p = matmul(s, w) %q = tanh(%p) %r = slice(%q, [1], [3], [0]) return "
        "go, %q, %r }) return %y, %last }";
    for (int64_t m : {0, 1, 5})
        expect_as_evaluated(text,
                            {{"m", Datum(Tensor::scalar(m))},
                             {"x", Datum(numbers({3, 4}))},
                             {"w", Datum(numbers({4, 4}))},
                             {"k", Datum(numbers({2}))}},
                            1);
}

// A state whose rank a run finds is not one element.
TEST(Nested, StatesOfUnknownRank) {
    std::string_view text =
        "graph g(m: i64[], x: f32[N,4]) { const one: i64[1] = [1] %z = reduce_sum(x, one, keepdims=0) %f, %u = "
        "scan(%z, "
        "x, body=graph c(q: f32[...], a: f32[...]) { %p = mul(q, a) %r = neg(%p) return %p, %r }, num_scan_inputs=1, "
        "scan_input_axes=[1]) %y = loop(m, _, %u, body=graph b(i: i64[], go: bool[], t: f32[...]) { %r = neg(%u) "
        "return "
        "go, %r }) return %y }";
    for (int64_t m : {0, 1, 2})
        expect_as_evaluated(text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({3, 4}))}}, 0);
}

// Weights that are carried as they are, and a product of what lies around the loop.
TEST(Nested, LoopsThatCarryWeights) {
    std::string_view text =
        "graph g(m: i64[], x: f32[N,4], w: f32[4,4], k: f32[N,8], v: f32[8,4]) { %y, %same, %all = loop(m, _, x, w, "
        "body=graph b(i: i64[], go: bool[], s: f32[N,4], c: f32[4,4]) { %p = matmul(s, c) %o = matmul(k, v) %a = add("
        "%p, %o) %q = tanh(%a) return go, %q, c, %p }) %z = matmul(%y, %same) return %z, %same, %all }";
    for (int64_t m : {0, 1, 4})
        expect_as_evaluated(text,
                            {{"m", Datum(Tensor::scalar(m))},
                             {"x", Datum(numbers({3, 4}))},
                             {"w", Datum(numbers({4, 4}))},
                             {"k", Datum(numbers({3, 8}))},
                             {"v", Datum(numbers({8, 4}))}},
                            1);
}

// Steps of a sequence times weights, taken of the product of the whole.
TEST(Nested, LoopsOverSteps) {
    std::string_view text =
        "graph g(m: i64[], s: f32[T,N,8], h: f32[N,4], w: f32[8,4], r: f32[4,4]) { %y, %all = loop(m, _, h, "
        "body=graph b(i: i64[], go: bool[], v: f32[N,4]) { %x = gather(s, i) %p = matmul(v, r) %q = gemm(%x, w, %p) "
        "%t = tanh(%q) return go, %t, %q }) return %y, %all }";
    for (int64_t m : {0, 1, 3, 5, 6})
        expect_as_evaluated(text,
                            {{"m", Datum(Tensor::scalar(m))},
                             {"s", Datum(numbers({5, 3, 8}))},
                             {"h", Datum(numbers({3, 4}))},
                             {"w", Datum(numbers({8, 4}))},
                             {"r", Datum(numbers({4, 4}))}},
                            1);
}

// A sequence that iterations append to, concatenated along each axis, old and new.
TEST(Nested, LoopsThatAppend) {
    for (const char* how :
         {"axis=0, new_axis=1", "axis=1, new_axis=1", "axis=-1, new_axis=1", "axis=0", "axis=1", "axis=-1"}) {
        const std::string text = fmt::format(
            "graph g(m: i64[], x: f32[N,4]) {{ %none = sequence_empty(dtype=1) %y, %all = loop(m, _, x, %none, "
            "body=graph b(i: i64[], go: bool[], v: f32[N,4], s: seq(f32[...])) {{ %p = tanh(v) %q = "
            "sequence_insert(s, %p) return go, %p, %q }}) %z = concat_from_sequence(%all, {}) return %y, %z }}",
            how);
        for (int64_t m : {1, 4})
            expect_as_evaluated(text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({3, 4}))}}, 1);
    }
}

// A body that reads what other loops made: no size of an input is computed from sizes that the body does not have.
TEST(Nested, SizesOfWhatIsAround) {
    std::string_view text =
        "graph g(m: i64[], go: bool[], x: f32[N,4]) { %y, %a = loop(m, go, x, body=graph b(i: i64[], c: bool[], v: "
        "f32[N,4]) { %p = tanh(v) return c, %p, %p }) %z, %b = loop(m, go, %y, body=graph d(i: i64[], c: bool[], v: "
        "f32[N,4]) { %p = sin(v) return c, %p, %p }) %s = add(%a, %b) %u = loop(m, go, x, body=graph e(i: i64[], c: "
        "bool[], v: f32[N,4]) { %r = gather(%s, i) %q = add(v, %r) return c, %q }) return %u, %z }";
    for (int64_t m : {1, 4})
        expect_as_evaluated(
            text, {{"m", Datum(Tensor::scalar(m))}, {"go", Datum(Tensor::scalar(true))}, {"x", Datum(numbers({3, 4}))}},
            1);
    auto program = from_graph(std::shared_ptr<Graph>(*parse(text)), {});
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    ASSERT_EQ(program->nested.size(), 3u);
    for (const NestedProgram& n : program->nested)
        for (const auto& input : n.program->graph->inputs())
            for (const Dim& d : input->type().tensor().shape)
                EXPECT_TRUE(d.as_int() || d.is(ExprKind::Var)) << input->name() << ": " << to_string(d);
}

// A body that says less of a size than is true in the end: the state grows.
TEST(Nested, StatesThatGrow) {
    std::string_view text =
        "graph g(m: i64[], x: f32[1,4]) { %y = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[K,4]) { %e = "
        "exp(x) %q "
        "= "
        "concat(s, %e, axis=0) return go, %q }) return %y }";
    for (int64_t m : {0, 1, 6})
        expect_as_evaluated(text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({1, 4}))}}, 1);
}

// A body that declares sizes which the states do not have: inference contradicts the first, only a run the second.
TEST(Nested, StatesOfOtherSizesThanDeclared) {
    for (const char* x : {"f32[N,3,4]", "f32[N,M,K]"})
        for (int64_t n : {1, 2})
            expect_as_evaluated(
                fmt::format("graph g(m: i64[], x: {}, r: f32[A,B,C]) {{ %y = loop(m, _, r, body=graph b(i: i64[], "
                            "go: bool[], s: f32[1,1,1]) {{ %a = add(s, x) %t = tanh(%a) return go, %t }}) return %y }}",
                            x),
                {{"m", Datum(Tensor::scalar(int64_t{3}))},
                 {"x", Datum(numbers({n, 3, 4}))},
                 {"r", Datum(numbers({n, 3, 4}))}},
                1);
}

TEST(Nested, LoopsInLoops) {
    std::string_view text =
        "graph g(m: i64[], x: f32[3]) { %y = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[3]) { %t = "
        "loop(m, _, s, "
        "body=graph b(j: "
        "i64[], on: bool[], r: f32[3]) { %a = mul(r, x) %b = sin(%a) return on, %b }) %u = add(%t, x) return go, %u }) "
        "return %y }";
    for (int64_t m : {1, 3})
        expect_as_evaluated(text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({3}))}}, 2);
}

TEST(Nested, RecurrentLayersOfAnyLength) {
    std::string_view text =
        "graph g(x: f32[S,2,3], w: f32[1,20,3], r: f32[1,20,5]) { %y, %h, %c = lstm(x, w, r, hidden_size=5) return %y, "
        "%h, %c }";
    for (int64_t s : {1, 2, 9})
        expect_as_evaluated(
            text,
            {{"x", Datum(numbers({s, 2, 3}))}, {"w", Datum(numbers({1, 20, 3}))}, {"r", Datum(numbers({1, 20, 5}))}},
            2);
}

// One value as the state and as what is collected; a state that passes through; two that change places.
TEST(Nested, StatesThatShareMemory) {
    std::string_view text =
        "graph g(a: f32[3], b: f32[3], c: f32[3], x: f32[T,3]) { %p, %q, %r, %all, %back = scan(a, b, c, x, "
        "num_scan_inputs=1, scan_output_directions=[0,1], body=graph s(i: f32[3], j: f32[3], k: f32[3], y: f32[3]) { "
        "%n = add(i, y) %m = mul(j, 0.5) return %m, %n, k, %n, %m }) return %p, %q, %r, %all, %back }";
    for (int64_t t : {1, 2, 3, 8})
        expect_as_evaluated(text,
                            {{"a", Datum(numbers({3}))},
                             {"b", Datum(numbers({3}))},
                             {"c", Datum(numbers({3}))},
                             {"x", Datum(numbers({t, 3}))}},
                            1);
}

// More iterations than there is room for at first, ended by the condition; what is collected is the state too.
TEST(Nested, LoopsThatEndByThemselves) {
    std::string_view text =
        "graph g(m: i64[], go: bool[], x: f32[2], most: f32[]) { %y, %all, %numbers = loop(m, go, x, body=graph b(i: "
        "i64[], on: bool[], s: f32[2]) { %t = add(s, 1.0) %sum = reduce_sum(%t, keepdims=0) %c = less(%sum, most) "
        "return %c, %t, %t, i }) return %y, %all, %numbers }";
    for (double most : {0., 5., 300., 11000.})
        for (int64_t m : {int64_t{3}, int64_t{70}, int64_t{1} << 40})
            expect_as_evaluated(text,
                                {{"m", Datum(Tensor::scalar(m))},
                                 {"go", Datum(Tensor::scalar(true))},
                                 {"x", Datum(numbers({2}))},
                                 {"most", Datum(Tensor::scalar(float(most)))}},
                                1);
}

// Bodies whose sizes only an iteration knows.
TEST(Nested, SizesThatAnIterationDefines) {
    std::string_view text =
        "graph g(m: i64[], x: f32[6]) { %y = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[6]) { %d = sub(s, "
        "0.3) %p = relu(%d) %n = non_zero(%p) %e = cast(%n, to=1) %t = reduce_sum(%e) %u = reshape(%t, [1]) %v = "
        "add(s, %u) %w = sin(%v) return go, %w }) return %y }";
    for (int64_t m : {1, 2, 5})
        expect_as_evaluated(text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({6}))}}, 1);
}

TEST(Nested, RecurrentLayersOfEveryKind) {
    struct Kind {
        const char* op;
        int64_t gates;
    };
    for (Kind kind : {Kind{"lstm", 4}, Kind{"gru", 3}, Kind{"rnn", 1}})
        for (const char* direction : {"forward", "reverse", "bidirectional"})
            for (int64_t steps : {1, 5, 11}) {
                const int64_t d = std::string_view(direction) == "bidirectional" ? 2 : 1, rows = kind.gates * 5;
                const std::string text = fmt::format(
                    "graph g(x: f32[S,2,3], w: f32[{0},{1},3], r: f32[{0},{1},5], b: f32[{0},{2}], n: i32[2]) {{ %y, "
                    "%h "
                    "= {3}(x, w, r, b, n, hidden_size=5, direction=\"{4}\") return %y, %h }}",
                    d, rows, 2 * rows, kind.op, direction);
                Tensor lengths = Tensor::of<int32_t>({2}, std::vector<int32_t>{int32_t(steps), int32_t(steps + 1) / 2});
                expect_as_evaluated(text,
                                    {{"x", Datum(numbers({steps, 2, 3}))},
                                     {"w", Datum(numbers({d, rows, 3}))},
                                     {"r", Datum(numbers({d, rows, 5}))},
                                     {"b", Datum(numbers({d, 2 * rows}))},
                                     {"n", Datum(lengths)}},
                                    1);
            }
}

TEST(Nested, FailsAsTheEvaluatorDoes) {
    std::string_view text =
        "graph g(m: i64[], x: f32[3], k: i64[1]) { %y = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[3]) { "
        "%a = "
        "gather(s, k) "
        "%b = add(s, %a) return go, %b }) return %y }";
    for (int64_t k : {2, 3})
        expect_as_evaluated(text,
                            {{"m", Datum(Tensor::scalar(int64_t{2}))},
                             {"x", Datum(numbers({3}))},
                             {"k", Datum(Tensor::of<int64_t>({1}, std::vector<int64_t>{k}))}},
                            1);
}

}  // namespace
}  // namespace tessera::nested_test
