// Symbolic interval analysis of index expressions over running loop variables, and decisions based on it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "expr/expr.h"

namespace tessera {

// Running variables by name, each over [0, extent).
using Extents = std::map<std::string, Expr>;

// The values are in [begin, begin + span]; `begin` and `span` are expressions over variables that do not run.
struct Interval {
    Expr begin, span;
    Expr last() const { return begin + span; }
};

// Empty if unknown. The interval of an affine expression is exact.
std::optional<Interval> interval_of(const Expr& e, const Extents& running);
Interval unite(const Interval& a, const Interval& b);

// Whether a boolean expression over the running variables and symbols (at least 0) always holds.
bool always(const Expr& condition, const Extents& running);
bool never(const Expr& condition, const Extents& running);

// A condition over the variables that do not run under which `condition` holds for some, or for all, values of the
// running ones; empty if unknown.
std::optional<Expr> holds_for_any(const Expr& condition, const Extents& running);
std::optional<Expr> holds_for_all(const Expr& condition, const Extents& running);

// Solves c*var + rest < limit with c > 0 to var < result; empty if the condition does not have this form. The result is
// over the other variables, and may be negative.
std::optional<Expr> solve_upper(const Expr& condition, const Expr& var);
std::optional<Expr> solve_lower(const Expr& condition, const Expr& var);  // as result <= var

bool mentions(const Expr& e, const std::string& name);
bool mentions_any(const Expr& e, const Extents& names);

std::vector<Expr> conjuncts(const Expr& condition);  // of an And; any other expression is a single conjunct

// Whether the Selects around `load` in `value` guarantee that its index number `d` is in [0, extent).
bool chooses_inside(const Expr& value, const Expr& load, size_t d, const Expr& extent);

}  // namespace tessera
