// Which nodes are computed together, and why.
#include "graph/builder.h"
#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::from_graph_groups_test {
namespace {

using Labels = std::vector<std::string>;

std::string reason_of(const Program& p, std::string_view subject) {
    for (const Choice& c : p.choices)
        if (c.subject.find(subject) != std::string::npos)
            return fmt::format("{}: {}", bool(c.decision) ? "yes" : "no", c.decision.reason());
    return "no such choice";
}

Labels fused(std::string_view text, const SymbolValues& symbols = {}) {
    expect_as_evaluated(text, symbols, true);
    return step_labels(lowered(text));
}

// A batch of one, whose mean lies otherwise than what it is the mean of: the norm is one kernel all the same.
TEST(Groups, RowsOfABatchOfOne) {
    EXPECT_EQ(fused(R"(graph g(x: f16[1,12,64], w: f16[64], k: f16[64,32]) {
  %c = cast(x, to=1)
  %s = mul(%c, %c)
  %m = global_average_pool(%s)
  %e = add(%m, 0.001)
  %r = sqrt(%e)
  %d = div(%c, %r)
  %n = cast(%d, to=10)
  %y = mul(%n, w)
  return matmul(%y, k)
})"),
              (Labels{"cast+mul+global_average_pool+add+sqrt+div+cast+mul", "matmul"}));
}

TEST(Groups, EpilogueOfConvolution) {
    std::string_view text = R"(graph g(x: f32[1,8,10,10], w: f32[8,8,3,3], b: f32[8], r: f32[1,8,10,10]) {
        %c = conv(x, w, b, pads=[1,1,1,1]) %a = add(%c, r) %y = relu(%a) %z = conv(%y, w, b) return %z })";
    EXPECT_EQ(fused(text), (Labels{"conv+add+relu", "conv"}));
    EXPECT_THAT(reason_of(lowered(text), "into"), testing::HasSubstr("yes: "));
    EXPECT_THAT(reason_of(lowered(text), "into"), testing::HasSubstr("KB are not written and read again"));
}

TEST(Groups, ValueUsedTwiceInItsEpilogue) {
    EXPECT_EQ(
        fused("graph g(x: f32[4,16], w: f32[16,8]) { %m = matmul(x, w) %s = sigmoid(%m) %y = mul(%m, %s) return %y }"),
        (Labels{"matmul+sigmoid+mul"}));
}

TEST(Groups, ValueThatOthersReadEndsAnEpilogue) {
    EXPECT_EQ(fused(R"(graph g(x: f32[4,16], w: f32[16,16]) {
        %m = matmul(x, w) %y = relu(%m) %n = matmul(%y, w) %z = add(%n, %y) return %z })"),
              (Labels{"matmul+relu", "matmul+add"}));
}

// A sum of what two convolutions make, one of them by Winograd tiles: neither kernel waits for the other.
TEST(Groups, NoGroupWaitsForOneThatWaitsForIt) {
    EXPECT_FALSE(step_labels(lowered(R"(graph g(x: f32[1,64,2,28,28], i: f32[1,384,14,14]) {
        %v = constant_of_shape([128,64,1,1,1]) %w = constant_of_shape([128,384,3,3])
        %y = conv(i, %w, pads=[1,1,1,1]) %r = reshape(%y, [1,1,128,14,14]) %a = transpose(%r, perm=[0,2,1,3,4])
        %d = conv(x, %v, strides=[2,2,2]) %e = add(%a, %d) %z = relu(%e) return %z })"))
                     .empty());
}

TEST(Groups, EpilogueBehindAReshape) {
    EXPECT_EQ(fused(R"(graph g(x: f32[N,M,16], w: f32[16,8], b: f32[8], r: f32[N,M,8]) {
        %f = reshape(x, [-1,16]) %m = gemm(%f, w, b) %s = shape(r) %u = reshape(%m, %s) %y = add(%u, r) return %y })",
                    {{"N", 2}, {"M", 7}}),
              (Labels{"gemm+add"}));
    EXPECT_EQ(fused(R"(graph g(x: f32[6,4,16], w: f32[16,8], r: f32[1,4,6,8]) {
        %m = matmul(x, w) %v = reshape(%m, [1,2,3,2,2,8]) %t = transpose(%v, [0,1,3,2,4,5]) %u = reshape(%t, [1,4,6,8])
        %y = add(%u, r) return %y })"),
              (Labels{"matmul+add"}));
}

