// The semantics of both sides of a claim: one expression for an output element over the elements of the variables,
// composed from the ops' bodies. The prover starts from it.
#pragma once

#include <memory>
#include <vector>

#include "discover/claim/claim.h"
#include "graph/graph.h"

namespace tessera {

// Index variables are _o0, _o1, ... for the output element and _r1, _r2, ... for sums; the names of a claim's sizes
// must not begin with an underscore.
struct Comprehension {
    Shape shape;
    Expr left, right;  // load(slot, ...) reads the variable inputs[slot]
};

struct Sides {
    std::unique_ptr<Graph> graph;  // both sides, over the same inputs
    std::vector<Value*> left, right;
};

// Both sides as graphs, with sizes bound by `sizes`. E0303 if one cannot be built; `left_built` tells whether the left
// one could.
Result<Sides> build_sides(const Claim& claim, const Bindings& sizes = {}, bool* left_built = nullptr);

// One for each root. E0303 if a side cannot be expressed this way, or if the sides differ in type.
Result<std::vector<Comprehension>> comprehend(const Claim& claim);

// E0303 unless inference accepts both sides with random constant sizes too, and gives them the same type. `accepted`
// is then the last of those sizes.
Status check_well_formed(const Claim& claim, Bindings* accepted = nullptr);

std::vector<std::string> size_symbols(const Claim& claim);  // sorted

}  // namespace tessera
