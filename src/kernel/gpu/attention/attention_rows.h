// How attention is shared out among blocks that multiply by instructions of one warp: which queries are rows of one
// block, how large its tiles are, and into how many parts keys are split.
#pragma once

#include "base/machine.h"
#include "kernel/analyse/attention.h"

namespace tessera {

// An operand that is read in vectors of 16 bytes along an axis.
struct VectorSource {
    Expr load;
    double factor = 1;
};
std::optional<VectorSource> vector_source(const Compute& compute, const Expr& operand, const ReduceAxis& along);

// Rows are what reads the same keys and values: axes that neither of them has, and the heads that share a key head. A
// row's number has a digit for each; blocks are numbered by all other axes.
class AttentionRows {
  public:
    explicit AttentionRows(const Attention& attention);

    bool ok() const { return ok_; }  // at most one size of each kind is dynamic, and perhaps one more of blocks
    Expr count() const;              // of rows
    // Of blocks, apart from those of rows: numbered by two numbers, the second for one axis of dynamic size.
    Expr inner_blocks() const;
    Expr other_blocks() const { return other_ ? other_->extent : Expr(1); }
    Expr blocks() const { return inner_blocks() * other_blocks(); }
    bool depends(const Expr& e) const;  // on the row

    // Axes of a block, and with them those of one of its rows.
    Bindings outer_names(const Expr& block, const Expr& other) const;
    Bindings names(const Bindings& outer, const Expr& row) const;

  private:
    struct Digit {
        Expr var, extent;
        int64_t step = 1;    // of an outer axis: how many of the axis are rows
        bool added = false;  // to the outer part of the axis
    };
    std::vector<Digit> digits_, outer_;  // the first counts fastest
    std::optional<Digit> other_;
    std::vector<Expr> single_;  // axes of one element
    bool ok_ = true;
};

// Rows and keys of a tile, how many warps share its rows and its columns, how many tiles are copied ahead, how many
// such blocks an SM has room for, and whether the four warps multiply together (wgmma).
struct WarpTiles {
    int64_t rows = 0, keys = 64, down = 1, across = 4, ahead = 1, resident = 1;
    bool wide = false;

    // What a head is filled up to as the contracted dimension, and as columns of a result; elements between rows.
    int64_t padded_depth(int64_t depth) const;
    int64_t padded_columns(int64_t columns) const;
    int64_t skew() const { return wide ? 0 : 8; }
};
// Sizes that are not known are given as nothing: all rows of a block of heads, keys, and such blocks.
struct AttentionSizes {
    std::optional<int64_t> rows, keys, blocks;
    int64_t depth = 0, columns = 0;
};
WarpTiles choose_warp_tiles(const AttentionSizes& sizes, const Machine& machine);

// Parts of the keys, each for blocks of their own. `few_rows`: all rows of a head are in one block.
int64_t choose_key_parts(std::optional<int64_t> blocks, std::optional<int64_t> keys, const WarpTiles& tiles,
                         bool few_rows, const Machine& machine);

}  // namespace tessera
