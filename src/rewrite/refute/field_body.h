// The interpreter of bodies in the field: one element at a time, each distinct expression once for each setting of the
// variables that it sees.
#pragma once

#include <unordered_map>

#include "rewrite/refute/field.h"

namespace tessera {

// Ends a walk whose values cannot be had.
struct FieldStop {
    FieldRun::Outcome outcome;
    std::string reason;
};

class FieldBody {
  public:
    // `budget` counts down the steps that may still be taken; `rational` is cleared by what is not rational arithmetic.
    FieldBody(const Expr& body, const std::vector<const FieldTensor*>& inputs, uint64_t key, int64_t& budget,
              bool& rational);
    FieldTensor fill(DType dtype, const Sizes& sizes);

  private:
    struct Axis {
        int var, extent;  // a variable's number, a step
    };
    struct Step {
        ExprKind kind;
        DType dtype, from;  // its own element type, and that of its first argument
        Fn fn{};
        ReduceOp reduce_op{};
        int slot = 0;         // of a load: the input; of a variable: its number
        uint64_t value = 0;   // of a constant; otherwise the last one computed
        int64_t epoch = -1;   // at which it was computed
        bool shared = false;  // by several steps
        std::vector<int> args = {};
        std::vector<Axis> axes = {};
    };

    int compile(const Expr& e);
    int variable(const std::string& name);
    uint64_t value(int step);
    uint64_t compute(const Step& s);
    uint64_t load(const Step& s);
    uint64_t reduce(const Step& s);
    uint64_t cast(const Step& s, uint64_t x);
    uint64_t call(const Step& s);
    uint64_t binary(const Step& s, uint64_t a, uint64_t b);
    uint64_t binary_float(ExprKind kind, uint64_t a, uint64_t b);
    uint64_t power(uint64_t base, uint64_t exponent);
    uint64_t opaque(uint64_t function, uint64_t a, uint64_t b = 0);
    void set_variable(int var, int64_t to) {
        variables_[var] = to;
        epoch_ = ++last_epoch_;
    }

    const std::vector<const FieldTensor*>& inputs_;
    uint64_t key_;
    int64_t& budget_;
    bool& rational_;
    std::vector<Step> steps_;
    std::vector<int64_t> variables_;
    std::unordered_map<std::string, int> variable_numbers_;
    std::unordered_map<const ExprNode*, int> step_numbers_;
    int64_t epoch_ = 0, last_epoch_ = 0;  // of the variables' setting
    int root_ = 0;
};

}  // namespace tessera
