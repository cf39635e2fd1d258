// Reductions whose steps are iterations of a loop of another stage: running values of `online`, and those that take in
// what their producer makes.
#include "kernel/lower/place_stages.h"

namespace tessera {
namespace {

// Its axis `a` is axis `row` of its host, whose loops from `level` on it goes along with.
Status take_row(PlacedStage& p, const PlacedStage& host, size_t a, size_t row, size_t level) {
    auto inside = [&](size_t from) {
        Extents inner;
        for (size_t l = from; l < host.loops.vars.size(); ++l)
            inner.emplace(host.plan->loops[l].name, host.loops.extents[l]);
        return interval_of(host.values.at(host.stage->axes[row].var.node().name), inner);
    };
    std::optional<Interval> made = inside(p.host_loop + 1), all = inside(level);
    if (!made || !all)
        return Error(Code::E0602, "cannot determine which elements of {} belong to one iteration of {}", p.stage->name,
                     p.plan->at);
    p.region[a] = *made;
    p.kept_rows.resize(p.stage->axes.size());
    p.start_rows.resize(p.stage->axes.size());
    p.kept_rows[a] = host.region[row];
    p.start_rows[a] = all;
    return {};
}

// Its part of what its host computes in one iteration: a step is taken once for each element.
Status place_running(const std::vector<PlacedStage>& placed, PlacedStage& p) {
    const PlacedStage& host = placed[*p.host];
    const size_t level = host.plan->position(p.plan->running);
    if (level == host.plan->loops.size() || level > p.host_loop)
        return Error(Code::E0602, "{} is computed at {}, not inside {}, the loop of its online reduction",
                     p.stage->name, p.plan->at, p.plan->running);
    std::vector<bool> shared(host.stage->axes.size());
    for (size_t a = 0; a < p.stage->axes.size(); ++a) {
        const int row = p.plan->rows[a];
        p.region.push_back({0, p.stage->axes[a].extent - 1});
        if (row < 0) continue;
        shared[size_t(row)] = true;
        TRY(take_row(p, host, a, size_t(row), level));
    }
    for (size_t l = level + 1; l <= p.host_loop; ++l)
        for (size_t a = 0; a < shared.size(); ++a)
            if (!shared[a] && !host.loops.extents[l].is_int(1) &&
                mentions(host.values.at(host.stage->axes[a].var.node().name), host.plan->loops[l].name))
                return Error(Code::E0602,
                             "{} would be updated several times for each element, once per iteration of {}",
                             p.stage->name, host.plan->loops[l].name)
                    .hint("compute it outside of that loop");
    p.along = level;
    return {};
}

// What its producer, in whose loop it stands, makes there, as axes and as steps of the reduction.
Status place_following(const Compute& compute, const std::vector<PlacedStage>& placed, size_t i, PlacedStage& p) {
    const PlacedStage& host = placed[*p.host];
    const Expr load = loads_in(p.stage->value, host.stage->buffer)[0];
    const ReducedIndex over = *reduced_index(*p.stage, load);
    std::vector<Interval> made = TRY(region_inside(host, p.host_loop));
    p.region = all_read(compute, placed, i, host.around_whole);
    const std::string& reduced = host.stage->axes[over.dim].var.node().name;
    size_t level = 0;
    while (level < p.host_loop && !mentions(host.values.at(reduced), host.plan->loops[level].name)) ++level;
    Bindings first;
    for (size_t a = 0; a < p.stage->axes.size(); ++a) {
        for (size_t d = 0; d < made.size(); ++d)
            if (d != over.dim && load.arg(d).same(p.stage->axes[a].var)) TRY(take_row(p, host, a, d, level));
        first.emplace(p.stage->axes[a].var.node().name, p.region[a].begin);
    }
    for (size_t a = 0; a < p.stage->axes.size(); ++a)
        if (depends_on(over.base, p.stage->axes[a].var) && !p.region[a].span.is_int(0))
            return Error(Code::E0602, "an iteration of {} reduces elements of {} for several values of {}",
                         p.stage->name, host.stage->name, p.stage->axes[a].var.node().name);
    p.along = level;
    // All steps are taken: what others read of the producer has them all.
    const Interval& there = host.region[over.dim];
    const bool whole = there.begin.is_int(0) && (there.span + 1).same(host.stage->axes[over.dim].extent);
    if (!whole &&
        (!there.begin.same(substitute(over.base, first)) || !always(le(p.stage->reduce[0].extent, there.span + 1), {})))
        return Error(Code::E0602, "{} does not compute all elements that {} reduces", host.stage->name, p.stage->name);
    p.steps.emplace(p.stage->reduce[0].var.node().name, made[over.dim].begin - substitute(over.base, first));
    p.step_count = made[over.dim].span + 1;
    return {};
}

}  // namespace

bool goes_along(const Compute& compute, const std::vector<PlacedStage>& placed, size_t i) {
    if (!placed[i].plan->running.empty()) return true;
    if (!placed[i].plan->after || !placed[i].host) return false;
    std::vector<Expr> loads = loads_in(compute.stages[i].value, compute.stages[*placed[i].host].buffer);
    return !loads.empty() && reduced_index(compute.stages[i], loads[0]);
}

Status place_along(const Compute& compute, std::vector<PlacedStage>& placed, size_t i) {
    PlacedStage& p = placed[i];
    return p.plan->running.empty() ? place_following(compute, placed, i, p) : place_running(placed, p);
}

}  // namespace tessera
