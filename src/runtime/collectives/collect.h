// The collectives of a plan, as exchanges: started where their operand is there, and finished where it is read.
#pragma once

#include "runtime/collectives/transport.h"
#include "shard/plan.h"

namespace tessera::shard {

// A collective under way. What it sends is copied: the operand may go.
struct Collecting {
    Exchange exchange;
    std::function<Result<Tensor>(Exchange&, Transport&)> finished;  // the result, after the exchange
};
Result<Tensor> finish(Collecting& collecting, Transport& transport);

// This rank's box of `to`, from its own of `from` and from other ranks.
Result<Collecting> start_move(const Mesh& mesh, const Placement& from, const Placement& to, const std::string& name,
                              const Tensor& own, Transport& transport);
Result<Collecting> start_move(const Plan& plan, const MoveStep& step, const Tensor& own, Transport& transport);
// The same, combined over the ranks that differ along the step's axes, in the order of ranks: the same bits at every
// run.
Result<Collecting> start_combine(const Plan& plan, const CombineStep& step, const Tensor& own, Transport& transport);

}  // namespace tessera::shard
