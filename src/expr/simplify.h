// The canonical form of i64 expressions, which expr.h's constructors build. A sum is a sorted list of monomials
// (coefficient * sorted atoms) with its constant last. Dimensions and indices are taken not to overflow; values read at
// run time may wrap, so they get only what holds in wrapping arithmetic. Constants that overflow are left unfolded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "expr/expr.h"

namespace tessera {

Expr simplify(const Expr& e);  // rebuilds every node through expr.h's constructors

// A total order of structures, which no address enters: negative, 0 (the same) or positive.
int compare_structure(const Expr& a, const Expr& b);

// coefficient * atoms, as a view into a term of a sum. A constant has no atoms.
struct Monomial {
    int64_t coefficient;
    const Expr* atoms;
    size_t count;
};
Monomial as_monomial(const Expr& term);
Expr make_term(int64_t coefficient, const Expr* atoms, size_t count);  // a sum where its one atom is a sum
Expr make_sum(std::vector<Expr> terms);

// The terms of a sum; anything else is its own only term.
struct TermRange {
    const Expr *first, *last;
    const Expr* begin() const { return first; }
    const Expr* end() const { return last; }
    size_t size() const { return static_cast<size_t>(last - first); }
};
TermRange terms_of(const Expr& e);

// Constructors for i64 operands, behind those of expr.h.
Expr simplify_add(const Expr& a, const Expr& b);
Expr simplify_mul(const Expr& a, const Expr& b);
Expr simplify_floor_div(const Expr& a, const Expr& b);
Expr simplify_mod(const Expr& a, const Expr& b);
Expr simplify_min_max(ExprKind kind, const Expr& a, const Expr& b);
Expr simplify_compare(ExprKind kind, const Expr& a, const Expr& b);  // Lt, Le, Eq, Ne

// Integer arithmetic of the node kinds on i64; nullopt on overflow.
std::optional<int64_t> fold_int(ExprKind kind, int64_t a, int64_t b);
int64_t floor_quotient(int64_t a, int64_t positive);
int64_t floor_remainder(int64_t a, int64_t positive);
std::optional<int64_t> checked_add(int64_t a, int64_t b);
std::optional<int64_t> checked_mul(int64_t a, int64_t b);
int64_t wrap_to(DType dtype, int64_t value);  // the low bits of value as an integer dtype or bool holds them

Bounds node_bounds(const ExprNode& node);  // from the bounds of its arguments
Expr make_node(ExprKind kind, DType dtype, std::vector<Expr> args);
Expr make_bool(bool value);

}  // namespace tessera
