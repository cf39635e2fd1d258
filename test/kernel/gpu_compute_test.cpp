// Computes that are lowered for blocks of threads by themselves: their kernels give what plain nests give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/gpu/lower/gpu_schedule.h"
#include "kernel/run_sample.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_compute_test {
namespace {

std::string expect_as_plain_nests(const std::string& text, const char* target) {
    SCOPED_TRACE(fmt::format("{}\n{}", target, text));
    auto compute = parse_compute(text);
    EXPECT_TRUE(compute.ok()) << compute.error().to_string();
    if (!compute.ok()) return {};
    std::vector<Choice> choices;
    ScheduleOptions options;
    options.machine = *describe_target(target);
    auto lowered = lower_for_gpu(*compute, options, choices);
    EXPECT_TRUE(lowered.ok()) << lowered.error().to_string();
    if (!lowered.ok()) return {};
    for (const Choice& choice : choices) ADD_FAILURE() << choice.subject << ": " << choice.decision.reason();
    std::vector<Tensor> want = sample::random_parameters(*compute, {}), got = want;
    sample::run_kernel(plain_nests(*compute), want, {});
    sample::run_lowered(*lowered, got, {});
    EXPECT_LT(sample::distance(got.back(), want.back()), 1e-5) << to_string(lowered->kernel);
    return to_string(lowered->kernel);
}

// Sums go straight to a buffer that has fewer dimensions than the sum has axes, or more of them.
TEST(GpuCompute, SumsOfGroupsLieSideBySide) {
    for (const char* target : {"sm_80", "sm_90a"}) {
        expect_as_plain_nests(
            "compute conv() (x0: f32[1, 5, 33, 48], x1: f32[144, 3, 1, 1], y0: f32[1, 5, 33, 144]) {\n"
            "  conv for i0 < 1, i1 < 5, i2 < 33, i3 < 16, i4 < 9: y0[i0, i1, i2, 9*i3 + i4] += "
            "x0[i0, i1, i2, 3*i3 + r0] * x1[9*i3 + i4, r0, 0, 0] over r0 < 3\n}\n",
            target);
        expect_as_plain_nests(
            "compute product() (x0: f32[4, 64, 32], x1: f32[4, 32, 48], y0: f32[64, 192]) {\n"
            "  product for i0 < 64, i1 < 4, i2 < 48: y0[i0, 48*i1 + i2] += x0[i1, i0, r0] * x1[i1, r0, i2] over r0 < "
            "32\n}\n",
            target);
        expect_as_plain_nests(
            "compute conv() (x0: f32[1, 40, 5, 33], x1: f32[48, 40], y0: f32[1, 48, 5, 33]) {\n"
            "  conv for i0 < 1, i1 < 48, i2 < 5, i3 < 33: y0[i0, i1, i2, i3] += x0[i0, r0, i2, i3] * x1[i1, r0] over "
            "r0 < 40\n}\n",
            target);
    }
}

// Windows of an image whose lines are contiguous: pieces of whole channels, in vectors.
TEST(GpuCompute, WindowsAsRowsOfAMatrix) {
    const auto pack = [](const char* dtype, int64_t channels, int64_t taps, int64_t step, int64_t pitch) {
        const int64_t elements = channels * taps * taps, width = 23 * step;
        return fmt::format(
            "compute pack() (x0: {0}[2, {1}, {2}, {3}], y0: {0}[322, {4}] strides [{5}, 1]) {{\n"
            "  pack for i0 < 2, i1 < 7, i2 < 23, r0 < {1}, r1 < {6}, r2 < {6}: "
            "y0[161*i0 + 23*i1 + i2, {8}*r0 + {6}*r1 + r2] = select(0 < i1 + r1 && {7}*i2 + r2 < {3}, "
            "x0[i0, r0, i1 + r1, {7}*i2 + r2], 0.0{9})\n}}\n",
            dtype, channels, 6 + taps, width, elements, pitch, taps, step, taps * taps,
            std::string_view(dtype) == "f32" ? "" : fmt::format("_{}", dtype));
    };
    using testing::AllOf;
    using testing::HasSubstr;
    EXPECT_THAT(expect_as_plain_nests(pack("f16", 16, 3, 1, 144), "sm_90a"),
                AllOf(HasSubstr("piece < 2 on block.y"), HasSubstr("vector lane")));
    EXPECT_THAT(expect_as_plain_nests(pack("bf16", 6, 4, 2, 96), "sm_80"), HasSubstr("piece < 3 on block.y"));
    EXPECT_THAT(expect_as_plain_nests(pack("bf16", 8, 5, 2, 200), "sm_80"), testing::Not(HasSubstr("piece")));
    EXPECT_THAT(expect_as_plain_nests(pack("f32", 5, 2, 1, 20), "sm_90a"), HasSubstr("vector lane"));
    EXPECT_THAT(expect_as_plain_nests(pack("f16", 3, 7, 2, 147), "sm_90a"), testing::Not(HasSubstr("piece")));
}

}  // namespace
}  // namespace tessera::test::gpu_compute_test
