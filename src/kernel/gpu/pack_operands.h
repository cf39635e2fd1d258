// Operands of a contraction that no tile can be copied of (computed from others, permuted, windowed, or in rows that do
// not begin at multiples of 16 bytes), materialized by a launch of its own before the product. Each element is then
// computed once, and the product reads tiles that the hardware copies.
#pragma once

#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

struct Packing {
    Compute contraction;                 // reads packed operands, from additional parameters
    std::vector<int> slots;              // of those
    std::vector<Compute> packs;          // by slot: the stage that fills it, the last of its parameters
    std::vector<std::vector<int>> args;  // by pack: its parameters, as slots of `contraction`
    int launches = 0;                    // in a run: constants are packed when the program is loaded
    double bytes = 0;                    // that the packing launches read and write; dynamic extents count as large
};

// With operand A, B or both packed. Nothing where an operand is no float of 16 or 32 bits.
std::optional<Packing> pack_operands(const Compute& compute, const Contraction& c, bool a, bool b);

// The kernels that fill what is packed.
Result<std::vector<LoweredPack>> lower_packs(const Packing& packing, const LowerMap& lower_map);

}  // namespace tessera
