// Floats of few bits in tile programs. A tile of those of eight bits holds their bits, and what is computed with them is
// f32; those of sixteen are rounded after each instruction.
#pragma once

#include <functional>

#include "expr/expr.h"

namespace tessera::from_tile_detail {

bool is_narrow(DType dtype);

// The body of a map, or a constant, over the elements of its inputs; bits where the body is of such a type.
Expr with_narrow_floats(const Expr& body, const std::function<Expr(int)>& input);

// Whether a map's body may give digits that its type of sixteen bits has not; and what it gives without them.
bool is_short_float(DType dtype);
bool has_more_digits(const Expr& body);
Expr without_more_digits(const Expr& value);

// An element as a number of that type.
Expr number_of(const Expr& element, DType dtype, DType wanted);

}  // namespace tessera::from_tile_detail
