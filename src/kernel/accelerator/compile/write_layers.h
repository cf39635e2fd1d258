// Layers as instructions: loads, computes and stores of their tiles, ordered by tokens.
#pragma once

#include "kernel/accelerator/compile/plan_conv.h"
#include "kernel/accelerator/compile/writer.h"

namespace tessera::accelerator {

struct WrittenLayer {
    std::string plan;         // for people
    int64_t matrix_rows = 0;  // that the matrix unit takes, one a cycle
};

struct LayerContext {
    Writer& writer;
    const std::vector<Place>& places;  // of the network's values
    int contexts = 2;                  // virtual threads
    bool first = false, last = false;  // layer of the program
};

Result<WrittenLayer> write_conv(const LayerContext& context, const Conv& conv);
Result<WrittenLayer> write_pool(const LayerContext& context, const MaxPool& pool);
Result<WrittenLayer> write_addition(const LayerContext& context, const Addition& addition);

// dst = the sum of the bytes in `a` and `b`, all three at the same places of acc.
struct AccTile {
    int64_t row, pixels, pitch, blocks, height, width;  // pixels: rows from block to block
};
Loop loop_over(const AccTile& tile, uint16_t uop);
Operand operand(const AccTile& tile, int64_t row);
std::vector<Instruction> sum_instructions(const Sum& sum, const AccTile& tile, int64_t a, int64_t b, uint16_t uop);

// A row of acc that no tile uses, for barriers; loaded by the first layer.
int64_t dummy_row(const Machine& machine);
void load_dummy(const LayerContext& context, std::vector<Instruction>& loads);

}  // namespace tessera::accelerator
