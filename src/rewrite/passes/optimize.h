// The optimizer: the passes in their order, repeated until none of them changes anything. The graph keeps its inputs,
// outputs and meaning, as exactly as the precision asks for.
#pragma once

#include "rewrite/passes/passes.h"

namespace tessera {

struct Pass {
    std::string name;  // also of --print-after, --stop-after and of its file test
    std::string purpose;
    std::function<Result<Changed>(Graph&, PassContext&)> run;
    std::vector<int> phases = {
        1};                 // 1 rewrites, 2 writes out what the opset has not, 3 tidies; each until nothing changes
    bool optional = false;  // runs only where it is asked for
};

// The table of contents. `user_rules` are applied as a pass of their own, "user_rules".
std::vector<Pass> pass_table(const Rules& user_rules = {});

struct PassTime {
    std::string pass;
    size_t runs = 0, rewrites = 0;
    double seconds = 0;
};

struct PipelineOptions {
    Precision precision = Precision::Default;
    Rules user_rules = {};
    int64_t fold_limit = int64_t{1} << 24;  // bytes that one folded constant may take beyond its inputs
    std::vector<std::string> with = {};     // optional passes to run as well
    std::string stop_after = {};            // a pass: its first run is the last thing done
    int last_phase = 3;                     // 1: ops stay that ONNX has not, or the model's opset
    bool record = false;                    // keep each rewrite
    bool verify = false;                    // after each pass; always so in debug builds
    int max_rounds = 30;
    std::function<void(const std::string& pass, const Graph& graph, Changed changed)> after = {};
    const std::atomic<bool>* cancel = nullptr;
};

struct PipelineReport {
    std::vector<PassTime> passes;  // in the order of the table
    std::vector<Application> applications;
    int rounds = 0;
    bool settled = true;  // false: after max_rounds, a pass still found something to do
};

Result<PipelineReport> optimize(Graph& graph, const PipelineOptions& options = {});

}  // namespace tessera
