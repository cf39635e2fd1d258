// What an expression means to the certificate checker: a sum over integers of guarded products, multiplied out from
// left to right. Written apart from the prover's (normalise.h), in the same order, so that terms have the same numbers.
#pragma once

#include "discover/check/check_arithmetic.h"

namespace tessera::checker {

struct Fraction {
    int64_t above = 1, below = 1;
};
Fraction operator*(Fraction a, Fraction b);
Fraction operator+(Fraction a, Fraction b);

// sum over the variables of [where] * scale * product of parts.
struct Item;
using Items = std::vector<Item>;
struct Part {
    std::string what;  // "x0" an element of input 0, "number", or a function's name
    std::vector<Whole> at;
    std::vector<Items> of;
};
struct Item {
    Fraction scale;
    std::vector<int> variables;
    Conjunction where;
    std::vector<Part> parts;
};

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& more) {
    to.insert(to.end(), more.begin(), more.end());
}

class Meaning {
  public:
    explicit Meaning(Names& names) : names_(names) {}
    Items of(const Expr& e);
    static Items product(const Items& a, const Items& b);
    static Items opposite(Items items);

  private:
    Names& names_;
    Bindings renamed_;  // reduction variables
    int last_ = 0;

    Expr named(const Expr& e) const { return substitute(e, renamed_); }
    Items truth(const Expr& condition);
    void open(const Expr& reduction, Item& item);
    Items function(std::string name, const std::vector<Expr>& args);
    Items extreme(const Expr& e, bool largest);
    void collect(const Expr& e, bool largest, const Item& here, Items& points);
};

}  // namespace tessera::checker
