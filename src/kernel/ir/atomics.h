// Calls that change one element at once, whoever else does so at the same time:
//   call atomic_add(old[i], x[j]; ; v)        old[i] = x[j], then x[j] = x[j] + v; the first may be left out
// atomic_add, _mul, _min, _max, _and, _or, _xor and _exchange of a value; atomic_compare(...; ; w, v) exchanges where x[j] is
// w.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

bool is_atomic(const Call& call);

// What the element is afterwards.
Expr updated(const Call& call, const Expr& old);

}  // namespace tessera
