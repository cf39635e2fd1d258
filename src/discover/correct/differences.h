// Where the two sides of a claim differ, for all sizes: what the prover's laws leave of their difference has guards,
// and these confine it to borders of the output's axes, or of the tiles that an axis is cut into. Nothing is sampled.
#pragma once

#include "discover/prove/prove.h"

namespace tessera {

// [begin, end) of one axis of the output, over the claim's size symbols, with all of the other axes.
struct Strip {
    int64_t axis = 0;
    Expr begin, end;
};

struct Differences {
    bool everywhere_equal = false;
    std::vector<Strip> strips;  // by axis, then from the first; they touch nowhere
    std::string refused;        // why there are none, though the sides differ, or why those there are have no order
    std::vector<int64_t> axes() const;
};

// An error where the claim makes no sense.
Result<Differences> find_differences(const Claim& claim, const ProveOptions& options = {});

}  // namespace tessera
