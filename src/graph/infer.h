// Checks a use of an op against its definition, and infers the types of its outputs and, if possible, integer contents.
#pragma once

#include "graph/op_def.h"

namespace tessera {

// Checks the number of inputs and outputs, the names and kinds of attributes, and the element types.
Status check_signature(const OpView& op);

// check_signature, then the op's own inference. Returns one type for each output of the view. A size whose expression
// has more than kMaxSizeNodes nodes becomes a new symbol.
Result<Types> infer_types(const OpView& op);
inline constexpr int kMaxSizeNodes = 300;

// The elements of output `i` as expressions, from the op's body and its inputs' contents; small integer tensors only.
std::optional<std::vector<Expr>> infer_contents(const OpView& op, size_t i);
inline constexpr int64_t kMaxContents = 64;  // elements

}  // namespace tessera
