// One element of a composed body on random inputs, in the field of 2^61 - 1: what an input holds at an index is a
// random number of the seed, the slot and the index, so that inputs of any size take no memory.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "expr/expr.h"

namespace tessera {

class PointValue {
  public:
    // Of an element whose indices are _o0, _o1, ...; sums, products and differences of loads and constants.
    PointValue(const Expr& element, uint64_t seed);

    struct Stop {
        std::string why;
    };
    // Decrements `steps` for each step of work; stops at 0.
    uint64_t at(const std::vector<int64_t>& index, int64_t& steps);

  private:
    // Arguments precede the steps that use them.
    struct Step {
        ExprKind kind;
        bool real = false;
        int slot = 0;
        uint64_t value = 0;  // of a constant
        std::vector<int> args;
        std::vector<std::pair<int, int>> axes;  // of a sum: a variable's number, a step
    };
    std::vector<Step> steps_;
    std::vector<int64_t> variables_;
    std::unordered_map<std::string, int> numbers_;
    std::unordered_map<const ExprNode*, int> known_;
    uint64_t seed_;
    int root_;

    int variable(const std::string& name);
    int compile(const Expr& e);
    int64_t integer(int step, int64_t& left) const;
    uint64_t real(int step, int64_t& left);
    uint64_t sum(const Step& s, size_t axis, int64_t& left);
};

}  // namespace tessera
