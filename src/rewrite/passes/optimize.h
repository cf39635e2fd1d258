// The optimizer: the passes in their order, repeated until none of them changes anything. The graph keeps its inputs,
// outputs and meaning, as exactly as the precision asks for.
#pragma once

#include "rewrite/passes/passes.h"
#include "rewrite/pipeline.h"

namespace tessera {

// The table of contents. `user_rules` are applied as a pass of their own, "user_rules".
std::vector<Pass> pass_table(const Rules& user_rules = {});

struct PipelineOptions {
    Precision precision = Precision::Default;
    Rules user_rules = {};
    int64_t fold_limit = int64_t{1} << 24;  // bytes that one folded constant may take beyond its inputs
    std::vector<std::string> with = {};     // optional passes to run as well
    Phase last_phase = Phase::Tidy;         // Rewrite: ops stay that ONNX has not, or the model's opset
    bool record = false;                    // keep each rewrite
    PassWatch watch = {};
    const std::atomic<bool>* cancel = nullptr;
};

struct PipelineReport {
    std::vector<PassTime> passes;  // in the order of the table
    std::vector<Application> applications;
    int rounds = 0;
    bool settled = true;  // false: a pass still found something to do when it was stopped
};

Result<PipelineReport> optimize(Graph& graph, const PipelineOptions& options = {});

// Only what puts one op that people know by name in the place of several; as in inference, without dropout.
Status recognise_ops(Graph& graph);

}  // namespace tessera
