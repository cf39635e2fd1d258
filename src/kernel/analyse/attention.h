// Attention, softmax over keys of f(Q K^T), times V: recognized as an expression, and as the stages of a Compute.
#pragma once

#include <functional>
#include <optional>

#include "kernel/ir/compute.h"

namespace tessera {

// A reduction along one axis, as match_weights sees it: of a definition or of a stage.
struct RowReduction {
    std::vector<Expr> vars;  // one for each index that it is loaded with
    ReduceAxis over;
    ReduceOp combine = ReduceOp::Sum;
    Expr value;
};
using FindRow = std::function<std::optional<RowReduction>(int slot)>;

// The weights of attention: exp(score - max) / sum, or zero where a condition of the row holds.
struct AttentionWeights {
    Expr score;  // f of the product, over the variables of the weights
    int max = 0, sum = 0;
    Expr blind;  // bool, the same for all keys: weights are zero. It may ask whether the load of `sum` is NaN
    Expr sum_load;
};

// What the graph rounds to 16 bits on the way: as it says, or not at all.
enum class Rounding : uint8_t { Kept, Dropped };

// `weights` over the key and other variables, if that is what it says.
std::optional<AttentionWeights> match_weights(const Expr& weights, const Expr& key, const FindRow& find_row,
                                              Rounding rounding);

// A Compute that is attention, over the axes of the stage that multiplies with V.
struct Attention {
    const Stage* product = nullptr;   // sum over keys of weights times values
    const Stage* epilogue = nullptr;  // a map of it, element by element; null: none
    Expr q, k, v;                     // operands: over the axes, the key, and the depth that Q and K have in common
    ReduceAxis depth, key;
    std::optional<size_t> query;  // axis of Q alone; none: all have one element
    size_t column = 0;            // of V alone
    std::vector<size_t> outer;    // all others
    AttentionWeights weights;
    Expr score_load;  // of the product Q K^T, in weights.score
};
std::optional<Attention> match_attention(const Compute& compute, Rounding rounding);

}  // namespace tessera
