// What an expression asks for to be a number: denominators that are not 0, logarithms of positive numbers, maxima of
// something. What an expression says for a statement's sizes and indices, with the integer facts that hold there.
#pragma once

#include "discover/check/check_arithmetic.h"

namespace tessera::checker {

enum class Need {
    NotZero,
    NotNegative,
    Positive,
    NotEmpty,  // a maximum or minimum has a point
    Domain,    // a function that is known only to have the same domain everywhere
};

// For all values of the variables for which `where` holds.
struct Scope {
    std::vector<std::string> variables = {};
    Conjunction where = {};
};

// A function that may give a number although its argument is none: 1 / inf, exp(-inf), max(-inf, 0).
struct Lenient {
    std::string kind;
    Expr argument;
    Scope scope;
};

struct Demand {
    Need need;
    Expr what;
    std::string function = {};  // Domain
    Scope scope = {};
    std::vector<Lenient> inside = {};  // the functions around it that are lenient, the outermost first
};

// A point of a maximum or minimum: points of the same kind inside it are its own.
struct Point {
    Expr value;
    Scope scope;
};
std::vector<Point> points_of(Names& names, const Expr& extreme, const Scope& scope);
bool is_extreme(const Expr& e);
bool is_largest(const Expr& extreme);

// Whether a condition speaks of indices and sizes alone.
bool is_of_indices(const Expr& condition);

std::vector<Demand> demands_of(Names& names, const Expr& e);

}  // namespace tessera::checker
