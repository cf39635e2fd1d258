// The gradient of one value with respect to others, by walking the graph between them backwards. What flows back
// through a node its op says (OpDef::gradient); an op that does not is written out.
#pragma once

#include <map>

#include "graph/builder.h"

namespace tessera {

// What an op's rule sees: one node, its inputs and output as recomputed, and the gradient that arrives at the output.
struct Backward {
    Builder& b;
    const Node& node;
    const std::vector<Value*>& in;
    Value *out, *g;

    Value* number(double v) const { return b.scalar_like(v, out); }
    Value* shape_of(size_t i) const { return b.op("shape", {in[i]}); }
    int64_t rank(size_t i) const { return in[i]->type().tensor().rank(); }
};

using Gradients = std::vector<Value*>;  // one for each input; null: none flows there

// The gradients of `target` with respect to `wanted`, at the values that are fed in the place of some.
Result<std::vector<Value*>> differentiate(Builder& build, Value* target, const std::vector<Value*>& wanted,
                                          std::map<const Value*, Value*> fed);

}  // namespace tessera
