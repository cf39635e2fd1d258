// What a rule's conditions say of its variables, as far as the laws of elements ask: sizes and ranks that are equal,
// tensors of one element or one number, lists that are known. A condition that is not understood says nothing.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rewrite/rule.h"

namespace tessera::checker {

class Facts {
  public:
    explicit Facts(const Rule& rule);

    const std::string& name(int slot) const { return rule_.variables[static_cast<size_t>(slot)].name; }

    // A term that is no tensor, in one way of writing: lets are replaced by what they stand for, and each `_` is its
    // own.
    std::string text(const Term& t) const;
    std::string attribute(const Term& op,
                          std::string_view attr) const;  // empty where it has its default
    // All attributes but these, those with their defaults left out.
    std::string attributes(const Term& op, const std::set<std::string>& but = {}) const;

    bool says(const std::string& condition) const { return said_.contains(condition); }  // by its text
    std::optional<std::string> equal_to(const std::string& text) const;                  // what the rule says it is
    bool says_of(std::string_view begin) const;  // whether a condition begins so
    void join_sizes(const std::string& a, const std::string& b);
    // Axes that the conditions call equal to others have the name of those; whether they are compared with one axis.
    std::string axes_name(const std::string& axes) const;
    bool one_axis(const std::string& axes) const;
    bool narrow(const std::string& variable) const;             // elements of at most 32 bits
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
    std::set<std::string> said_;
    std::map<std::string, std::string> sizes_, ranks_;
    std::map<std::string, double> numbers_;
    std::map<std::string, std::string> equal_;

    void learn(const Term& condition);
};

}  // namespace tessera::checker
