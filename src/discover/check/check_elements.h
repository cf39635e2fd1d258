// A rule for tensors of any rank, as what it says of one element: a rule between numbers, with a variable for each
// element that a side reads. Element-wise ops stay, ops that move elements become part of which element it is, and
// other ops are variables of their own, equal where op, attributes and operands are. docs/proofs.md has the laws.
#pragma once

#include "base/error.h"
#include "rewrite/rule.h"

namespace tessera::checker {

// What may become of an op whose operands are numbers.
enum class Partial {
    None,      // it is a number
    NaN,       // or NaN, as the mean of nothing
    Infinite,  // or infinite, as the logarithm of 0
};
Partial partial_of(const Term& op);

struct Element {
    std::string what;                 // its key
    Partial partial = Partial::None;  // with all ops that it is made of
};

struct ElementRule {
    Rule rule;                                // between numbers, a pattern and a replacement for each result
    bool same = false;                        // both sides are the same operations on the same elements
    bool reorders = false;                    // sums may be formed in another order
    std::map<std::string, Element> elements;  // what each variable of the rule is
};

// Of a rule without inputs that may be absent (check_cases.h). E0305 where a side has an op that no law covers. By
// meaning: ops are written out as check_meanings.h says.
Result<ElementRule> element_rule(const Rule& rule, bool by_meaning = false);

}  // namespace tessera::checker
