// All ranks of a plan as threads of this process.
#pragma once

#include "runtime/collectives/run_local.h"

namespace tessera::shard {

// Calls f(rank) for all ranks at once. The error of the one that failed first, where one did.
Status on_threads(size_t ranks, const std::function<Status(size_t)>& f);

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
