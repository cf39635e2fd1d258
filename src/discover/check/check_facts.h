// What a rule's conditions say of its variables, as far as the laws of elements ask: sizes and ranks that are equal,
// tensors of one element or one number, lists that are known. A condition that is not understood says nothing.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "rewrite/rule.h"

namespace tessera::checker {

class Facts {
  public:
    explicit Facts(const Rule& rule);

    const std::string& name(int slot) const { return rule_.variables[static_cast<size_t>(slot)].name; }

    // A key: two terms have one key where they denote the same. Op, output, attributes and operands are part of it;
    // lets are replaced by what they stand for, and each `_` is its own. Keys are compared and never searched.
    std::string text(const Term& t) const;
    // The key of an attribute's value: empty for its default, and a key of its own if a rest may contain
    // it.
    std::string attribute(const Term& op, std::string_view attr) const;
    // Of all attributes but these.
    std::string attributes(const Term& op, const std::set<std::string>& but = {}) const;
    bool may_hold(int rest_slot, const std::string& attr) const;

    bool says(const std::string& condition) const { return said_.contains(condition); }  // by its key
    // Whether a condition is this function of these arguments, and any after them.
    bool says_of(std::string_view function, const std::vector<std::string>& first) const;
    const Term* equal_to(const std::string& key) const;  // the term that a condition equates it with
    void join_sizes(const std::string& a, const std::string& b);
    // Axes of a tensor of this rank that the conditions call equal to others have the name of those; whether they are
    // compared with one axis.
    std::string axes_name(const std::string& axes, const std::string& rank) const;
    bool one_axis(const std::string& axes, const std::string& rank) const;
    bool narrow(const std::string& variable) const;             // elements of at most 32 bits
    bool has_elements(const std::string& variable) const;       // no size is 0
    std::string same_sizes(const std::string& variable) const;  // one name for all of the same sizes
    std::string same_rank(const std::string& variable) const;   // one name for all of the same rank; "0" for rank 0
    bool one_element(const std::string& variable) const;
    // Whether broadcasting the first with the second gives the second's sizes, or rank.
    bool fits(const std::string& small, const std::string& large) const;
    bool rank_at_most(const std::string& small, const std::string& large) const;
    std::optional<double> number(const std::string& variable) const;  // what every element is
    const Term* let(int slot) const;

  private:
    const Rule& rule_;
    std::vector<const Term*> all_;  // the conditions, each of which holds
    std::set<std::string> said_;
    std::map<std::string, std::string> sizes_, ranks_;
    std::map<std::string, double> numbers_;
    std::map<std::string, const Term*> equal_;
    std::map<int, std::set<std::string>> held_;  // by rest: the attributes that it may hold
    // Keys that were made before: of the rule's own terms, of lets, and of keys that are too long to write out again.
    mutable std::unordered_map<const Term*, std::string> keys_;
    mutable std::map<int, std::string> let_keys_;
    mutable std::map<std::string, size_t> long_keys_;

    std::string written(const Term& t) const;
    void remember(const Term& t);
    void learn(const Term& condition);
    void learn_rests(const Term& t);
    std::optional<std::string> axes_in(const Term& t, const std::string& rank) const;
};

}  // namespace tessera::checker
