// Layers that the accelerator's compiler writes, on the model of the machine, against the evaluator: bit by bit.
#include <gtest/gtest.h>

#include "accelerator/random_layers.h"
#include "source_dir.h"

namespace tessera::accelerator_test {
namespace {

using accelerator::Machine;

std::vector<Machine> machines() {
    Machine small;
    small.name = "small";
    small.inp_rows = 512;
    small.wgt_tiles = 128;
    small.acc_rows = 256;
    small.uops = 256;
    Machine wide;  // N is larger than K
    wide.name = "wide";
    wide.inputs = 8;
    wide.outputs = 32;
    Machine deep;
    deep.name = "deep";
    deep.inputs = 32;
    deep.outputs = 8;
    return {Machine{.name = "usual"}, small, wide, deep};
}

TEST(CompileLayers, RandomConvolutions) {
    const auto all = machines();
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        const int64_t kernel = r.upto(1, 4), kernel_x = r.chance(70) ? kernel : r.upto(1, 5);
        const int64_t dilation = r.chance(80) ? 1 : 2;
        const int64_t least = (std::max(kernel, kernel_x) - 1) * dilation + 1;
        int64_t groups = 1, channels = r.upto(1, 70), outputs = r.upto(1, 70);
        if (r.chance(30)) {
            groups = r.upto(1, 24);
            channels = groups * r.upto(1, 4);
            outputs = groups * r.upto(1, 4);
        }
        Value* x = r.input(r.byte_type(), {r.upto(1, 3), channels, least + r.upto(0, 20), least + r.upto(0, 20)});
        Value* y = r.conv(x,
                          {outputs,
                           kernel,
                           kernel_x,
                           r.upto(1, 3),
                           dilation,
                           groups,
                           {r.upto(0, 2), r.upto(0, 2), r.upto(0, 2), r.upto(0, 2)}},
                          r.byte_type());
        if (r.chance(30)) y = r.clip(y);
        r.graph().add_output(y);
        expect_as_evaluated(all[seed % all.size()], r, r.chance(75) ? 2 : 1);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(CompileLayers, RandomPools) {
    const auto all = machines();
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        const int64_t kernel = r.upto(2, 3);
        Value* x =
            r.input(r.byte_type(), {r.upto(1, 2), r.upto(1, 70), kernel + r.upto(0, 30), kernel + r.upto(0, 30)});
        r.graph().add_output(r.max_pool(x, kernel, r.upto(1, 3), r.upto(0, 1)));
        expect_as_evaluated(all[seed % all.size()], r, r.chance(75) ? 2 : 1);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(CompileLayers, RandomProducts) {
    const auto all = machines();
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        Value* x = r.input(r.byte_type(), {r.upto(1, 50), r.upto(1, 300)});
        r.graph().add_output(r.product(x, r.upto(1, 200), r.chance(50)));
        expect_as_evaluated(all[seed % all.size()], r, r.chance(75) ? 2 : 1);
        if (testing::Test::HasFatalFailure()) return;
    }
}

// Residual blocks: values that several layers read, additions alone and after a convolution, pools between them.
TEST(CompileLayers, RandomNetworks) {
    const auto all = machines();
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        int64_t channels = r.upto(1, 40);
        Value* x = r.input(r.byte_type(), {r.upto(1, 2), channels, r.upto(5, 24), r.upto(5, 24)});
        for (int64_t layers = r.upto(1, 4); layers > 0; --layers) {
            const int64_t kind = r.upto(1, 4);
            if (kind == 1) x = r.max_pool(x, 3, r.chance(80) ? 1 : 2, 1);
            if (kind == 2) x = r.conv(x, {channels = r.upto(1, 40)}, r.byte_type());
            if (kind == 3) x = r.add(x, r.conv(x, {channels}, r.byte_type()), r.byte_type(), r.chance(60));
            if (kind == 4) {
                Value* a = r.conv(x, {channels = r.upto(1, 40)}, r.byte_type());
                Value* b = r.conv(x, {channels, 1, 1, 1, 1, 1, {0, 0, 0, 0}}, r.byte_type());
                x = r.chance(50) ? r.add(a, b, r.byte_type(), r.chance(60)) : r.add(b, a, r.byte_type(), r.chance(60));
                if (r.chance(30)) r.graph().add_output(a);
            }
        }
        r.graph().add_output(x);
        if (!x->node()) continue;
        expect_as_evaluated(all[seed % all.size()], r, r.chance(75) ? 2 : 1);
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace tessera::accelerator_test
