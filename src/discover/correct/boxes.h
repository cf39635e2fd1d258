// Where two programs agree at sizes that are numbers (PET's theorem 1). The output is split into boxes on which every
// guard and every quotient of the composed bodies behaves the same: there both sides sum over the same intervals and
// read at affine indices. Two multi-linear programs that agree at one point of such a box, and at its neighbours along
// each axis, agree on all of it; a point is compared on random inputs in the field of 2^61 - 1.
#pragma once

#include "base/deadline.h"
#include "discover/claim/claim.h"

namespace tessera {

struct Box {
    std::vector<std::pair<int64_t, int64_t>> ranges;  // [first, second) of each axis
    bool equal = false;
    int64_t elements() const;
};

struct Boxes {
    std::vector<Box> all;       // they cover the output
    int64_t points = 0;         // compared
    bool equal() const;         // in every box
    int64_t differing() const;  // elements of the boxes that differ
};

struct BoxOptions {
    size_t most_boxes = 20000;
    int64_t most_steps = 400'000'000;  // of evaluating points
    uint64_t seed = 0;
    Deadline until = {};
};

// E0303 where the sides are not multi-linear, a size is no number, or a limit is met; the message says which.
Result<Boxes> compare_boxes(const Claim& claim, const BoxOptions& options = {});

}  // namespace tessera
