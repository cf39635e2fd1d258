#include "shard/pieces.h"

#include <algorithm>

namespace tessera::shard {
namespace {

int64_t distance(const Mesh& mesh, int64_t a, int64_t b) {
    int64_t n = 0;
    for (size_t axis = 0; axis < mesh.axes().size(); ++axis) n += mesh.coordinate(a, axis) != mesh.coordinate(b, axis);
    return n;
}

}  // namespace

std::vector<Piece> pieces_for(const Mesh& mesh, int64_t rank, const Placement& from, const Box& need) {
    const Box& own = from[size_t(rank)];
    std::vector<std::pair<const Box*, int64_t>> holders;  // a box, and the nearest rank that has it
    for (size_t r = 0; r < from.size(); ++r) {
        if (volume(intersect(from[r], need)) == 0 || from[r] == own) continue;
        auto known = std::find_if(holders.begin(), holders.end(), [&](const auto& h) { return *h.first == from[r]; });
        if (known == holders.end())
            holders.emplace_back(&from[r], int64_t(r));
        else if (distance(mesh, int64_t(r), rank) < distance(mesh, known->second, rank))
            known->second = int64_t(r);
    }
    std::vector<Piece> pieces;
    for (const auto& [box, holder] : holders) {
        Box piece = intersect(*box, need);
        if (!contains(own, piece)) pieces.push_back({holder, std::move(piece)});
    }
    return pieces;
}

}  // namespace tessera::shard
