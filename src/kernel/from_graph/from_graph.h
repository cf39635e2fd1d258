// The graph, whose rewriting is done, as kernels: composite ops written out, layouts chosen, nodes grouped (fused),
// each group a Compute from its nodes' bodies with a default schedule. What has no body becomes a host step.
#pragma once

#include "base/machine.h"
#include "kernel/backend/scheduling.h"
#include "kernel/from_graph/program.h"
#include "kernel/ir/compute.h"
#include "rewrite/passes/lowering_passes.h"
#include "rewrite/pipeline.h"

namespace tessera {

struct LowerOptions {
    Machine machine;
    int threads = 1;                    // that will run it: how finely work is cut
    bool fuse = true;                   // false: a kernel for each node
    bool schedule = true;               // false: plain nests, one loop after the other
    bool baseline = false;              // schedules that take little time to compile
    bool strict = false;                // one order of summation whatever the number of threads
    bool fast = false;                  // operands of products may lose digits: tf32 on a GPU
    bool keep_stages = false;           // Program::stages
    int64_t unrolled = kUnrolledSteps;  // of a scan: more are a control step
    enum class Attention : uint8_t { WherePays, Always, Never };
    Attention attention = Attention::WherePays;  // as one kernel
    PassWatch watch = {};                        // of the passes that the graph goes through first
    std::shared_ptr<const Offloading> offloading = {};  // what another device computes; null: nothing
    const Scheduling* scheduling = nullptr;             // of the back end; null: what fits how the machine runs kernels
};

// The passes that the graph goes through first, that for another device among them.
std::vector<Pass> all_lowering_passes(const LowerOptions& options);

const Scheduling& scheduling_of(const LowerOptions& options);
ScheduleOptions schedule_options(const LowerOptions& options);

// A copy of the graph after the passes of lowering, from which its kernels are made.
Result<std::shared_ptr<Graph>> prepare_graph(const Graph& graph, const LowerOptions& options, PassContext& context);

Result<Program> from_graph(std::shared_ptr<const Graph> graph, const LowerOptions& options);

// The same, its kernels apart from those of the programs nested in it: for lower_nested.
Result<Program> from_graph_apart(std::shared_ptr<const Graph> graph, const LowerOptions& options);

}  // namespace tessera
