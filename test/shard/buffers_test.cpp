// Collectives on buffers: what a plan asks of a library for devices, in its text and in its calls.
#include "graph/text/parse.h"
#include "shard/on_buffers.h"

namespace tessera::test::shard_buffers_test {

using namespace shard;

namespace {

struct Partitioned {
    std::shared_ptr<const Graph> graph;
    std::unique_ptr<Plan> plan;
};

Partitioned partition(const std::string& text, const std::string& mesh_text,
                      const std::vector<std::pair<std::string, std::string>>& annotations) {
    auto graph = graph_to_shard(**parse("graph g(" + text + " }"), {});
    const Mesh mesh = *Mesh::parse(mesh_text);
    Shardings given;
    for (const auto& [name, sharding] : annotations) {
        const Value* v = (*graph)->find_value(name);
        given[v] = *parse_sharding(sharding, mesh, divisible_sizes(*v)->size());
    }
    return {*graph, std::move(*make_plan(*graph, mesh, given))};
}

std::string text_for(const Partitioned& p, int64_t rank) {
    return wires_text(*p.plan, *local_program(*p.plan, rank, Transfer::Buffers));
}

TEST(ShardBuffers, TermsAreReducedInPlace) {
    const auto p = partition("x: f32[4,8], w: f32[8,6]) { return matmul(x, w)", "model=2", {{"x", "-,model"}});
    EXPECT_EQ(text_for(p, 1), "all_reduce (all_reduce of v0)\n  sum over model: b1: f32[24] in place\n");
}

TEST(ShardBuffers, BlocksAreGatheredInPlace) {
    const auto p = partition("x: f32[4,8]) { return relu(x)", "data=2,model=2", {{"x", "data,model"}});
    EXPECT_EQ(text_for(p, 2), "all_gather (all_gather of v0)\n  over data+model: b0: f32[8] at 16 of b1: f32[32]\n");
}

TEST(ShardBuffers, UnevenBlocksAreSentAndReceived) {
    const auto p = partition("x: f32[5]) { return relu(x)", "data=2", {{"x", "data"}});
    EXPECT_EQ(text_for(p, 0), "send_receive (all_gather of v0)\n  send b0: f32[3] to 1\n  receive b1: f32[2] from 1\n");
    EXPECT_EQ(text_for(p, 1), "send_receive (all_gather of v0)\n  send b0: f32[2] to 0\n  receive b1: f32[3] from 0\n");
}

TEST(ShardBuffers, HalosAreSentAndReceived) {
    const auto p =
        partition("x: f32[1,1,8]) { return max_pool(x, kernel_shape=[3], pads=[1,1])", "data=2", {{"x", "-,-,data"}});
    const std::string text = text_for(p, 0);
    EXPECT_NE(text.find("send_receive (halo_exchange"), std::string::npos) << text;
    EXPECT_NE(text.find("send b0: f32[1] to 1\n  receive b1: f32[1] from 1\n"), std::string::npos) << text;
}

TEST(ShardBuffers, TypesThatTheLibraryDoesNotReduceAreRefused) {
    const auto p = partition("x: i16[4,8]) { return reduce_max(x, [1])", "model=2", {{"x", "-,model"}});
    const auto program = local_program(*p.plan, 0, Transfer::Buffers);
    ASSERT_FALSE(program.ok());
    EXPECT_EQ(program.error().code(), Code::E0409);
}

// A rank that leaves out a collective is caught by the library that stands in, rather than waited for.
TEST(ShardBuffers, OtherCollectivesAreRefused) {
    if (!nccl_stands_in()) GTEST_SKIP() << "SKIP: the library that stands in for NCCL is not loaded";
    const auto p = partition("x: i32[4,8], w: i32[8,6]) { return matmul(x, w)", "model=2", {{"x", "-,model"}});
    const auto q = partition("x: i32[4,8], w: i32[8,5]) { return matmul(x, w)", "model=2", {{"x", "-,model"}});
    const NcclId id = *make_nccl_id();
    const auto run = [&](const Partitioned& own, int64_t rank) {
        std::vector<Datum> inputs;
        for (const auto& in : own.graph->inputs())
            inputs.push_back(*Tensor::zeros(DType::i32, *in->type().tensor().shape.sizes()));
        return run_on_buffers(*own.plan, *local_program(*own.plan, rank, Transfer::Buffers), inputs, id);
    };
    std::optional<Result<std::vector<Datum>>> other;
    std::thread thread([&] { other = run(q, 1); });
    const auto own = run(p, 0);
    thread.join();
    ASSERT_FALSE(own.ok());
    ASSERT_FALSE(other->ok());
    EXPECT_EQ(own.error().code(), Code::E0702);
    EXPECT_NE(own.error().message().find("invalid usage"), std::string::npos) << own.error().message();
}

}  // namespace
}  // namespace tessera::test::shard_buffers_test
