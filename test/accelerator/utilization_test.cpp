// How busy the matrix unit is, by the cycles of the model: with two virtual threads loads and stores hide behind it.
#include <gtest/gtest.h>

#include "accelerator/random_layers.h"

namespace tessera::accelerator_test {
namespace {

using accelerator::Machine;
using accelerator::Simulation;

struct Layer {
    int64_t channels, size, outputs, kernel, stride;
};

accelerator::Simulation cycles_of(const Layer& l, int contexts) {
    RandomGraph r(1);
    Value* x = r.input(DType::u8, {1, l.channels, l.size, l.size});
    const int64_t pad = l.kernel / 2;
    r.graph().add_output(r.conv(x, {l.outputs, l.kernel, l.kernel, l.stride, 1, 1, {pad, pad, pad, pad}}, DType::u8));
    const Machine machine{.name = "usual"};
    auto network = accelerator::network_of(r.graph(), machine);
    EXPECT_TRUE(network.ok());
    auto compiled = accelerator::compile_network(std::move(*network), machine, {.contexts = contexts});
    EXPECT_TRUE(compiled.ok());
    std::vector<uint8_t> memory = compiled->image;
    auto done = accelerator::simulate(machine, compiled->instructions, memory, {.compute = false});
    EXPECT_TRUE(done.ok()) << done.error().to_string();
    return std::move(*done);
}

TEST(Utilization, Convolutions3x3) {
    for (const Layer& l : {Layer{64, 56, 64, 3, 1},
                           {64, 56, 128, 3, 2},
                           {128, 28, 128, 3, 1},
                           {128, 28, 256, 3, 2},
                           {256, 14, 256, 3, 1},
                           {256, 14, 512, 3, 2},
                           {512, 7, 512, 3, 1}}) {
        SCOPED_TRACE(fmt::format("{} channels of {}x{}", l.channels, l.size, l.size));
        const Simulation two = cycles_of(l, 2), one = cycles_of(l, 1);
        EXPECT_GE(two.matrix_utilization(), 0.85);
        EXPECT_LT(two.cycles, one.cycles);
    }
}

TEST(Utilization, Convolutions1x1) {
    for (const Layer& l : {Layer{64, 112, 64, 1, 1},
                           {64, 56, 128, 1, 2},
                           {128, 28, 256, 1, 2},
                           {256, 14, 512, 1, 2},
                           {64, 56, 128, 1, 1},
                           {128, 56, 128, 1, 1},
                           {128, 28, 256, 1, 1},
                           {256, 28, 256, 1, 1},
                           {256, 14, 512, 1, 1},
                           {512, 14, 512, 1, 1},
                           {512, 7, 1024, 1, 1},
                           {1024, 7, 1024, 1, 1}}) {
        SCOPED_TRACE(fmt::format("{} channels of {}x{}", l.channels, l.size, l.size));
        const Simulation two = cycles_of(l, 2), one = cycles_of(l, 1);
        EXPECT_GE(two.matrix_utilization(), 0.75);
        EXPECT_LT(two.cycles, one.cycles);
    }
}

}  // namespace
}  // namespace tessera::accelerator_test
