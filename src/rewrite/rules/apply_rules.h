// The rule engine. Applies rules to a graph until none applies: a work list in topological order, rules found by the op
// at their root. The result has the inputs, outputs and types of what came in, and nodes in no particular order until
// the pass ends, when they are sorted and what nobody uses is gone.
#pragma once

#include <unordered_map>

#include "rewrite/pass.h"
#include "rewrite/rule.h"

namespace tessera {

class RuleSet {
  public:
    RuleSet() = default;
    explicit RuleSet(Rules rules);
    RuleSet(const RuleSet&) = delete;  // the index points into the rules
    RuleSet& operator=(const RuleSet&) = delete;
    const Rules& rules() const { return rules_; }
    size_t deepest() const { return deepest_; }                        // nodes from a root to its furthest leaf
    const std::vector<const Rule*>& rooted_at(const OpDef& op) const;  // in the order of the file

  private:
    Rules rules_;
    std::unordered_map<const OpDef*, std::vector<const Rule*>> by_op_;
    size_t deepest_ = 1;
};

// E0304 where the rules do not come to an end, with the loop.
Result<Changed> apply_rules(Graph& graph, const RuleSet& rules, PassContext& context);

// One rule at one place: `root` is the value that the pattern's first root gives. True where it was applied; nodes are
// then not sorted, and what it replaced may still be there, unused. `shared`: apply even where the work would grow.
bool apply_rule(const Rule& rule, Value& root, PassContext& context, bool shared = false);

}  // namespace tessera
