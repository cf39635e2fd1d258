// Back ends: each has its targets, schedules Computes so that its kernels give what plain nests give and its code
// generation takes them, and says what code it makes.
#include "backends/backend.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "api/kernel_text.h"
#include "kernel/run_sample.h"

namespace tessera::test::backend_test {
namespace {

constexpr std::string_view kProduct =
    "compute product() (a: f32[128, 96], b: f32[96, 160], y: f32[128, 160]) {\n"
    "  product for i < 128, j < 160: y[i, j] += a[i, k] * b[k, j] over k < 96\n}\n";
constexpr std::string_view kRows =
    "compute rows() (x: f32[300, 700], y: f32[300]) {\n  rows for i < 300: y[i] += x[i, k] over k < 700\n}\n";

// Sums of 700 terms in f32, in another order.
constexpr double kRounding = 1e-4;

bool has_bound_loops(const Kernel& kernel) {
    bool found = false;
    visit(kernel.body, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        found |= loop && loop->kind == LoopKind::Bound;
    });
    return found;
}

TEST(Backends, TakeTheirOwnTargets) {
    for (const Backend* b : backends()) {
        ASSERT_FALSE(b->targets().empty());
        for (const std::string& target : b->targets())
            for (const Backend* other : backends()) EXPECT_EQ(other->takes(target), other == b) << target;
        ASSERT_TRUE(find_backend(b->usual_target()).ok()) << b->name();
    }
    EXPECT_EQ(find_backend("abacus").error().code(), Code::E0603);
}

TEST(Backends, ScheduleForTheirMachines) {
    for (const Backend* b : backends())
        for (std::string_view text : {kProduct, kRows}) {
            SCOPED_TRACE(b->name());
            auto compute = parse_compute(text);
            ASSERT_TRUE(compute.ok()) << compute.error().to_string();
            auto machine = b->machine(b->usual_target());
            ASSERT_TRUE(machine.ok()) << machine.error().to_string();
            std::vector<Choice> choices;
            const ScheduleOptions options{*machine, 2};
            std::vector<Tensor> want = sample::random_parameters(*compute, {}), inputs = want;
            sample::run_kernel(plain_nests(*compute), want, {});
            const Result<Lowered> all[] = {b->scheduling().lower(*compute, options, choices, nullptr),
                                           b->scheduling().lower_baseline(*compute, options)};
            for (const Result<Lowered>& lowered : all) {
                ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
                std::vector<Tensor> got = inputs;
                sample::run_lowered(*lowered, got, {});
                EXPECT_LT(sample::distance(got.back(), want.back()), kRounding) << to_string(lowered->kernel);
                EXPECT_EQ(has_bound_loops(lowered->kernel), machine->blocks) << to_string(lowered->kernel);
                const Decision compiles = can_compile(lowered->kernel, machine->blocks);
                EXPECT_TRUE(compiles) << compiles.reason();
            }
        }
}

TEST(Backends, SayWhatCodeTheyMake) {
    const std::vector<Kernel> kernels{plain_nests(*parse_compute(kRows))};
    size_t objects = 0, assembly = 0;
    for (const Backend* b : backends()) {
        auto made = b->offloading(b->targets().front());
        ASSERT_TRUE(made.ok()) << made.error().to_string();
        if (*made) continue;  // its kernels are another's
        const bool has_objects = emit_object(kernels, {.target = std::string(b->usual_target())}).ok();
        EXPECT_EQ(has_objects, b->makes_objects()) << b->name();
        (has_objects ? objects : assembly) += 1;
    }
    EXPECT_GT(objects, 0u);
    EXPECT_GT(assembly, 0u);
    EXPECT_FALSE(backend_of_blocks().makes_objects());
}

// A Compute as text is scheduled for the target that is asked for.
TEST(Backends, ScheduleComputesAsText) {
    const auto path = std::filesystem::temp_directory_path() / fmt::format("backend_test_{}.tsc", getpid());
    std::ofstream(path) << kRows;
    for (const Backend* b : {backends().front(), &backend_of_blocks()}) {
        CompileOptions options;
        options.target = std::string(b->usual_target());
        auto made = compile_text(path.string(), options);
        ASSERT_TRUE(made.ok()) << made.error().to_string();
        ASSERT_EQ(made->kernels.size(), 1u);
        EXPECT_EQ(has_bound_loops(made->kernels[0]), b == &backend_of_blocks()) << b->name();
        auto code = made->emit(b->assembly());
        EXPECT_TRUE(code.ok()) << code.error().to_string();
    }
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera::test::backend_test
