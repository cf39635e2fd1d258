// Maps of the same elements, some made of others, in one kernel for blocks of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"
#include "runtime/kernel_access.h"

namespace tessera::test::gpu_joined_maps_test {
namespace {

Program lowered_for_gpu(const std::string& text) {
    LowerOptions options;
    options.machine = *describe_target("sm_90a");
    return lowered(text, options);
}

Program expect_as_evaluated_on_gpu(const std::string& text) {
    SCOPED_TRACE(text);
    const auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, {}, 5);
    const auto want = evaluate(*graph, inputs);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    Program program = lowered_for_gpu(text);
    const auto got = run_program(program, inputs, {.races = InterpretOptions::Races::Find});
    EXPECT_TRUE(got.ok()) << got.error().to_string();
    for (size_t i = 0; got.ok() && i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    return program;
}

// An update as Adam makes it: averages, the parameter that is made of them, and its copy in bf16.
std::string update(const char* sizes) {
    return fmt::format(R"(graph g(p: f32[{0}], m: f32[{0}], v: f32[{0}], g: bf16[{0}], rate: f32[]) {{
  %w = cast(g, to=1)
  %ma = mul(m, 0.9)
  %mb = mul(%w, 0.1)
  %mn = add(%ma, %mb)
  %va = mul(v, 0.99)
  %vs = mul(%w, %w)
  %vb = mul(%vs, 0.01)
  %vd = add(%va, %vb)
  %vn = abs(%vd)
  %s = sqrt(%vn)
  %d = add(%s, 0.001)
  %q = div(%mn, %d)
  %r = mul(%q, rate)
  %pn = sub(p, %r)
  %c = cast(%pn, to=16)
  return %mn, %vn, %pn, %c
}})",
                       sizes);
}

int slot_of(const Kernel& kernel, const Program& program, size_t output) {
    const auto& step = std::get<KernelStep>(program.steps[0]);
    for (size_t i = 0; i < kernel.params; ++i)
        if (step.args[i] == program.outputs[output]) return int(i);
    return -1;
}

TEST(GpuJoinedMaps, AnUpdateIsOneKernelInPlace) {
    for (const char* sizes : {"24,40", "7,9", "3", "2,3,5,2"}) {
        const Program program = expect_as_evaluated_on_gpu(update(sizes));
        ASSERT_EQ(program.kernels.size(), 1u);
        ASSERT_EQ(program.steps.size(), 1u);
        const Kernel& kernel = program.kernels[0];
        const auto& step = std::get<KernelStep>(program.steps[0]);
        auto input = [&](size_t i) {
            return size_t(std::find(step.args.begin(), step.args.end(), program.inputs[i]) - step.args.begin());
        };
        const std::vector<std::pair<size_t, size_t>> pairs = {{1, 0}, {2, 1}, {0, 2}};  // input, output
        for (const auto& [in, out] : pairs) {
            const auto to = size_t(slot_of(kernel, program, out));
            EXPECT_TRUE(may_overwrite(kernel, input(in), to, {})) << to_string(kernel);
            EXPECT_TRUE(may_share_memory(kernel, input(in), to)) << to_string(kernel);
        }
        // What is read after the parameter is written may not lie in its place.
        const auto parameter = size_t(slot_of(kernel, program, 2));
        for (size_t in : {1, 2}) {
            EXPECT_FALSE(may_overwrite(kernel, input(in), parameter, {})) << to_string(kernel);
            EXPECT_FALSE(may_share_memory(kernel, input(in), parameter)) << to_string(kernel);
        }
    }
}

TEST(GpuJoinedMaps, WhatAnotherKernelReadsIsNotJoined) {
    // The sum reads the first map, and the second map reads the sum.
    const Program program = expect_as_evaluated_on_gpu(R"(graph g(x: f32[8,16]) {
  %a = exp(x)
  %s = reduce_sum(%a, keepdims=1)
  %b = mul(%a, %s)
  return %a, %b
})");
    EXPECT_GT(program.kernels.size(), 1u);
    // An element of another place.
    expect_as_evaluated_on_gpu(R"(graph g(x: f32[8,8]) {
  %a = exp(x)
  %t = transpose(%a, perm=[1,0])
  %b = add(%t, x)
  return %a, %b
})");
}

std::string kernel_text(const Program& program) {
    std::string text;
    for (const Kernel& k : program.kernels) text += to_string(k);
    return text;
}

int kernel_steps(const Program& program) {
    int count = 0;
    for (const auto& step : program.steps) count += std::holds_alternative<KernelStep>(step);
    return count;
}

// Small maps that nobody reads come last, in one launch; those of what is given come first.
TEST(GpuJoinedMaps, SmallMapsShareALaunch) {
    const Program last = expect_as_evaluated_on_gpu(
        "graph g(x: f32[40,8], p: f32[24], q: f32[7], r: f32[3,5], rate: f32[]) {\n  %s = softmax(x, axis=-1)\n"
        "  %a = mul(p, rate)\n  %b = add(q, rate)\n  %c = exp(r)\n  %d = mul(%c, rate)\n"
        "  return %s, %a, %b, %d\n}\n");
    EXPECT_EQ(kernel_steps(last), 2);
    // Each may write in the place of what it reads, and of nothing else.
    for (const auto& any : last.steps) {
        const auto* step = std::get_if<KernelStep>(&any);
        if (!step || std::count(step->args.begin(), step->args.end(), last.outputs[1]) == 0) continue;
        auto slot = [&](int buffer) {
            return size_t(std::find(step->args.begin(), step->args.end(), buffer) - step->args.begin());
        };
        const Kernel& kernel = last.kernels[size_t(step->kernel)];
        EXPECT_TRUE(may_overwrite(kernel, slot(last.inputs[1]), slot(last.outputs[1]), {})) << to_string(kernel);
        EXPECT_TRUE(may_overwrite(kernel, slot(last.inputs[2]), slot(last.outputs[2]), {})) << to_string(kernel);
        EXPECT_FALSE(may_overwrite(kernel, slot(last.inputs[1]), slot(last.outputs[2]), {})) << to_string(kernel);
    }
    const Program first = expect_as_evaluated_on_gpu(
        "graph g(x: f32[128,64], p: f32[64], q: f32[128,1]) {\n  %k = exp(p)\n  %l = exp(q)\n"
        "  %a = add(x, %k)\n  %b = softmax(%a, axis=-1)\n  return mul(%b, %l), %k, %l\n}\n");
    EXPECT_THAT(kernel_text(first), testing::HasSubstr("kernel exp_exp("));
    // What one writes in the place of its own input, no other reads.
    const Program shared =
        expect_as_evaluated_on_gpu("graph g(p: f32[24], q: f32[24]) {\n  return mul(p, q), add(q, 1.0), exp(p)\n}\n");
    EXPECT_GE(kernel_steps(shared), 2);
}

}  // namespace
}  // namespace tessera::test::gpu_joined_maps_test
