// Attention, softmax over keys of f(Q K^T), times V, as one kernel: scores of a few queries and keys at a time, with a
// running maximum and sum for each query (online softmax), so that no more than a block of the scores is ever kept.
#pragma once

#include "kernel/analyse/attention.h"
#include "kernel/cpu/default_schedule.h"

namespace tessera {

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
Result<Schedule> schedule_attention(const Compute& compute, const Attention& attention,
                                    const CpuScheduleOptions& options, std::optional<int64_t> queries = {});

}  // namespace tessera
