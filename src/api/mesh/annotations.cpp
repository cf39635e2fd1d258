#include "api/mesh/annotations.h"

#include <fnmatch.h>

namespace tessera::shard {

std::vector<const Value*> values_named(const Graph& graph, const std::string& name) {
    if (const Value* v = graph.find_value(name)) return {v};
    std::vector<const Value*> found;
    auto look = [&](const Value* v) {
        if (divisible_sizes(*v) && fnmatch(name.c_str(), v->name().c_str(), 0) == 0) found.push_back(v);
    };
    for (const auto& v : graph.inputs()) look(v.get());
    for (const auto& v : graph.constants()) look(v.get());
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) look(n->output(i));
    return found;
}

Result<Shardings> read_annotations(const Graph& graph, const Mesh& mesh, const Annotations& annotations, bool all) {
    Shardings given;
    for (const auto& [name, text] : annotations) {
        const auto values = values_named(graph, name);
        if (values.empty() && !all) continue;
        if (values.empty())
            return Error(Code::E0401, "the model to be partitioned has no value \"{}\"", name)
                .hint("tessera shard MODEL --mesh MESH --explain lists its values");
        for (const Value* v : values) {
            const auto sizes = divisible_sizes(*v);
            if (!sizes)
                return Error(Code::E0501, "{} is {}, which cannot be divided", name, tessera::to_string(v->type()));
            auto read = parse_sharding(text, mesh, sizes->size());
            if (!read.ok()) return Error(read.error()).at(fmt::format("the annotation of {}", v->name()));
            if (!read->partial.empty())
                return Error(Code::E0501, "the annotation of {} is partial, which only results of sums are", name);
            if (!given.emplace(v, std::move(*read)).second)
                return Error(Code::E0501, "two annotations are of {}", v->name());
        }
    }
    return given;
}

}  // namespace tessera::shard
