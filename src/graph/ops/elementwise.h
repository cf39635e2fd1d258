// Ops whose output element is one scalar function of the inputs' elements, from that function.
#pragma once

#include <functional>

#include "graph/ops/common.h"

namespace tessera {

// y = f(x), of x's type. Its ONNX form may carry the in-place hint of opsets 1 to 5, which means nothing.
OpDef unary(std::string name, const char* onnx, DTypes types, std::function<Expr(const Expr&)> f);

// y = f(x) where f reads the op's attributes.
OpDef unary_with(std::string name, const char* onnx, DTypes types, std::vector<AttrDef> attrs,
                 std::function<Expr(const OpView&, const Expr&)> f);

// y = f(a, b) of two operands that broadcast; `result` is "T" or an element type. From opset 7 on as NumPy.
OpDef binary(std::string name, const char* onnx, DTypes types, const char* result, std::vector<Trait> traits,
             std::function<Expr(const Expr&, const Expr&)> f);

// Ops of opset 1 could carry the hint "consumed_inputs".
inline OnnxChange without_consumed_inputs() { return attr_dropped(6, "consumed_inputs"); }

// f(x) in double for integer types too, converted back.
Expr in_reals(const Expr& x, const std::function<Expr(const Expr&)>& f);

// The single element of an input that stands for a scalar, whatever its rank.
Expr only_element(const TensorRef& x);

}  // namespace tessera
