#include "kernel/ir/verified.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/sample_computes.h"
#include "schedule_check.h"

namespace tessera::verified_test {
namespace {

using testing::HasSubstr;

Kernel racing() {
    Kernel k;
    k.name = "racing";
    k.buffers = {{"y", DType::f32, {4}}};
    k.params = 1;
    Expr i = index_var("i", 4);
    k.body = for_loop(
        {.var = i, .extent = 4, .kind = LoopKind::Parallel, .body = store(0, {0}, real_const(1, DType::f32))});
    return k;
}

TEST(Verified, TestsAlwaysVerify) { EXPECT_TRUE(verifies_kernels()); }

TEST(VerifiedDeathTest, NamesThePassAndLeavesTheKernel) {
    EXPECT_DEATH(check_verified(racing(), "some_pass"),
                 "every iteration of the parallel loop over i writes this element[^$]*in pass: some_pass[^$]*reproducer");
}

Schedule copying() {
    Compute c;
    c.name = "copying";
    int x = add_buffer(c, "x", {8, 8}), y = add_buffer(c, "y", {8, 8});
    c.params = 2;
    ReduceAxis i = axis("i", 8), j = axis("j", 8);
    c.stages.push_back({"copy", y, {i, j}, {}, ReduceOp::Sum, {i.var, j.var}, load(x, DType::f32, {i.var, j.var})});
    return Schedule(c);
}

// How loops are bound is the user's word: an error, and no internal one.
TEST(Verified, ABadBindingIsAnErrorOfTheSchedule) {
    Schedule good = copying();
    std::vector<Loop> loops = good.loops("copy");
    ASSERT_TRUE(good.bind(loops[0], "block.x").ok() && good.bind(loops[1], "thread.x").ok());
    auto lowered = lower(good);
    ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
    EXPECT_THAT(to_string(lowered->kernel), HasSubstr("on thread.x"));
    Schedule bad = copying();
    ASSERT_TRUE(bad.bind(bad.loops("copy")[1], "thread.x").ok());
    auto refused = lower(bad);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::E0601);
    EXPECT_EQ(refused.error().message(), "a bound loop inside another statement");
}

// A schedule may ask for registers and leave loops that index them: the buffer is then memory of the thread.
TEST(Verified, RegistersThatLoopsIndexBecomeLocalMemory) {
    Schedule s(sample::matmul(12, 16, 8, false));
    const std::string product = s.compute().stages[0].name;
    const std::string out = *s.cache_write(product, Scope::Register);
    std::vector<Loop> tiles = *s.tile(s.loops(out)[0], s.loops(out)[1], 4, 8);
    ASSERT_TRUE(s.compute_at(product, tiles[1]).ok());
    auto lowered = lower(s);
    ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
    EXPECT_EQ(lowered->kernel.buffers.back().scope, Scope::Local) << to_string(lowered->kernel);
    EXPECT_TRUE(verify(lowered->kernel).ok()) << verify(lowered->kernel).error().to_string();
}

}  // namespace
}  // namespace tessera::verified_test
