// What a claim says, as the checker reads it: one element of each result of either side, as an expression over the
// elements of the variables. Written apart from the prover's reading (comprehension.h); both take the meaning of an op
// from its inference and body.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "discover/check/check_definedness.h"
#include "discover/claim/claim.h"
#include "graph/graph.h"

namespace tessera::checker {

using Statement = ElementOfSides;

// One for each result. E0303 where a side has no meaning, where they differ in type, or where sizes can be found for
// which inference takes the left side and not the right.
Result<std::vector<Statement>> statements_of(const Claim& claim);

// Both sides as values of one graph, which stands while they are read.
using SidesReader = std::function<Status(Graph&, const std::vector<Value*>& left, const std::vector<Value*>& right)>;
Status read_sides(const Claim& claim, const SidesReader& read);

std::vector<Expr> output_indices(const Shape& shape);  // _o0, _o1, ...
// An element of a constant, or of integers that inference knows; empty for other values.
std::optional<Result<Expr>> known_element(const Value* v, const std::vector<Expr>& at);

}  // namespace tessera::checker
