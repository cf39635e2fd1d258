// Floats of eight bits in tile programs: a tile of them holds their bits, and what is computed with them is f32.
#pragma once

#include <functional>

#include "expr/expr.h"

namespace tessera::from_tile_detail {

bool is_narrow(DType dtype);

// The body of a map, or a constant, over the elements of its inputs; bits where the body is of such a type.
Expr with_narrow_floats(const Expr& body, const std::function<Expr(int)>& input);

// An element as a number of that type.
Expr number_of(const Expr& element, DType dtype, DType wanted);

}  // namespace tessera::from_tile_detail
