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
        random_convolution(r);
        expect_as_evaluated(all[seed % all.size()], r, r.chance(75) ? 2 : 1);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(CompileLayers, RandomPools) {
    const auto all = machines();
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        random_pool(r);
        expect_as_evaluated(all[seed % all.size()], r, r.chance(75) ? 2 : 1);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(CompileLayers, RandomProducts) {
    const auto all = machines();
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        random_product(r);
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
        if (!random_network(r)) continue;
        expect_as_evaluated(all[seed % all.size()], r, r.chance(75) ? 2 : 1);
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace tessera::accelerator_test
