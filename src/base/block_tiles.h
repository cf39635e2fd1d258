// Products of f32 on GPUs, as blocks of threads compute them by multiply-adds: the tile of the output that a block
// takes, and how long that lasts.
#pragma once

#include "base/machine.h"

namespace tessera {

constexpr int64_t kBlockSide = 16;  // threads of a block along rows and along columns

struct BlockTile {
    int64_t m = 0, n = 0, k = 0;  // of a block
    bool operator==(const BlockTile&) const = default;
};

// By the sizes of the output.
BlockTile choose_block_tile(const Machine& machine, int64_t batch, int64_t m, int64_t n);

// Of a batch of products of m x k by k x n.
double product_seconds(const Machine& machine, int64_t batch, int64_t m, int64_t n, int64_t k);

}  // namespace tessera
