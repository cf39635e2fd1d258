// What every graph pass takes besides the graph, and what it leaves: whether it changed anything, and a record of each
// rewrite. A pass keeps inputs, outputs and their types, and the graph is verified after it in debug builds.
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

// One rewrite, for --explain and the report. Values are named as they are once it is done, those that went as they
// were.
struct Application {
    struct NodeText {
        std::string op, attrs;                     // "perm=[1,0], axis=1"
        std::vector<std::string> inputs, outputs;  // names; a small constant stands by value
        std::string to_string() const;             // y = transpose(x, perm=[1,0])
    };
    std::string pass, rule;  // the rule, or what a pass without rules did: "fold", "share"
    Exactness exactness = Exactness::Exact;
    std::string where;                     // the name of the node at the root, or of its output
    std::vector<NodeText> removed, added;  // nodes that went, also those that nobody uses any more, and that came
    // Values whose uses went elsewhere: old name, new name. (A new value takes the old one's name where it can.)
    std::vector<std::pair<std::string, std::string>> replaced;
};

// The node of the model that one which lowering made is a part of: its op and its name.
struct Origin {
    std::string op, name;
};

// Two sizes of a value that a node took to be the same, and what was put in its place does not ask for.
struct EqualSizes {
    std::string value;
    Expr said, found;
};

struct PassContext {
    Precision precision = Precision::Default;
    int64_t fold_limit = int64_t{1} << 24;  // bytes that one folded constant may take beyond its inputs
    int64_t fold_inputs = INT64_MAX;        // where a rule's constants take more bytes, what is made of them stays ops
    bool fold_bytes = false;                // also what dequantizes weights for a product of bytes
    bool fold_byte_floats = false;          // the same for a product of floats of 8 bits
    bool record = false;                    // keep `applications`
    std::string pass;                       // the one that runs
    std::vector<Application> applications = {};
    size_t rewrites = 0;                                   // counted with or without a record
    std::vector<Choice> choices = {};                      // what was decided, with reasons
    std::unordered_map<const Node*, Origin> origins = {};  // of nodes that stand for a part of another
    std::vector<EqualSizes> equal_sizes = {};              // that runs are to be asked for
    Bindings sizes_found = {};                             // for symbols whose value is gone, until types have them
    const std::atomic<bool>* cancel = nullptr;
};

// The parts of a pipeline, in their order.
enum class Phase : uint8_t {
    Rewrite,   // until nothing changes
    WriteOut,  // ops as those that are there for them, until nothing changes
    Tidy,      // once
};

struct Pass {
    std::string name;  // also of --print-after, --stop-after and of its file test
    std::string purpose;
    std::function<Result<Changed>(Graph&, PassContext&)> run;
    std::vector<Phase> phases = {Phase::Rewrite};
    bool optional = false;  // runs only where it is asked for
    bool by_order = false;  // which of several rewrites it does depends on the order of nodes
};

Application::NodeText describe(const Node& node);

}  // namespace tessera
