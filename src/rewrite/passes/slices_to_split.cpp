#include <algorithm>
#include <map>

#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

// A slice along one axis with step 1 and constant bounds.
struct Part {
    Node* node;
    int64_t axis, begin, end;
};

std::optional<Part> part_of(Node& slice) {
    OpView view = slice.view();
    if (!view.shape(0).ranked()) return std::nullopt;
    auto starts = view.constant_ints(1), ends = view.constant_ints(2);
    auto axes = view.has(3) ? view.constant_ints(3) : std::vector<int64_t>{0};
    auto steps = view.has(4) ? view.constant_ints(4) : std::vector<int64_t>{1};
    if (!starts || !ends || !axes || !steps || starts->size() != 1 || axes->size() != 1 || steps->size() != 1 ||
        (*steps)[0] != 1)
        return std::nullopt;
    int64_t rank = view.rank(0), axis = (*axes)[0] < 0 ? (*axes)[0] + rank : (*axes)[0];
    if (axis < 0 || axis >= rank || !view.shape(0)[axis].as_int()) return std::nullopt;
    int64_t extent = *view.shape(0)[axis].as_int();
    auto clamped = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + extent : i, 0, extent); };
    Part part{&slice, axis, clamped((*starts)[0]), clamped((*ends)[0])};
    return part.begin < part.end ? std::optional(part) : std::nullopt;
}

// Whether the parts, by where they begin, are all of the axis and nothing twice.
bool complete(const std::vector<Part>& parts, int64_t extent) {
    int64_t at = 0;
    for (const Part& p : parts) {
        if (p.begin != at) return false;
        at = p.end;
    }
    return at == extent && parts.size() > 1;
}

Result<Changed> make_split(Graph& graph, std::vector<Part> parts, PassContext& context) {
    Value& x = *parts[0].node->input(0);  // what was cut may have become a part of a split itself
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
    int64_t axis = parts[0].axis;
    if (!complete(parts, *x.type().tensor().shape[axis].as_int())) return false;
    std::vector<int64_t> sizes;
    Rewriting::Nodes gone;
    for (const Part& p : parts) {
        sizes.push_back(p.end - p.begin);
        gone.push_back(p.node);
    }
    bool even = std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n == sizes[0]; });
    NodeSpec spec{.op = find_op("split"),
                  .inputs = {&x, even ? nullptr : graph.constant(Tensor::ints(sizes))},
                  .attrs = {},
                  .outputs = parts.size(),
                  .name = parts[0].node->name()};
    if (axis != 0) spec.attrs["axis"] = axis;
    if (even) spec.attrs["num_outputs"] = int64_t(parts.size());
    Node* split = TRY(graph.add(std::move(spec)));
    Rewriting rewriting(context, "split", gone);
    for (size_t i = 0; i < parts.size(); ++i)
        if (!put_in_place(*parts[i].node->output(), *split->output(i), true)) return false;
    rewriting.done({split});
    return true;
}

}  // namespace

Result<Changed> slices_to_split(Graph& graph, PassContext& context) {
    Changed changed = false;
    for (Graph* g : all_graphs(graph)) {
        // Values in the order of their first slice, so that what comes of it does not hang on addresses.
        std::vector<std::pair<std::pair<Value*, int64_t>, std::vector<Part>>> groups;
        std::map<std::pair<Value*, int64_t>, size_t> place;
        for (const auto& node : g->nodes()) {
            if (node->op().name != "slice" || node->output()->uses().empty()) continue;
            auto part = part_of(*node);
            if (!part) continue;
            std::pair<Value*, int64_t> key(node->input(0), part->axis);
            auto [it, fresh] = place.emplace(key, groups.size());
            if (fresh) groups.push_back({key, {}});
            groups[it->second].second.push_back(*part);
        }
        size_t before = g->nodes().size();
        for (auto& [key, parts] : groups)
            if (parts.size() > 1) changed |= TRY(make_split(*g, std::move(parts), context));
        if (g->nodes().size() == before) continue;
        g->sort();
        g->erase_unused();
    }
    return changed;
}

}  // namespace tessera