TEST(Groups, RollsAreIndices) {
    EXPECT_EQ(fused(R"(graph g(x: f32[6,8], w: f32[8,5]) {
        %r = relu(x) %a, %b = split(%r, [2,4]) %c = concat(%b, %a, axis=0) %y = matmul(%c, w) return %y })"),
              (Labels{"relu+matmul"}));
}

TEST(Groups, SoftmaxIsOneKernel) {
    EXPECT_EQ(fused("graph g(x: f32[6,40]) { %y = softmax(x) return %y }"), (Labels{"softmax"}));
    EXPECT_EQ(fused("graph g(x: f32[N,M]) { %y = softmax(x) return %y }", {{"N", 3}, {"M", 9}}), (Labels{"softmax"}));
}

TEST(Groups, LayerNormIsOneKernelWithWhatFollows) {
    EXPECT_EQ(fused("graph g(x: f32[6,40], s: f32[40], b: f32[40]) { %y = layer_normalization(x, s, b) %z = gelu(%y) "
                    "return %z }"),
              (Labels{"layer_normalization+gelu"}));
}

TEST(Groups, WhatFeedsRowsIsComputedOnce) {
    Program p =
        lowered("graph g(x: f32[64,512], y: f32[64,512]) { %h = tanh(x) %a = add(%h, y) %s = softmax(%a) return %s }");
    EXPECT_EQ(step_labels(p), (Labels{"tanh+add+softmax"}));
}

// Along another axis than the last, sums and quotients are kernels of their own: the exponentials are kept for both.
TEST(Groups, CostlyMapOfTwoKernelsIsKept) {
    Program p = lowered("graph g(x: f32[8,96,40]) { %s = softmax(x, axis=1) return %s }");
    EXPECT_THAT(reason_of(p, "into"), testing::HasSubstr("no: computed 2.0 times"));
    expect_as_evaluated("graph g(x: f32[N,M,6]) { %s = softmax(x, axis=1) return %s }", {{"N", 3}, {"M", 900}});
}

TEST(Groups, AttentionOfFewQueriesIsThreeKernels) {
    EXPECT_EQ(fused(R"(graph g(q: f32[1,5,32], k: f32[1,5,32], v: f32[1,5,32]) {
        %q4 = reshape(q, [0,0,4,8]) %k4 = reshape(k, [0,0,4,8]) %v4 = reshape(v, [0,0,4,8])
        %qt = transpose(%q4, [0,2,1,3]) %kt = transpose(%k4, [0,2,3,1]) %vt = transpose(%v4, [0,2,1,3])
        %s = matmul(%qt, %kt) %m = mul(%s, 0.35) %p = softmax(%m) %o = matmul(%p, %vt)
        %t = transpose(%o, [0,2,1,3]) %r = reshape(%t, [0,0,-1]) %e = relu(%r) return %e })"),
              (Labels{"matmul+mul", "softmax", "matmul+relu"}));
}

TEST(Groups, PrologueOfAProduct) {
    EXPECT_EQ(
        fused("graph g(x: f32[64,16], s: f32[64,1], w: f32[16,8]) { %y = mul(x, s) %z = matmul(%y, w) return %z }"),
        (Labels{"mul+matmul"}));
}

TEST(Groups, CostlyMapBeforeAWindowIsKept) {
    std::string_view text = R"(graph g(x: f32[1,64,56,56], w: f32[8,64,3,3]) {
        %y = tanh(x) %z = conv(%y, w) return %z })";
    Program p = lowered(text);
    EXPECT_EQ(step_labels(p), (Labels{"tanh", "conv"}));
    EXPECT_THAT(reason_of(p, "into"), testing::HasSubstr("no: computed 8."));
}

// What is picked in steps, or by quotients, is not picked again for each place of a window.
TEST(Groups, ResizeBeforeAWindowIsKept) {
    for (const char* resize : {R"(resize(x, _, [1.0,1.0,0.5,0.5], mode="linear"))",
                               R"(resize(x, _, [1.0,1.0,0.75,0.75], coordinate_transformation_mode="align_corners"))",
                               R"(resize(x, _, [1.0,1.0,0.75,0.75]))"}) {
        const Labels labels = fused(fmt::format(
            "graph g(x: f32[1,6,40,36], w: f32[8,6,3,3]) {{ %r = {} %z = conv(%r, w) return %z }}", resize));
        EXPECT_EQ(labels.back(), "conv") << resize;
        EXPECT_GE(labels.size(), 2u) << resize;
    }
}

