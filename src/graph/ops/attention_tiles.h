// Attention's gradients as ops that run tile programs: what GPUs make of attention_gradient.
#pragma once

#include "graph/builder.h"

namespace tessera {

constexpr int64_t kLongestTiledHead = 128;

// The gradients of queries, keys and values [batch, rows, heads, elements], of 16 bits, from the result of attention
// and the gradient that arrives, which lie as queries do. The mask may be null. Heads have at most kLongestTiledHead
// elements, whose number is known, as that of heads is.
struct TiledAttention {
    Value *q, *k, *v, *mask, *result, *arrived;
    bool causal;
    double scale;
};
std::vector<Value*> attention_gradient_by_tiles(Builder& b, const TiledAttention& attention);

}  // namespace tessera
