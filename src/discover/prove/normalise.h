// Sums of guarded products: the form in which the prover compares the two sides of a claim. A term is
// coefficient * sum over all integers v1, v2, ... of [guards hold] * product of factors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "discover/prove/comprehension.h"
#include "discover/prove/index.h"

namespace tessera::prover {

struct Rational {
    int64_t numerator = 1, denominator = 1;  // without a common divisor, the denominator positive
    bool operator==(const Rational&) const = default;
};
Rational operator*(const Rational& a, const Rational& b);
Rational operator+(const Rational& a, const Rational& b);

struct Summand;
using Sum = std::vector<Summand>;

struct Factor {
    enum class Kind {
        Load,     // an element of input `slot` at `index`
        Number,   // an integer, index[0], as a real number
        Call,     // the function `name` of `args`, of which nothing is known
        Extreme,  // the largest (name "max") or smallest ("min") of the points that args[0] lists: each of its terms is
                  // one Call "point" of a value, for every value of its variables under its guards
    };
    Kind kind;
    int slot = 0;
    std::string name = {};
    std::vector<Poly> index = {};
    std::vector<Sum> args = {};
    bool operator==(const Factor&) const;
};

struct Summand {
    Rational coefficient;
    std::vector<int> variables;  // atoms of what is summed over
    Guards guards;
    std::vector<Factor> factors;
    bool operator==(const Summand&) const = default;
};

inline bool Factor::operator==(const Factor& o) const {
    return kind == o.kind && slot == o.slot && name == o.name && index == o.index && args == o.args;
}

// An expression as such a sum, in an order that depends on the expression alone: operands from left to right, a choice
// as what holds, then what does not; variables are called _v1, _v2, ... as they come.
class Expansion {
  public:
    Expansion(Atoms& atoms, size_t max_terms) : atoms_(atoms), max_terms_(max_terms) {}
    Sum expand(const Expr& e);

  private:
    Atoms& atoms_;
    size_t max_terms_;
    int next_ = 0;
    std::vector<std::pair<std::string, int>> bound_;  // reduction variables, by name, innermost last

    Poly convert(const Expr& e);
    Cases when(const Expr& e, bool holds);
    std::vector<int> bind(const Expr& reduce, Guards& guards);
    // Of one kind of expression each.
    Sum constant(const Expr& e);
    Sum element(const Expr& load);
    Sum added(const Expr& e);
    Sum power(const Expr& e);
    Sum choice(const Expr& e);
    Sum extreme(const Expr& e, bool largest);
    Sum sum(const Expr& reduce);

    Sum times(const Sum& a, const Sum& b);
    Sum call(std::string name, const std::vector<Expr>& args);
    Sum inverse(const Expr& e);
    Sum truth(const Expr& condition);
    Sum number(const Expr& e);
    void points(const Expr& e, bool largest, const Summand& so_far, Sum& out);
    Sum limited(Sum s) const;
};

Sum negated(Sum s);
void substitute_in(Atoms& atoms, Sum& s, const Atoms::Map& map);

}  // namespace tessera::prover
