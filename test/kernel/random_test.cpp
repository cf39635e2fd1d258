#include <gtest/gtest.h>

#include "kernel/random_kernel.h"

namespace tessera::random_test {
namespace {

constexpr uint64_t kKernels = 400;

RandomKernelOptions options_of(uint64_t seed) {
    RandomKernelOptions options;
    options.exact = seed % 4 != 3;
    options.nests = 1 + static_cast<int>(seed % 3);
    return options;
}

TEST(RandomKernel, IsWellFormedAndReadsBack) {
    for (uint64_t seed = 0; seed < kKernels; ++seed) {
        RandomKernel r = random_kernel(seed, options_of(seed));
        std::string text = to_string(r.kernel);
        SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
        Status status = verify(r.kernel);
        ASSERT_TRUE(status.ok()) << status.error().to_string();
        auto again = parse_kernels(text);
        ASSERT_TRUE(again.ok()) << again.error().to_string();
        ASSERT_EQ(to_string((*again)[0]), text);
        Status read = verify((*again)[0]);
        ASSERT_TRUE(read.ok()) << read.error().to_string();
    }
}

TEST(RandomKernel, MeansTheSameInAnyOrderAndAfterReading) {
    for (uint64_t seed = 0; seed < kKernels; ++seed) {
        RandomKernel r = random_kernel(seed, options_of(seed));
        SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + to_string(r.kernel));
        std::vector<Tensor> forwards = copies(r.buffers), backwards = copies(r.buffers), reread = copies(r.buffers);
        Status status = interpret(r.kernel, forwards, r.symbols);
        ASSERT_TRUE(status.ok()) << status.error().to_string();
        ASSERT_TRUE(interpret(r.kernel, backwards, r.symbols, {.backwards = true}).ok());
        if (options_of(seed).exact) {
            ASSERT_EQ(first_difference(forwards, backwards), "");
        }
        auto again = parse_kernels(to_string(r.kernel));
        ASSERT_TRUE(again.ok() && interpret((*again)[0], reread, r.symbols).ok());
        ASSERT_EQ(first_difference(forwards, reread), "");
    }
}

}  // namespace
}  // namespace tessera::random_test
