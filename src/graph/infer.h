// Checks a use of an op against its definition and infers its outputs: types, and integer contents where they follow.
#pragma once

#include "graph/op_def.h"

namespace tessera {

// Number of inputs and outputs, attributes known and of the right kind, element types that the signature allows.
Status check_signature(const OpView& op);

// check_signature, then the op's own inference; as many types as the view has outputs. A size that would take a larger
// expression than kMaxSizeNodes becomes a symbol of its own.
Result<Types> infer_types(const OpView& op);
inline constexpr int kMaxSizeNodes = 300;

// The elements of output `i` as expressions, by the op's body over its inputs' contents; only for small integer tensors.
std::optional<std::vector<Expr>> infer_contents(const OpView& op, size_t i);
inline constexpr int64_t kMaxContents = 64;  // elements

}  // namespace tessera
