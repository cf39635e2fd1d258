// Where each weight lies in one piece of memory: what prepare_weights fills, what a stored program maps, what a
// bundle's file holds. Follows from the program alone.
#pragma once

#include "runtime/program_layout.h"

namespace tessera {

struct WeightPlaces {
    std::vector<int64_t> offsets;  // by root: multiples of 64; -1: not a weight that a run reads
    std::vector<int64_t> sizes;    // of those, in bytes
    int64_t bytes = 0;
};

Result<WeightPlaces> place_weights(const Program& program, const ProgramLayout& layout);

}  // namespace tessera
