#include "rewrite/passes/lowering_passes.h"

#include <algorithm>
#include <unordered_set>

#include "rewrite/edit.h"
#include "rewrite/fix_sizes.h"
#include "rewrite/passes/few_bits.h"
#include "rewrite/passes/passes.h"

namespace tessera {

std::vector<Pass> lowering_passes(const Machine& machine, bool fuse, int64_t unrolled) {
    const std::vector<Phase> written_out = {Phase::WriteOut}, once = {Phase::Tidy};
    auto unroll = [unrolled](Graph& graph, PassContext& context) { return unroll_scans(graph, unrolled, context); };
    auto bits = [machine](Graph& graph, PassContext& context) { return keep_bits(graph, machine, context); };
    auto tiled = [machine](Graph& graph, PassContext& context) { return tile_attention(graph, machine, context); };
    std::vector<Pass> table = {
        {"keep_bits", "keeps 4-bit weights of products in 4 bits", bits, written_out},
        {"expand_composites", "expands ops without a body", expand_composites, written_out},
        {"unroll_scans", "unrolls scans over a few steps", unroll, written_out},
    };
    if (machine.blocks)
        table.insert(table.begin(),
                     {"tile_attention", "writes gradients of attention as tile programs", tiled, written_out});
    if (!fuse) return table;
    if (!machine.blocks)
        table.push_back({"tabulate_bytes", "replaces functions of one byte by lookup tables", tabulate_bytes, once});
    auto bytes = [machine](Graph& graph, PassContext& context) { return multiply_bytes(graph, machine, context); };
    table.push_back({"multiply_bytes", "turns products of dequantized tensors into int8 products", bytes, once});
    auto forms = [machine](Graph& graph, PassContext& context) { return write_for_kernels(graph, machine, context); };
    table.push_back({"write_for_kernels", "decomposes ops whose bodies make slow kernels", forms, once});
    table.push_back({"nest_concats", "lets a concat reuse another that it starts with", nest_concats, once});
    table.push_back({"fuse_into_tiles", "fuses element-wise neighbors into tile kernels", fuse_into_tiles, once});
    auto tiles = [machine](Graph& graph, PassContext& context) { return choose_winograd(graph, machine, context); };
    table.push_back({"choose_winograd", "selects Winograd convolution where it is faster", tiles, once});
    if (!machine.blocks) return table;
    auto join = [machine](Graph& graph, PassContext& context) { return join_groups(graph, machine, context); };
    table.push_back({"join_groups", "merges groups of few channels to fill tiles", join, once});
    return table;
}

namespace {

bool mentions_size(const Expr& e, const std::string& name) {
    const std::vector<std::string> names = free_symbols(e);
    return std::binary_search(names.begin(), names.end(), name);
}

void note_sizes(const Value& said, const Value& found, PassContext& context) {
    if (!said.type().is_tensor() || !found.type().is_tensor()) return;
    const Shape &a = said.type().tensor().shape, &b = found.type().tensor().shape;
    if (!a.ranked() || !b.ranked() || a.rank() != b.rank()) return;
    for (int64_t d = 0; d < a.rank(); ++d) {
        if (a[d] == b[d]) continue;
        const std::string own = fmt::format("{}.d{}", said.name(), d);  // that only the value itself defines
        if (a[d].is(ExprKind::Var) && a[d].node().name == own && !mentions_size(b[d], own))
            context.sizes_found.insert_or_assign(own, b[d]);
        else
            context.equal_sizes.push_back({said.name(), a[d], b[d]});
    }
}

// A size that was found may be one whose value went later.
void name_sizes_found(Graph& graph, PassContext& context) {
    Bindings& found = context.sizes_found;
    if (found.empty()) return;
    for (size_t round = 0; round < found.size(); ++round) {
        bool again = false;
        for (auto& [name, size] : found) {
            const Expr further = substitute(size, found);
            if (mentions_size(further, name)) continue;
            again |= !(further == size);
            size = further;
        }
        if (!again) break;
    }
    fix_sizes(graph, found);
    for (EqualSizes& e : context.equal_sizes) {
        e.said = substitute(e.said, found);
        e.found = substitute(e.found, found);
    }
    found.clear();
}

}  // namespace

bool any_used(const Node& node) {
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty()) return true;
    return false;
}

bool put_made_in_place(Node& node, const std::vector<Value*>& made, PassContext& context) {
    for (size_t i = 0; i < node.output_count(); ++i) {
        if (node.output(i)->uses().empty()) continue;
        note_sizes(*node.output(i), *made[i], context);
        if (!put_in_place(*node.output(i), *made[i], false)) return false;
    }
    return true;
}

void note_origin(const Graph& graph, const Node& node, size_t first, PassContext& context) {
    Origin origin{node.op().name, node.name()};
    if (auto outer = context.origins.find(&node); outer != context.origins.end()) origin = outer->second;
    for (size_t i = first; i < graph.nodes().size(); ++i)
        context.origins.insert_or_assign(graph.nodes()[i].get(), origin);
}

Status fold_what_was_made(Graph& graph, PassContext& context) {
    name_sizes_found(graph, context);
    TRY(fold_constants(graph, context));
    std::unordered_set<const Node*> there;
    for (const auto& node : graph.nodes()) there.insert(node.get());
    std::erase_if(context.origins, [&](const auto& entry) { return !there.contains(entry.first); });
    return {};
}

}  // namespace tessera
