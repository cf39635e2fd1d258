// A sum of products as tiles that blocks compute: each block takes one tile of the output, brings pieces of both
// operands along k to shared memory, and each of its threads adds up a small tile in registers. What follows element by
// element is computed from there.
#pragma once

#include "base/block_tiles.h"
#include "kernel/analyse/contraction.h"
#include "kernel/analyse/stages.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

// The reduction: tiles are taken along one of its axes, the others are stepped through.
struct Depth {
    size_t inner = 0;
    bool a_along = false, b_along = false;  // whether the operands lie along it
};

struct TiledKernel {
    Kernel kernel;
    std::vector<int> scratch;  // parameters that are only used while it runs
};

// Into how many parts the steps along k are cut, each of which blocks of its own add up: where there would be too few
// blocks otherwise, and k is long. The last may have fewer.
int64_t choose_parts(const Machine& machine, const BlockTile& tile, int64_t batch, int64_t m, int64_t n, int64_t steps);

// What products and sums have of f32: all digits; fewer in sums of floats of 8 bits; and fewer of operands of f32 too.
enum class Digits : uint8_t { All, Usual, Few };

// Whether something of an operand lies along an axis: its neighbours there are neighbours in memory.
bool lies_along(const Schedule& s, const Expr& operand, const Expr& along);

// Lowers a map, which needs nothing but its parameters.
using LowerMap = std::function<Result<Lowered>(const Compute&)>;

// The kernel of a Compute that is one contraction, and the map that reads it where there is one. Weights are laid out
// ahead where their tiles would not be read in vectors, and operands that no tile can be copied of are packed first,
// where `lower_map` is given. Empty: it is not worth it, or not of that form. E0601 where blocks cannot be shown to
// write different elements.
Result<std::optional<Lowered>> contraction_kernel(const Compute& compute, const Machine& machine,
                                                  Digits digits = Digits::Usual, const LowerMap& lower_map = {});

}  // namespace tessera
