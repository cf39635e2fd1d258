// The area of a machine: fitted logic against what Yosys synthesized, and machines of chosen sizes.
#include "kernel/accelerator/area.h"

#include <gtest/gtest.h>

namespace tessera::accelerator_test {
namespace {

using namespace accelerator;

// Transistors of the logic without the lanes of the vector ALU, as tools/rtl_area.py measured them.
struct Measured {
    int inputs, outputs, bytes_per_cycle;
    double transistors;
};
constexpr Measured kMeasured[] = {
    {8, 8, 16, 386634},
    {8, 8, 32, 382002},
    {16, 16, 16, 1243980},
    {32, 8, 16, 1207312},  // not in the fit
};

TEST(Area, IsNearWhatYosysSynthesized) {
    for (const Measured& m : kMeasured) {
        const Area area = area_of({.inputs = m.inputs, .outputs = m.outputs, .bytes_per_cycle = m.bytes_per_cycle});
        EXPECT_NEAR((area.matrix + area.control) / m.transistors, 1, 0.05)
            << m.inputs << "x" << m.outputs << ", " << m.bytes_per_cycle;
    }
}

TEST(Area, CountsWhatTheMachineHas) {
    const Machine usual{.name = "usual"};
    Machine sums = usual, deep = usual;
    sums.alu = false;
    deep.acc_rows *= 2;
    EXPECT_GT(area_of(usual).alu, 0);
    EXPECT_EQ(area_of(sums).alu, 0);
    EXPECT_EQ(area_of(sums).matrix, area_of(usual).matrix);
    EXPECT_EQ(area_of(deep).memories - area_of(usual).memories, 16.0 * 32 * usual.outputs * usual.acc_rows);
    EXPECT_EQ(area_of(deep).total() - area_of(usual).total(), area_of(deep).memories - area_of(usual).memories);
}

TEST(MachineSizes, KeepTheBytesOfScratchpads) {
    const Machine usual{.name = "usual"};
    for (const auto& [inputs, outputs] : {std::pair(8, 8), {32, 32}, {32, 8}, {128, 4}}) {
        auto made = with_sizes(usual, inputs, outputs, 32);
        ASSERT_TRUE(made.ok()) << made.error().to_string();
        EXPECT_EQ(std::pair(made->inputs, made->outputs), std::pair(inputs, outputs));
        EXPECT_EQ(made->bytes_per_cycle, 32);
        for (Scratchpad s : {Scratchpad::Inp, Scratchpad::Wgt, Scratchpad::Acc, Scratchpad::Uop})
            EXPECT_EQ(int64_t(made->rows(s)) * made->row_bytes(s), int64_t(usual.rows(s)) * usual.row_bytes(s));
    }
    Machine same = *with_sizes(usual, 0, 0, 0);
    same.name = usual.name;
    EXPECT_EQ(same, usual);
    EXPECT_EQ(with_sizes(usual, 12, 0, 0).error().code(), Code::E0212);
    EXPECT_EQ(with_sizes(usual, 0, 256, 0).error().code(), Code::E0212);
}

}  // namespace
}  // namespace tessera::accelerator_test
