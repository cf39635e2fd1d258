// The op `tensor_expression`: one tensor whose element is a scalar index expression over others, which it carries as
// text. It makes a derivative an ordinary node: evaluated, lowered, and differentiated again by its body.
#pragma once

#include "graph/builder.h"

namespace tessera {

// A node for `body`: its loads are of `inputs`, and its elements are at the axes' variables. An input that stands there
// as it is gives itself.
Value* tensor_expression(Builder& b, const std::vector<Value*>& inputs, const Expr& body,
                         const std::vector<ReduceAxis>& axes);

// What the text of a node's attribute says: x0[...] loads, i0 is an index (where there are some), x0.d1 a size of an
// input and x0.v1 an element of one whose contents are known.
Result<Expr> read_tensor_expression(const OpView& op, const std::string& text, const Indices* at);

}  // namespace tessera
