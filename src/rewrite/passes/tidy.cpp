#include "graph/names.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

void list(const Graph& graph, std::vector<std::pair<const void*, std::string>>& out) {
    for (const auto& v : graph.constants()) out.emplace_back(v.get(), v->name());
    for (const auto& node : graph.nodes()) {
        for (size_t i = 0; i < node->output_count(); ++i) out.emplace_back(node->output(i), node->output(i)->name());
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) list(**nested, out);
    }
}

}  // namespace

Result<Changed> tidy(Graph& graph, PassContext&) {
    std::vector<std::pair<const void*, std::string>> before, after;
    list(graph, before);
    graph.sort_canonically();
    name_outputs(graph);
    renumber_names(graph);
    list(graph, after);
    return before != after;
}

}  // namespace tessera
