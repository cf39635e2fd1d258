// What every graph pass takes besides the graph, and what it leaves: whether it changed anything, and a record of each
// rewrite. A pass keeps inputs, outputs and their types, and the graph is verified after it in debug builds.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "rewrite/rule.h"

namespace tessera {

using Changed = bool;

// One rewrite, for --explain and the report. Values are named as they are once it is done, those that went as they were.
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

struct PassContext {
    Precision precision = Precision::Default;
    int64_t fold_limit = int64_t{1} << 24;  // bytes that one folded constant may take beyond its inputs
    int64_t fold_inputs = INT64_MAX;        // where a rule's constants take more bytes, what is made of them stays ops
    bool record = false;                    // keep `applications`
    std::string pass;                       // the one that runs
    std::vector<Application> applications = {};
    size_t rewrites = 0;  // counted with or without a record
    const std::atomic<bool>* cancel = nullptr;
};

Application::NodeText describe(const Node& node);

}  // namespace tessera
