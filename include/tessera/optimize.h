// The optimizer: a model that computes the same with less, and what was done to it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model.h"

namespace tessera {

struct OptimizeOptions {
    // strict: every bit stays; default: also what holds of real numbers, up to rounding; fast: also approximations.
    std::string precision = "default";
    std::vector<std::string> rules = {};        // files of rewrite rules, applied besides those that come with Tessera
    bool refute_rules = true;                   // refuse a rule of yours where a counterexample is found
    int opset = 0;                              // that the result is for; 0: the model's own
    int64_t fold_limit = int64_t{1} << 24;      // bytes that one folded constant may take beyond its inputs
    std::vector<std::string> with = {};         // optional passes to run as well: "siblings", "native"
    std::string stop_after = {};                // a pass: its first run is the last thing done
    bool record = false;                        // keep each rewrite in the report
    bool verify = false;                        // check the graph's invariants after each pass
    const std::atomic<bool>* cancel = nullptr;  // set it to stop with E0410
    // Called after each pass with its name, the graph as it is then, and whether the pass changed it.
    std::function<void(const std::string& pass, const Model& now, bool changed)> after = {};
};

// A node as text, with the names of values.
struct NodeText {
    std::string op, attrs;                     // "perm=[1,0], axis=1"
    std::vector<std::string> inputs, outputs;  // names; a small constant stands by value
    std::string text;                          // y = transpose(x, perm=[1,0])
};

struct Rewrite {
    std::string pass, rule;
    std::string exactness;  // exact, reassociates or approximates
    std::string why;        // what the rule's author or the pass says
    std::string where;      // the node at its root
    std::vector<NodeText> removed, added;
    std::vector<std::pair<std::string, std::string>> replaced;  // values whose uses went elsewhere: from, to
};

struct PassRun {
    std::string pass, purpose;
    bool optional = false;  // runs only where it is asked for
    int64_t runs = 0, rewrites = 0;
    double seconds = 0;
};

struct OptimizeReport {
    Summary before, after;
    std::vector<PassRun> passes;    // in the order in which they run
    std::vector<Rewrite> rewrites;  // in the order in which they were made, if they are kept
    int64_t rewrite_count = 0;
    int rounds = 0;       // until nothing changed any more
    bool settled = true;  // false: it was stopped while there was still something to do
    double seconds = 0;
};

struct Optimized {
    Model model;
    OptimizeReport report;
};

// A model with the same inputs, outputs and opset; the one given stays as it is. E0501 for a precision or pass that
// there is not, E0301 to E0305 for rules.
Result<Optimized> optimize(const Model& model, const OptimizeOptions& options = {});

// The passes in their order, without runs.
std::vector<PassRun> optimizer_passes();

}  // namespace tessera
