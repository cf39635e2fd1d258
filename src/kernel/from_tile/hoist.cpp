#include "kernel/from_tile/hoist.h"

#include <algorithm>
#include <set>

namespace tessera::from_tile_detail {
namespace {

using tile::Instruction;
using tile::Kind;

bool depends_on_inputs_alone(Kind kind) { return kind < Kind::Load || kind == Kind::Dot || kind == Kind::Reduce; }

void hoist_from(tile::Region& region) {
    std::vector<Instruction> made;
    for (Instruction& i : region.instructions) {
        for (tile::Region& inner : i.regions) hoist_from(inner);
        if (i.kind == Kind::For) {
            tile::Region& body = i.regions[0];
            std::set<int> inside(body.arguments.begin(), body.arguments.end());
            std::vector<Instruction> stay;
            for (Instruction& j : body.instructions) {
                const bool moves =
                    depends_on_inputs_alone(j.kind) && j.regions.empty() &&
                    std::none_of(j.inputs.begin(), j.inputs.end(), [&](int v) { return inside.count(v); });
                if (!moves) inside.insert(j.outputs.begin(), j.outputs.end());
                (moves ? made : stay).push_back(std::move(j));
            }
            body.instructions = std::move(stay);
        }
        made.push_back(std::move(i));
    }
    region.instructions = std::move(made);
}

}  // namespace

void hoist_invariants(tile::ProgramData& program) { hoist_from(program.body); }

}  // namespace tessera::from_tile_detail
