// Attention as one kernel means what the evaluator says: all forms of scores, sizes and machines, and what is not
// finite.
#include "kernel/cpu/attention.h"

#include "kernel/lower_text.h"

namespace tessera::test::attention_test {
namespace {

Machine neon() { return {.lane_multiply = true}; }
Machine avx2() { return {.vector_bytes = 32, .vector_registers = 16}; }
Machine avx512() { return {.vector_bytes = 64, .load_broadcast = true, .masked = true}; }
Machine scalar() { return {.vector_bytes = 4}; }

bool is_one_kernel(const Program& p) {
    for (const Kernel& k : p.kernels)
        for (const Buffer& b : k.buffers)
            if (b.name == "qt") return true;
    return false;
}

struct Case {
    std::string text;
    SymbolValues symbols = {};
    std::function<void(Inputs&)> change = {};
};

void check(const Case& c, const Machine& machine = neon(), int threads = 2) {
    SCOPED_TRACE(c.text);
    SCOPED_TRACE(fmt::format("vectors of {} bytes", machine.vector_bytes));
    auto graph = graph_of(c.text);
    Inputs inputs = random_inputs(*graph, c.symbols, 3);
    if (c.change) c.change(inputs);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    LowerOptions options;
    options.machine = machine;
    options.threads = threads;
    options.attention = LowerOptions::Attention::Always;
    auto program = from_graph(graph, options);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    EXPECT_TRUE(is_one_kernel(*program));
    for (const Kernel& k : program->kernels) ASSERT_TRUE(verify(k).ok()) << verify(k).error().to_string();
    auto got = run_program(*program, inputs);
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
}

// Heads outside, scores and weights as given.
std::string heads(std::string_view sizes, std::string_view inputs, std::string_view scores,
                  std::string_view weights = "%w = softmax(%f)") {
    return fmt::format(
        "graph g({}{}) {{ %kt = transpose(k, [0,1,3,2]) %s = matmul(q, %kt) {} {} %y = matmul(%w, v) return %y }}",
        sizes, inputs, scores, weights);
}

const std::string kSizes = "q: f32[2,3,N,8], k: f32[2,3,M,8], v: f32[2,3,M,6]";
const std::string kScaled = "%f = mul(%s, 0.35)";

TEST(Attention, EverySizeOnEveryMachine) {
    for (const Machine& machine : {neon(), avx2(), avx512(), scalar()})
        for (auto [n, m] :
             std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 3}, {16, 64}, {17, 1}, {1, 70}, {33, 71}})
            check({heads(kSizes, "", kScaled), {{"N", n}, {"M", m}}}, machine);
}

TEST(Attention, NoQueriesAndNoKeys) {
    check({heads(kSizes, "", kScaled), {{"N", 0}, {"M", 3}}});
    check({heads(kSizes, "", kScaled), {{"N", 3}, {"M", 0}}});
}

TEST(Attention, ConstantSizes) {
    for (std::string size : {"7", "16", "40"})
        check({heads(fmt::format("q: f32[1,2,{0},5], k: f32[1,2,70,5], v: f32[1,2,70,3]", size), "", kScaled)});
}

TEST(Attention, Doubles) {
    check({heads("q: f64[1,2,N,8], k: f64[1,2,M,8], v: f64[1,2,M,8]", "", "%f = identity(%s)"), {{"N", 9}, {"M", 70}}});
}

TEST(Attention, Masks) {
    for (auto [n, m] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {16, 64}, {19, 66}}) {
        SymbolValues s{{"N", n}, {"M", m}};
        check({heads(kSizes, ", b: f32[N,M]", "%f = add(%s, b)"), s});
        check({heads(kSizes, ", b: f32[2,1,1,M]", "%f = add(%s, b)"), s});
        check({heads(kSizes, ", b: f32[3,N,1]", "%f = add(%s, b)"), s});
        check({heads(kSizes, ", b: bool[2,1,N,M]", "%f = where(b, %s, -1e30)"), s});
        check({heads(kSizes, "", "%c = mul(%s, 0.2) %t = tanh(%c) %f = mul(%t, 5.0)"), s});
        check({heads(kSizes, ", b: f32[N,M]", "%t = tanh(%s) %f = add(%t, b)"), s});
    }
}

TEST(Attention, QueriesOfSeveralHeadsShareKeys) {
    check({R"(graph g(q: f32[2,6,9,8], k: f32[2,2,70,8], v: f32[2,2,70,8]) {
        %k5 = unsqueeze(k, [2]) %ke = expand(%k5, [1,1,3,1,1]) %kh = reshape(%ke, [2,6,70,8])
        %v5 = unsqueeze(v, [2]) %ve = expand(%v5, [1,1,3,1,1]) %vh = reshape(%ve, [2,6,70,8])
        %kt = transpose(%kh, [0,1,3,2]) %s = matmul(q, %kt) %w = softmax(%s) %y = matmul(%w, %vh) return %y })"});
}

