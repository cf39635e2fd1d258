// What a rule says for tensors of given shapes: with its tensor variables shaped so, both sides are equal for every
// value of the size symbols. Rules that were found start as claims; to_rule adds the conditions that restrict a rule to
// one.
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
    std::map<std::string, RuleValue> values = {};  // of variables that are no tensors (attributes)
};

// The rule with conditions that hold for these shapes and values only (rank(x) == 2, same_dims(x, y), dim(w, 0) ==
// dim(x, 1), perm == [1, 0]), less what the ops of the pattern demand anyway.
Rule to_rule(const Claim& claim);

// The size symbols as sizes of the tensors; a name is text of the rule language: "(dim(x, 3) / 2)".
Bindings sizes_by_dims(const Claim& claim);

// The elements that a tensor variable is read with: what its constraint says (x:f16); f32 where it is any float, and
// the widest where the rule casts. Empty where the constraint is no float, or an op takes the type of another's
// elements.
std::optional<DType> element_type(const Rule& rule, const RuleVariable& variable);

// E0303 where shapes or values are given for what is no variable, or names of sizes begin with an underscore.
Status check_names(const Claim& claim);

std::string to_string(const Claim& claim);  // the rule, then "where x: [M,K], w: [K,N]"
Result<Claim> read_claim(std::string_view text);

std::string shapes_text(const Claim& claim);  // "x: [M,K], w: [K,N]"
Result<std::map<std::string, Shape>> read_shapes(std::string_view text);

}  // namespace tessera
