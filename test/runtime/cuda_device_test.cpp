// GPUs, as far as that can be seen without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cuda_device.h"
#include "tessera/compile.h"

namespace tessera::cuda_device_test {
namespace {

TEST(CudaDevice, IsNamedByItsNumber) {
    EXPECT_EQ(cuda_number("cuda"), 0);
    EXPECT_EQ(cuda_number("cuda:0"), 0);
    EXPECT_EQ(cuda_number("cuda:3"), 3);
    for (const char* other : {"host", "cuda:", "cuda:x", "cuda:1x", "cuda3", "sm_90"}) EXPECT_FALSE(cuda_number(other));
}

// There is no driver, or no such GPU.
TEST(CudaDevice, SaysThatThereIsNone) {
    auto device = cuda_device(9999);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code(), Code::E0701);
    auto model = Model::demo("resnet50", 0);
    ASSERT_TRUE(model.ok());
    auto executable = compile(*model, {.target = "cuda:9999", .cache = ""});
    ASSERT_FALSE(executable.ok());
    EXPECT_EQ(executable.error().code(), Code::E0701);
}

KernelLaunch open_launch(LaunchShape shape) {
    static int code = 0;
    KernelLaunch open;
    open.symbol = "kernel";
    open.handle = &code;
    open.extent = symbol("N");
    open.scratch_bytes = 0;
    open.shape = std::move(shape);
    return open;
}

// A range is cut into blocks, small ones while there are few; what was fixed stays.
TEST(CudaDevice, LaunchesAreBoundToSizes) {
    LaunchShape range;
    range.fixed = false;
    const CompiledKernel kernel{{open_launch(range)}};
    for (int64_t n : {1, 31, 1000, 100'000, 10'000'000}) {
        auto bound = bind_launches(kernel, {{"N", n}});
        ASSERT_TRUE(bound.ok()) << bound.error().to_string();
        const Launch& launch = (*bound)[0];
        EXPECT_GE(launch.grid.x * launch.block.x, n);
        EXPECT_LT((launch.grid.x - 1) * launch.block.x, n);
        EXPECT_GE(launch.block.x, 32);
        EXPECT_LE(launch.block.x, 256);
    }
    LaunchShape blocks;
    blocks.grid = {symbol("N"), symbol("N") * 2, 1};
    blocks.block = {32, 4, 1};
    auto bound = bind_launches({{open_launch(blocks)}}, {{"N", 50'000}});
    ASSERT_TRUE(bound.ok()) << bound.error().to_string();
    EXPECT_EQ((*bound)[0].grid.x, 50'000);
    EXPECT_EQ((*bound)[0].grid.y, 65'535);  // as many as there can be: each takes several
    EXPECT_EQ((*bound)[0].block.y, 4);
}

}  // namespace
}  // namespace tessera::cuda_device_test
