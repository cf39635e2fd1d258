// A claim: a rule with symbolic shapes for its tensor variables. It states that both sides are equal for all values of
// the size symbols. Discovered rules start as claims; to_rule adds the conditions that restrict the rule to the claim's
// shapes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "graph/type.h"
#include "rewrite/rules/functions.h"

namespace tessera {

struct Claim {
    Rule rule;
    std::map<std::string, Shape>
        shapes;  // of the tensor variables, by name, over size symbols; elements by element_type
    std::map<std::string, RuleValue> values = {};  // of variables that are not tensors (attributes)
};

// The rule with conditions that hold for exactly these shapes and values (rank(x) == 2, same_dims(x, y), dim(w, 0) ==
// dim(x, 1), perm == [1, 0]), without those that the ops of the pattern imply.
Rule to_rule(const Claim& claim);

// The size symbols as expressions over tensor sizes, in the rule language: "(dim(x, 3) / 2)".
Bindings sizes_by_dims(const Claim& claim);

// The element type for a tensor variable: the one of its constraint (x:f16), or f32 for any float, or the widest float
// if the rule casts. Empty if the constraint is not a float type, or if an op takes the element type of another
// operand.
std::optional<DType> element_type(const Rule& rule, const RuleVariable& variable);

// E0303 if shapes or values are given for unknown variables, or names of sizes begin with an underscore.
Status check_names(const Claim& claim);

std::string to_string(const Claim& claim);  // the rule, then "where x: [M,K], w: [K,N]"
Result<Claim> read_claim(std::string_view text);

std::string shapes_text(const Claim& claim);  // "x: [M,K], w: [K,N]"
Result<std::map<std::string, Shape>> read_shapes(std::string_view text);

}  // namespace tessera
