// Copies of whole tiles between global and shared memory, which go on while a block does other things. They stand
// outside of loops over threads.
//
//   call copy_tile(tile[0, 0]; from[at]; d, e)      tile[i, j] = from, i further along its dimension d and j along e,
//                                                   and 0 outside of it
//   call copy_tile(tile[0, 0]; from[at]; d, e, n)   the same for the first n rows i; the others may be anything
//   call copy_places(tile[0, 0]; from[0, 0, 0, c]; place, h, w, sy, sx, y, x, dy, dx)
//                                                   tile[i, j] = from[n, sy * oy + y + dy, sx * ox + x + dx, c + j],
//                                                   and 0 outside of it, where place + i is number [n, oy, ox] of [:,
//                                                   h, w]
//   call wait_tile(tile[0, 0]; ; )                  what was copied into the tile is there from here on, and not before
//   call free_tile(tile[0, 0]; ; )                  what was copied is not needed any more, and lost
//   call store_tile(to[at]; tile[0, 0, 0, 0]; d, e) the other way, where that is inside; the tile is not changed later
//
// A tile that is stored is of panels of 128 bytes of a row, in pieces of 16 bytes: tile[panel, i, piece, element]. The
// pieces of a row are exchanged so that threads which write below each other use different banks: piece p of row i lies
// where p ^ i % 8 is. Elements of a row lie together in global memory.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

constexpr const char *kCopyTile = "copy_tile", *kCopyPlaces = "copy_places", *kWaitTile = "wait_tile",
                     *kStoreTile = "store_tile", *kFreeTile = "free_tile";
constexpr int64_t kPanelBytes = 128, kPieceBytes = 16, kPieces = kPanelBytes / kPieceBytes;

bool is_tile_call(const Call& call);
bool brings_tile(const Call& call);
bool has_tile_calls(const Stmt& s);

// Where tiles are freed, each is copied, waited for and freed by turns, whichever way control goes: what breaks that.
std::optional<std::string> misused_tile(const Kernel& kernel);

// The arguments of copy_places. All but the first and the last two are constants.
struct TilePlaces {
    Expr first;
    int64_t height = 0, width = 0, every_y = 1, every_x = 1, from_y = 0, from_x = 0;
    Expr further_y, further_x;
};

// The rows and columns of the tile, of which columns lie together in global memory, and the dimensions of the global
// buffer that they run along.
struct TileCopy {
    int tile = -1, global = -1;
    int64_t rows = 0, columns = 0;
    size_t along_rows = 0, along_columns = 0;
    std::optional<TilePlaces> places = {};  // instead of a dimension that rows run along
    int64_t copied = 0;                     // of the rows, the first
};
// Of copy_tile, copy_places and store_tile; nothing where a rule above is broken.
std::optional<TileCopy> tile_copy(const Kernel& kernel, const Call& call);

// The kernel with loops instead. What was copied waits in a buffer beside the tile until it is waited for, so that
// whatever reads too early reads what was there before.
Kernel expand_tile_copies(const Kernel& kernel);

}  // namespace tessera
