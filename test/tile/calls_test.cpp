// Calls of kernels that tile programs become: a loop that is left, and the bits of an element.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

#include "kernel/ir/kernel.h"
#include "llvm/compile_kernels.h"

namespace tessera::calls_test {
namespace {

Kernel parsed_calls(const std::string& text) {
    auto kernels = parse_kernels(text);
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    return kernels->front();
}

// The bits of each number of a row up to the first that is below 0, and how many there are.
constexpr const char* kUntilNegative = R"(
kernel until(N) (x: f32[N, 8], z: i32[N, 8], n: i32[N]) {
  parallel i < N {
    for k < 8 {
      call leave(; ; x[i, k] < 0.0)
      call bits(z[i, k]; x[i, k]; )
      for j < 2 {
        n[i] += 1_i32
      }
    }
  }
}
)";

TEST(TileCalls, LoopsAreLeftInTheInterpreterAndInMachineCode) {
    const Kernel kernel = parsed_calls(kUntilNegative);
    EXPECT_EQ(to_string(parsed_calls(to_string(kernel))), to_string(kernel));
    EXPECT_TRUE(verify_statements(kernel).ok()) << verify_statements(kernel).error().to_string();
    std::vector<float> x(32, 1.5f);
    x[0] = x[8 + 3] = x[16 + 7] = -1;
    std::vector<int32_t> bits(32), counts(4), wanted(32);
    for (int i : {8, 9, 10, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31})
        wanted[static_cast<size_t>(i)] = std::bit_cast<int32_t>(1.5f);
    std::vector<Tensor> buffers{Tensor::of<float>({4, 8}, x), Tensor::of<int32_t>({4, 8}, bits),
                                Tensor::of<int32_t>({4}, counts)};
    ASSERT_TRUE(interpret(kernel, buffers, {{"N", 4}}, {.races = InterpretOptions::Races::Find}).ok());
    EXPECT_EQ(buffers[1], Tensor::of<int32_t>({4, 8}, wanted));
    EXPECT_EQ(buffers[2], Tensor::of<int32_t>({4}, {0, 6, 14, 16}));

    auto module = compile_kernels({kernel}, {});
    ASSERT_TRUE(module.ok()) << module.error().to_string();
    void* pointers[] = {x.data(), bits.data(), counts.data()};
    const int64_t n = 4;
    for (const KernelLaunch& launch : (*module)->kernels()[0].launches) launch.function(pointers, &n, 0, 4, nullptr);
    EXPECT_EQ(bits, wanted);
    EXPECT_EQ(counts, (std::vector<int32_t>{0, 6, 14, 16}));
}

TEST(TileCalls, MalformedOnesAreRefused) {
    for (const char* body :
         {"call leave(; ; x[i])", "if x[i] == 1_i32 { call leave(; ; x[i] == 1_i32) }",
          "vector j < 4 { call leave(; ; x[j] == 1_i32) }", "call bits(x[i]; y[i]; )", "call bits(x[i]; ; x[i])"}) {
        const Kernel kernel =
            parsed_calls(fmt::format("kernel k() (x: i32[4], y: f64[4]) {{ for i < 4 {{ {} }} }}", body));
        EXPECT_EQ(verify(kernel).error().code(), Code::E0601) << body;
    }
}

}  // namespace
}  // namespace tessera::calls_test
