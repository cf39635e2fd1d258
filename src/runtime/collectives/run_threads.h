// All ranks of a plan as threads of this process.
#pragma once

#include "runtime/collectives/run_local.h"

namespace tessera::shard {

// The outputs of every rank, for whole inputs. The error of the rank that failed first, where one did. By rank: who
// transports, the program, and what computes its segments.
struct ThreadRank {
    Transport* transport = nullptr;
    LocalProgram program = {};
    RunSegment segments = {};
};
Result<std::vector<std::vector<Datum>>> run_on_threads(const Plan& plan, const std::vector<Datum>& inputs,
                                                       const std::vector<ThreadRank>& ranks);

}  // namespace tessera::shard
