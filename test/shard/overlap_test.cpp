// What does not wait for a collective is computed between its start and its end, and ranks keep the state of a step.
#include <mutex>

#include "graph/text/parse.h"
#include "shard/drawn.h"

namespace tessera::test::shard_overlap_test {

using namespace shard;

namespace {

// Also says which segments are computed.
class Traced : public Transport {
  public:
    Traced(Transport& inner, std::vector<std::string>& events) : inner_(inner), events_(events) {}
    int64_t rank() const override { return inner_.rank(); }
    int64_t ranks() const override { return inner_.ranks(); }
    Status start(Exchange& e) override {
        events_.push_back("start " + e.name);
        return inner_.start(e);
    }
    Status finish(Exchange& e) override {
        events_.push_back("finish " + e.name);
        return inner_.finish(e);
    }
    void stop(const Error& error) override { inner_.stop(error); }

  private:
    Transport& inner_;
    std::vector<std::string>& events_;
};

std::shared_ptr<Graph> graph_of(const std::string& text) {
    auto parsed = parse(text);
    EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
    auto graph = graph_to_shard(**parsed, {});
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    return *graph;
}

Result<std::vector<Datum>> run_rank(const Plan& plan, const std::vector<Datum>& inputs, Transport& transport,
                                    std::vector<std::string>& events) {
    const LocalProgram program = TRY(local_program(plan, transport.rank()));
    const RunSegment computed = by_evaluator(program);
    Traced traced(transport, events);
    return run_local(plan, program, inputs, traced, [&](size_t stage, const std::vector<Datum>& in) {
        events.push_back("compute");
        return computed(stage, in);
    });
}

TEST(ShardOverlap, ASegmentIsComputedBetweenStartAndFinish) {
    const Mesh mesh = *Mesh::parse("a=2");
    const auto graph = graph_of(R"(graph g(x: f32[8,4], w: f32[4,4], v: f32[6,6]) {
  %s = matmul(transpose(%x, perm=[1,0]), matmul(%x, %w))
  %independent = matmul(%v, matmul(%v, %v))
  %t = mul(%s, 2.0)
  return %t, %independent
})");
    const Value* x = graph->inputs()[0].get();
    const Shardings given = {{x, *parse_sharding("a,-", mesh, 2)}};
    for (const bool overlap : {true, false}) {
        PlanOptions options{.operations_per_byte = 1e-3, .overlap_operations = overlap ? 1.0 : 1e9};
        auto plan = make_plan(graph, mesh, given, options);
        ASSERT_TRUE(plan.ok()) << plan.error().to_string();
        std::vector<Datum> inputs;
        for (const auto& in : graph->inputs()) inputs.push_back(*Tensor::filled(DType::f32, *divisible_sizes(*in), 1));
        const auto transports = thread_transports(2);
        std::vector<std::vector<std::string>> events(2);
        std::vector<std::vector<Datum>> outputs(2);
        const Status done = on_threads(2, [&](size_t r) -> Status {
            outputs[r] = TRY(run_rank(**plan, inputs, *transports[r], events[r]));
            return {};
        });
        ASSERT_TRUE(done.ok()) << done.error().to_string();
        EXPECT_EQ(events[0], events[1]);
        EXPECT_EQ(outputs[1][0].tensor().real_at(0), 64);
        EXPECT_EQ(outputs[1][1].tensor().real_at(0), 36);
        const auto& e = events[0];
        const auto at =
            std::find_if(e.begin(), e.end(), [](const auto& s) { return s.starts_with("start all_reduce"); });
        ASSERT_NE(at, e.end());
        const auto end = std::find(at, e.end(), "finish" + at->substr(5));
        ASSERT_NE(end, e.end());
        EXPECT_EQ(std::count(at, end, "compute"), overlap ? 1 : 0);
    }
}

TEST(ShardOverlap, RanksKeepTheirPartsOfTheState) {
    const Mesh mesh = *Mesh::parse("a=3");
    const auto graph = graph_of(R"(graph g(x: f32[6,4], w: f32[4,7]) {
  %y = matmul(%x, %w)
  %g = matmul(transpose(%x, perm=[1,0]), %y)
  %new = sub(%w, mul(%g, 0.5))
  return %new, %y
})");
    const Value *x = graph->inputs()[0].get(), *w = graph->inputs()[1].get();
    const Sharding of_w = *parse_sharding("-,a", mesh, 2);
    const Shardings given = {{x, *parse_sharding("a,-", mesh, 2)}, {w, of_w}};
    auto plan = make_plan(graph, mesh, given, {.kept = {{1, 0}}});
    ASSERT_TRUE(plan.ok()) << plan.error().to_string();
    Drawing draw(5);
    std::vector<Datum> inputs = {*Tensor::filled(DType::f32, {6, 4}, 0), *Tensor::filled(DType::f32, {4, 7}, 0)};
    for (const Datum& d : inputs)
        for (int64_t i = 0; i < d.tensor().elements(); ++i) {
            Tensor t = d.tensor();
            t.set_real(i, double(draw.below(3)) - 1);
        }
    const std::vector<Datum> once = *evaluate(*graph, {{"x", inputs[0]}, {"w", inputs[1]}});
    const std::vector<Datum> twice = *evaluate(*graph, {{"x", inputs[0]}, {"w", once[0]}});
    const auto transports = thread_transports(3);
    const Placement parts = place({4, 7}, of_w, mesh);
    const Status done = on_threads(3, [&](size_t r) -> Status {
        std::vector<std::string> events;
        Tensor part = TRY(cut(inputs[1].tensor(), {{0, 4}, {0, 7}}, parts[r]));
        for (int step = 0; step < 2; ++step) {
            const auto out = TRY(run_rank(**plan, {inputs[0], part}, *transports[r], events));
            part = out[0].tensor();
            if (step == 1 && !out[1].tensor().same_bits(twice[1].tensor())) return Error(Code::E0407, "y differs");
        }
        const Tensor want = TRY(cut(twice[0].tensor(), {{0, 4}, {0, 7}}, parts[r]));
        if (!part.same_bits(want)) return Error(Code::E0407, "the part of rank {} differs", r);
        return {};
    });
    EXPECT_TRUE(done.ok()) << done.error().to_string();
}

}  // namespace
}  // namespace tessera::test::shard_overlap_test
