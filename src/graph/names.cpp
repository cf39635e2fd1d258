#include "graph/names.h"

namespace tessera {
namespace {

void separate(Graph& graph, Value& value) {
    if (!graph.outer()->name_taken(value.name())) return;
    std::string name;
    for (int i = 1; name.empty() || graph.name_taken(name); ++i) name = fmt::format("{}_{}", value.name(), i);
    graph.rename(value, std::move(name));
}

}  // namespace

void separate_names(Graph& graph) {
    for (const auto& node : graph.nodes()) {
        for (const auto& [_, attr] : node->attrs()) {
            auto* nested = std::get_if<GraphPtr>(&attr);
            if (!nested) continue;
            Graph& g = **nested;
            for (const auto& v : g.inputs()) separate(g, *v);
            for (const auto& v : g.constants()) separate(g, *v);
            for (const auto& n : g.nodes())
                for (size_t i = 0; i < n->output_count(); ++i) separate(g, *n->output(i));
            separate_names(g);
        }
    }
}

}  // namespace tessera
