// Sums, products, least and greatest of elements of any type.
#pragma once

#include "expr/expr.h"

namespace tessera::shard {

// out[i] = terms[0][i] op terms[1][i] op ...; floats in f64, rounded once; integers wrap. NaN if a term is NaN.
void combine_elements(ReduceOp op, DType dtype, const std::vector<const void*>& terms, int64_t count, void* out);

}  // namespace tessera::shard
