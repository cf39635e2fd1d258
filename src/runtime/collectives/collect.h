// The collectives of a plan, as exchanges.
#pragma once

#include "runtime/collectives/transport.h"
#include "shard/plan.h"

namespace tessera::shard {

// This rank's part of `to` from its part of `from` and from other ranks.
Result<Tensor> move_tensor(const Plan& plan, const MoveStep& step, const Tensor& own, Transport& transport);
// The same, combined over the ranks that differ along the step's axes, in the order of ranks: the same bits at every
// run.
Result<Tensor> combine_tensor(const Plan& plan, const CombineStep& step, const Tensor& own, Transport& transport);

}  // namespace tessera::shard
