// The named functions that rules call in conditions and attributes: over integers that may be symbolic, lists, element
// types and what is known of tensors. Each is defined once, with its signature. An answer that cannot be known is
// empty.
#pragma once

#include <functional>
#include <optional>
#include <variant>

#include "graph/graph.h"
#include "rewrite/rule.h"

namespace tessera {

// A value of a rule's variable. Empty: an optional input or attribute that is not given.
using RuleValue = std::variant<std::monostate, Value*, std::vector<Value*>, Expr, std::vector<Expr>, double,
                               std::vector<double>, std::string, std::vector<std::string>, bool, DType, AttrMap>;

// The elements as numbers, where none is symbolic.
std::optional<std::vector<int64_t>> numbers_of(const std::vector<Expr>& list);

struct RuleFunction {
    std::string name;  // or an operator's symbol
    std::vector<TermKind> takes;
    TermKind gives;
    std::string meaning;  // for docs/rules.md
    // Empty if unknown (a symbolic size) or undefined (an index outside a list).
    std::function<std::optional<RuleValue>(const std::vector<RuleValue>&)> evaluate;
    bool variadic = false;  // the last parameter may be given any number of times
};
const std::vector<RuleFunction>& rule_functions();
std::vector<const RuleFunction*> find_rule_functions(std::string_view name);  // several where overloaded

}  // namespace tessera
