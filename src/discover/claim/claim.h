// What a rule says for tensors of given shapes: with its tensor variables shaped so, both sides are equal for every
// value of the size symbols. Rules that were found start as claims; to_rule adds the conditions that restrict a rule to
// one.
#pragma once

#include <map>
#include <string>

#include "graph/type.h"
#include "rewrite/rules/functions.h"

namespace tessera {

struct Claim {
    Rule rule;
    std::map<std::string, Shape> shapes;  // of the tensor variables, by name, over size symbols; elements are f32
    std::map<std::string, RuleValue> values = {};  // of variables that are no tensors (attributes)
};

// The rule with conditions that hold for these shapes only (rank(x) == 2, same_dims(x, y), dim(w, 0) == dim(x, 1)),
// less what the ops of the pattern demand anyway.
Rule to_rule(const Claim& claim);

std::string to_string(const Claim& claim);  // the rule, then "where x: [M,K], w: [K,N]"
Result<Claim> read_claim(std::string_view text);

std::string shapes_text(const Claim& claim);  // "x: [M,K], w: [K,N]"
Result<std::map<std::string, Shape>> read_shapes(std::string_view text);

}  // namespace tessera
