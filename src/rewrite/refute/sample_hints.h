// What a rule's conditions say of single variables, so that graphs are drawn which fulfil them more often. The engine
// decides whether they do: a hint that is not found costs time, nothing else.
#pragma once

#include <map>
#include <set>

#include "rewrite/rule.h"

namespace tessera {

struct Hints {
    std::set<int> constants;       // const(x)
    std::set<int> variable;        // not const(x)
    std::set<int> given, missing;  // by conditions given(x), not given(x)
    std::set<int> single;          // count(x) == 1
    std::set<int> positive, powers_of_two, nonzero;
    std::map<int, double> number;                     // number(x) == 6.0, an attribute == 1
    std::map<int, std::pair<double, double>> range;   // of an attribute: a > 0.1 and a < 0.2
    std::map<int, std::pair<int64_t, int64_t>> rank;  // least and most
    // f(x) == term, to be solved for x where the term's variables are known by then.
    struct Equation {
        int slot;
        enum class About { Elements, Dims, Number, Attribute, Axis } about;
        const Term* term;            // in the rule
        const Term* rank = nullptr;  // likewise, of what the axes are counted in where it is about axes
    };
    std::vector<Equation> equations;
    std::set<int> covers;                    // covers(ints(x), ...): ends of a slice that takes all
    bool opset = false;                      // it depends on the model's opset
    std::map<int, int64_t> all_equal;        // all_equal(ints(x), 0)
    std::vector<double> numbers = {};        // that the rule names, wherever
    std::vector<int64_t> lengths = {};       // of these, what an axis may have as its size and seldom has
    std::vector<int64_t> long_lengths = {};  // likewise, where the tensor takes long to compute
    struct Size {
        int64_t axis, low, high;  // inclusive
    };
    std::map<int, std::vector<Size>> sizes = {};  // dim(x, 2) >= 30
};
Hints hints_of(const Rule& rule);  // the rule must outlive it

}  // namespace tessera
