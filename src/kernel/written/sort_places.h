// Sorting in a kernel that is written out, by merges of runs that double, so that equal ones keep their order; and
// looking up in what is sorted.
#pragma once

#include "kernel/written/write_kernel.h"

namespace tessera {

// Sets `c` to a positive number if position a sorts after position b.
using ComparePlaces = std::function<Stmt(const Expr& a, const Expr& b, const Elements& c)>;

// Sorts the first `n` places in `order`; `spare` has room for as many.
Stmt sort_places(KernelWriter& w, const Elements& order, const Elements& spare, const Expr& n,
                 const ComparePlaces& compare);

// Values and their original positions.
struct Entries {
    Elements values, places;
    Stmt put(const Expr& at, const Expr& value, const Expr& place) const {
        return seq({values.set({at}, value), places.set({at}, place)});
    }
};
// Sorts the first `n` of `all`; `spare` has room for as many. Those that are equal keep their order.
Stmt sort_entries(KernelWriter& w, const Entries& all, const Entries& spare, const Expr& n,
                  const std::function<Expr(const Expr& a, const Expr& b)>& better);

// Partition point: the first of n positions where a monotonic predicate holds; n if it holds for none.
Stmt find_first(KernelWriter& w, const Expr& n, const std::function<Expr(const Expr&)>& holds,
                const std::function<Stmt(const Expr& place)>& then);

// Whether a is less than b; NaN is larger than every number.
Expr less_or_nan(const Expr& a, const Expr& b);

}  // namespace tessera
