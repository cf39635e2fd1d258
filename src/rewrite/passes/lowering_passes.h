// The passes that a graph goes through on its way to kernels, when its rewriting is done. They work on one graph, not
// on those nested in it, which are lowered by themselves; what they decide and where nodes come from is in the context.
#pragma once

#include "base/machine.h"
#include "rewrite/pipeline.h"

namespace tessera {

// Steps of a scan that are written out, at most: a longer one is a loop that the runtime executes, whose weights lie in
// memory once and whose kernels are compiled once.
constexpr int64_t kUnrolledSteps = 4;

// In their order. Without `fuse`: only those that kernels cannot do without. `unrolled`: for unroll_scans.
std::vector<Pass> lowering_passes(const Machine& machine, bool fuse = true, int64_t unrolled = kUnrolledSteps);

// Ops without a body become the smaller graphs that they stand for, down to ops that have one, and constants are
// folded. What cannot be written out is left: strings, control flow, sizes that depend on the data.
Result<Changed> expand_composites(Graph& graph, PassContext& context);

// Gradients of attention over operands of 16 bits become two tile programs, on machines that multiply tiles of those.
Result<Changed> tile_attention(Graph& graph, const Machine& machine, PassContext& context);

// A scan over a known number of steps, `most` of them at most, becomes its steps, one after the other.
Result<Changed> unroll_scans(Graph& graph, int64_t most, PassContext& context);

// Ops that say so become graphs that kernels compute faster than their bodies (graph/ops/for_kernels.h).
Result<Changed> write_for_kernels(Graph& graph, const Machine& machine, PassContext& context);

// Products of dequantized tensors become products of their bytes, where the machine is fast at those; elsewhere weights
// in bytes become floats, once and for all.
Result<Changed> multiply_bytes(Graph& graph, const Machine& machine, PassContext& context);

// A concat that begins with all that another one joins takes that one's result, so that both can be one piece of
// memory.
Result<Changed> nest_concats(Graph& graph, PassContext& context);

// A convolution of stride 1 with constant weights, where that is asked for or fewer multiplications pay for the
// transforms, becomes products of transformed tiles (graph/ops/winograd.cpp).
Result<Changed> choose_winograd(Graph& graph, const Machine& machine, PassContext& context);

// Groups of few channels, of a convolution of 16 bits with constant weights, become groups that fill tiles of channels,
// their weights zero for the channels of others: for machines whose matrix instructions take such tiles.
Result<Changed> join_groups(Graph& graph, const Machine& machine, PassContext& context);

// What is computed element by element of what a tile kernel reads or writes, by one node that nobody else asks, becomes
// a part of the kernel.
Result<Changed> fuse_into_tiles(Graph& graph, PassContext& context);

bool any_used(const Node& node);  // of its outputs

// What was made, in the place of the node's outputs that are used; sizes that the node took to be the same are noted.
// False where what reads them does not agree.
bool put_made_in_place(Node& node, const std::vector<Value*>& made, PassContext& context);
// The nodes from number `first` on are parts of `node`, or of what it is a part of.
void note_origin(const Graph& graph, const Node& node, size_t first, PassContext& context);
// Folds constants in what was made, and forgets the origins of nodes that went.
Status fold_what_was_made(Graph& graph, PassContext& context);

}  // namespace tessera
