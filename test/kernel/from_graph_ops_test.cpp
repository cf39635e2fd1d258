// Every family of ops as kernels, against the evaluator: usual sizes, sizes of one, and nothing at all.
#include "kernel/lower_text.h"

namespace tessera::test::from_graph_ops_test {
namespace {

void check_sizes(std::string_view text) {
    for (SymbolValues s : std::vector<SymbolValues>{
             {{"N", 2}, {"M", 5}}, {{"N", 1}, {"M", 1}}, {{"N", 3}, {"M", 17}}, {{"N", 0}, {"M", 4}}})
        expect_as_evaluated(text, s);
}

TEST(LowerOps, Elementwise) {
    check_sizes("graph g(x: f32[N,M], y: f32[M]) { %a = add(x, y) %b = mul(%a, x) %c = tanh(%b) return %c }");
    check_sizes("graph g(x: f16[N,M], y: f16[N,1]) { %a = mul(x, y) %b = sigmoid(%a) return %b }");
    check_sizes("graph g(x: bf16[N,M]) { %a = exp(x) %b = sub(%a, x) return %b }");
    check_sizes(
        "graph g(x: i32[N,M], y: i32[N,M]) { %a = add(x, y) %b = less(%a, y) %c = where(%b, x, %a) return %c }");
    check_sizes("graph g(x: f64[N,M]) { %a = erf(x) return %a }");
    expect_as_evaluated("graph g(x: f32[], y: f32[]) { %a = add(x, y) return %a }");
    expect_as_evaluated(
        "graph g(x: u8[3,4]) { %a = cast(x, to=1) %b = cast(%a, to=10) %c = cast(%b, to=1) return %c }");
    expect_as_evaluated(
        "graph g(x: f32[4], y: f32[4]) { %a = clip(x, -0.5, 0.5) %b = pow(%a, 2.0) %c = max(%b, y) return %c }");
}

TEST(LowerOps, Reductions) {
    check_sizes("graph g(x: f32[N,M]) { %a = reduce_sum(x, [1]) return %a }");
    check_sizes("graph g(x: f32[N,M]) { %a = reduce_max(x, [0], keepdims=0) return %a }");
    check_sizes("graph g(x: f16[N,M]) { %a = reduce_mean(x, [1]) return %a }");
    check_sizes("graph g(x: f32[N,M]) { %a = reduce_l2(x) return %a }");
    check_sizes("graph g(x: i64[N,M]) { %a = reduce_prod(x, [1]) return %a }");
    check_sizes("graph g(x: f32[N,M]) { %a = reduce_log_sum_exp(x, [1]) return %a }");
    expect_as_evaluated("graph g(x: f32[3,5]) { %a = arg_max(x, axis=1) return %a }");
    expect_as_evaluated("graph g(x: f32[3,5]) { %a = cum_sum(x, 1) return %a }", {}, true);
}

TEST(LowerOps, Contractions) {
    check_sizes("graph g(x: f32[N,M], y: f32[M,6]) { %a = matmul(x, y) return %a }");
    check_sizes("graph g(x: f32[N,1,3,M], y: f32[2,M,4]) { %a = matmul(x, y) return %a }");
    check_sizes("graph g(x: f32[N,M], y: f32[7,M], z: f32[7]) { %a = gemm(x, y, z, transB=1, alpha=0.5) return %a }");
    check_sizes("graph g(x: f16[N,M], y: f16[M,6]) { %a = matmul(x, y) return %a }");
    check_sizes("graph g(x: f64[N,M], y: f64[M,6]) { %a = matmul(x, y) return %a }");
    check_sizes("graph g(x: i32[N,M], y: i32[M,6]) { %a = matmul(x, y) return %a }");
    check_sizes("graph g(x: f32[M], y: f32[M]) { %a = matmul(x, y) return %a }");
    check_sizes("graph g(x: f32[N,M], y: f32[M]) { %a = matmul(x, y) return %a }");
    expect_as_evaluated("graph g(x: f32[2,3,4], y: f32[4,3]) { %a = einsum(x, y, equation=\"bij,ji->bi\") return %a }");
    expect_as_evaluated("graph g(x: u8[2,3], y: i8[3,4]) { %a = matmul_integer(x, y) return %a }");
}

TEST(LowerOps, Convolutions) {
    expect_as_evaluated(
        "graph g(x: f32[2,3,9,8], w: f32[5,3,3,3], b: f32[5]) { %a = conv(x, w, b, pads=[1,1,1,1]) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[1,4,9,8], w: f32[6,2,3,3]) { %a = conv(x, w, group=2, strides=[2,2]) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[1,4,9,8], w: f32[4,1,3,3]) { %a = conv(x, w, group=4, pads=[1,1,1,1]) return %a }");
    expect_as_evaluated("graph g(x: f32[1,3,12], w: f32[5,3,3]) { %a = conv(x, w, dilations=[2]) return %a }");
    expect_as_evaluated("graph g(x: f32[1,2,4,5,6], w: f32[3,2,2,2,2]) { %a = conv(x, w) return %a }");
    expect_as_evaluated("graph g(x: f32[1,4,1,1], w: f32[6,4,1,1]) { %a = conv(x, w) return %a }");
    expect_as_evaluated("graph g(x: f32[0,3,5,5], w: f32[6,3,3,3]) { %a = conv(x, w) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[1,4,5,5], w: f32[4,3,3,3]) { %a = conv_transpose(x, w, strides=[2,2]) return %a }");
    expect_as_evaluated("graph g(x: f32[N,3,H,W], w: f32[4,3,3,3]) { %a = conv(x, w, pads=[1,1,1,1]) return %a }",
                        {{"N", 2}, {"H", 7}, {"W", 9}});
}

TEST(LowerOps, ProductsOfAllTaps) {
    expect_as_evaluated(
        "graph g(x: f32[2,40,5,6], w: f32[40,3,5,2], b: f32[6]) { %a = conv_transpose(x, w, b, strides=[4,3], "
        "pads=[1,0,2,1], group=2, output_padding=[2,2]) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[N,64,H,W], w: f32[64,2,3,4]) { %a = conv_transpose(x, w, strides=[2,3], dilations=[2,1], "
        "pads=[2,1,0,1]) %y = tanh(%a) return %y }",
        {{"N", 2}, {"H", 7}, {"W", 9}});
    expect_as_evaluated(
        "graph g(x: f32[1,32,4], w: f32[32,3,9], v: f32[5,3,3]) { %a = conv_transpose(x, w, strides=[8]) "
        "%b = conv(%a, v) return %b }");
}

// More taps meet in an output than are spelled out, and not as many in each phase.
TEST(LowerOps, AConvolutionOfEachPhase) {
    for (const char* attrs :
         {"strides=[2,2]", "strides=[2,2], pads=[3,4,5,2]", "strides=[2,3], output_padding=[1,2]",
          "strides=[2,2], dilations=[3,1], pads=[1,0,0,1]", "dilations=[2,3]", "dilations=[2,2], pads=[4,1,2,3]"})
        expect_as_evaluated(
            fmt::format("graph g(x: f32[2,3,6,5], w: f32[3,4,13,11], b: f32[4]) {{ %a = "
                        "conv_transpose(x, w, b, {}) return %a }}",
                        attrs));
    expect_as_evaluated(
        "graph g(x: f32[N,4,H,W], w: f32[4,2,9,9]) { %a = conv_transpose(x, w, dilations=[2,2], group=2) return %a }",
        {{"N", 2}, {"H", 4}, {"W", 6}});
    expect_as_evaluated(
        "graph g(x: f32[1,2,3,4,3], w: f32[2,3,7,7,7]) { %a = conv_transpose(x, w, strides=[2,2,2]) return %a }");
}

// Bytes that are read in steps between filled edges, and images of bytes that come and leave as ONNX has them.
TEST(LowerOps, ConvolutionsOfQuantizedImages) {
    for (const char* conv :
         {"w: f32[6,1,3,3]) { %c = conv(%x, w, group=6, strides=[2,2], pads=[1,1,1,1])",
          "w: f32[5,6,3,3]) { %c = conv(%x, w, pads=[1,1,1,1])", "w: f32[5,6,1,1]) { %c = conv(%x, w)"})
        expect_as_evaluated(fmt::format(
            "graph g(q: u8[1,6,9,37], {} %y = quantize_linear(%c, 0.25, 100:u8) %z = dequantize_linear(%y, 0.25, "
            "100:u8) "
            "return %z }}",
            std::string(conv).insert(std::string(conv).find("{ ") + 2, "%x = dequantize_linear(q, 0.03, 120:u8) ")));
}

TEST(LowerOps, Pools) {
    expect_as_evaluated(
        "graph g(x: f32[2,3,9,8]) { %a = max_pool(x, kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[2,3,9,8]) { %a = average_pool(x, kernel_shape=[3,3], pads=[1,1,1,1]) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[2,3,9,8]) { %a = average_pool(x, kernel_shape=[2,2], ceil_mode=1, strides=[2,2]) return %a }");
    expect_as_evaluated("graph g(x: f32[2,3,9,8]) { %a, %i = max_pool(x, kernel_shape=[3,3]) return %a, %i }");
    expect_as_evaluated("graph g(x: f32[2,3,9,8]) { %a = global_average_pool(x) return %a }");
    expect_as_evaluated("graph g(x: f32[2,6,5]) { %a = lrn(x, size=3) return %a }");
}

TEST(LowerOps, Norms) {
    check_sizes("graph g(x: f32[N,M]) { %a = softmax(x) return %a }");
    check_sizes("graph g(x: f32[N,M,3]) { %a = softmax(x, axis=1) return %a }");
    check_sizes("graph g(x: f32[N,M]) { %a = log_softmax(x, axis=0) return %a }");
    check_sizes("graph g(x: f32[N,M], s: f32[M], b: f32[M]) { %a = layer_normalization(x, s, b) return %a }");
    check_sizes("graph g(x: f16[N,M], s: f16[M]) { %a = rms_normalization(x, s) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[2,4,3,5], s: f32[4], b: f32[4]) { %a = instance_normalization(x, s, b) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[2,4,3,5], s: f32[4], b: f32[4]) { %a = group_normalization(x, s, b, num_groups=2) return %a }");
    expect_as_evaluated("graph g(x: f32[2,3,4]) { %a = hardmax(x, axis=1) return %a }");
}

TEST(LowerOps, Movement) {
    check_sizes("graph g(x: f32[N,M,4]) { %a = transpose(x, [2,0,1]) return %a }");
    expect_as_evaluated("graph g(x: f32[N,M,4]) { %a = reshape(x, [0,-1]) %b = exp(%a) return %b }",
                        {{"N", 3}, {"M", 5}});
    check_sizes(
        "graph g(x: f32[N,M,6]) { %a = reshape(x, [0,0,2,3]) %b = transpose(%a, [0,2,1,3]) %c = relu(%b) return %c }");
    check_sizes("graph g(x: f32[N,M], y: f32[N,3]) { %a = concat(x, y, axis=1) return %a }");
    check_sizes("graph g(x: f32[N,M]) { %a = pad(x, [0,1,0,2]) return %a }");
    expect_as_evaluated("graph g(x: f32[6,5]) { %a = slice(x, [1,4], [6,0], [0,1], [2,-1]) return %a }");
    expect_as_evaluated("graph g(x: f32[6,5]) { %a, %b = split(x, [2,4]) %c = neg(%b) return %a, %c }");
    expect_as_evaluated("graph g(x: f32[2,8,3,3]) { %a = depth_to_space(x, blocksize=2) return %a }");
    expect_as_evaluated("graph g(x: f32[2,3]) { %a = tile(x, [2,3]) return %a }");
    expect_as_evaluated("graph g(x: f32[2,1]) { %a = expand(x, [3,2,4]) return %a }");
    expect_as_evaluated("graph g(x: f32[5,4], i: i64[2,3]) { %a = gather(x, i) return %a }");
    expect_as_evaluated("graph g(x: f32[5,4]) { %a = gather(x, [-1,0,2], axis=1) return %a }");
    expect_as_evaluated("graph g(x: f32[4,4], i: i64[4,2]) { %a = gather_elements(x, i, axis=1) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[1,3,4,4]) { %a = resize(x, _, [1.0,1.0,2.0,2.0], mode=\"nearest\") return %a }");
}

TEST(LowerOps, Quantized) {
    expect_as_evaluated(
        "graph g(x: f32[2,3,4], s: f32[]) { %t = abs(s) %a = quantize_linear(x, %t, 3:u8) %b = dequantize_linear(%a, "
        "%t, 3:u8) return %a, %b }");
    expect_as_evaluated("graph g(x: f32[3,4]) { %a, %s, %z = dynamic_quantize_linear(x) return %a, %s, %z }");
}

TEST(LowerOps, Attention) {
    expect_as_evaluated(
        "graph g(q: f32[1,2,5,8], k: f32[1,2,7,8], v: f32[1,2,7,8]) { %a = attention(q, k, v) return %a }");
    expect_as_evaluated(
        "graph g(q: f32[1,5,16], k: f32[1,5,8], v: f32[1,5,8]) { %a = attention(q, k, v, q_num_heads=4, "
        "kv_num_heads=2, is_causal=1) return %a }");
}

TEST(LowerOps, Recurrent) {
    expect_as_evaluated(
        "graph g(x: f32[4,2,3], w: f32[1,20,3], r: f32[1,20,5], b: f32[1,40]) { %y, %h, %c = lstm(x, w, r, b, "
        "hidden_size=5) return %y, %h, %c }");
    expect_as_evaluated(
        "graph g(x: f32[4,2,3], w: f32[2,15,3], r: f32[2,15,5]) { %y, %h = gru(x, w, r, hidden_size=5, "
        "direction=\"bidirectional\") return %y, %h }");
    expect_as_evaluated(
        "graph g(x: f32[S,2,3], w: f32[1,5,3], r: f32[1,5,5]) { %y = rnn(x, w, r, hidden_size=5) return %y }",
        {{"S", 3}}, true);
}

TEST(LowerOps, OutputsThatAreOthers) {
    expect_as_evaluated("graph g(x: f32[2,3]) { const c: f32[2] = [1.0,2.0] %a = exp(x) return %a, x, %a, c }");
    expect_as_evaluated("graph g(x: f32[2,3]) { %a = exp(x) %b = reshape(%a, [6]) return %b, %a }");
}

TEST(LowerOps, IndicesAreCheckedBeforeTheKernel) {
    std::string_view text = "graph g(x: f32[3,4], i: i64[2]) { %a = gather(x, i) %b = relu(%a) return %b }";
    Program p = lowered(text);
    EXPECT_EQ(step_labels(p), (std::vector<std::string>{"check gather", "relu"}));
    Inputs inputs{{"x", Datum(*Tensor::zeros(DType::f32, {3, 4}))}, {"i", Datum(Tensor::ints({0, 3}))}};
    auto got = run_program(p, inputs);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code(), Code::E0406);
    EXPECT_EQ(step_labels(lowered("graph g(x: f32[3,4]) { %a = gather(x, [2,0]) %b = relu(%a) return %b }")),
              (std::vector<std::string>{"relu"}));
    EXPECT_EQ(step_labels(lowered("graph g(x: f32[3,4]) { %a = gather(x, [5]) %b = relu(%a) return %b }")),
              (std::vector<std::string>{"host gather", "relu"}));
}

// A pass may find sizes that no run can have: lowering leaves it to a run to say so.
TEST(LowerOps, SizesThatFailAreLeftToARun) {
#ifndef NDEBUG
    GTEST_SKIP() << "graphs are verified after each pass here, and this one is broken from the start";
#endif
    auto graph = parse("graph g(x: f32[1,3,N], w: f32[5,3,3]) { %a = conv(x, w) return %a }");
    ASSERT_TRUE(graph.ok());
    (*graph)->inputs()[0]->set_type(Type(DType::f32, Shape{1, 3, 2}));
    auto program = from_graph(std::shared_ptr<const Graph>(std::move(*graph)), {});
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    EXPECT_TRUE(program->kernels.empty());
}

// Indices that are clipped to what they pick from are not checked again; those that may lie outside are.
TEST(LowerOps, IndicesThatStayInsideAreNotChecked) {
    auto checks = [](std::string_view text) {
        Program p = lowered(text);
        return std::any_of(p.steps.begin(), p.steps.end(),
                           [](const Step& s) { return std::holds_alternative<CheckStep>(s); });
    };
    EXPECT_FALSE(checks("graph g(x: f32[5,3], i: i64[4]) { %c = clip(i, 0, 4) %y = gather(x, %c) return %y }"));
    EXPECT_FALSE(
        checks("graph g(x: f32[5,3], i: i64[4]) { %c = clip(i, 0, 3) %d = add(%c, 1) %m = min(%d, 4) %y = gather(x, "
               "%m) return %y }"));
    EXPECT_TRUE(checks("graph g(x: f32[5,3], i: i64[4]) { %c = clip(i, 0, 5) %y = gather(x, %c) return %y }"));
    EXPECT_TRUE(checks("graph g(x: f32[5,3], i: i64[4]) { %c = clip(i, -1, 4) %y = gather(x, %c) return %y }"));
    EXPECT_TRUE(
        checks("graph g(x: f32[5,3], i: i64[4]) { %d = add(i, 1) %c = max(%d, 0) %y = gather(x, %c) return %y }"));
    EXPECT_TRUE(checks("graph g(x: f32[N,3], i: i64[4]) { %c = clip(i, 0, 4) %y = gather(x, %c) return %y }"));
    // Where there may be nothing to pick from, there is only nothing to check if nothing is picked then.
    const char* to_size =
        "%s = shape(x, start=0, end=1) %z = squeeze(%s, [0]) %l = sub(%z, 1) %c = clip(i, 0, %l) %y = gather(x, %c) "
        "return %y }";
    EXPECT_FALSE(checks(fmt::format("graph g(x: f32[N,3], i: i64[N]) {{ {}", to_size)));
    EXPECT_TRUE(checks(fmt::format("graph g(x: f32[N,3], i: i64[4]) {{ {}", to_size)));
}

// Innermost axes of open sizes, which turn out to be less than a vector: nests of their own.
TEST(LowerOps, NarrowSizes) {
    for (const char* text : {
             "graph g(x: f32[M,5,4,N]) { %a = reduce_min(x, [1,3]) return %a }",
             "graph g(x: f32[1,M,40,N]) { %a = reduce_prod(x, [1,3], keepdims=0) return %a }",
             "graph g(x: f32[M,6,N]) { %a = transpose(x, perm=[1,0,2]) return %a }",
             "graph g(x: f32[M,6,N], y: f32[6,1]) { %a = sub(x, y) return %a }",
             "graph g(x: f32[M,9,N]) { %a = log_softmax(x, axis=1) return %a }",
             "graph g(x: f32[2,N,M]) { %a = transpose(x, perm=[0,2,1]) %b = exp(%a) return %b }",
         }) {
        for (int64_t n : {0, 1, 2, 3, 4, 7}) expect_as_evaluated(text, {{"N", n}, {"M", 11}});
        const Program p = lowered(text);
        EXPECT_TRUE(std::any_of(p.choices.begin(), p.choices.end(), [](const Choice& c) {
            return c.decision && c.subject.find("== 3") != std::string::npos;
        })) << text;
    }
}

// Kinds of shapes that have ways of their own to be computed.
TEST(LowerOps, OddKinds) {
    for (const char* upper : {"0", "1"})
        for (const char* shape : {"5,7,9", "2,19,6", "3,2,40", "4,9,2"})
            expect_as_evaluated(
                fmt::format("graph g(x: f32[{}]) {{ %a = trilu(x, 1, upper={}) return %a }}", shape, upper));
    for (const char* axis : {"0", "1"})  // rotated
        expect_as_evaluated(
            fmt::format("graph g(x: f32[12,20]) {{ %b = slice(x, [5], [99], [{0}]) %e = slice(x, [0], [5], [{0}]) "
                        "%a = concat(%b, %e, axis={0}) return %a }}",
                        axis));
    expect_as_evaluated(
        "graph g(x: f32[1,70,4,5,6], w: f32[70,2,3,3,2]) { %a = conv_transpose(x, w, pads=[1,1,0,1,1,0]) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[N,8,3,M], w: f32[8,5,2,4]) { %a = conv_transpose(x, w, strides=[1,4], group=2) "
        "%y = relu(%a) return %y }",
        {{"N", 2}, {"M", 5}});
    expect_as_evaluated("graph g(x: f32[20,3], w: f32[4,3,31]) { %a = matmul(x, w) return %a }");
    expect_as_evaluated(
        "graph g(x: f32[N,8,H,20], w: f32[4,4,4,3]) { %a = conv(x, w, group=2, pads=[1,1,1,1]) return %a }",
        {{"N", 2}, {"H", 7}});
    expect_as_evaluated("graph g(x: u8[30,9], w: i8[9,40]) { %a = matmul_integer(x, w) return %a }");
    for (const char* last : {"0", "1"})
        expect_as_evaluated(fmt::format(
            "graph g(x: f32[3,50]) {{ %r = round(x) %a = arg_max(%r, axis=1, select_last_index={}) return %a }}",
            last));
}

TEST(LowerOps, HostSteps) {
    std::string_view text =
        "graph g(x: f32[4,5]) { %y = relu(x) %r = random_uniform_like(%y, seed=1.0) %s = reduce_sum(%r, [1]) return %s "
        "}";
    expect_as_evaluated(text, {}, true);
    Program p = lowered(text);
    EXPECT_EQ(step_labels(p), (std::vector<std::string>{"relu", "host random_uniform_like", "reduce_sum"}));
    const HostStep* host = nullptr;
    for (const Step& s : p.steps)
        if (auto* h = std::get_if<HostStep>(&s)) host = h;
    ASSERT_TRUE(host);
    EXPECT_EQ(host->reason, "draws random numbers, one after the other");
}

}  // namespace
}  // namespace tessera::test::from_graph_ops_test
