#include <gtest/gtest.h>

#include "kernel/random_threads.h"
#include "llvm/run_kernel.h"

namespace tessera::random_test {
namespace {

// Each parameter in memory of its own that ends where nothing is mapped.
std::vector<Tensor> run_compiled(const CompiledKernel& compiled, const RandomKernel& r, int pieces) {
    std::vector<GuardedMemory> memory;
    std::vector<void*> pointers;
    for (const Tensor& t : r.buffers) {
        memory.emplace_back(t.bytes());
        std::memcpy(memory.back().data(), t.data(), static_cast<size_t>(t.bytes()));
        pointers.push_back(memory.back().data());
    }
    run_launches(compiled, pointers, r.kernel.symbols, r.symbols, pieces);
    std::vector<Tensor> out = copies(r.buffers);
    for (size_t i = 0; i < out.size(); ++i)
        std::memcpy(out[i].mutable_data(), pointers[i], static_cast<size_t>(out[i].bytes()));
    return out;
}

void compare(const std::vector<RandomKernel>& all, CodegenOptions code) {
    std::vector<Kernel> kernels;
    for (const RandomKernel& r : all) kernels.push_back(r.kernel);
    auto compiled = compile_kernels(kernels, code);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    for (size_t i = 0; i < all.size(); ++i) {
        const RandomKernel& r = all[i];
        SCOPED_TRACE(to_string(r.kernel));
        std::vector<Tensor> expected = copies(r.buffers);
        Status status = interpret(r.kernel, expected, r.symbols);
        ASSERT_TRUE(status.ok()) << status.error().to_string();
        std::vector<Tensor> got = run_compiled((*compiled)->kernels()[i], r, 1 + static_cast<int>(i % 3));
        ASSERT_EQ(first_difference(expected, got), "");
    }
}

void compare(uint64_t first, uint64_t count, RandomKernelOptions options, CodegenOptions code) {
    std::vector<RandomKernel> all;
    for (uint64_t seed = first; seed < first + count; ++seed) {
        options.nests = 1 + static_cast<int>(seed % 3);
        all.push_back(random_kernel(seed, options));
    }
    compare(all, code);
}

TEST(RandomKernels, ComputeWhatTheInterpreterComputes) { compare(0, 200, {}, {}); }

TEST(RandomKernels, WithoutOptimization) {
    CodegenOptions code;
    code.optimize = 0;
    compare(1000, 100, {}, code);
}

// As loops, one after the other; threads that wait for each other are not compiled.
TEST(RandomKernels, BlocksAndThreadsWithoutBarriers) {
    std::vector<RandomKernel> all;
    for (uint64_t seed = 0; seed < 150; ++seed) {
        RandomKernel r = random_threads(seed, {.nests = 1});
        if (can_compile(r.kernel)) all.push_back(std::move(r));
    }
    EXPECT_GT(all.size(), 20u);
    compare(all, {});
}

TEST(RandomKernels, StrictSums) {
    CodegenOptions code;
    code.fast_math = false;
    compare(2000, 60, {}, code);
}

}  // namespace
}  // namespace tessera::random_test
