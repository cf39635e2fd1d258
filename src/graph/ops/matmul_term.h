// The shape and the terms of a matrix product as NumPy's matmul has them, for every op that is one inside.
#pragma once

#include "graph/op_view.h"

namespace tessera {

// A vector on the left is a row, on the right a column; the dimension added for it is dropped from the result.
struct MatmulShape {
    Shape batch;
    std::optional<Dim> rows, columns;
    Shape full() const;
};
Result<MatmulShape> matmul_shape(const OpView& op, size_t left, size_t right);

// The element of a matrix in x; batch axes of one element serve all.
Expr matrix_at(const TensorRef& x, const Indices& at);

// The product of one term at inner position k; `value(i, indices)` reads input i, at batch, row and column indices that
// may be more than it has dimensions.
Expr matmul_term(const OpView& op, size_t left, size_t right, const Indices& o, const Expr& k,
                 const std::function<Expr(size_t, const Indices&)>& value);

}  // namespace tessera
