// Every op that has a derivative, held against differences in f64, in the first and the second order; and every op of
// the registry is here, or says why it has none.
#include <fstream>
#include <set>

#include "graph/type.h"
#include "ops/derivatives.h"
#include "source_dir.h"

namespace tessera::test::derivatives_test {
namespace {

// What stands between "graph g(" and "}".
struct Case {
    std::string text;
    bool first_only = false;  // the second order is too large to be text
};

std::string graph_of(const Case& c) { return "graph g(" + c.text + " }"; }

void check_all(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
        SCOPED_TRACE(c.text);
        DerivativeCheck(graph_of(c)).run(!c.first_only);
        if (testing::Test::HasFatalFailure()) return;
    }
}

// f(x), sampled where it is smooth.
std::vector<Case> functions() {
    std::vector<Case> cases;
    auto of = [&](const char* input, std::initializer_list<const char*> names) {
        for (const char* f : names) cases.push_back({fmt::format("{}: f64[2,3]) {{ return {}({})", input, f, input)});
    };
    of("x", {"exp",    "sin",      "cos",        "tanh",     "sinh",         "cosh",       "asinh",
             "erf",    "sigmoid",  "softplus",   "mish",     "gelu",         "swish",      "elu",
             "selu",   "celu",     "leaky_relu", "relu",     "abs",          "neg",        "atan",
             "sign",   "floor",    "ceil",       "round",    "hard_sigmoid", "hard_swish", "thresholded_relu",
             "shrink", "softsign", "identity",   "binarizer"});
    of("p", {"log", "sqrt", "reciprocal", "rsqrt"});
    of("u", {"asin", "acos", "atanh", "tan"});
    of("o", {"acosh"});
    return cases;
}

// Over an axis, over another one dropped, over all.
std::vector<Case> reductions() {
    std::vector<Case> cases;
    for (const char* f : {"sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum_exp"})
        for (const char* call :
             {"d: f64[2,3]) {{ return reduce_{}(d, [1])", "d: f64[2,3]) {{ return reduce_{}(d, [0], keepdims=0)",
              "d: f64[2,1,2]) {{ return reduce_{}(d, keepdims=0)"})
            cases.push_back({fmt::format(fmt::runtime(call), f)});
    return cases;
}

const std::vector<Case> kMoreFunctions{
    {"o: f64[3]) { return acosh(o)"},
    {"x: f64[4]) { return gelu(x, approximate=\"tanh\")"},
    {"x: f64[0,3]) { return exp(x)"},
    {"x: f64[]) { return mish(x)"},
    {"x: f64[3], s: f64[1]) { return prelu(x, s)"},
    {"x: f64[3], y: f64[3]) { return swiglu(x, y)"},
};

const std::vector<Case> kArithmeticCases{
    {"x: f64[2,3], y: f64[3]) { return add(x, y)"},
    {"x: f64[2,1], y: f64[1,3]) { return sub(x, y)"},
    {"x: f64[2,3], y: f64[2,1]) { return mul(x, y)"},
    {"x: f64[1], p: f64[2,2]) { return div(x, p)"},
    {"p: f64[2,3], x: f64[3]) { return pow(p, x)"},
    {"x: f64[4]) { return pow(x, 3.0)"},
    {"x: f64[4]) { return pow(x, 0.0)"},
    {"x: f64[3], p: f64[3]) { return mod(x, p, fmod=1)"},
    {"x: f64[3], y: f64[2,3], z: f64[1]) { return sum(x, y, z)"},
    {"x: f64[3], y: f64[2,3], z: f64[1]) { return mean(x, y, z)"},
    {"x: f64[3], y: f64[2,3]) { return max(x, y)"},
    {"x: f64[3], y: f64[2,1]) { return min(x, y)"},
    {"x: f64[3], l: f64[], h: f64[]) { return clip(x, l, h)"},
    {"x: f64[6]) { return clip(x, -0.5, 0.7)"},
    {"c: bool[2,1], x: f64[2,3], y: f64[3]) { return where(c, x, y)"},
    {"x: f64[3]) { return cast(cast(x, to=11), to=11)"},
    {"x: f64[2,3]) { return mul(x, mul(x, x))"},
};

const std::vector<Case> kReductionsCases{
    {"p: f64[2,3]) { return reduce_log_sum(p, [1])"},
    {"x: f64[0,2]) { return reduce_sum(x, [0])"},
    {"x: f64[2,4]) { return softmax(x)"},
    {"x: f64[2,3,2]) { return softmax(x, axis=1)"},
    {"x: f64[2,4]) { return log_softmax(x)"},
    {"x: f64[1,1]) { return softmax(x)"},
    {"x: f64[3,4]) { return hardmax(x)"},
    {"x: f64[2,3]) { return cum_sum(x, 1)"},
    {"x: f64[2,3]) { return cum_sum(x, 0, exclusive=1, reverse=1)"},
    {"x: f64[2,3]) { return cum_prod(x, 1)"},
    {"x: f64[3,2]) { return cum_prod(x, 0, exclusive=1, reverse=1)"},
    {"x: f64[2,2,2]) { return det(x)"},
    {"x: f64[2,2]) { return matrix_inverse(x)"},
    {"d: f64[2,5]) { %v, %i = top_k(d, [2]) return %v"},
    {"d: f64[4,2]) { %v, %i = top_k(d, [3], axis=0, largest=0) return %v"},
};

const std::vector<Case> kProductsCases{
    {"x: f64[2,3], y: f64[3,4]) { return matmul(x, y)"},
    {"x: f64[2,20], s: f64[1,2], z: f64[1,2]) { const b: u8[1,2,8] = [1,35,69,103,137,171,205,239,16,50,84,118,152,186,"
     "220,254] return matmul_nbits(x, %b, s, z, accuracy_level=4, bits=4, block_size=16, k=20, n=1)"},
    {"x: f64[2,1,2,3], y: f64[2,3,1]) { return matmul(x, y)"},
    {"x: f64[3], y: f64[3]) { return matmul(x, y)"},
    {"x: f64[2,3], y: f64[3]) { return matmul(x, y)"},
    {"x: f64[3], y: f64[2,3,2]) { return matmul(x, y)"},
    {"x: f64[3,2], y: f64[4,3], z: f64[4]) { return gemm(x, y, z, transA=1, transB=1, alpha=0.5, beta=2.0)"},
    {"x: f64[2,3], y: f64[3,2]) { return gemm(x, y)"},
    {"x: f64[2,3], y: f64[3,4]) { return einsum(x, y, equation=\"ij,jk->ki\")"},
    {"x: f64[3,3]) { return einsum(x, equation=\"ii->i\")"},
    {"x: f64[2,3,2], y: f64[2,3]) { return einsum(x, y, equation=\"bij,bi->bj\")"},
};

const std::vector<Case> kConvolutionsCases{
    {"x: f64[2,2,5], w: f64[3,2,3], b: f64[3]) { return conv(x, w, b, strides=[2], pads=[1,1])"},
    {"x: f64[1,2,4,5], w: f64[2,2,3,2]) { return conv(x, w, dilations=[1,2], pads=[1,0,1,1])"},
    {"x: f64[1,4,4,3], w: f64[4,2,2,2]) { return conv(x, w, group=2, strides=[2,1])"},
    {"x: f64[1,3,4,4], w: f64[3,1,3,3]) { return conv(x, w, group=3, auto_pad=\"SAME_UPPER\")"},
    {"x: f64[1,1,1,1], w: f64[1,1,1,1]) { return conv(x, w)"},
    {"x: f64[1,4,8,7], w: f64[2,2,3,2]) { return conv(x, w, group=2, strides=[3,2], dilations=[1,2], pads=[0,1,2,1])"},
    {"x: f64[1,2,9], w: f64[3,2,2]) { return conv(x, w, strides=[4])"},
    {"x: f64[2,2,3], w: f64[2,2,1]) { return conv(x, w, strides=[2], pads=[1,1])"},
    {"x: f64[1,2,3,3], w: f64[2,3,2,2], b: f64[3]) { return conv_transpose(x, w, b,"
     " strides=[2,2], pads=[1,0,0,1])"},
    {"x: f64[1,4,3], w: f64[4,2,3]) { return conv_transpose(x, w, group=2, strides=[2], output_padding=[1])"},
    {"x: f64[1,2,5,5]) { return average_pool(x, kernel_shape=[2,3], strides=[2,2], pads=[0,1,1,1])"},
    {"x: f64[1,2,4,4]) { return average_pool(x, kernel_shape=[2,2], strides=[2,2])"},
    {"x: f64[1,1,5,5]) { return average_pool(x, kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1)"},
    {"d: f64[1,2,5,4]) { return max_pool(d, kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,0])"},
    {"d: f64[1,2,4,4]) { return max_pool(d, kernel_shape=[2,2], strides=[2,2])"},
    {"x: f64[1,1,5,4]) { return lp_pool(x, kernel_shape=[2,2])"},
    {"x: f64[2,2,3,2]) { return global_average_pool(x)"},
    {"d: f64[1,2,3,2]) { return global_max_pool(d)"},
    {"x: f64[1,2,3,2]) { return global_lp_pool(x)"},
};

const std::vector<Case> kMovementCases{
    {"x: f64[2,3,4]) { return transpose(x, perm=[2,0,1])"},
    {"x: f64[2,3], y: f64[1,3]) { return concat(x, y, axis=0)"},
    {"x: f64[5,2]) { %a, %b = split(x, [2,3], axis=0) return %a, %b"},
    {"x: f64[4,2]) { %a, %b = split(x, axis=0, num_outputs=2) return %b"},
    {"x: f64[2,1]) { return expand(x, [3,2,4])"},
    {"x: f64[2,3]) { return tile(x, [2,3])"},
    {"x: f64[1,8,2,3]) { return depth_to_space(x, blocksize=2)"},
    {"x: f64[1,8,2,3]) { return depth_to_space(x, blocksize=2, mode=\"CRD\")"},
    {"x: f64[1,2,4,6]) { return space_to_depth(x, blocksize=2)"},
    {"x: f64[4,3]) { return reverse_sequence(x, [1,3,2])"},
    {"x: f64[6,5]) { return slice(x, [1,-1], [6,-6], [0,1], [2,-2])"},
    {"x: f64[6]) { return slice(x, [4], [1])"},
    {"x: f64[3,4]) { return pad(x, [1,2,0,1])"},
    {"x: f64[3,4], v: f64[]) { return pad(x, [1,-1,0,2], v)"},
    {"x: f64[3,4]) { return pad(x, [1,2,0,1], mode=\"edge\")"},
    {"x: f64[3,4]) { return pad(x, [1,2,2,1], mode=\"reflect\")"},
    {"x: f64[3,4]) { return pad(x, [1,2,2,1], mode=\"wrap\")"},
    {"x: f64[3,4]) { return center_crop_pad(x, [5,2])"},
    {"x: f64[3,4]) { return trilu(x, 1, upper=0)"},
    {"x: f64[2,3]) { return reshape(x, [3,-1])"},
    {"x: f64[0,3]) { return reshape(x, [3,0], allowzero=1)"},
    {"x: f64[2,3,2]) { return flatten(x, axis=2)"},
    {"x: f64[2,1,3]) { return squeeze(x, [1])"},
    {"x: f64[3]) { return unsqueeze(x, [0,2])"},
    {"x: f64[3]) { return identity(x)"},
    {"x: f64[4,3]) { return gather(x, [3,0,-1,0])"},
    {"x: f64[2,4]) { return gather(x, [[1,3],[1,0]], axis=1)"},
    {"x: f64[3,3]) { return gather_elements(x, [[0,-1,1],[0,0,2]], axis=0)"},
    {"x: f64[2,3,2]) { return gather_nd(x, [[0,1],[1,2],[0,1]])"},
    {"x: f64[2,3]) { return gather_nd(x, [[1],[2]], batch_dims=1)"},
    {"x: f64[4,2], y: f64[2,2]) { return scatter_nd(x, [[2],[0]], y)"},
    {"x: f64[4,2], y: f64[3,2]) { return scatter_nd(x, [[2],[0],[2]], y, reduction=\"add\")"},
    {"x: f64[3,3], y: f64[2,3]) { return scatter_elements(x, [[0,1,2],[2,0,1]], y)"},
    {"x: f64[3,3], y: f64[2,3]) { return scatter_elements(x, [[0,1,2],[0,0,1]], y, reduction=\"add\")"},
};

const std::vector<Case> kNormalizationsCases{
    {"x: f64[2,3,2], p: f64[3], y: f64[3], m: f64[3], pv: f64[3]) { return batch_normalization(x, p, y, m, pv)"},
    {"x: f64[3,2,2], p: f64[2], y: f64[2], m: f64[2], pv: f64[2]) { %a, %b, %c ="
     " batch_normalization(x, p, y, m, pv, training_mode=1) return %a, %b, %c"},
    {"x: f64[2,3,4], p: f64[3], y: f64[3]) { return instance_normalization(x, p, y)"},
    {"x: f64[2,3,4], p: f64[3,4], y: f64[4]) { return layer_normalization(x, p, y, axis=1, stash_type=11)"},
    {"x: f64[2,5], p: f64[5]) { %a, %b, %c = layer_normalization(x, p, stash_type=11) return %a, %b, %c"},
    {"x: f64[2,5], p: f64[5]) { return rms_normalization(x, p, stash_type=11)"},
    {"x: f64[2,4,3], p: f64[4], y: f64[4]) { return group_normalization(x, p, y, num_groups=2, stash_type=11)"},
    {"x: f64[1,5,2,2]) { return lrn(x, size=3, alpha=0.5, beta=0.75, bias=1.0)"},
    {"x: f64[2,3]) { return lp_normalization(x)"},
    {"x: f64[2,3]) { return lp_normalization(x, axis=0, p=1)"},
    {"x: f64[2,3,2,2]) { return mean_variance_normalization(x)"},
};

const std::vector<Case> kLossesCases{
    {"x: f64[3,4]) { const l: i64[3] = [1,0,3] return negative_log_likelihood_loss(x, l)"},
    {"x: f64[2,3,2], p: f64[3]) { const l: i64[2,2] = [[1,0],[2,2]] return"
     " negative_log_likelihood_loss(x, l, p, ignore_index=0)"},
    {"x: f64[2,3]) { const l: i64[2] = [1,2] return negative_log_likelihood_loss(x, l, reduction=\"none\")"},
    {"x: f64[3,4]) { const l: i64[3] = [1,0,3] %a, %b = softmax_cross_entropy_loss(x, l) return %a, %b"},
    {"x: f64[2,3,2], p: f64[3]) { const l: i64[2,2] = [[1,0],[2,2]] return"
     " softmax_cross_entropy_loss(x, l, p, reduction=\"sum\")"},
};

const std::vector<Case> kWindowsCases{
    {"x: f64[1,8,4]) { return col2im(x, [3,3], [2,2])"},
    {"x: f64[1,2,3,3], w: f64[2,2,2,2], u: f64[1,8,2,2]) { return deform_conv(x, w, u)", true},
    {"x: f64[1,3,4], w: f64[3,1,2], b: f64[3]) { return causal_conv_with_state(x, w, b)"},
    {"x: f64[1,1,2,2]) { const i: i64[1,1,2,2] = [[[[5,7],[13,15]]]] return max_unpool(x, i,"
     " kernel_shape=[2,2], strides=[2,2])"},
    {"x: f64[1,1,3,3], u: f64[1,2,2,2]) { return grid_sample(x, u)"},
    {"x: f64[1,1,3,3], u: f64[1,2,2,2]) { return grid_sample(x, u, mode=\"cubic\", padding_mode=\"border\")", true},
    {"x: f64[1,2,3]) { return affine_grid(x, [1,1,2,3])"},
    {"x: f64[1,1,3,3]) { const e: f64[0] = [] const s: f32[4] = [1.0,1.0,2.0,2.0] return resize(x, e, s)"},
    {"x: f64[1,1,3,3]) { const e: f64[0] = [] const s: f32[4] = [1.0,1.0,1.5,2.0] return"
     " resize(x, e, s, mode=\"linear\")"},
    {"x: f64[1,1,4,4]) { const e: f64[0] = [] const s: f32[4] = [1.0,1.0,0.5,0.75] return"
     " resize(x, e, s, mode=\"cubic\")",
     false},
};

const std::vector<Case> kAttentionCases{
    {"q: f64[1,2,3,4], k: f64[1,2,3,4], v: f64[1,2,3,2]) { return attention(q, k, v)"},
    {"q: f64[1,2,3,4], k: f64[1,1,3,4], v: f64[1,1,3,2]) { return attention(q, k, v, is_causal=1)"},
    {"q: f64[1,3,4], k: f64[1,2,4], v: f64[1,2,4], m: f64[3,2]) { return attention(q, k, v, m,"
     " q_num_heads=2, kv_num_heads=2)"},
    {"x: f64[1,2,3,4], c: f64[5,2], s: f64[5,2]) { return rotary_embedding(x, c, s, [[0,2,4]])"},
};

const std::vector<Case> kSequencesCases{
    {"x: f64[3,2,2], w: f64[1,3,2], r: f64[1,3,3]) { %y, %h = rnn(x, w, r, hidden_size=3) return %y, %h"},
    {"x: f64[2,1,2], w: f64[1,6,2], r: f64[1,6,2], b: f64[1,12]) { %y, %h = gru(x, w, r, b,"
     " hidden_size=2) return %y, %h",
     true},
    {"x: f64[2,2,2], w: f64[2,4,2], r: f64[2,4,1], b: f64[2,8]) { %y, %h, %c = lstm(x, w, r, b,"
     " hidden_size=1, direction=\"bidirectional\") return %y, %h, %c",
     true},
};

const std::vector<Case> kOthersCases{
    {"x: f64[3,4]) { const i: i64[2] = [2,0] return array_feature_extractor(x, i)"},
    {"x: f64[3,2]) { const c: bool[3] = [true,false,true] %y = compress(x, c, axis=0) return reduce_sum(mul(%y, %y), "
     "keepdims=0)",
     true},
    {"x: f64[2,3]) { const c: bool[3] = [true,false,true] %y = compress(x, c, axis=1) return reduce_sum(mul(%y, %y), "
     "keepdims=0)",
     true},
    {"x: f64[2,2]) { const c: bool[4] = [true,false,true,true] %y = compress(x, c) return reduce_sum(mul(%y, %y), "
     "keepdims=0)",
     true},
    {"x: f64[3], y: f64[2]) { return cast_like(x, y)"},
    {"x: f64[4], u: f64[2]) { return one_hot([0,2,1], 3, u)"},
    {"x: f64[3]) { return dropout(x, 0.5, false)"},
    {"x: f64[1,2,5], y: f64[1,2,2]) { return tensor_scatter(x, y, [1], axis=2)"},
    {"x: f64[1,4,2]) { return dft(x)"},
    {"x: f64[1,6,1], p: f64[4]) { return stft(x, 2, p)"},
    {"x: f64[1,8,1]) { return frames(x, 3, 2)"},
    {"x: f64[2,3]) { return reverse(x, axis=1)"},
    {"x: f64[2,2], y: f64[2,2], m: f64[2,2]) { const r: f32[] = 0.1 const t: i64[] = 2 %a, %b ="
     " momentum(r, t, x, y, m, alpha=0.9, beta=1.0, mode=\"standard\", norm_coefficient=0.01) return %a, %b"},
    {"x: f64[2,3]) { return tensor_expression(x, body=\"sum(r0 < 3, x0[i0, r0] * x0[i0, r0])\","
     " dtype=11, shape=[\"2\"])"},
    {"x: f64[2], y: f64[2], pv: f64[2]) { const r: f32[] = 0.1 const t: i64[] = 2 %a, %b = adagrad(r, t, x, y, pv) "
     "return %a, %b"},
    {"x: f64[2], y: f64[2], m: f64[2], pv: f64[2]) { const r: f32[] = 0.1 const t: i64[] = 2 "
     "%a, %b, %c = adam(r, t, x, y, m, pv) return %a, %b, %c"},
    {"x: f64[3]) { return bernoulli(x)"},
    {"c: bool[], x: f64[3], y: f64[3]) { %z = if(c, then_branch=graph a() { %t = mul(x, y)"
     " return %t }, else_branch=graph b() { %t = mul(x, x) return %t }) return %z"},
    {"x: f64[2], y: f64[4,2], w: f64[2]) { %s, %c = scan(x, y, body=graph b(h: f64[2], v:"
     " f64[2]) { %n = tanh(add(mul(h, w), v)) %o = mul(%n, v) return %n, %o }, num_scan_inputs=1) return %s, %c"},
    {"x: f64[2], y: f64[3,2]) { %s, %c = scan(x, y, body=graph b(h: f64[2], v: f64[2]) { %n ="
     " mul(h, v) %o = add(%n, v) return %n, %o }, num_scan_inputs=1, scan_input_directions=[1], "
     "scan_output_directions=[1]) return %s, %c"},
    {"x: f64[2,3]) { return matmul(x, transpose(x, perm=[1,0]))"},
};

TEST(Derivatives, Functions) { check_all(functions()); }
TEST(Derivatives, ReductionsOverAxes) { check_all(reductions()); }
TEST(Derivatives, FunctionsWithAttributes) { check_all(kMoreFunctions); }
TEST(Derivatives, Arithmetic) { check_all(kArithmeticCases); }
TEST(Derivatives, Reductions) { check_all(kReductionsCases); }
TEST(Derivatives, Products) { check_all(kProductsCases); }
TEST(Derivatives, Convolutions) { check_all(kConvolutionsCases); }
TEST(Derivatives, Movement) { check_all(kMovementCases); }
TEST(Derivatives, Normalizations) { check_all(kNormalizationsCases); }
TEST(Derivatives, Losses) { check_all(kLossesCases); }
TEST(Derivatives, Windows) { check_all(kWindowsCases); }
TEST(Derivatives, Attention) { check_all(kAttentionCases); }
TEST(Derivatives, Sequences) { check_all(kSequencesCases); }
TEST(Derivatives, Others) { check_all(kOthersCases); }

Tensor gradient_at(const std::string& text, const Inputs& inputs) {
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    Builder b(**graph);
    auto made = gradients(b, {{(*graph)->outputs()[0]}}, {(*graph)->inputs()[0].get()});
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    (*graph)->add_output((*made)[0]);
    auto out = evaluate(**graph, inputs);
    EXPECT_TRUE(out.ok()) << out.error().to_string();
    return out->back().tensor();
}

Tensor slope_of(const std::string& call, const std::vector<double>& x) {
    return gradient_at(fmt::format("graph g(x: f64[{}]) {{ return {} }}", x.size(), call),
                       {{"x", typed(DType::f64, {int64_t(x.size())}, x)}});
}

// docs/gradients.md says these.
TEST(Derivatives, WhereThereAreNone) {
    expect_tensor(slope_of("relu(x)", {0, 1}), {2}, {0, 1});
    expect_tensor(slope_of("abs(x)", {0, -1}), {2}, {0, -1});
    expect_tensor(slope_of("reduce_max(x)", {2, 1, 2}), {3}, {0.5, 0, 0.5});
    expect_tensor(slope_of("max(x, mul(x, 3.0))", {0, 1}), {2}, {2, 3});
    expect_tensor(slope_of("clip(x, 0.0, 1.0)", {-1, 0, 1, 2}), {4}, {0, 1, 1, 0});
    expect_tensor(slope_of("pow(x, 0.0)", {0, 2}), {2}, {0, 0});
    expect_tensor(slope_of("pow(x, 2.0)", {0, -3}), {2}, {0, -6});
    expect_tensor(slope_of("softplus(x)", {0}), {1}, {0.5});
    expect_tensor(slope_of("sigmoid(x)", {-800, 800}), {2}, {0, 0});
    expect_tensor(slope_of("swish(x)", {-800, 800}), {2}, {0, 1});
    expect_tensor(slope_of("reduce_l2(x)", {0, 0}), {2}, {0, 0});
    expect_tensor(slope_of("max_pool(reshape(x, [1,1,4]), kernel_shape=[2], strides=[2])", {1, 1, 0, 2}), {4},
                  {1, 0, 0, 1});
}

TEST(Derivatives, OfScalesOfQuantizedTensors) {
    const Tensor g = gradient_at("graph g(s: f32[]) { const q: i8[3] = [1,2,-7] return dequantize_linear(q, s) }",
                                 {{"s", typed(DType::f32, {}, {0.5})}});
    expect_tensor(g, {}, {-4});
}

TEST(Derivatives, OfSymbolicSizes) {
    const char* text = "graph g(x: f64[N,M]) { return reduce_sum(mul(pad(x, [1,0,0,2]), 2.0), keepdims=0) }";
    expect_tensor(gradient_at(text, {{"x", typed(DType::f64, {2, 1}, {3, 4})}}), {2, 1}, {2, 2});
    text = "graph g(x: f64[N], y: f64[M,1]) { return mul(x, y) }";
    expect_tensor(gradient_at(text, {{"x", typed(DType::f64, {1}, {3})}, {"y", typed(DType::f64, {2, 1}, {5, 6})}}),
                  {1}, {11});
}

// The dimensions before an operand's own and those that it is broadcast along, in one sum.
TEST(Derivatives, BroadcastsAreSummedOnce) {
    auto graph = parse("graph g(b: f64[3,1,1], x: f64[2,3,4,5]) { return mul(x, b) }");
    ASSERT_TRUE(graph.ok());
    Builder b(**graph);
    auto made = gradients(b, {{(*graph)->outputs()[0]}}, {(*graph)->inputs()[0].get()});
    ASSERT_TRUE(made.ok());
    size_t sums = 0;
    for (const auto& node : (*graph)->nodes()) sums += node->op().name == "reduce_sum";
    EXPECT_EQ(sums, 1u);
    EXPECT_EQ((*made)[0]->type(), (*graph)->inputs()[0]->type());
}

TEST(Derivatives, StopsAndRefuses) {
    auto graph = parse("graph g(x: f64[2], i: i64[2]) { %a = mul(x, x) %b = mul(%a, x) return %b }");
    ASSERT_TRUE(graph.ok());
    Builder b(**graph);
    Value *x = (*graph)->inputs()[0].get(), *out = (*graph)->outputs()[0];
    auto stopped = gradients(b, {{out}}, {x}, {(*graph)->find_value("a")});
    ASSERT_TRUE(stopped.ok());
    (*graph)->add_output((*stopped)[0]);
    auto values = evaluate(**graph, {{"x", typed(DType::f64, {2}, {2, 3})}, {"i", longs({2}, {0, 0})}});
    ASSERT_TRUE(values.ok());
    expect_tensor(values->back().tensor(), {2}, {4, 9});
    auto integer = gradients(b, {{out}}, {(*graph)->inputs()[1].get()});
    ASSERT_FALSE(integer.ok());
    EXPECT_EQ(integer.error().code(), Code::E0208);
    auto none = gradients(b, {{out}}, {(*graph)->find_value("a")});
    ASSERT_TRUE(none.ok());
    EXPECT_TRUE((*none)[0]);
}

bool may_be_float(const OpDef& op, const std::string& type) {
    if (type == "*") return true;
    if (auto fixed = dtype_from_name(type)) return is_float(*fixed);
    for (const TypeVar& var : op.types)
        if (var.name == type && var.allowed.has(DType::f32)) return true;
    return false;
}

bool computes_floats(const OpDef& op) {
    auto floats = [&](const ParamDef& p) { return may_be_float(op, p.type); };
    return std::any_of(op.inputs.begin(), op.inputs.end(), floats) &&
           std::any_of(op.outputs.begin(), op.outputs.end(), floats);
}

TEST(Derivatives, EveryOpHasOneOrSaysWhyNot) {
    std::set<std::string> checked = {
        "dequantize_linear",              // above
        "quantize_linear",                // bytes, to which nothing flows
        "linear_attention",               // computes in f32, by a scan
        "tile_kernel",                    // test/python/test_tile_models.py
        "attention_gradient",             // by what it is written out as
        "cum_sum",           "eye_like",  // by what follows from the others
    };
    std::vector<std::vector<Case>> all = {functions(), reductions()};
    for (const auto& group :
         {kMoreFunctions, kArithmeticCases, kReductionsCases, kProductsCases, kConvolutionsCases, kMovementCases,
          kNormalizationsCases, kLossesCases, kWindowsCases, kAttentionCases, kSequencesCases, kOthersCases})
        all.push_back(group);
    for (const auto& group : all)
        for (const Case& c : group) {
            auto graph = parse(graph_of(c));
            ASSERT_TRUE(graph.ok()) << graph.error().to_string();
            for (const auto& node : (*graph)->nodes()) checked.insert(node->op().name);
        }
    std::ifstream file(source_dir() + "/docs/gradients.md");
    const std::string page((std::istreambuf_iterator<char>(file)), {});
    for (const OpDef* op : all_ops()) {
        const char* why = why_no_gradient(*op);
        if (why)
            EXPECT_NE(page.find("`" + op->name + "`"), std::string::npos) << "docs/gradients.md lacks " << op->name;
        if (why || !computes_floats(*op) || op->has(Trait::Random)) continue;
        EXPECT_TRUE(checked.contains(op->name)) << op->name << " is not checked, and says no reason for having none";
    }
}

}  // namespace
}  // namespace tessera::test::derivatives_test
