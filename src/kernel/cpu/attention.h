// Attention, softmax over keys of f(Q K^T), times V, as one kernel: scores of a few queries and keys at a time, with a
// running maximum and sum for each query (online softmax), so that no more than a block of the scores is ever kept.
#pragma once

#include <optional>

#include "kernel/cpu/default_schedule.h"

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

struct AttentionTiles {
    int64_t rows = 4;      // of a register tile: keys, or columns of V
    int64_t queries = 16;  // of a register tile: a few vectors
    int64_t keys = 64;     // whose scores are kept at a time
    int64_t block = 64;    // queries of one task
    bool operator==(const AttentionTiles&) const = default;
};
// Dynamic extents are nullopt.
AttentionTiles choose_attention_tiles(std::optional<int64_t> queries, std::optional<int64_t> keys, int64_t depth,
                                      int64_t columns, int64_t outer, int element_bytes, const Machine& machine,
                                      int threads);

// The Compute as stages that a schedule can tile: queries are filled up to whole tiles, columns of V to whole rows of
// them. Names of stages; those that it has no need for are empty.
struct AttentionStages {
    Compute compute;
    std::string queries, keys, dot, scores, most, exps, sums, values, product, inverse, zeros, blind, result, out;
    std::vector<std::string> bias;  // terms of the scores other than the product
};
AttentionStages attention_stages(const Compute& compute, const Attention& attention, const AttentionTiles& tiles);

// Tiles are those for so many queries, where their number is not known.
Result<Schedule> schedule_attention(const Compute& compute, const Attention& attention, const ScheduleOptions& options,
                                    std::optional<int64_t> queries = {});

}  // namespace tessera
