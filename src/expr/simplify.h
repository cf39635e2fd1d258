// The canonical form of i64 expressions, which the constructors of expr.h build. A sum is a sorted list of monomials
// (coefficient * sorted atoms) with the constant last. Dimensions and indices are assumed not to overflow. Values read
// at run time may wrap, so only identities of wrapping arithmetic apply to them. Overflowing constants are not folded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "expr/expr.h"

namespace tessera {

Expr simplify(const Expr& e);  // rebuilds every node through expr.h's constructors

// A total order of structures, independent of addresses: negative, 0 (equal) or positive.
int compare_structure(const Expr& a, const Expr& b);

// coefficient * atoms, as a view into a term of a sum. A constant has no atoms.
struct Monomial {
    int64_t coefficient;
    const Expr* atoms;
    size_t count;
};
Monomial as_monomial(const Expr& term);
Expr make_term(int64_t coefficient, const Expr* atoms, size_t count);  // a sum if its only atom is a sum
Expr make_sum(std::vector<Expr> terms);

// The terms of a sum; any other expression is a single term.
struct TermRange {
    const Expr *first, *last;
    const Expr* begin() const { return first; }
    const Expr* end() const { return last; }
    size_t size() const { return static_cast<size_t>(last - first); }
};
TermRange terms_of(const Expr& e);

// Constructors for i64 operands, called by those of expr.h.
Expr simplify_add(const Expr& a, const Expr& b);
Expr simplify_mul(const Expr& a, const Expr& b);
Expr simplify_floor_div(const Expr& a, const Expr& b);
Expr simplify_mod(const Expr& a, const Expr& b);
Expr simplify_min_max(ExprKind kind, const Expr& a, const Expr& b);
Expr simplify_compare(ExprKind kind, const Expr& a, const Expr& b);  // Lt, Le, Eq, Ne

// Evaluates a node kind on i64 constants; nullopt on overflow.
std::optional<int64_t> fold_int(ExprKind kind, int64_t a, int64_t b);
int64_t floor_quotient(int64_t a, int64_t positive);
int64_t floor_remainder(int64_t a, int64_t positive);
std::optional<int64_t> checked_add(int64_t a, int64_t b);
std::optional<int64_t> checked_mul(int64_t a, int64_t b);
int64_t wrap_to(DType dtype, int64_t value);  // wraps to the range of an integer dtype or bool

Bounds node_bounds(const ExprNode& node);  // from the bounds of its arguments
Expr make_node(ExprKind kind, DType dtype, std::vector<Expr> args);
Expr make_bool(bool value);

}  // namespace tessera
