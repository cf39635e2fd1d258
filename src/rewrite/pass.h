// The interface of graph passes: the context that they take, whether they changed the graph, and a record of each
// rewrite. A pass preserves inputs, outputs and their types; debug builds verify the graph after each pass.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/decision.h"
#include "graph/graph.h"
#include "rewrite/rule.h"

namespace tessera {

using Changed = bool;

// One rewrite, for --explain and the report. Values have their names after the rewrite, removed values their names
// before it.
struct Application {
    struct NodeText {
        std::string op, attrs;                     // "perm=[1,0], axis=1"
        std::vector<std::string> inputs, outputs;  // names, or the values of small constants
        std::string to_string() const;             // y = transpose(x, perm=[1,0])
    };
    std::string pass, rule;  // rule: or the action of a pass without rules: "fold", "share"
    Exactness exactness = Exactness::Exact;
    std::string where;                     // the name of the root node, or of its output
    std::vector<NodeText> removed, added;  // removed: including nodes that became unused
    // Values whose uses were redirected: old name, new name. (A new value takes the old name if possible.)
    std::vector<std::pair<std::string, std::string>> replaced;
};

// The node of the model from which lowering created a node: its op and its name.
struct Origin {
    std::string op, name;
};

// Two sizes of a value that a node required to be equal, which its replacement does not check.
struct EqualSizes {
    std::string value;
    Expr said, found;
};

struct PassContext {
    Precision precision = Precision::Default;
    int64_t fold_limit = int64_t{1} << 24;  // maximum growth in bytes by one folded constant
    int64_t fold_inputs = INT64_MAX;        // a rule's constants of more bytes are not folded
    bool fold_bytes = false;                // also fold the dequantization of weights of int8 products
    bool fold_byte_floats = false;          // the same for products of 8-bit floats
    bool record = false;                    // record `applications`
    std::string pass;                       // the current pass
    std::vector<Application> applications = {};
    size_t rewrites = 0;                                   // counted with or without a record
    std::vector<Choice> choices = {};                      // optimization remarks
    std::unordered_map<const Node*, Origin> origins = {};  // of nodes created by lowering
    std::vector<EqualSizes> equal_sizes = {};              // to be checked in each run
    Bindings sizes_found = {};                             // values of removed symbols, to be substituted into types
    const std::atomic<bool>* cancel = nullptr;
};

// The phases of a pipeline, in order.
enum class Phase : uint8_t {
    Rewrite,   // until nothing changes
    WriteOut,  // expands ops that the target lacks, until nothing changes
    Tidy,      // once
};

struct Pass {
    std::string name;  // for --print-after and --stop-after; also the name of its file test
    std::string purpose;
    std::function<Result<Changed>(Graph&, PassContext&)> run;
    std::vector<Phase> phases = {Phase::Rewrite};
    bool optional = false;  // runs only if enabled
    bool by_order = false;  // its choice among several rewrites depends on the order of nodes
};

Application::NodeText describe(const Node& node);

}  // namespace tessera
