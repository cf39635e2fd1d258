#include "rewrite/passes/lowering_passes.h"

#include <unordered_set>

#include "rewrite/passes/passes.h"

namespace tessera {

std::vector<Pass> lowering_passes(const Machine& machine, bool fuse, int64_t unrolled) {
    const std::vector<Phase> written_out = {Phase::WriteOut}, once = {Phase::Tidy};
    auto unroll = [unrolled](Graph& graph, PassContext& context) { return unroll_scans(graph, unrolled, context); };
    std::vector<Pass> table = {
        {"expand_composites", "ops without a body, as the graphs they stand for", expand_composites, written_out},
        {"unroll_scans", "a scan over a few steps is its steps", unroll, written_out},
    };
    if (!fuse) return table;
    auto bytes = [machine](Graph& graph, PassContext& context) { return multiply_bytes(graph, machine, context); };
    table.push_back({"multiply_bytes", "products of dequantized tensors as products of bytes", bytes, once});
    table.push_back({"write_for_kernels", "ops as graphs that kernels compute faster", write_for_kernels, once});
    table.push_back({"nest_concats", "a concat that begins as another one takes its result", nest_concats, once});
    auto tiles = [machine](Graph& graph, PassContext& context) { return choose_winograd(graph, machine, context); };
    table.push_back({"choose_winograd", "convolutions as products of transformed tiles, where that pays", tiles, once});
    if (!machine.blocks) return table;
    auto join = [machine](Graph& graph, PassContext& context) { return join_groups(graph, machine, context); };
    table.push_back({"join_groups", "groups of few channels as groups that fill tiles", join, once});
    return table;
}

bool any_used(const Node& node) {
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty()) return true;
    return false;
}

void note_origin(const Graph& graph, const Node& node, size_t first, PassContext& context) {
    Origin origin{node.op().name, node.name()};
    if (auto outer = context.origins.find(&node); outer != context.origins.end()) origin = outer->second;
    for (size_t i = first; i < graph.nodes().size(); ++i) context.origins.insert_or_assign(graph.nodes()[i].get(), origin);
}

Status fold_what_was_made(Graph& graph, PassContext& context) {
    TRY(fold_constants(graph, context));
    std::unordered_set<const Node*> there;
    for (const auto& node : graph.nodes()) there.insert(node.get());
    std::erase_if(context.origins, [&](const auto& entry) { return !there.contains(entry.first); });
    return {};
}

}  // namespace tessera