TEST(Groups, CheapMapWithTwoReadersIsComputedAgain) {
    EXPECT_EQ(fused("graph g(x: f32[32,16], w: f32[16,8], v: f32[16,8]) { %y = relu(x) %a = matmul(%y, w) %b = "
                    "matmul(%y, v) return %a, %b }"),
              (Labels{"relu+matmul", "relu+matmul"}));
}

TEST(Groups, ConcatIsWrittenInPlace) {
    std::string_view text = R"(graph g(x: f32[1,8,6,6], w: f32[8,8,1,1], v: f32[8,8,3,3]) {
        %a = conv(x, w) %r = relu(%a) %b = conv(x, v, pads=[1,1,1,1]) %s = relu(%b)
        %c = concat(%r, %s, axis=1) %d = conv(%c, const_w) return %d
    })";
    std::string with_weight(text);
    with_weight.replace(with_weight.find("const_w"), 7, "u");
    with_weight.replace(with_weight.find("v: f32[8,8,3,3]"), 15, "v: f32[8,8,3,3], u: f32[4,16,1,1]");
    EXPECT_EQ(fused(with_weight), (Labels{"conv+relu", "conv+relu", "conv"}));
}

TEST(Groups, PartsThatAreMadeAlikeAreMadeByOneKernel) {
    std::string_view text = R"(graph g(x: f32[1,8,6,6], w: f32[8,8,1,1], v: f32[8,8,1,1], u: f32[4,16,1,1]) {
        %a = conv(x, w) %r = relu(%a) %b = conv(x, v) %s = relu(%b)
        %c = concat(%r, %s, axis=1) %d = conv(%c, u) return %d })";
    Program p = lowered(text);
    expect_as_evaluated(text);
    ASSERT_EQ(step_labels(p), (Labels{"conv+relu", "conv+relu", "conv"}));
    const auto &first = std::get<KernelStep>(p.steps[0]), &second = std::get<KernelStep>(p.steps[1]);
    EXPECT_EQ(first.kernel, second.kernel);
    EXPECT_TRUE(first.symbols.at(0).is_int(0) && second.symbols.at(0).is_int(8));
}
TEST(Groups, ConcatsThatBeginAlikeAreOneBuffer) {
    std::string_view text = R"(graph g(x: f32[1,8,6,6], w: f32[4,8,3,3], v: f32[4,12,3,3], u: f32[4,16,1,1]) {
        %a = conv(x, w, pads=[1,1,1,1]) %x1 = relu(x) %c = concat(%x1, %a, axis=1)
        %b = conv(%c, v, pads=[1,1,1,1]) %d = concat(%x1, %a, %b, axis=1) %e = conv(%d, u) return %e })";
    Program p = lowered(text);
    expect_as_evaluated(text);
    size_t own = 0;
    for (const ProgramBuffer& b : p.buffers) own += b.role == BufferRole::Intermediate && b.value;
    EXPECT_EQ(own, 1u);
    EXPECT_EQ(step_labels(p), (Labels{"relu", "conv", "conv", "conv"}));
}

TEST(Groups, ReshapesAreNoKernels) {
    EXPECT_EQ(fused("graph g(x: f32[4,6], w: f32[3,5]) { %a = exp(x) %b = reshape(%a, [8,3]) %c = matmul(%b, w) %d = "
                    "reshape(%c, [2,4,5]) %e = softmax(%d) return %e }"),
              (Labels{"exp+matmul", "softmax"}));
}

TEST(Groups, ChannelsLast) {
    Program p = lowered(R"(graph g(x: f32[1,8,6,6], w: f32[8,8,1,1]) {
        %a = conv(x, w) %m = max_pool(%a, kernel_shape=[2,2]) %b = conv(%m, w) return %b })");
    size_t last = 0;
    for (const ProgramBuffer& b : p.buffers) {
        if (b.role == BufferRole::Intermediate && b.value) last += b.order == std::vector<int>{0, 2, 3, 1};
        const bool given = b.role == BufferRole::Output || b.role == BufferRole::Input;
        EXPECT_TRUE(!given || b.order.empty()) << b.name;
    }
    EXPECT_EQ(last, 2u);
    EXPECT_THAT(reason_of(p, "channels of m innermost"), testing::HasSubstr("yes: max_pool takes all channels"));
}

