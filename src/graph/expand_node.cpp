#include "graph/expand_node.h"

namespace tessera {

std::optional<std::vector<Value*>> expand_node(const Node& node, Builder& build, bool only_used) {
    if (!node.op().expand) return std::nullopt;
    OpView view = node.view();
    if (only_used) {
        std::vector<bool> wanted;
        for (size_t i = 0; i < node.output_count(); ++i) wanted.push_back(!node.output(i)->uses().empty());
        view.with_wanted(std::move(wanted));
    }
    std::optional<std::vector<Value*>> made;
    auto missing = view.asks_unknown([&] {
        auto results = node.op().expand(view, node.inputs(), build);
        if (results.ok() && build.status().ok()) made = std::move(*results);
    });
    return missing ? std::nullopt : std::move(made);
}

}  // namespace tessera
