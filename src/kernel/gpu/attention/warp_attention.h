// Attention in one kernel by matrix instructions of one warp (mma.sync), for few queries, short windows, and targets
// without warpgroup instructions. The rows of a block are all queries that read the same keys: those of one head, times
// the heads that share a key head. Keys and values come to shared memory in 16-byte vectors, some tiles ahead. Where
// there would be too few blocks, keys are split among blocks, and a second launch combines what each has found
// (flash decoding).
#pragma once

#include "base/machine.h"
#include "kernel/analyse/attention.h"
#include "kernel/analyse/scaled_load.h"
#include "kernel/lower/join_variants.h"

namespace tessera {

constexpr int64_t kLongestWarpHead = 256;

// Q, K and V are of 16 bits; elements of a head lie side by side, and begin at multiples of 16 bytes. Heads have a
// multiple of 8 elements, at most 256. Empty: it is not of that form.
Result<std::optional<Lowered>> warp_attention(const Compute& compute, const Attention& attention,
                                              const Machine& machine);

// The same for runs in which a dynamic number of queries is small: all rows of a head are in one block, and keys are
// split. Empty also where the number is not dynamic.
Result<std::optional<Variant>> warp_attention_of_few(const Compute& compute, const Attention& attention,
                                                     const Machine& machine);

}  // namespace tessera
