// Maps that are another sum of the same elements for each of a few neighbours: tiles that are transformed. A thread has
// all sums of a tile in registers, so that what they share is read and computed once.
#include <algorithm>

#include "kernel/gpu/gpu_kinds.h"
#include "kernel/ir/regions.h"

namespace tessera {
namespace {

constexpr int64_t kMostSums = 100;  // of a thread
constexpr size_t kFewestLoads = 2;  // of one sum
constexpr size_t kSomeLoads = 4;    // that are looked at, to see how all lie

// A choice between sums by the place along one of these axes.
bool chooses_sum(const Expr& e, const std::vector<ReduceAxis>& axes) {
    if (!e.is(ExprKind::Select) || !is_float(e.dtype()) || loads_in(e.arg(1)).size() < kFewestLoads) return false;
    Stage one{.axes = axes, .value = e};
    return !find_phases(one, kMostSums, true).empty();
}

// The outermost of such choices, each replaced by what `made` gives for it.
Expr without_sums(const Expr& e, const std::vector<ReduceAxis>& axes, const std::function<Expr(const Expr&)>& made) {
    if (!e.node().reads) return e;
    if (chooses_sum(e, axes)) return made(e);
    if (e.is(ExprKind::Load) || e.args().empty()) return e;
    std::vector<Expr> args;
    bool changed = false;
    for (const Expr& a : e.args()) {
        args.push_back(without_sums(a, axes, made));
        changed |= !args.back().same(a);
    }
    return changed ? with_args(e, std::move(args)) : e;
}

// The axis along which most of what the sums are made of lies together: neighbouring threads are neighbours there.
size_t axis_of_threads(const Schedule& s, const Stage& sums, const std::vector<Phases>& phases) {
    size_t best = 0;
    std::ptrdiff_t most = -1;
    std::vector<Expr> loads = loads_of(sums);
    loads.erase(loads.begin() + std::ptrdiff_t(std::min(loads.size(), kSomeLoads)), loads.end());
    for (size_t i = 0; i < sums.axes.size(); ++i) {
        if (std::any_of(phases.begin(), phases.end(), [&](const Phases& p) { return p.axis == i; })) continue;
        const auto along = std::count_if(loads.begin(), loads.end(), [&](const Expr& load) {
            auto step = stride_of(s, load, sums.axes[i].var);
            return step && step->is_int(1);
        });
        if (along < most) continue;
        most = along;
        best = i;
    }
    return best;
}

}  // namespace

std::optional<Compute> sums_apart(const Compute& compute) {
    Compute apart = compute;
    apart.stages.clear();
    for (Stage stage : compute.stages) {
        if (!stage.reduce.empty()) {
            apart.stages.push_back(std::move(stage));
            continue;
        }
        std::vector<Expr> own, shape;
        for (const ReduceAxis& axis : stage.axes) {
            own.push_back(axis.var);
            shape.push_back(axis.extent);
        }
        stage.value = without_sums(stage.value, stage.axes, [&](const Expr& sums) {
            Stage first = stage;
            first.name = fmt::format("{}_sums{}", stage.name, apart.buffers.size());
            first.buffer = int(apart.buffers.size());
            first.store = own;
            first.value = sums;
            apart.buffers.push_back({first.name, sums.dtype(), shape});
            apart.stages.push_back(first);
            return load(first.buffer, sums.dtype(), own);
        });
        apart.stages.push_back(std::move(stage));
    }
    if (apart.stages.size() == compute.stages.size()) return {};
    return apart;
}

Result<std::vector<std::string>> phases_to_threads(Schedule& s, const std::string& map) {
    const Stage out = find_stage(s, map);
    std::vector<std::string> sums;
    std::vector<Phases> phases;
    for (const Expr& load : loads_of(out)) {
        const Stage* from = writer_of(s, load.node().slot);
        if (!from || !from->reduce.empty()) continue;
        const auto found = find_phases(*from, kMostSums, true);
        if (found.empty() || std::find(sums.begin(), sums.end(), from->name) != sums.end()) continue;
        if (!phases.empty() && phases != found) return std::vector<std::string>();
        phases = found;
        sums.push_back(from->name);
    }
    if (sums.empty()) return sums;
    const size_t last = axis_of_threads(s, find_stage(s, sums[0]), phases);
    std::vector<Loop> outer, inner, loops = s.loops(map);
    std::optional<Loop> neighbours;
    for (size_t i = 0; i < loops.size(); ++i) {
        auto p = std::find_if(phases.begin(), phases.end(), [&](const Phases& p) { return p.axis == i; });
        if (p == phases.end() && i == last) {
            neighbours = loops[i];
        } else if (p == phases.end()) {
            outer.push_back(loops[i]);
        } else if (s.extent(loops[i]).as_int() == p->count) {
            inner.push_back(loops[i]);
        } else {
            auto [tiles, phase] = TRY(s.split(loops[i], p->count));
            outer.push_back(tiles);
            inner.push_back(phase);
        }
    }
    if (neighbours) outer.push_back(*neighbours);
    if (outer.empty()) return std::vector<std::string>();
    std::vector<Loop> order = outer;
    order.insert(order.end(), inner.begin(), inner.end());
    TRY(s.reorder(order));
    Loop thread = outer[0];
    for (size_t i = 1; i < outer.size(); ++i) thread = TRY(s.fuse(thread, outer[i]));
    TRY(s.parallel(thread));
    for (const Loop& l : inner) TRY(s.unroll(l));
    for (const std::string& name : sums) {
        // Whole tiles: what is beside the result is not stored.
        std::vector<int64_t> whole(out.axes.size(), 1);
        bool beside = false;
        for (const Phases& p : phases) {
            whole[p.axis] = p.count;
            const auto extent = out.axes[p.axis].extent.as_int();
            beside |= !extent || *extent % p.count;
        }
        if (beside) TRY(s.pad(name, whole));
        TRY(s.compute_at(name, thread));
        TRY(s.set_scope(name, Scope::Register));
        for (const Loop& l : s.loops(name)) TRY(s.unroll(l));
    }
    return sums;
}

}  // namespace tessera
