#include "base/check.h"
#include "kernel/schedule/stage_plan.h"

namespace tessera {

const LoopPlan* StagePlan::find(std::string_view loop) const {
    size_t i = position(loop);
    return i < loops.size() ? &loops[i] : nullptr;
}

LoopPlan* StagePlan::find(std::string_view loop) {
    size_t i = position(loop);
    return i < loops.size() ? &loops[i] : nullptr;
}

size_t StagePlan::position(std::string_view loop) const {
    size_t i = 0;
    while (i < loops.size() && loops[i].name != loop) ++i;
    return i;
}

std::string loop_name(const Stage& stage, const ReduceAxis& axis) { return stage.name + "." + axis.var.node().name; }

StagePlan plain_plan(const Stage& stage) {
    StagePlan plan;
    for (const ReduceAxis& axis : stage.axes) plan.loops.push_back({.name = loop_name(stage, axis)});
    for (const ReduceAxis& axis : stage.reduce) plan.loops.push_back({.name = loop_name(stage, axis), .reduces = true});
    return plan;
}

DerivedLoops derive_loops(const Stage& stage, const StagePlan& plan, const std::vector<Expr>& extents,
                          const std::vector<Expr>& reduce_extents) {
    DerivedLoops derived;
    std::map<std::string, Expr>& extent = derived.all_extents;
    for (size_t i = 0; i < stage.axes.size(); ++i) extent.emplace(loop_name(stage, stage.axes[i]), extents[i]);
    for (size_t i = 0; i < stage.reduce.size(); ++i)
        extent.emplace(loop_name(stage, stage.reduce[i]), reduce_extents[i]);
    for (const LoopRelation& r : plan.relations) {
        switch (r.kind) {
            case LoopRelation::Kind::Split:
            case LoopRelation::Kind::SplitWhole:
                extent.emplace(r.outer, ceil_div(extent.at(r.parent), r.amount));
                extent.emplace(r.inner, r.amount);
                break;
            case LoopRelation::Kind::SplitParts:
                extent.emplace(r.outer, r.amount);
                extent.emplace(r.inner, ceil_div(extent.at(r.parent), r.amount));
                break;
            case LoopRelation::Kind::Fuse: extent.emplace(r.parent, extent.at(r.outer) * extent.at(r.inner)); break;
            case LoopRelation::Kind::Skew:
                extent.emplace(r.parent, extent.at(r.inner) + r.amount * max(extent.at(r.outer) - 1, 0));
                break;
        }
    }
    std::map<std::string, Expr> value;
    for (const LoopPlan& loop : plan.loops) {
        const Expr& e = extent.at(loop.name);
        derived.extents.push_back(e);
        derived.vars.push_back(index_var(loop.name, e.as_int()));
        value.emplace(loop.name, derived.vars.back());
    }
    for (size_t i = plan.relations.size(); i-- > 0;) {
        const LoopRelation& r = plan.relations[i];
        switch (r.kind) {
            case LoopRelation::Kind::Split:
            case LoopRelation::Kind::SplitParts: {
                Expr parent = value.at(r.outer) * extent.at(r.inner) + value.at(r.inner);
                if (!(extent.at(r.outer) * extent.at(r.inner)).same(extent.at(r.parent)))
                    derived.guards.push_back(lt(parent, extent.at(r.parent)));
                value.insert_or_assign(r.parent, parent);
                break;
            }
            case LoopRelation::Kind::SplitWhole: {
                const Expr first = min(value.at(r.outer) * r.amount, extent.at(r.parent) - r.amount);
                value.insert_or_assign(r.parent, first + value.at(r.inner));
                break;
            }
            case LoopRelation::Kind::Fuse: {
                Expr parent = value.at(r.parent);
                value.insert_or_assign(r.outer, floor_div(parent, extent.at(r.inner)));
                value.insert_or_assign(r.inner, mod(parent, extent.at(r.inner)));
                break;
            }
            case LoopRelation::Kind::Skew: {
                Expr inner = value.at(r.parent) - r.amount * value.at(r.outer);
                derived.guards.push_back(le(0, inner));
                derived.guards.push_back(lt(inner, extent.at(r.inner)));
                value.insert_or_assign(r.inner, inner);
                break;
            }
        }
    }
    for (const ReduceAxis& axis : stage.axes)
        derived.values.emplace(axis.var.node().name, value.at(loop_name(stage, axis)));
    for (const ReduceAxis& axis : stage.reduce)
        derived.values.emplace(axis.var.node().name, plan.running.empty()
                                                         ? value.at(loop_name(stage, axis))
                                                         : index_var(plan.running, axis.extent.as_int()));
    return derived;
}

std::optional<ReducedIndex> reduced_index(const Stage& stage, const Expr& load) {
    if (stage.reduce.size() != 1) return std::nullopt;
    const Expr& var = stage.reduce[0].var;
    std::optional<ReducedIndex> found;
    for (size_t d = 0; d < load.args().size(); ++d) {
        if (!depends_on(load.arg(d), var)) continue;
        Expr base = load.arg(d) - var;
        if (found || depends_on(base, var)) return std::nullopt;
        found = {d, base};
    }
    return found;
}

std::vector<Expr> loads_in(const Expr& value, std::optional<int> slot) {
    std::vector<Expr> loads;
    visit(value, [&](const Expr& e) {
        if (e.is(ExprKind::Load) && (!slot || e.node().slot == *slot)) loads.push_back(e);
    });
    return loads;
}

bool reads_buffer(const Stage& stage, int slot) { return !loads_in(stage.value, slot).empty(); }

}  // namespace tessera
