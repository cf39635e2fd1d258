// A body with constant sizes, lowered: a DAG of strip operations over numbered loop variables, each running over
// [0, extent). Indices are affine in the loop variables where they can be, so that a load is a base and a stride.
// Nodes are in an order in which arguments come before their users.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "expr/expr.h"
#include "graph/tensor.h"

namespace tessera::strip {

using VarSet = uint64_t;  // of loop variables, by number
inline constexpr size_t kMaxVars = 64;
inline VarSet bit_of(int var) { return VarSet{1} << var; }
inline bool has_var(VarSet set, int var) { return set >> var & 1; }

// constant + sum of factor * var. Never overflows while every variable is in its range.
struct Affine {
    struct Term {
        int var;
        int64_t factor;
        bool operator==(const Term&) const = default;
    };
    int64_t constant = 0;
    std::vector<Term> terms = {};  // ascending by variable, no zero factor

    int64_t factor(int var) const;
    VarSet vars() const;
};

enum class Op : uint8_t {
    Const,
    Affine,  // the value of `affine`
    Test,    // affine >= 0, or == 0
    Load,
    Apply,   // arithmetic, comparison, call or cast: `kind` and `fn` of args
    Select,  // args: then, otherwise, and a mask or -1; taken where all `tests` and the mask hold
    Reduce,  // of args[0] over `axes`
};

struct PlanNode {
    Op op;
    ExprKind kind = ExprKind::Const;
    Fn fn = {};
    ReduceOp reduce_op = {};
    DType dtype;               // of the value; floats are held as double, the rest as int64
    DType from = DType::i64;   // of the arguments
    bool fallible = false;     // a load in it may be out of bounds
    bool equals = false;       // Test
    bool compensated = false;  // Reduce: carries the rounding errors along
    VarSet vars = 0;           // the loop variables that the value depends on
    double real = 0;
    int64_t integer = 0;
    std::vector<int> args = {};
    Affine affine = {};  // Affine, Test; Load: the part of the offset that is affine
    int slot = 0;
    struct Check {  // 0 <= index < extent
        Affine index;
        int64_t extent;
        int dim;
    };
    std::vector<Check> checks = {};  // affine indices that may be out of bounds
    struct Gather {                  // adds stride * node to the offset
        int node;
        int64_t stride, extent;
        int dim;
    };
    std::vector<Gather> gathers = {};
    std::vector<int> tests = {};
    std::vector<int> axes = {};

    bool real_valued() const { return is_float(dtype); }
};

// A tensor that loads read.
struct Slot {
    DType dtype;
    const void* data;
    Sizes sizes;
    std::shared_ptr<const void> owner = {};
};

struct Plan {
    std::vector<int64_t> extents;  // of each loop variable
    std::vector<PlanNode> nodes;
    std::vector<Slot> slots;
    std::vector<int> outputs;  // the output's loop variables, outermost first; sizes of 1 have none
    int root = 0;

    int add(PlanNode node);
    int64_t extent_of(VarSet vars) const;  // the product, capped at INT64_MAX
};

// `indices` are the names of the output's index variables.
Result<Plan> lower(const Expr& body, const std::vector<std::string>& indices, const Sizes& sizes,
                   const std::vector<const Tensor*>& inputs);

// Splits output dimensions of which the body takes quotients and remainders by a divisor of their size (groups of
// channels, blocks of pixels) into two, so that these become variables. Adapts body, names and sizes.
void split_indices(Expr& body, std::vector<std::string>& indices, Sizes& sizes);

// Merges neighbouring loops that every offset sees as one.
void fuse_loops(Plan& plan);

// The scalar operations that the plan takes with every value computed once.
int64_t work_of(const Plan& plan);

}  // namespace tessera::strip
