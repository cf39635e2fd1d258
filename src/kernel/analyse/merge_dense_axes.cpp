#include "kernel/analyse/merge_dense_axes.h"

#include "kernel/analyse/stages.h"

namespace tessera {

bool lie_densely(const Schedule& s, const Stage& stage, const ReduceAxis& outer, const ReduceAxis& inner) {
    auto dense = [&](int buffer, const std::vector<Expr>& indices) {
        auto a = stride_of(s, buffer, indices, outer.var), b = stride_of(s, buffer, indices, inner.var);
        return a && b && *a == *b * inner.extent;
    };
    if (!dense(stage.buffer, stage.store)) return false;
    for (const Expr& load : loads_of(stage))
        if (!dense(load.node().slot, load.args())) return false;
    // Variables that are used other than as indices would need their own values.
    return !used_beside_loads(stage.value, outer.var) && !used_beside_loads(stage.value, inner.var);
}

bool divides_by_open(const Stage& stage) {
    bool found = false;
    auto look = [&](const Expr& index) {
        visit(index, [&](const Expr& e) {
            if (e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod)) found |= !e.arg(1).as_int();
        });
    };
    for (const Expr& index : stage.store) look(index);
    for (const Expr& load : loads_of(stage))
        for (const Expr& index : load.args()) look(index);
    return found;
}

Status merge_dense_axes(Schedule& s, const std::string& name, size_t first) {
    const Stage& stage = find_stage(s, name);
    if (stage.axes.size() < first + 2) return {};
    std::vector<std::vector<int>> groups;
    for (size_t i = 0; i < first; ++i) groups.push_back({int(i)});
    groups.emplace_back();
    const ReduceAxis* larger = nullptr;  // of the last group, the last axis with more than one element
    for (size_t i = first; i < stage.axes.size(); ++i) {
        const ReduceAxis& axis = stage.axes[i];
        const bool one = axis.extent.is_int(1);
        if (!one && larger && !lie_densely(s, stage, *larger, axis)) groups.emplace_back();
        groups.back().push_back(int(i));
        if (!one) larger = &axis;
    }
    if (groups.size() == stage.axes.size()) return {};
    const bool before = divides_by_open(stage);
    Schedule merged = s;
    TRY(merged.merge_axes(name, groups));
    if (before || !divides_by_open(find_stage(merged, name))) s = std::move(merged);
    return {};
}

}  // namespace tessera
