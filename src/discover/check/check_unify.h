// Whether two expressions are the same number, where the variables of the first may be chosen: by structure, with
// operands of sums and products in any order. What holds so holds for infinities and NaN too.
#pragma once

#include <map>
#include <optional>

#include "discover/check/check_demands.h"

namespace tessera::checker {

class Unifier {
  public:
    Unifier(Names& names, const Conjunction& facts, const Scope& open) : names_(names), facts_(facts) {
        for (const std::string& v : open.variables) open_.insert(names.declare(v, Names::Kind::Variable));
    }
    bool same(const Expr& left, const Expr& right);
    void choose(const std::string& variable, const Whole& value) { by_.insert_or_assign(names_.find(variable), value); }
    // A condition of the first, with what its variables were chosen to be; empty where one was not chosen.
    std::optional<Whole> chosen(const Whole& p);

  private:
    Names& names_;
    const Conjunction& facts_;
    std::set<int> open_;
    std::map<int, Whole> by_;
    int steps_ = 0;

    bool same_index(const Whole& left, const Whole& right);
    bool same_list(const Expr& left, const Expr& right);
    bool same_product(const Expr& left, const Expr& right);
    bool same_reduction(const Expr& left, const Expr& right);
    bool in_any_order(std::vector<Expr> left, std::vector<Expr> right);
};

// a * b / c as its factors, a number and signs apart: the number is not 0.
struct Factors {
    double number = 1;
    std::vector<Expr> above, below;
};
Factors factors_of(const Expr& e);

}  // namespace tessera::checker
