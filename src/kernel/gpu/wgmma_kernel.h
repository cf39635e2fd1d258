// The same contraction on GPUs whose matrix instructions read shared memory, which whole tiles are copied to while
// others are multiplied (kernel/ir/tile_copy.h). A block computes one tile; what is fetched ahead for it, and how
// blocks share a multiprocessor, the code generator sees to.
#pragma once

#include <array>

#include "base/machine.h"
#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

struct WgmmaShape {
    BlockTile tile;
    int64_t parts = 1;     // of the steps along k, of which the last may have fewer
    int64_t together = 1;  // multiprocessors that share a tile's steps
    bool pairs = false;    // two of them share the columns' operand, which is copied once for both
    double time = 0;       // in microseconds, as estimated for an H200
};
struct WgmmaProduct {
    int64_t batch = 1, m = 0, n = 0;
    int64_t steps = 0;  // along k, of 128 bytes each; 0: not known
    DType dtype = DType::f16;
    double end = 0.25;       // see end_of_square
    bool may_share = false;  // multiprocessors can share a tile
    // What it costs that lines of A and B begin within lines of the cache, as a share of what reading them costs.
    std::array<double, 2> misaligned{};
    bool may_pair = false;    // or copy for each other
    bool even_parts = false;  // parts have as many steps each
};
WgmmaShape choose_wgmma(const Machine& machine, const WgmmaProduct& p);
// How long it takes four warps to make of the sums of 64 rows and columns what is stored, in microseconds on an H200.
double end_of_square(const Compute& compute, const Stage& out, int sum);
// The geometry of a window over images [n, y, x, channels]: rows of the contraction are window positions, in the order
// of each image's lines.
struct Window {
    int buffer = -1;
    std::array<int64_t, 2> size{}, every{}, from{};  // y, x: number of positions, stride, first position
    std::vector<std::array<int64_t, 2>> further;     // by reduction axis: the offset of one step along it
    int64_t apart = 0;                               // the first channels of neighbours of the batch
};
// What an operand is whose side are `rows`, of the axes of a stage, and of which `channels`, of its reduction, lie
// together, for each of a `batch` others; 0 outside of the images. Nothing where it is something else.
std::optional<Window> find_window(const Compute& compute, const Stage& stage, const Expr& operand,
                                  const std::vector<int>& rows, const std::vector<int>& batch, size_t channels);

struct WgmmaPlan {
    BlockTile tile;
    int64_t parts = 1, together = 1;
    bool pairs = false;
    size_t inner = 0;              // the axis of the reduction that tiles are taken along
    std::optional<Window> window;  // what A is
};
// Of a contraction whose axes are batch, where there is one, rows, columns and those of the reduction. `out` makes of
// each sum what is stored. Empty where an operand is not simply read, or does not lie so that tiles of it can be
// copied.
std::optional<TiledKernel> wgmma_kernel(const Schedule& s, const Stage& sum, const Stage& out, bool has_batch, int a,
                                        const WgmmaPlan& plan);

}  // namespace tessera
