// Reverse-mode derivatives, graph to graph (docs/gradients.md). What flows back through a node follows from its op's
// body, from a rule where the op has one (OpDef::gradient), or from its expansion.
#pragma once

#include <functional>
#include <map>

#include "graph/builder.h"

namespace tessera {

using Gradients = std::vector<Value*>;  // one for each input, then for each captured value; null: none flows there

// What an op's rule sees: one node, its inputs and outputs as recomputed, and the gradients that arrive.
struct Backward {
    Builder& b;
    const Node& node;
    const std::vector<Value*>& in;
    Value *out, *g;  // of the first output, where zeros stand for a gradient that does not arrive
    const std::vector<Value*>& outs;
    const std::vector<Value*>& gs;        // one for each output; null: none arrives
    const std::vector<bool>& wanted;      // the inputs whose gradients are requested
    const std::vector<Value*>& captured;  // what its nested graphs read from around it, and gradients are wanted of

    bool wants(size_t i) const { return i < wanted.size() && wanted[i]; }
    Value* number(double v) const { return b.scalar_like(v, out); }
    Value* shape_of(size_t i) const { return b.op("shape", {in[i]}); }
    int64_t rank(size_t i) const { return in[i]->type().tensor().rank(); }
};

// Whether the node's op has a gradient function that covers it.
bool has_rule(const Node& node);

// The rule of an op that has no derivative: refuses with E0202, and says why.
struct NoGradient {
    const char* why;
    Gradients operator()(const Backward& r) const;
};
// The reason why an op has no gradient; null if it has one, or none is listed.
const char* why_no_gradient(const OpDef& op);

// A value and the gradient that arrives at it; null: all ones.
struct Seed {
    Value* of;
    Value* gradient = nullptr;
};

// The gradients of the seeds' weighted sum with respect to each of `wanted`, null where none flows; none flows through
// `stopped`. Nodes are added to the seeds' graph, and what they compute can be differentiated again. Refused (E0208)
// are wanted values that are no float tensors; E0202 names an op on the way that has no derivative.
Result<Gradients> gradients(Builder& build, const std::vector<Seed>& seeds, const std::vector<Value*>& wanted,
                            const std::vector<Value*>& stopped = {});

// The gradients of `target` with respect to `wanted`, at the values that are fed in the place of some; zeros where none
// flows.
Result<std::vector<Value*>> differentiate(Builder& build, Value* target, const std::vector<Value*>& wanted,
                                          std::map<const Value*, Value*> fed);

// What flows back to the inputs by the op's own body: for rules that only add to it.
Gradients gradients_by_body(const Backward& r);
// The same of a body that stands for the op's first output: its loads are of `inputs`, its indices are `at`.
Gradients gradients_by_body(const Backward& r, const std::vector<Value*>& inputs, const std::vector<bool>& wanted,
                            const std::function<Expr(const Indices& at)>& body);

}  // namespace tessera
