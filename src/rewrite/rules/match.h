// Finds where a rule's pattern stands in a graph, and what its variables are there. Conditions are part of it: the
// second order of a commutative op is tried where they fail with the first.
#pragma once

#include <functional>

#include "rewrite/rules/functions.h"

namespace tessera {

struct Match {
    const Rule* rule;
    std::vector<RuleValue> slots;  // by variable
    std::vector<Value*> roots;     // the values that the rule replaces
    std::vector<Node*> nodes;      // every node of the pattern, each once
};

// The first match at `root` that `accept` takes.
std::optional<Match> find_match(const Rule& rule, Value& root, const std::function<bool(const Match&)>& accept);

// Terms on the left beside the values that they may stand for.
RuleValue rule_value(const Attr& attr);
bool same_value(const RuleValue& a, const RuleValue& b);
bool matches_literal(const Term& literal, const Value& value);
// The constant that a literal is on the right side.
Result<Tensor> tensor_of(const Term& literal, DType dtype, Sizes sizes);
bool matches_list(const Term& list, const Value& value);  // [1, 0]
// A literal means one number. Constants among a node's inputs stand for literals where numbers in their place would
// give the same result: they have no dimensions, or the other operands of an element-wise op have the result's without
// them.
bool literals_fit(const Node& node, const std::vector<const Value*>& literals);
bool literals_fit(const Term& term, const Node& node, bool swapped = false);  // those of an op's term
// The attributes of a node whose op is the term's: `bind` gets what variables stand for, and says whether they may.
bool match_attributes(const Term& term, const Node& node, const std::vector<RuleValue>& slots,
                      const std::function<bool(int slot, RuleValue value)>& bind);

// A term of an attribute or a condition; empty where its value is not known.
std::optional<RuleValue> evaluate_term(const Term& term, const std::vector<RuleValue>& slots);

}  // namespace tessera
