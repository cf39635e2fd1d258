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

}  // namespace

bool is_choice_of_sums(const Stage& stage) { return stage.reduce.empty() && chooses_sum(stage.value, stage.axes); }

std::optional<Compute> sums_apart(const Compute& compute) {
    Compute apart = compute;
    apart.stages.clear();
    for (Stage stage : compute.stages) {
        const bool own = size_t(stage.buffer) >= compute.params;
        if (!stage.reduce.empty() || (own && is_choice_of_sums(stage))) {
            apart.stages.push_back(std::move(stage));
            continue;
        }
        std::vector<Expr> at, shape;
        for (const ReduceAxis& axis : stage.axes) {
            at.push_back(axis.var);
            shape.push_back(axis.extent);
        }
        stage.value = without_sums(stage.value, stage.axes, [&](const Expr& sums) {
            Stage first = stage;
            first.name = fmt::format("{}_sums{}", stage.name, apart.buffers.size());
            first.buffer = int(apart.buffers.size());
            first.store = at;
            first.value = sums;
            apart.buffers.push_back({first.name, sums.dtype(), shape});
            apart.stages.push_back(first);
            return load(first.buffer, sums.dtype(), at);
        });
        apart.stages.push_back(std::move(stage));
    }
    if (apart.stages.size() == compute.stages.size()) return {};
    return apart;
}

namespace {

// Sums that a thread has of a tile.
struct Sums {
    std::string name;
    std::vector<std::optional<size_t>> of;  // by axis: which one of the map's it is
};

// A map, the sums that it reads, those that these read, and so on, each after what reads it.
class Tile {
  public:
    Tile(const Schedule& s, const Stage& map) : s_(s), counts(map.axes.size(), 1) {
        std::vector<std::optional<size_t>> own;
        for (size_t i = 0; i < map.axes.size(); ++i) own.emplace_back(i);
        find(map, own);
    }

    // The axis of the map along which what the sums are made of lies together: there neighbours are those of threads.
    size_t axis_of_threads() const {
        const Stage& stage = find_stage(s_, sums.back().name);
        std::vector<Expr> loads = loads_of(stage);
        loads.erase(loads.begin() + std::ptrdiff_t(std::min(loads.size(), kSomeLoads)), loads.end());
        for (size_t i = stage.axes.size(); i-- > 0;) {
            const auto of = sums.back().of[i];
            const bool along = std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
                auto step = stride_of(s_, load, stage.axes[i].var);
                return step && step->is_int(1);
            });
            if (along && of && counts[*of] == 1) return *of;
        }
        return counts.size() - 1;
    }

    // The multiples that an extent of sums is rounded up to, by axis.
    std::vector<int64_t> whole(const Sums& of) const {
        std::vector<int64_t> all;
        for (const auto& axis : of.of) all.push_back(axis ? counts[*axis] : 1);
        return all;
    }

  private:
    const Schedule& s_;

    void find(const Stage& stage, const std::vector<std::optional<size_t>>& own) {
        for (const Expr& load : loads_of(stage)) {
            const Stage* from = writer_of(s_, load.node().slot);
            if (!from || !is_choice_of_sums(*from)) continue;
            if (std::any_of(sums.begin(), sums.end(), [&](const Sums& f) { return f.name == from->name; })) continue;
            Sums found{from->name, std::vector<std::optional<size_t>>(from->axes.size())};
            for (size_t i = 0; i < from->axes.size(); ++i)
                for (size_t k = 0; k < stage.axes.size(); ++k)
                    if (load.arg(i) == stage.axes[k].var) found.of[i] = own[k];
            for (const PhasedAxis& p : find_phases(*from, kMostSums, true)) {
                const auto of = found.of[p.axis];
                agree &= of && (counts[*of] == 1 || counts[*of] == p.count);
                if (of) counts[*of] = p.count;
            }
            sums.push_back(found);
            find(*from, found.of);
        }
    }

  public:
    std::vector<int64_t> counts;  // by axis of the map: how many places of it belong to a thread
    std::vector<Sums> sums;
    bool agree = true;
};

}  // namespace

Result<std::vector<std::string>> phases_to_threads(Schedule& s, const std::string& map) {
    const Stage out = find_stage(s, map);
    const Tile tile(s, out);
    const std::vector<std::string> none;
    if (tile.sums.empty() || !tile.agree) return none;
    const std::vector<int64_t>& counts = tile.counts;
    const size_t last = tile.axis_of_threads();
    std::vector<Loop> outer, inner, loops = s.loops(map);
    std::optional<Loop> neighbours;
    bool beside = false;  // tiles reach beside the result
    for (size_t i = 0; i < loops.size(); ++i) {
        const auto extent = s.extent(loops[i]).as_int();
        if (counts[i] == 1 && i == last) {
            neighbours = loops[i];
        } else if (counts[i] == 1) {
            outer.push_back(loops[i]);
        } else if (extent == counts[i]) {
            inner.push_back(loops[i]);
        } else {
            beside |= !extent || *extent % counts[i];
            auto [tiles, phase] = TRY(s.split(loops[i], counts[i]));
            outer.push_back(tiles);
            inner.push_back(phase);
        }
    }
    if (neighbours) outer.push_back(*neighbours);
    if (outer.empty()) return none;
    std::vector<Loop> order = outer;
    order.insert(order.end(), inner.begin(), inner.end());
    TRY(s.reorder(order));
    Loop thread = outer[0];
    for (size_t i = 1; i < outer.size(); ++i) thread = TRY(s.fuse(thread, outer[i]));
    TRY(s.parallel(thread));
    for (const Loop& l : inner) TRY(s.unroll(l));
    std::vector<std::string> taken;
    // What is beside the result is not stored; what others are made of comes first.
    for (auto of = tile.sums.rbegin(); beside && of != tile.sums.rend(); ++of) TRY(s.pad(of->name, tile.whole(*of)));
    for (const Sums& of : tile.sums) {
        TRY(s.compute_at(of.name, thread));
        TRY(s.set_scope(of.name, Scope::Register));
        for (const Loop& l : s.loops(of.name)) TRY(s.unroll(l));
        taken.push_back(of.name);
    }
    return taken;
}

}  // namespace tessera
