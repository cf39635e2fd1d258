// Asynchronous copies of whole tiles between global and shared memory (TMA). The calls are outside of thread loops.
//
//   call copy_tile(tile[0, 0]; from[at]; d, e)      starts a copy: tile[i, j] = the element of `from` at `at`, plus i
//                                                   along dimension d and j along e; 0 out of bounds
//   call copy_tile(tile[0, 0]; from[at]; d, e, n)   the same for the first n rows i; the others are undefined
//   call copy_places(tile[0, 0]; from[0, 0, 0, c]; place, h, w, sy, sx, y, x, dy, dx)
//                                                   starts an im2col copy: tile[i, j] = from[n, sy * oy + y + dy,
//                                                   sx * ox + x + dx, c + j], 0 out of bounds, where place + i is the
//                                                   linear index of [n, oy, ox] in [:, h, w]
//   call wait_tile(tile[0, 0]; ; )                  waits for the copy into the tile; it may be read only afterwards
//   call free_tile(tile[0, 0]; ; )                  releases the tile for the next copy; its contents are lost
//   call store_tile(to[at]; tile[0, 0, 0, 0]; d, e) copies in the other direction, clipped to the bounds; the tile must
//                                                   not change afterwards
//
// A tile that is stored has the 128-byte swizzled layout tile[panel, i, piece, element]:
// panels of 128 bytes of a row, in pieces of 16 bytes; piece p of row i is at p ^ i % 8.
// Elements of a row are contiguous in global memory.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

constexpr const char *kCopyTile = "copy_tile", *kCopyPlaces = "copy_places", *kWaitTile = "wait_tile",
                     *kStoreTile = "store_tile", *kFreeTile = "free_tile";
constexpr int64_t kPanelBytes = 128, kPieceBytes = 16, kPieces = kPanelBytes / kPieceBytes;

bool is_tile_call(const Call& call);
bool brings_tile(const Call& call);
bool has_tile_calls(const Stmt& s);

// If the kernel frees tiles, every tile must cycle through copy, wait and free on all paths. Returns the violation.
std::optional<std::string> misused_tile(const Kernel& kernel);

// The arguments of copy_places. All but the first and the last two are constants.
struct TilePlaces {
    Expr first;
    int64_t height = 0, width = 0, every_y = 1, every_x = 1, from_y = 0, from_x = 0;
    Expr further_y, further_x;
};

// The rows and columns of the tile, and the dimensions of the global buffer that they are along. Columns are contiguous
// in global memory.
struct TileCopy {
    int tile = -1, global = -1;
    int64_t rows = 0, columns = 0;
    size_t along_rows = 0, along_columns = 0;
    std::optional<TilePlaces> places = {};  // for im2col: rows are window positions, not along a dimension
    int64_t copied = 0;                     // number of leading rows that are copied
};
// Decodes copy_tile, copy_places and store_tile; nothing if a rule above is violated.
std::optional<TileCopy> tile_copy(const Kernel& kernel, const Call& call);

// Expands the calls into loops. Copied data is held in a separate buffer until the wait, so a premature read of the
// tile sees the old contents.
Kernel expand_tile_copies(const Kernel& kernel);

}  // namespace tessera
