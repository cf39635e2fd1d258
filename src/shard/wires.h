// How steps of a plan become collectives on buffers, and boxes of tensors within graphs. What is decided here is the
// same on all ranks.
#pragma once

#include "graph/builder.h"
#include "shard/local_program.h"

namespace tessera::shard {

// The axes over which the move is an all-gather: every rank gets the blocks of its group, which are disjoint, of one
// size, and all that it needs.
std::optional<std::vector<size_t>> gathered_axes(const Plan& plan, const MoveStep& move);
// Whether every rank of a group keeps as many elements of the sum.
bool scatters_evenly(const Plan& plan, const CombineStep& step);
// E0409 unless libraries for devices reduce elements of this type so.
Status reducible(ReduceOp op, DType dtype);

// A value that has this box of a tensor.
struct BoxValue {
    Box box;
    Value* value = nullptr;
};
Value* box_of(Builder& b, const BoxValue& whole, const Box& part);
// The box, out of parts that cover it.
Value* assemble(Builder& b, const Box& box, const std::vector<BoxValue>& parts);

}  // namespace tessera::shard
