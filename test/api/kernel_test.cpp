#include "tessera/kernel.h"

#include <gtest/gtest.h>

namespace tessera::kernel_test {
namespace {

constexpr std::string_view kSums =
    "compute sums(M) (x: f32[M, 3], y: f32[M]) { s for i < M: y[i] += x[i, k] over k < 3 }";

TEST(KernelSchedule, BuildsAFunctionOverArrays) {
    auto schedule = KernelSchedule::parse(kSums);
    ASSERT_TRUE(schedule.ok()) << schedule.error().to_string();
    KernelSchedule before = *schedule;
    auto loops = schedule->apply("split", {"s.i", "2"});
    ASSERT_TRUE(loops.ok()) << loops.error().to_string();
    EXPECT_EQ(*loops, (std::vector<std::string>{"s.i.o", "s.i.i"}));
    EXPECT_EQ(before.trace(), "");
    EXPECT_EQ(schedule->trace(), "s.i.o, s.i.i = split(s.i, 2)\n");
    EXPECT_EQ(schedule->apply("split", {"s.i", "2"}).error().code(), Code::E0602);

    auto function = schedule->build();
    ASSERT_TRUE(function.ok()) << function.error().to_string();
    std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9}, y(3);
    Status ran = function->run({{DType::f32, {3, 3}, x.data()}, {DType::f32, {3}, y.data()}});
    ASSERT_TRUE(ran.ok()) << ran.error().to_string();
    EXPECT_EQ(y, (std::vector<float>{6, 15, 24}));
    EXPECT_EQ(function->run({{DType::f32, {3, 3}, x.data()}, {DType::f32, {2}, y.data()}}).error().code(), Code::E0405);
    EXPECT_EQ(function->run({{DType::f32, {3, 3}, x.data()}, {DType::f32, {3}, x.data()}}).error().code(), Code::E0407);
    EXPECT_EQ(function->run({}).error().code(), Code::E0402);
}

TEST(KernelSchedule, RefusesWhatItCannotRead) {
    EXPECT_EQ(KernelSchedule::parse("compute").error().code(), Code::E0301);
    EXPECT_EQ(KernelSchedule::parse("compute c() (y: f32[2]) { s for i < 3: y[i] = x }").error().code(), Code::E0302);
    EXPECT_EQ(KernelSchedule::replay(kSums, "vectorize(s.j)").error().code(), Code::E0602);
    EXPECT_TRUE(KernelSchedule::automatic(kSums).ok());
    EXPECT_EQ(describe_processor("abacus").error().code(), Code::E0603);
}

}  // namespace
}  // namespace tessera::kernel_test
