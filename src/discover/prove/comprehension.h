// What both sides of a claim mean: each output element as one expression over the elements of the variables, composed
// from the ops' bodies. This is the definition that the prover and the checker of its certificates start from.
#pragma once

#include <memory>
#include <vector>

#include "discover/claim/claim.h"
#include "graph/graph.h"

namespace tessera {

// Index variables are called _o0, _o1, ... in the output element's indices and _r1, _r2, ... where summed over; a
// claim's sizes must not begin with an underscore.
struct Comprehension {
    Shape shape;
    Expr left, right;  // load(slot, ...) reads the variable inputs[slot]
};

struct Sides {
    std::unique_ptr<Graph> graph;  // both sides, over the same inputs
    std::vector<Value*> left, right;
};

// Both sides as graphs, with the sizes bound to `sizes` where that has them. E0303 where they make no sense;
// `left_built` says whether that was the right side.
Result<Sides> build_sides(const Claim& claim, const Bindings& sizes = {}, bool* left_built = nullptr);

// One for each root. E0303 where the sides have no meaning as expressions, or differ in type.
Result<std::vector<Comprehension>> comprehend(const Claim& claim);

// E0303 unless both sides are accepted with random sizes too, where inference leaves nothing open, and have one type.
Status check_well_formed(const Claim& claim);

std::vector<std::string> size_symbols(const Claim& claim);  // sorted

}  // namespace tessera
