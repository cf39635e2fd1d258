// Ops under shardings drawn at random, of all values and of all variables of their bodies, reductions too, on uneven
// sizes: every rank has the bits of the unsharded evaluator, after the same exchanges. TESSERA_SHARD_CASES and
// TESSERA_SHARD_SEED choose other ones.
#include <cstdlib>

#include "graph/text/parse.h"
#include "shard/on_buffers.h"

namespace tessera::test::shard_exact_test {

using namespace shard;

namespace {

// What stands between "graph g(" and "}". Integers, or floats whose sums are exact because their elements are small
// integers.
const char* const kGraphs[] = {
    "x: i32[5,3]) { return neg(x)",
    "x: f32[5,3]) { return relu(x)",
    "x: f32[4,6]) { return exp(x)",
    "x: i64[5,3], y: i64[3]) { return add(x, y)",
    "x: i64[5,1], y: i64[1,7]) { return mul(x, y)",
    "x: i32[3], y: i32[2,3], z: i32[1]) { return max(x, y, z)",
    "x: i64[6,5], y: i64[6,5]) { return mod(x, add(y, 9))",
    "c: bool[2,1], x: i64[2,3], y: i64[3]) { return where(c, x, y)",
    "x: i64[4,5]) { return cast(x, to=6)",
    "x: i32[5,7], y: i32[7,3]) { return matmul(x, y)",
    "x: i64[2,5,3], y: i64[2,3,4]) { return matmul(x, y)",
    "x: i64[2,1,5,3], y: i64[3,3,4]) { return matmul(x, y)",
    "x: i64[7], y: i64[7]) { return matmul(x, y)",
    "x: f32[5,6], y: f32[6,3], z: f32[3]) { return gemm(x, y, z, alpha=2.0, beta=3.0)",
    "x: f32[6,5], y: f32[3,6], z: f32[5,1]) { return gemm(x, y, z, transA=1, transB=1)",
    "x: i64[3,4], y: i64[4,5]) { return einsum(x, y, equation=\"ij,jk->ki\")",
    "x: i64[4,4]) { return einsum(x, equation=\"ii->i\")",
    "x: i64[4,4]) { return einsum(x, equation=\"ii->\")",
    "x: i64[2,3,4], y: i64[2,4]) { return einsum(x, y, equation=\"bij,bj->bi\")",
    "x: f32[2,4,7], w: f32[6,4,3], b: f32[6]) { return conv(x, w, b, strides=[2], pads=[1,1])",
    "x: f32[1,4,8,7], w: f32[5,4,3,3]) { return conv(x, w, pads=[1,1,1,1])",
    "x: f32[2,4,6,6], w: f32[4,2,3,3]) { return conv(x, w, group=2, pads=[2,2,2,2], dilations=[2,2])",
    "x: f32[1,4,9], w: f32[4,3,3]) { return conv_transpose(x, w, strides=[2], pads=[1,1])",
    "x: f32[1,3,9,8]) { return max_pool(x, kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1])",
    "x: f32[1,2,8,8]) { return average_pool(x, kernel_shape=[2,2], strides=[2,2])",
    "x: f32[1,2,8,8]) { return average_pool(x, kernel_shape=[2,4], pads=[1,0,0,0])",
    "x: f32[2,5,4,2]) { return global_average_pool(x)",
    "x: f32[2,5,4,2]) { return global_max_pool(x)",
    "x: i64[5,7]) { return reduce_sum(x, [1])",
    "x: i64[5,7]) { return reduce_sum(x, [0], keepdims=0)",
    "x: i32[4,3,5]) { return reduce_max(x, [0,2])",
    "x: i32[4,3,5]) { return reduce_min(x, keepdims=0)",
    "x: i64[5,7]) { return reduce_prod(x, [1])",
    "x: f32[4,8]) { return reduce_mean(x, [1])",
    "x: f32[6,5]) { return reduce_l1(x, [0])",
    "x: f32[6,5]) { return reduce_l2(x, [1])",
    "x: f32[6,5]) { return reduce_sum_square(x, [0,1])",
    "x: i64[6,5]) { return arg_max(x, axis=1)",
    "x: i64[6,5]) { return arg_min(x, axis=0, keepdims=0)",
    "x: i64[5,3,4]) { return transpose(x, perm=[2,0,1])",
    "x: i64[4,6]) { return reshape(x, [2,2,3,2])",
    "x: i64[4,6]) { return reshape(x, [3,8])",
    "x: i64[2,3,4,5]) { return reshape(transpose(x, perm=[0,2,1,3]), [2,4,15])",
    "x: i64[4,6]) { return flatten(x, axis=0)",
    "x: i64[5,1,3]) { return squeeze(x, [1])",
    "x: i64[5,3]) { return unsqueeze(x, [0,2])",
    "x: i64[3,1]) { return expand(x, [2,3,4])",
    "x: i64[3,4]) { return tile(x, [2,3])",
    "x: i64[9,5]) { return slice(x, [1,4], [8,0], [0,1], [2,-1])",
    "x: i64[9,5]) { return slice(x, [3], [9], [0])",
    "x: i64[3,9]) { return add(slice(x, [0], [8], [1], [2]), slice(x, [1], [8], [1], [2]))",
    "x: i64[4,3], y: i64[5,3], z: i64[1,3]) { return concat(x, y, z, axis=0)",
    "x: i64[3,4], y: i64[3,3]) { return concat(x, y, axis=1)",
    "x: i64[7,3]) { %a, %b, %c = split(x, [2,4,1], axis=0) return %a, %b, %c",
    "x: i64[4,3]) { return pad(x, [1,0,2,3], 9)",
    "x: i64[4,5]) { return pad(x, [1,2,2,1], mode=\"reflect\")",
    "x: i64[4,5]) { return pad(x, [1,2,2,1], mode=\"wrap\")",
    "x: i64[6,3], i: i64[2,4]) { return gather(x, abs(mod(i, 6)), axis=0)",
    "x: i64[3,6], i: i64[4]) { return gather(x, abs(mod(i, 6)), axis=1)",
    "x: i64[5,3], i: i64[2,3]) { return gather_elements(x, abs(mod(i, 5)))",
    "x: i64[5,3], i: i64[4,1]) { return gather_nd(x, abs(mod(i, 5)))",
    "x: i64[2,3,4]) { return reverse_sequence(x, [2,1,2], batch_axis=1, time_axis=0)",
    "x: f32[1,8,2,3]) { return depth_to_space(x, blocksize=2)",
    "x: f32[1,2,4,6]) { return space_to_depth(x, blocksize=2)",
    "x: i64[5,5]) { return trilu(x, 1, upper=0)",
    "x: i64[4,3]) { return one_hot(abs(x), 5, [3,8])",
    "x: i64[5,4]) { return cum_sum(x, 1)",
    "x: f32[5,4]) { %v, %i = top_k(x, [2]) return %v, %i",
    "x: f32[1,1,4,5]) { const e: f32[0] = [] const s: f32[4] = [1.0,1.0,2.0,2.0] return resize(x, e, s, "
    "mode=\"nearest\")",
    "x: f32[3,5]) { return hardmax(x)",
    "x: i8[4,6], y: i8[6,5]) { return matmul_integer(x, y)",
    "x: f32[4,6]) { const z: u8[] = 3 return quantize_linear(x, 0.5, %z)",
    "x: i64[0,3]) { return add(x, x)",
    "x: i64[]) { return add(x, x)",
    "x: i64[5,6], y: i64[6,4], z: i64[4,3]) { return matmul(relu(matmul(x, y)), z)",
    "x: i64[5,6], y: i64[6,4]) { %h = matmul(x, y) return reduce_sum(%h, [0]), add(%h, 1), transpose(%h)",
};

Tensor small_integers(const Type& type, Drawing& draw) {
    Tensor t = *Tensor::zeros(type.tensor().dtype, *type.tensor().shape.sizes());
    for (int64_t i = 0; i < t.elements(); ++i) {
        const int64_t n = t.dtype() == DType::boolean ? int64_t(draw.below(2)) : int64_t(draw.below(7)) - 3;
        if (is_float(t.dtype()))
            t.set_real(i, double(n));
        else
            t.set_int(i, n);
    }
    return t;
}

// One case; false where the text is none of a graph.
void run_case(const std::string& text, uint64_t seed) {
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text));
    if (std::getenv("TESSERA_SHARD_SHOW")) fmt::print("seed {}: {}\n", seed, text), std::fflush(stdout);
    auto parsed = parse("graph g(" + text + " }");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    auto graph = graph_to_shard(**parsed, {});
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    Drawing draw(seed);
    const Mesh mesh = draw.mesh();
    std::vector<Datum> inputs;
    Inputs named;
    for (const auto& in : (*graph)->inputs()) {
        inputs.push_back(small_integers(in->type(), draw));
        named[in->name()] = inputs.back();
    }
    const auto want = evaluate(**graph, named);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    PlanOptions options{.overlap_operations = draw.below(2) > 0 ? 1.0 : 1e9};
    if (draw.below(4) > 0) options.draw = [&](size_t n) { return draw.below(n); };
    const Shardings given = draw.below(4) > 0 ? draw.shardings(**graph, mesh) : Shardings{};
    auto plan = make_plan(*graph, mesh, given, options);
    ASSERT_TRUE(plan.ok()) << plan.error().to_string();
    const std::string wrong = wrong_on_threads(**plan, inputs, *want, never_equal);
    EXPECT_EQ(wrong, "") << describe(**plan);
    if (nccl_stands_in()) EXPECT_EQ(wrong_on_buffers(**plan, inputs, *want), "") << describe(**plan);
}

uint64_t from_environment(const char* name, uint64_t standard) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : standard;
}

TEST(ShardExact, EveryOpUnderDrawnShardings) {
    const uint64_t cases = from_environment("TESSERA_SHARD_CASES", 1000);
    const uint64_t first = from_environment("TESSERA_SHARD_SEED", 1) * 1000003;
    for (uint64_t i = 0; i < cases; ++i) run_case(kGraphs[i % std::size(kGraphs)], first + i);
}

}  // namespace
}  // namespace tessera::test::shard_exact_test
