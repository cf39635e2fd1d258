// The values that index expressions take while some loop variables run: symbolic intervals, and proofs by them.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "expr/expr.h"

namespace tessera {

// By variable: it runs over [0, extent).
using Extents = std::map<std::string, Expr>;

// Every value lies in [begin, begin + span]; `begin` and `span` are over variables that do not run.
struct Interval {
    Expr begin, span;
    Expr last() const { return begin + span; }
};

// Empty where nothing is known. Affine expressions give exact ends.
std::optional<Interval> interval_of(const Expr& e, const Extents& running);
Interval unite(const Interval& a, const Interval& b);

// Whether a boolean expression over the running variables and symbols (at least 0) always holds.
bool always(const Expr& condition, const Extents& running);
bool never(const Expr& condition, const Extents& running);

// What follows from `condition` for the variables that do not run, where it holds for some (any) or all of the others'
// values; empty where that is not known.
std::optional<Expr> holds_for_any(const Expr& condition, const Extents& running);
std::optional<Expr> holds_for_all(const Expr& condition, const Extents& running);

// c*var + rest < limit as var < result; empty where the condition is not of that form with c > 0. The result is over
// the other variables, and may be below 0.
std::optional<Expr> solve_upper(const Expr& condition, const Expr& var);
std::optional<Expr> solve_lower(const Expr& condition, const Expr& var);  // as result <= var

bool mentions(const Expr& e, const std::string& name);
bool mentions_any(const Expr& e, const Extents& names);

std::vector<Expr> conjuncts(const Expr& condition);  // of an And; anything else is its own

// Whether `value` loads only where choices around the load say that its index number `d` lies in [0, extent).
bool chooses_inside(const Expr& value, const Expr& load, size_t d, const Expr& extent);

}  // namespace tessera
