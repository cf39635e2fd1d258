// Tiles while a program is being lowered: what an element is, at indices that loops give.
#pragma once

#include <functional>
#include <set>

#include "kernel/ir/kernel.h"
#include "tile/program.h"

namespace tessera::from_tile_detail {

using TileIndices = std::vector<Expr>;

struct LoweredTile {
    tile::Type type;
    // The element; of a pointer, how many elements it is into the buffer `base`, as i64.
    std::function<Expr(const TileIndices&)> at;
    int base = -1;
    int buffer = -1;           // it lies there, element by element
    int64_t multiple = 1;      // and is so many times what lies there
    bool costly = false;       // better computed once
    std::set<int> reads = {};  // buffers that computing an element loads from
};

// An integer expression in 64 bits, as if nothing overflowed before.
Expr widened(const Expr& e);
// A condition whose comparisons of integers are in 64 bits.
Expr widened_condition(const Expr& e);

bool same_indices(const TileIndices& a, const TileIndices& b);
// Row-major: the place of an element, and back.
Expr flat_index(const TileIndices& indices, const std::vector<int64_t>& shape);
TileIndices indices_of(const Expr& flat, const std::vector<int64_t>& shape);

// How often each value is used, and by whom if once.
struct TileUses {
    std::vector<int> count;
    std::vector<const tile::Instruction*> last;  // user
    std::vector<bool> inside;                    // used in a region nested inside the defining one
    std::vector<bool> masks;                     // of what is loaded or stored
};
TileUses count_uses(const tile::ProgramData& program);
void each_instruction(const tile::Region& region, const std::function<void(const tile::Instruction&)>& f);

// x / broadcast(y) becomes x * broadcast(1 / y), which divides less often; unless it is to be rounded as division is.
void divide_once(tile::ProgramData& program);

// exp(x) of f32 becomes 2 to the power of x log2(e), which a GPU has an instruction for.
void by_powers_of_two(tile::ProgramData& program);

// Products of bytes become products of f16, which give the same: what those are converted to is exact. But for some, by
// the number of what they give.
void multiply_bytes_as_halves(tile::ProgramData& program, const std::set<int>& but);

// x + dot(a, b), if the product has no other readers, becomes dot(a, b, x).
void add_in_dots(tile::ProgramData& program);

}  // namespace tessera::from_tile_detail
