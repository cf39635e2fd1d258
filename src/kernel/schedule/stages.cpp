// Primitives that say where stages are computed and kept.
#include <algorithm>

#include "kernel/ir/regions.h"
#include "kernel/schedule/schedule.h"

namespace tessera {
namespace {

bool stores_its_axes(const Stage& stage) {
    if (stage.store.size() != stage.axes.size()) return false;
    for (size_t i = 0; i < stage.axes.size(); ++i)
        if (!stage.store[i].same(stage.axes[i].var)) return false;
    return true;
}

Bindings bind_axes(const Stage& stage, const std::vector<Expr>& values) {
    Bindings bindings;
    for (size_t i = 0; i < stage.axes.size(); ++i) bindings.insert_or_assign(stage.axes[i].var.node().name, values[i]);
    return bindings;
}

// The stage's axis that an index is, where it is one.
std::optional<size_t> axis_of(const Stage& stage, const Expr& index) {
    for (size_t i = 0; i < stage.axes.size(); ++i)
        if (stage.axes[i].var.same(index)) return i;
    return std::nullopt;
}

}  // namespace

Status Schedule::compute_inline(std::string_view given) {
    const std::string name(given);  // it may be a name in the stages, which move
    size_t s = TRY(find_stage(name));
    const Stage stage = compute_.stages[s];
    if (is_parameter(stage.buffer))
        return Error(Code::E0602, "{} writes the output {}", name,
                     compute_.buffers[static_cast<size_t>(stage.buffer)].name)
            .hint("only intermediate buffers can be inlined");
    if (!stage.reduce.empty())
        return Error(Code::E0602, "{} is a reduction: its value is not one expression", name)
            .hint("compute it where it is read, with compute_at");
    if (!stores_its_axes(stage)) return Error(Code::E0602, "{} does not store to the indices of its axes", name);
    if (!plans_[s].ahead.empty())
        return Error(Code::E0602, "{} reads the value of {} before its update", name, plans_[s].ahead);
    if (hosts(s)) return Error(Code::E0602, "other stages are computed in the loops of {}", name);
    for (size_t r : readers(stage.buffer)) {
        Stage& reader = compute_.stages[r];
        reader.value = rewrite(reader.value, [&](const Expr& e) {
            if (!e.is(ExprKind::Load) || e.node().slot != stage.buffer) return e;
            return substitute(stage.value, bind_axes(stage, e.args()));
        });
    }
    compute_.stages.erase(compute_.stages.begin() + static_cast<ptrdiff_t>(s));
    plans_.erase(plans_.begin() + static_cast<ptrdiff_t>(s));
    record("compute_inline", {name});
    return {};
}

Status Schedule::reverse_compute_inline(std::string_view given) {
    const std::string name(given);  // it may be a name in the stages, which move
    size_t s = TRY(find_stage(name));
    const Stage stage = compute_.stages[s];
    if (!stage.reduce.empty())
        return Error(Code::E0602, "{} is a reduction: it cannot be inlined into its producer", name);
    std::optional<size_t> producer;
    std::vector<Expr> loads;
    for (const Expr& l : loads_in(stage.value)) {
        if (is_parameter(l.node().slot)) continue;
        std::optional<size_t> p = writer(l.node().slot);
        if (!p) continue;
        if (producer && *producer != *p)
            return Error(Code::E0602, "{} reads both {} and {}", name, compute_.stages[*producer].name,
                         compute_.stages[*p].name)
                .hint("only a stage with a single producer can be inlined into it; inline the other one first");
        producer = p;
        loads.push_back(l);
    }
    if (!producer) return Error(Code::E0602, "{} reads no other stage", name);
    Stage& into = compute_.stages[*producer];
    if (!into.reduce.empty())
        return Error(Code::E0602, "{} is a reduction, whose elements are complete only at its end", into.name)
            .hint("compute {} after the reduction, with reverse_compute_at", name);
    if (readers(into.buffer).size() != 1) return Error(Code::E0602, "{} has other readers", into.name);
    // Each of the stage's axes is one of the producer's.
    Bindings bindings;
    std::vector<bool> used(stage.axes.size());
    for (size_t d = 0; d < loads[0].args().size(); ++d) {
        std::optional<size_t> a = axis_of(stage, loads[0].arg(d));
        if (!a || used[*a] || !stage.axes[*a].extent.same(into.axes[d].extent))
            return Error(Code::E0602, "{} does not read {} at the indices of its own axes", name, into.name)
                .hint("inline {} into its readers instead, with compute_inline", into.name);
        used[*a] = true;
        bindings.insert_or_assign(stage.axes[*a].var.node().name, into.axes[d].var);
    }
    if (loads.size() != 1 || std::find(used.begin(), used.end(), false) != used.end())
        return Error(Code::E0602, "{} reads elements of {} other than the one that it computes", name, into.name);
    if (hosts(s)) return Error(Code::E0602, "other stages are computed in the loops of {}", name);
    Expr made = into.value;
    int slot = into.buffer;
    // The producer's axes may share names with the stage's: the load is put in last.
    Expr value = substitute(stage.value, bindings);
    into.value =
        rewrite(value, [&](const Expr& e) { return e.is(ExprKind::Load) && e.node().slot == slot ? made : e; });
    into.buffer = stage.buffer;
    into.store.clear();
    for (const Expr& index : stage.store) into.store.push_back(substitute(index, bindings));
    // It is computed where the stage stood, so that what else the stage reads is there.
    Stage moved = into;
    StagePlan plan = plans_[*producer];
    compute_.stages[s] = std::move(moved);
    plans_[s] = std::move(plan);
    compute_.stages.erase(compute_.stages.begin() + static_cast<ptrdiff_t>(*producer));
    plans_.erase(plans_.begin() + static_cast<ptrdiff_t>(*producer));
    record("reverse_compute_inline", {name});
    return {};
}

Status Schedule::compute_at(std::string_view name, const Loop& loop) {
    size_t s = TRY(find_stage(name));
    Place place = TRY(find_loop(loop));
    const Stage& stage = compute_.stages[s];
    if (place.stage == s || inside(place.stage, {s, 0}))
        return Error(Code::E0602, "{} is a loop of {} itself, or is inside one", loop.name, name);
    if (is_parameter(stage.buffer))
        return Error(Code::E0602, "{} writes the output {}", name,
                     compute_.buffers[static_cast<size_t>(stage.buffer)].name)
            .hint("cache_write computes it into an intermediate");
    if (!stores_its_axes(stage)) return Error(Code::E0602, "{} does not store to the indices of its axes", name);
    std::vector<size_t> all = readers(stage.buffer);
    if (all.empty()) return Error(Code::E0602, "{} has no readers", name);
    if (!plans_[s].running.empty()) {
        Place step = TRY(find_loop({plans_[s].running}));
        if (place.stage != step.stage || place.loop < step.loop)
            return Error(Code::E0602, "{} is not {}, or a loop of {} inside it", loop.name, plans_[s].running,
                         compute_.stages[step.stage].name)
                .hint("{} is updated in each of its iterations", name);
        all.clear();
    }
    for (size_t r : all)
        if (!inside(r, place))
            return Error(Code::E0602, "{0} also has a reader outside of {2}: {1}", name, compute_.stages[r].name,
                         loop.name)
                .hint("choose a loop that encloses all {} readers", all.size());
    if (at(place).kind == LoopKind::Vector)
        return Error(Code::E0602, "{} is vectorized: nothing else can be computed inside it", loop.name);
    plans_[s].at = loop.name;
    plans_[s].after = false;
    record("compute_at", {std::string(name), loop.name});
    return {};
}

Status Schedule::reverse_compute_at(std::string_view name, const Loop& loop) {
    size_t s = TRY(find_stage(name));
    Place place = TRY(find_loop(loop));
    const Stage& stage = compute_.stages[s];
    const Stage& producer = compute_.stages[place.stage];
    if (place.stage == s || inside(place.stage, {s, 0}))
        return Error(Code::E0602, "{} is a loop of {} itself, or is inside one", loop.name, name);
    std::vector<Expr> loads = loads_in(stage.value, producer.buffer);
    if (loads.empty()) return Error(Code::E0602, "{} does not read {}", name, producer.name);
    if (reduced_index(stage, loads[0])) return follow(s, place);
    if (!plans_[place.stage].at.empty() && !plans_[place.stage].after)
        return Error(Code::E0602, "{} is computed inside {} itself", producer.name, plans_[place.stage].at)
            .hint("compute {} there first, and {} at its loops", name, producer.name);
    for (const Expr& l : loads) {
        std::vector<bool> used(stage.axes.size());
        for (const Expr& index : l.args()) {
            std::optional<size_t> a = axis_of(stage, index);
            size_t d = static_cast<size_t>(&index - l.args().data());
            bool whole = a && stage.axes[*a].extent.same(producer.axes[d].extent);
            if (!a || used[*a] || !whole || !l.same(loads[0]))
                return Error(Code::E0602, "{} does not read {} at the indices of its own axes", name, producer.name)
                    .hint("place {} in the loops of its reader instead, with compute_at", producer.name);
            used[*a] = true;
        }
    }
    for (size_t i = 0; i <= place.loop; ++i)
        if (plans_[place.stage].loops[i].reduces)
            return Error(Code::E0602, "inside {} the elements of {} are not complete", loop.name, producer.name)
                .hint("choose a loop outside the reduction");
    if (at(place).kind == LoopKind::Vector)
        return Error(Code::E0602, "{} is vectorized: nothing else can be computed inside it", loop.name);
    // What else it reads must be complete before the producer's nest.
    for (const Expr& l : loads_in(stage.value)) {
        std::optional<size_t> other = writer(l.node().slot);
        if (other && *other > place.stage && plans_[*other].at.empty())
            return Error(Code::E0602, "{} also reads {}, which is computed after {}", name,
                         compute_.stages[*other].name, producer.name);
    }
    for (size_t r : readers(stage.buffer))
        if (inside(r, {place.stage, 0}))
            return Error(Code::E0602, "{} is read inside the nest of {}", name, producer.name);
    plans_[s].at = loop.name;
    plans_[s].after = true;
    record("reverse_compute_at", {std::string(name), loop.name});
    return {};
}

Status Schedule::follow(size_t s, const Place& place) {
    const Stage &stage = compute_.stages[s], &producer = compute_.stages[place.stage];
    std::vector<Expr> loads = loads_in(stage.value, producer.buffer);
    std::optional<ReducedIndex> over = reduced_index(stage, loads[0]);
    std::vector<bool> used(stage.axes.size());
    for (size_t d = 0; d < producer.axes.size(); ++d) {
        if (d == over->dim) continue;
        std::optional<size_t> a = axis_of(stage, loads[0].arg(d));
        if (!a || used[*a] || !stage.axes[*a].extent.same(producer.axes[d].extent))
            return Error(Code::E0602, "{} does not read {} at the indices of its own axes", stage.name, producer.name);
        used[*a] = true;
    }
    for (const Expr& l : loads)
        if (!l.same(loads[0]))
            return Error(Code::E0602, "{} reads {} at two different indices", stage.name, producer.name);
    if (!producer.reduce.empty() || !plans_[place.stage].running.empty() || stage.fold)
        return Error(Code::E0602, "{} is not a map whose elements {} reduces one by one", producer.name, stage.name);
    if (is_parameter(stage.buffer))
        return Error(Code::E0602, "{} writes an output", stage.name)
            .hint("cache_write computes it into an intermediate");
    if (at(place).kind == LoopKind::Vector)
        return Error(Code::E0602, "{} is vectorized: nothing else can be computed inside it", at(place).name);
    for (size_t r : readers(stage.buffer))
        if (inside(r, {place.stage, 0}))
            return Error(Code::E0602, "{} is read inside the nest of {}", stage.name, producer.name);
    plans_[s].at = at(place).name;
    plans_[s].after = true;
    record("reverse_compute_at", {stage.name, at(place).name});
    return {};
}

Status Schedule::compute_root(std::string_view name) {
    size_t s = TRY(find_stage(name));
    plans_[s].at.clear();
    plans_[s].after = false;
    record("compute_root", {std::string(name)});
    return {};
}

Status Schedule::set_scope(std::string_view name, Scope scope) {
    size_t s = TRY(find_stage(name));
    if (is_parameter(compute_.stages[s].buffer))
        return Error(Code::E0602, "{} writes an output, which is in global memory", name)
            .hint("cache_write computes it into an intermediate");
    plans_[s].scope = scope;
    record("set_scope", {std::string(name), std::string(scope_name(scope))});
    return {};
}

Status Schedule::decompose_reduction(std::string_view name, const Loop& loop) {
    size_t s = TRY(find_stage(name));
    Place place = TRY(find_loop(loop));
    if (place.stage != s) return Error(Code::E0602, "{} is not a loop of {}", loop.name, name);
    if (compute_.stages[s].reduce.empty()) return Error(Code::E0602, "{} is not a reduction", name);
    for (size_t i = 0; i < place.loop; ++i)
        if (plans_[s].loops[i].reduces)
            return Error(Code::E0602,
                         "{} is inside the reduction loop {}: the initialization would run in each of its iterations",
                         loop.name, plans_[s].loops[i].name)
                .hint("choose {} or a loop outside it", plans_[s].loops[i].name);
    plans_[s].init_at = loop.name;
    record("decompose_reduction", {std::string(name), loop.name});
    return {};
}

}  // namespace tessera