TEST(Attention, HeadsInsideWithAnEpilogue) {
    check({R"(graph g(q: f32[2,N,32], k: f32[2,M,32], v: f32[2,M,32], r: f32[2,N,32]) {
        %q4 = reshape(q, [0,0,4,8]) %k4 = reshape(k, [0,0,4,8]) %v4 = reshape(v, [0,0,4,8])
        %qt = transpose(%q4, [0,2,1,3]) %kt = transpose(%k4, [0,2,3,1]) %vt = transpose(%v4, [0,2,1,3])
        %s = matmul(%qt, %kt) %m = mul(%s, 0.35) %p = softmax(%m) %o = matmul(%p, %vt)
        %t = transpose(%o, [0,2,1,3]) %y = reshape(%t, [0,0,-1]) %z = add(%y, r) return %z })",
           {{"N", 18}, {"M", 65}}});
}

TEST(Attention, AsTheOpSaysIt) {
    std::string inputs = "q: f32[2,4,N,8], k: f32[2,2,M,8], v: f32[2,2,M,6]";
    for (std::string attrs : {"", ", is_causal=1", ", softcap=2.0", ", scale=0.5"})
        check({fmt::format("graph g({}) {{ %y = attention(q, k, v{}) return %y }}", inputs, attrs),
               {{"N", 17}, {"M", 40}}});
}

Tensor copy_of(const Datum& d) {
    Tensor t = *Tensor::zeros(d.tensor().dtype(), d.tensor().sizes());
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, d.tensor().real_at(i));
    return t;
}

void set_row(Inputs& inputs, const std::string& name, int64_t row, double value) {
    Tensor t = copy_of(inputs.at(name));
    const int64_t width = t.sizes().back();
    for (int64_t i = 0; i < width; ++i) t.set_real(row * width + i, value);
    inputs[name] = Datum(t);
}

TEST(Attention, WhatIsNotFinite) {
    const double inf = INFINITY;
    SymbolValues s{{"N", 18}, {"M", 70}};
    const std::string masked = heads(kSizes, ", b: f32[N,M]", "%f = add(%s, b)");
    const std::string zeroed =
        heads(kSizes, ", b: f32[N,M]", "%f = add(%s, b)", "%p = softmax(%f) %n = is_nan(%p) %w = where(%n, 0.0, %p)");
    for (const std::string& text : {masked, zeroed}) {
        // Rows that see nothing, nothing in their first block, nothing in their last.
        check({text, s, [&](Inputs& in) {
                   set_row(in, "b", 3, -inf);
                   Tensor b = copy_of(in.at("b"));
                   for (int64_t k = 0; k < 70; ++k) b.set_real((k < 66 ? 5 : 6) * 70 + k, -inf);
                   in["b"] = Datum(b);
               }});
        check({text, s, [&](Inputs& in) { set_row(in, "b", 4, inf); }});
        check({text, s, [&](Inputs& in) { set_row(in, "q", 4, NAN); }});
        check({text, s, [&](Inputs& in) { set_row(in, "k", 69, NAN); }});
        check({text, s, [&](Inputs& in) { set_row(in, "k", 0, inf); }});
        check({text, s, [&](Inputs& in) {
                   set_row(in, "b", 3, -inf);
                   set_row(in, "v", 5, inf);
               }});
        check({text, s, [&](Inputs& in) {
                   set_row(in, "k", 7, NAN);
                   set_row(in, "v", 7, NAN);
               }});
    }
}

TEST(Attention, LargeScoresDoNotOverflow) { check({heads(kSizes, "", "%f = mul(%s, 1000.0)"), {{"N", 9}, {"M", 70}}}); }

TEST(Attention, ScoresThatOthersReadAreKept) {
    Program p = lowered(
        "graph g(q: f32[1,2,16,8], k: f32[1,2,16,8], v: f32[1,2,16,8]) { %kt = transpose(k, [0,1,3,2]) "
        "%s = matmul(q, %kt) %w = softmax(%s) %y = matmul(%w, v) return %y, %w }");
    EXPECT_FALSE(is_one_kernel(p));
}

TEST(Attention, NothingGrowsWithTheSquare) {
    Program p = lowered(heads("q: f32[1,2,N,8], k: f32[1,2,N,8], v: f32[1,2,N,8]", "", kScaled), {.machine = neon()});
    ASSERT_TRUE(is_one_kernel(p));
    for (const ProgramBuffer& b : p.buffers) {
        Expr elements = 1;
        for (const Expr& d : b.shape) elements = elements * d;
        EXPECT_LE(*evaluate_int(elements, {{"N", 1000}}), 16000) << b.name;
    }
}

TEST(Attention, TilesFollowTheMachine) {
    AttentionTiles t = choose_attention_tiles(1024, 1024, 64, 64, 12, 4, neon(), 2);
    EXPECT_EQ(t.queries, 16);
    EXPECT_EQ(t.rows, 4);
    EXPECT_EQ(t.keys % t.rows, 0);
    EXPECT_LE(t.keys * 128 * 4, neon().l1_bytes);
    EXPECT_EQ(t.block % t.queries, 0);
    EXPECT_EQ(choose_attention_tiles(4, 1024, 64, 64, 12, 4, neon(), 2).queries, 4);
    // One thread or many: the same blocks of keys, so the same sums.
    EXPECT_EQ(choose_attention_tiles(1024, 1024, 64, 64, 12, 4, neon(), 16).keys, t.keys);
}

}  // namespace
}  // namespace tessera::test::attention_test
