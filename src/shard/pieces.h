// What a rank that needs a box gets from which other rank.
#pragma once

#include "shard/sharding.h"

namespace tessera::shard {

struct Piece {
    int64_t from = 0;  // rank
    Box box;
};

// By the boxes that all hold; of several that hold a box, from the nearest. What the rank itself holds is no piece.
std::vector<Piece> pieces_for(const Mesh& mesh, int64_t rank, const Placement& from, const Box& need);

}  // namespace tessera::shard
