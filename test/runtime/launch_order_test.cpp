#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "graph/text/parse.h"
#include "kernel/from_graph/from_graph.h"
#include "runtime/devices/cpu_device.h"
#include "runtime/interpreted_module.h"
#include "runtime/run_plan.h"

namespace tessera::launch_order_test {
namespace {

constexpr const char* kBranches = R"(graph main(x: f32[9,7], y: f32[9,7]) {
  a = exp(x)
  b = neg(y)
  c = softmax(a, axis=1)
  d = softmax(b, axis=0)
  e = relu(y)
  f = add(c, d)
  g = mul(e, x)
  h = softmax(g, axis=1)
  i = tanh(f)
  j = add(h, a)
  k = mul(i, j)
  return k, h, neg(c)
})";

// A program with its memory: nothing but inputs, outputs and an arena in which places serve again.
struct Planned {
    explicit Planned(const char* text, const std::function<void(Graph&)>& change = {}) {
        auto graph = parse(text);
        EXPECT_TRUE(graph.ok()) << graph.error().to_string();
        if (change) change(**graph);
        LowerOptions lower;
        lower.fuse = false;
        auto made = from_graph(std::shared_ptr<const Graph>(std::move(*graph)), lower);
        EXPECT_TRUE(made.ok()) << made.error().to_string();
        program = std::move(*made);
        module = std::make_shared<test::InterpretedModule>(program.kernels);
        layout.emplace(program);
        plan = *plan_run(program, *layout, *module, {}, {});
        before = steps_before(program, *layout, plan);
    }

    // The outputs, by steps in this order, in memory that held something else before.
    std::vector<std::vector<float>> run(const std::vector<size_t>& order) const {
        std::vector<char> arena(static_cast<size_t>(plan.block_bytes), 0x7f);
        std::vector<std::vector<float>> memory(program.buffers.size());
        std::vector<void*> pointers(program.buffers.size());
        for (size_t b = 0; b < program.buffers.size(); ++b) {
            if (plan.offsets[b] >= 0) {
                pointers[b] = arena.data() + plan.offsets[b];
                continue;
            }
            for (int64_t i = 0; i < plan.bytes[b] / 4; ++i)
                memory[b].push_back(float((i * 7 + int64_t(b)) % 11) / 5 - 1);
            pointers[b] = memory[b].data();
        }
        auto stream = *cpu_device().make_stream(1);
        EXPECT_TRUE(stream->reserve(plan.scratch_bytes).ok());
        for (size_t i : order) {
            const auto& step = std::get<KernelStep>(program.steps[i]);
            std::vector<void*> args;
            for (int arg : step.args) args.push_back(pointers[size_t(layout->root[size_t(arg)])]);
            for (const Launch& launch : plan.steps[i].launches)
                EXPECT_TRUE(stream->launch(launch, {args, plan.steps[i].symbols}).ok());
        }
        EXPECT_TRUE(stream->synchronize().ok());
        std::vector<std::vector<float>> outputs;
        for (int b : program.outputs) outputs.push_back(memory[size_t(layout->root[size_t(b)])]);
        return outputs;
    }

    // Any order in which each step follows those that it has to wait for.
    std::vector<size_t> drawn(std::mt19937& random) const {
        std::vector<size_t> order;
        std::vector<bool> done(before.size());
        while (order.size() < before.size()) {
            std::vector<size_t> ready;
            for (size_t i = 0; i < before.size(); ++i)
                if (!done[i] && std::all_of(before[i].begin(), before[i].end(), [&](size_t j) { return done[j]; }))
                    ready.push_back(i);
            order.push_back(ready[random() % ready.size()]);
            done[order.back()] = true;
        }
        return order;
    }

    Program program;
    std::shared_ptr<CompiledModule> module;
    std::optional<ProgramLayout> layout;
    RunPlan plan;
    std::vector<std::vector<size_t>> before;
};

TEST(LaunchOrder, AnyOrderThatWaitsGivesTheSame) {
    const Planned p(kBranches);
    std::vector<size_t> in_order(p.before.size());
    for (size_t i = 0; i < in_order.size(); ++i) in_order[i] = i;
    const auto want = p.run(in_order);
    std::mt19937 random(1);
    std::set<std::vector<size_t>> orders;
    for (int r = 0; r < 200; ++r) {
        const std::vector<size_t> order = p.drawn(random);
        orders.insert(order);
        ASSERT_EQ(p.run(order), want) << fmt::format("{}", fmt::join(order, " "));
    }
    EXPECT_GT(orders.size(), 10u);  // they are not one chain
}

TEST(LaunchOrder, WaitsOnlyForTheNearest) {
    const Planned p(R"(graph main(x: f32[5]) {
  a = exp(x)
  b = neg(a)
  return tanh(b)
})");
    ASSERT_EQ(p.before.size(), 3u);
    EXPECT_EQ(p.before, (std::vector<std::vector<size_t>>{{}, {0}, {1}}));
    EXPECT_EQ(last_steps(p.plan, p.before), (std::vector<size_t>{2}));
    const Planned apart("graph main(x: f32[5], y: f32[5]) {\n  return exp(x), neg(y)\n}");
    EXPECT_EQ(apart.before, (std::vector<std::vector<size_t>>{{}, {}}));
    EXPECT_EQ(last_steps(apart.plan, apart.before), (std::vector<size_t>{0, 1}));
}

// An output may be written where an input of its name lies, once all that read the input are done, whether or not the
// step that writes it does.
TEST(LaunchOrder, UpdatesWaitForReaders) {
    for (const char* updated : {"add(p, x)", "exp(x)"}) {
        const std::string text = fmt::format(
            "graph main(p: f32[8], x: f32[8]) {{\n  a = neg(p)\n  b = tanh(a)\n  n = {}\n  return b\n}}", updated);
        const Planned p(text.c_str(), [](Graph& graph) { graph.add_output(graph.find_value("n"), "p"); });
        ASSERT_EQ(p.program.outputs.size(), 2u);
        const int to = p.layout->root[size_t(p.program.outputs[1])], from = p.layout->root[size_t(p.program.inputs[0])];
        EXPECT_THAT(p.plan.overwrites, testing::Contains(std::pair(to, from))) << updated;
        size_t reader = 0, writer = 0;
        for (size_t i = 0; i < p.program.steps.size(); ++i) {
            const auto& step = std::get<KernelStep>(p.program.steps[i]);
            if (step.args.back() == p.program.outputs[1])
                writer = i;
            else if (step.args[0] == p.program.inputs[0])
                reader = i;
        }
        EXPECT_THAT(p.before[writer], testing::Contains(reader)) << updated;
    }
}

}  // namespace
}  // namespace tessera::launch_order_test
