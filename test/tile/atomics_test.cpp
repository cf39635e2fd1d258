// Atomic updates as kernels have them: verified, interpreted and compiled.
#include <gtest/gtest.h>

#include "kernel/ir/kernel.h"
#include "llvm/compile_kernels.h"

namespace tessera::atomics_test {
namespace {

Kernel parsed(const std::string& text) {
    auto kernels = parse_kernels(text);
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    return kernels->front();
}

constexpr const char* kCount = R"(
kernel count(N) (x: i32[N], bins: i32[4], old: i32[N]) {
  parallel i < N {
    call atomic_add(old[i], bins[i64(x[i])]; ; 1_i32)
  }
}
)";

TEST(Atomics, CountInTheInterpreterAndInMachineCode) {
    const Kernel kernel = parsed(kCount);
    EXPECT_EQ(to_string(parsed(to_string(kernel))), to_string(kernel));
    EXPECT_TRUE(verify_statements(kernel).ok());
    std::vector<int32_t> x, bins(4), old(40);
    for (int i = 0; i < 40; ++i) x.push_back(i * i % 4);
    std::vector<Tensor> buffers{Tensor::of<int32_t>({40}, x), Tensor::of<int32_t>({4}, bins),
                                Tensor::of<int32_t>({40}, old)};
    ASSERT_TRUE(interpret(kernel, buffers, {{"N", 40}}, {.races = InterpretOptions::Races::Find}).ok());
    EXPECT_EQ(buffers[1], Tensor::of<int32_t>({4}, {20, 20, 0, 0}));
    EXPECT_EQ(buffers[2].int_at(39), 19);

    auto module = compile_kernels({kernel}, {});
    ASSERT_TRUE(module.ok()) << module.error().to_string();
    void* pointers[] = {x.data(), bins.data(), old.data()};
    const int64_t n = 40;
    for (const KernelLaunch& launch : (*module)->kernels()[0].launches) launch.function(pointers, &n, 0, 40, nullptr);
    EXPECT_EQ(bins, (std::vector<int32_t>{20, 20, 0, 0}));
    EXPECT_EQ(old[39], 19);
}

TEST(Atomics, MalformedOnesAreRefused) {
    for (const char* call : {"call atomic_add(x[i]; ; 1.0)", "call atomic_add(; ; 1_i32)",
                             "call atomic_compare(x[i]; ; 1_i32)", "call atomic_add(x[i]; x[i]; 1_i32)"}) {
        const Kernel kernel = parsed(fmt::format("kernel k() (x: i32[4]) {{ for i < 4 {{ {} }} }}", call));
        EXPECT_EQ(verify(kernel).error().code(), Code::E0601) << call;
    }
}

}  // namespace
}  // namespace tessera::atomics_test
