// Attention of many queries in one kernel, for GPUs that have warpgroup instructions: a block takes 128 queries of one
// head. Keys and values come in tiles of 128 or 80, from the last that its queries see to the first; scores and weights
// of a tile stay with the threads, with a running maximum and sum for each query. While the product of one tile's
// weights with its values goes on, the scores of the next are made.
#pragma once

#include "kernel/analyse/attention.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

// Operands of 16 bits that lie in rows which begin at multiples of 16 bytes, heads of at most 256. Keys after those
// that a condition of the form key <= query + c lets a block see are not looked at. Empty: it is not of that form.
Result<std::optional<Lowered>> warpgroup_attention(const Compute& compute, const Attention& attention);

}  // namespace tessera