std::vector<int> order_of(const Program& p, std::string_view name) {
    for (const ProgramBuffer& b : p.buffers)
        if (b.value && b.value->name() == name) return b.order;
    return {-1};
}

// Means along the rows or columns of channels-last images keep the channels innermost.
TEST(Groups, ReductionsOfChannelsLast) {
    for (const char* axis : {"2", "3"})
        for (const char* op : {"reduce_mean", "reduce_max"}) {
            const std::string text = fmt::format(
                R"(graph g(x: f32[N,8,12,9], w: f32[16,8,3,3], k: f32[16,16,3]) {{
                %a = conv(x, w, pads=[1,1,1,1]) %r = {}(%a, [{}], keepdims=0) %y = conv(%r, k) return %y }})",
                op, axis);
            expect_as_evaluated(text, {{"N", 2}}, true);
            EXPECT_EQ(order_of(lowered(text), "r"), (std::vector<int>{0, 2, 1})) << text;
        }
}

// A use that reads the sizes of a value alone says nothing of how its elements are read.
TEST(Groups, ShapesOfAValueLeaveItsLayout) {
    std::string_view text = R"(graph g(x: f32[1,12,H,W], z: f32[1,12,P,Q], w: f32[12,1,5,5]) {
        %c = conv(x, w, pads=[2,2,2,2], group=12) %s = shape(%c)
        %u = resize(z, _, _, %s, mode="nearest") %y = add(%u, %c) return %y })";
    const SymbolValues sizes = {{"H", 20}, {"W", 30}, {"P", 10}, {"Q", 15}};
    expect_as_evaluated(text, sizes, true);
    for (const char* value : {"c", "y"}) {
        const std::vector<int> order = order_of(lowered(text), value);
        EXPECT_TRUE(order.empty() || order == (std::vector<int>{0, 1, 2, 3}) || order[0] == -1) << value;
    }
}

// Winograd tiles have their channels innermost, and so has what is made of them, though a small product follows.
TEST(Groups, WinogradTilesGiveChannelsLast) {
    auto graph = std::make_shared<Graph>("g");
    Builder b(*graph);
    std::mt19937 gen(1);
    Value* x = graph->add_input("x", Type(DType::f32, Shape{1, 16, 30, 30}));
    Value* conv = b.op("conv", {x, b.constant(random_tensor(DType::f32, {16, 16, 3, 3}, gen))},
                       {{"pads", Attr(std::vector<int64_t>{1, 1, 1, 1})}, {"tiles", Attr(std::vector<int64_t>{4, 4})}});
    Value* relu = b.op("relu", {conv});
    graph->add_output(b.op("conv", {relu, b.constant(random_tensor(DType::f32, {4, 16, 1, 1}, gen))}), "y");
    auto program = from_graph(graph, {});
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(order_of(*program, relu->name()), (std::vector<int>{0, 2, 3, 1}));
}

TEST(Groups, MaximaOfAPoolServeItsIndices) {
    for (const char* pads : {"0,0,0,0", "1,1,1,1"}) {
        const std::string text = fmt::format(
            "graph g(x: f32[2,4,9,8]) {{ %a, %i = max_pool(x, kernel_shape=[3,3], strides=[2,2], pads=[{}]) "
            "return %a, %i }}",
            pads);
        EXPECT_EQ(lowered(text).steps.size(), 2u) << text;
        expect_as_evaluated(text);
    }
}

TEST(Groups, EqualKernelsAreShared) {
    Program p = lowered(R"(graph g(x: f32[4,16], a: f32[16,16], b: f32[16,16]) {
        %m = matmul(x, a) %r = relu(%m) %n = matmul(%r, b) %s = relu(%n) return %s })");
    EXPECT_EQ(p.steps.size(), 2u);
    EXPECT_EQ(p.kernels.size(), 1u);
    Program q = lowered(R"(graph g(x: f32[batch,16], a: f32[16,16]) { %m = matmul(x, a) return %m })");
    Program r = lowered(
        R"(graph g(x: f32[i0,16], weight: f32[16,16]) { %"some name" = matmul(x, weight) return %"some name" })");
    EXPECT_EQ(to_string(q.kernels[0]), to_string(r.kernels[0]));
}

