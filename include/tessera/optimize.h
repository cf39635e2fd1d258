// The optimizer: rewrites a model to an equivalent one that does less work, with a report of the rewrites.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model.h"

namespace tessera {

struct OptimizeOptions {
    // strict: bitwise equal; default: equal over the reals, up to rounding; fast: also approximations.
    std::string precision = "default";
    std::vector<std::string> rules = {};        // additional files of rewrite rules
    bool refute_rules = true;                   // reject an additional rule if a counterexample is found
    std::optional<std::string> cache = {};      // folder for the results of these checks; none: the user's; empty: none
    int opset = 0;                              // of the result; 0: the model's own
    int64_t fold_limit = int64_t{1} << 24;      // maximum growth in bytes by one folded constant
    std::vector<std::string> with = {};         // optional passes to enable: "siblings", "native"
    std::string stop_after = {};                // stop after the first run of this pass
    bool record = false;                        // keep each rewrite in the report
    bool verify = false;                        // check the graph's invariants after each pass
    const std::atomic<bool>* cancel = nullptr;  // set it to stop with E0410
    // Called after each pass with its name, the graph after it, and whether the pass changed it.
    std::function<void(const std::string& pass, const Model& now, bool changed)> after = {};
};

// A node as text, with the names of values.
struct NodeText {
    std::string op, attrs;                     // "perm=[1,0], axis=1"
    std::vector<std::string> inputs, outputs;  // names, or the values of small constants
    std::string text;                          // y = transpose(x, perm=[1,0])
};

struct Rewrite {
    std::string pass, rule;
    std::string exactness;  // exact, reassociates or approximates
    std::string why;        // the explanation given by the rule or the pass
    std::string where;      // the node at its root
    std::vector<NodeText> removed, added;
    std::vector<std::pair<std::string, std::string>> replaced;  // values whose uses were redirected: from, to
};

struct PassRun {
    std::string pass, purpose;
    bool optional = false;  // runs only if enabled
    int64_t runs = 0, rewrites = 0;
    double seconds = 0;
};

struct OptimizeReport {
    Summary before, after;
    std::vector<PassRun> passes;    // in the order in which they run
    std::vector<Rewrite> rewrites;  // in order of application, if recorded
    int64_t rewrite_count = 0;
    int rounds = 0;       // until the fixed point
    bool settled = true;  // false: stopped before the fixed point
    double seconds = 0;
};

struct Optimized {
    Model model;
    OptimizeReport report;
};

// A model with the same inputs, outputs and opset; the argument is unchanged. E0501 for an unknown precision or
// pass, E0301 to E0305 for rules.
Result<Optimized> optimize(const Model& model, const OptimizeOptions& options = {});

// The passes in their order, without runs.
std::vector<PassRun> optimizer_passes();

}  // namespace tessera
