// Graphs of many nodes: kernels stay small, equal ones are one, and searches end.
#include "kernel/lower_text.h"

namespace tessera::test::large_graphs_test {
namespace {

std::string chain_of_sines(int count) {
    std::string text = "graph g(x: f32[2,8]) {\n";
    for (int i = 0; i < count; ++i)
        text += fmt::format("  %v{} = {}({})\n", i, i % 2 ? "cos" : "sin", i ? fmt::format("%v{}", i - 1) : "x");
    return text + fmt::format("  return %v{}\n}}", count - 1);
}

TEST(LargeGraphs, AChainOfMapsIsCutIntoEqualKernels) {
    expect_as_evaluated(chain_of_sines(150), {}, true);
    const Program some = lowered(chain_of_sines(150)), many = lowered(chain_of_sines(1200));
    EXPECT_GT(some.steps.size(), 1U);
    EXPECT_LT(some.steps.size(), 5U);
    EXPECT_GT(many.steps.size(), 6 * some.steps.size() - 6);
    EXPECT_LE(many.kernels.size(), 3U);
    EXPECT_EQ(lowered(chain_of_sines(40)).steps.size(), 1U);  // what is not long is not cut
}

// What follows a sum is cut like any chain.
TEST(LargeGraphs, AnEpilogueIsCut) {
    std::string text = "graph g(x: f32[4,16], w: f32[16,8]) {\n  %v0 = matmul(x, w)\n";
    for (int i = 1; i <= 150; ++i) text += fmt::format("  %v{} = {}(%v{})\n", i, i % 2 ? "cos" : "sin", i - 1);
    text += "  return %v150\n}";
    expect_as_evaluated(text, {}, true);
    EXPECT_GT(lowered(text).steps.size(), 1U);
    EXPECT_LT(lowered(text).steps.size(), 6U);
}

// Elements whose places are quotients of quotients: the expressions of indices stay small.
TEST(LargeGraphs, AChainOfMovementsIsCut) {
    auto text = [](int rounds) {
        std::string t = "graph g(x: f32[6,4]) {\n  %v0 = neg(x)\n";
        for (int i = 1; i <= rounds; ++i)
            t += fmt::format(
                "  %a{0} = reshape(%v{1}, [2,3,4])\n  %b{0} = transpose(%a{0}, perm=[1,0,2])\n"
                "  %c{0} = reshape(%b{0}, [6,4])\n  %d{0} = pad(%c{0}, [1,0,0,0])\n"
                "  %v{0} = slice(%d{0}, [0], [6], [0])\n",
                i, i - 1);
        return t + fmt::format("  return %v{}\n}}", rounds);
    };
    expect_as_evaluated(text(20), {}, true);
    EXPECT_EQ(lowered(text(4)).steps.size(), 1U);
    EXPECT_GT(lowered(text(60)).steps.size(), 4U);
    EXPECT_LT(lowered(text(60)).steps.size(), 20U);
}

// A value that two readers share at every level: what is inlined is looked through once.
TEST(LargeGraphs, ValuesThatAreReadTwiceAtEveryLevel) {
    std::string text = "graph g(x: f32[2,8]) {\n  %v0 = neg(x)\n";
    for (int i = 1; i <= 40; ++i)
        text += fmt::format("  %a{0} = relu(%v{1})\n  %b{0} = neg(%v{1})\n  %v{0} = max(%a{0}, %b{0})\n", i, i - 1);
    text += "  return %v40\n}";
    expect_as_evaluated(text, {}, true);
    EXPECT_LE(lowered(text).steps.size(), 6U);
}

// The values come from so long a chain after the scores that nobody looks whether it starts there.
TEST(LargeGraphs, ValuesOfAttentionThatComeFromFar) {
    auto text = [](int length) {
        std::string t = R"(graph g(q: f32[2,64,16], k: f32[2,16,64], v: f32[2,64,16]) {
  %s = matmul(q, k)
  %p = softmax(%s, axis=-1)
  %v0 = neg(v)
)";
        for (int i = 1; i <= length; ++i) t += fmt::format("  %v{} = {}(%v{})\n", i, i % 2 ? "relu" : "neg", i - 1);
        return t + fmt::format("  return matmul(%p, %v{})\n}}", length);
    };
    LowerOptions options;
    options.attention = LowerOptions::Attention::Always;
    auto fused = [&](int length) {
        const Program p = lowered(text(length), options);
        return std::any_of(p.choices.begin(), p.choices.end(),
                           [](const Choice& c) { return bool(c.decision) && c.subject.starts_with("attention"); });
    };
    EXPECT_TRUE(fused(2));
    EXPECT_FALSE(fused(3000));
}

// Products of neighbouring slices of one tensor, joined.
std::string products_of_slices(int count, std::string_view source) {
    std::string text = fmt::format("graph g(x: f32[4,{}]) {{\n  %r = {}\n", 4 * count + 4, source), all;
    for (int i = 0; i <= count; ++i) text += fmt::format("  %s{} = slice(%r, [{}], [{}], [1])\n", i, 4 * i, 4 * i + 4);
    for (int i = 0; i < count; ++i) {
        text += fmt::format("  %p{0} = matmul(%s{0}, %s{1})\n", i, i + 1);
        all += fmt::format("{}%p{}", i ? ", " : "", i);
    }
    return text + fmt::format("  return concat({}, axis=1)\n}}", all);
}

TEST(LargeGraphs, SlicesThatAreReadAlikeShareAKernel) {
    const std::string many = products_of_slices(12, "relu(x)"), few = products_of_slices(4, "relu(x)");
    expect_as_evaluated(many, {}, true);
    expect_as_evaluated(few, {}, true);
    EXPECT_EQ(lowered(many).steps.size(), 13U);
    EXPECT_EQ(lowered(many).kernels.size(), 2U);
    EXPECT_EQ(lowered(few).kernels.size(), 5U);  // not worth a symbol in each index
}

// Steps of a recurrence by hand: each reads its own row of the input.
TEST(LargeGraphs, StepsOfARecurrenceShareAKernel) {
    std::string text = "graph g(x: f32[20,2,8], w: f32[8,8], h: f32[2,8]) {\n  %h0 = neg(h)\n";
    for (int i = 0; i < 20; ++i)
        text += fmt::format(
            "  %x{0} = gather(x, {0}, axis=0)\n  %m{0} = matmul(%h{0}, w)\n  %a{0} = add(%m{0}, %x{0})\n"
            "  %h{1} = tanh(%a{0})\n",
            i, i + 1);
    text += "  return %h20\n}";
    expect_as_evaluated(text, {}, true);
    EXPECT_GE(lowered(text).steps.size(), 20U);
    EXPECT_LE(lowered(text).kernels.size(), 4U);
}

TEST(LargeGraphs, AKernelReadsSoManyOperands) {
    auto text = [](const char* op, int count) {
        std::string t = "graph g(x: f32[3,4]", body, all;
        for (int i = 0; i < count; ++i) {
            t += fmt::format(", w{}: f32[4,2]", i);
            body += fmt::format("  %s{0} = matmul(x, w{0})\n", i);
            all += fmt::format("{}%s{}", i ? ", " : "", i);
        }
        return t + fmt::format(") {{\n{}  return {}({})\n}}", body, op, all);
    };
    for (const char* op : {"sum", "mean", "max", "min"}) expect_as_evaluated(text(op, 70), {}, true);
    const Program p = lowered(text("sum", 500));
    for (const Kernel& kernel : p.kernels) EXPECT_LE(kernel.params, 200U);
}

// Constants may be packed when the program is loaded, which no symbol may decide.
TEST(LargeGraphs, SlicesOfWeightsKeepTheirPlace) {
    std::string text = "graph g(x: f32[4,16]) {\n  %r = range(0.0, 1536.0, 1.0)\n  %u = reshape(%r, [16,96])\n", all;
    for (int i = 0; i < 12; ++i) {
        text +=
            fmt::format("  %s{0} = slice(%u, [{1}], [{2}], [1])\n  %p{0} = matmul(x, %s{0})\n", i, 8 * i, 8 * i + 8);
        all += fmt::format("{}%p{}", i ? ", " : "", i);
    }
    expect_as_evaluated(text + fmt::format("  return concat({}, axis=1)\n}}", all), {}, true);
}

}  // namespace
}  // namespace tessera::test::large_graphs_test
