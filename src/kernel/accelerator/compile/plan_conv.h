// Tiles of a convolution: which part of it the scratchpads hold at a time, in which order, chosen by estimated cycles.
#pragma once

#include "base/error.h"
#include "kernel/accelerator/compile/network.h"
#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

// A convolution in the units of a machine.
struct ConvShape {
    int64_t batch, height, width;  // of the output
    int64_t output_blocks;         // of N channels
    int64_t input_blocks;          // of K channels
    int64_t depth;                 // input blocks that one output block sums over: fewer than all in groups
    std::vector<int64_t> first;    // in groups: the first input block of each output block
    Window window;
    int alu_rows = 0;      // ALU operations on each row of output
    bool rest = false;     // a second operand lies in acc
    int output_bytes = 0;  // of a row
    bool grouped() const { return !first.empty(); }
    int64_t first_of(int64_t output_block) const { return grouped() ? first[size_t(output_block)] : 0; }
    int64_t taps() const { return window.kernel_y * window.kernel_x; }
};

struct ConvPlan {
    int64_t tile_y = 1, tile_x = 1;    // of the output
    int64_t blocks = 1;                // output blocks of a tile
    int64_t depth = 1;                 // input blocks that are in the scratchpads at a time
    bool weights_stay = true;          // outer loop over output blocks; else over places
    int contexts = 2;                  // virtual threads: tiles that are in flight
    int64_t input_y = 1, input_x = 1;  // rows and columns of an input tile
    int64_t input_planes = 1;          // input blocks of a tile
    int input_slots = 1, weight_slots = 1;
    double cycles = 0;  // estimated

    int64_t input_rows() const { return input_planes * input_y * input_x; }
    int64_t pixels() const { return tile_y * tile_x; }
    std::string to_string() const;
};

// E0601 where not even the smallest tile fits.
Result<ConvPlan> plan_conv(const ConvShape& shape, const Machine& machine, int contexts);

}  // namespace tessera::accelerator