TEST(Groups, WeightsThatAreSharedArePreparedOnce) {
    auto graph = std::make_shared<Graph>("g");
    Builder b(*graph);
    Value* x = graph->add_input("x", Type(DType::f32, Shape{32, 16}));
    std::mt19937 gen(1);
    Value* w = b.constant(random_tensor(DType::f32, {16, 16}, gen));
    for (int i = 0; i < 3; ++i) x = b.op("relu", {b.matmul(x, w)});
    graph->add_output(x, "y");
    auto program = from_graph(graph, {});
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(program->steps.size(), 3u);
    EXPECT_LE(program->prepare.size(), 1u);
}

TEST(Groups, WeightsThatDifferentKernelsShareArePreparedOnce) {
    auto graph = std::make_shared<Graph>("g");
    Builder b(*graph);
    Value* x = graph->add_input("x", Type(DType::f32, Shape{32, 16}));
    std::mt19937 gen(1);
    Value* w = b.constant(random_tensor(DType::f32, {16, 16}, gen));
    Value* v = b.constant(random_tensor(DType::f32, {16, 16}, gen));
    for (const char* op : {"relu", "neg", "exp"}) x = b.op(op, {b.matmul(x, w)});
    graph->add_output(b.matmul(x, v), "y");
    auto program = from_graph(graph, {});
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(program->steps.size(), 4u);
    EXPECT_EQ(program->kernels.size(), 5u);  // one of them prepares
    EXPECT_EQ(program->prepare.size(), 2u);
    size_t prepared = 0;
    for (const ProgramBuffer& buffer : program->buffers) prepared += buffer.role == BufferRole::Prepared;
    EXPECT_EQ(prepared, 2u);
}

size_t kernels_on_gpu(std::string_view text) {
    LowerOptions options;
    options.machine = *describe_target("sm_90a");
    return step_labels(lowered(text, options)).size();
}

// Tensor cores wait for elements that threads compute: what goes into a large product is stored first. A small product
// takes less than another kernel, and few bits are always made into more where they are used.
TEST(Groups, LargeProductsOnGpusReadWhatWasStored) {
    const char* text = "graph g(x: {1}[{0},2048], w: f16[2048,2048]) {{ {2} %m = matmul(%e, w) return %m }}";
    const char *exp = "%e = exp(x)", *cast = "%e = cast(x, to=10)";
    EXPECT_EQ(kernels_on_gpu(fmt::format(fmt::runtime(text), 4096, "f16", exp)), 2U);
    EXPECT_EQ(kernels_on_gpu(fmt::format(fmt::runtime(text), 4096, "f32", cast)), 2U);
    EXPECT_EQ(kernels_on_gpu(fmt::format(fmt::runtime(text), 4, "f16", exp)), 1U);
    LowerOptions options;
    options.machine = *describe_target("sm_90a");
    const Program bytes = lowered(fmt::format(fmt::runtime(text), 4096, "u8", cast), options);
    EXPECT_THAT(reason_of(bytes, "fuse e into the sum of m"), testing::HasSubstr("yes"));
}

// A block goes through its columns from end to end; where these are few and long, one kernel adds them up and another
// uses the sums.
TEST(Groups, FewLongColumnsAreAddedUpApart) {
    const char* text = "graph g(x: f32[{}]) {{ %s = reduce_mean(x, [0]) %y = sub(x, %s) return %y }}";
    EXPECT_EQ(kernels_on_gpu(fmt::format(fmt::runtime(text), "100000,64")), 2U);
    EXPECT_EQ(kernels_on_gpu(fmt::format(fmt::runtime(text), "64,20000")), 1U);
    EXPECT_EQ(kernels_on_gpu(fmt::format(fmt::runtime(text), "1000,64")), 1U);
}

TEST(Groups, WithoutFusionEachNodeIsAKernel) {
    LowerOptions options;
    options.fuse = false;
    EXPECT_EQ(step_labels(lowered("graph g(x: f32[4,16], w: f32[16,8]) { %m = matmul(x, w) %s = relu(%m) return %s }",
                                  options)),
              (Labels{"matmul", "relu"}));
}

TEST(Groups, StepsCountWorkAndBytes) {
    Program p = lowered("graph g(x: f32[4,16], w: f32[16,8]) { %m = matmul(x, w) %s = relu(%m) return %s }");
    const KernelStep& step = std::get<KernelStep>(p.steps[0]);
    EXPECT_EQ(step.flops, Expr(4 * 8 * 16 * 2 + 32));
    EXPECT_EQ(step.bytes, Expr((64 + 128 + 32) * 4));
    EXPECT_EQ(step.nodes.size(), 2u);
}

}  // namespace
}  // namespace tessera::test::from_graph_groups_test
