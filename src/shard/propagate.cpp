#include "shard/propagate.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tessera::shard {
namespace {

using Axes = std::vector<size_t>;
constexpr int kMostSweeps = 200;

bool is_prefix(const Axes& a, const Axes& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
}

int64_t parts(const Axes& axes, const Mesh& mesh) {
    int64_t n = 1;
    for (size_t a : axes) n *= mesh.size(a);
    return n;
}

class Propagation {
  public:
    Propagation(const Graph& graph, const std::vector<Unit>& units, const Mesh& mesh, const Shardings& given)
        : units_(units), mesh_(mesh), given_(given) {
        auto open = [&](const Value* v) {
            const auto sizes = divisible_sizes(*v);
            if (!sizes) return;
            Sharding s;
            s.dims.assign(sizes->size(), DimSharding{{}, true});
            const auto found = given_.find(v);
            out_.values.emplace(v, found == given_.end() ? s : found->second);
        };
        for (const auto& v : graph.inputs()) open(v.get());
        for (const auto& v : graph.constants()) open(v.get());
        for (const auto& n : graph.nodes())
            for (size_t i = 0; i < n->output_count(); ++i) open(n->output(i));
        for (size_t i = 0; i < units_.size(); ++i) {
            ties_.push_back(ties_of(units_[i]));
            for (const auto& ties : ties_[i])
                for (const Tie& tie : ties)
                    if (auto& around = around_[tie.value]; around.empty() || around.back() != i) around.push_back(i);
        }
    }

    Propagated run() {
        for (halo_ = 0; halo_ < 2; ++halo_) {
            due_.assign(units_.size(), true);
            for (int sweep = 0; sweep < kMostSweeps && this->sweep(); ++sweep) {
            }
        }
        say_ = true;
        for (size_t i = 0; i < units_.size(); ++i) division(i);
        for (auto& [value, sharding] : out_.values)
            for (DimSharding& d : sharding.dims) d.open = false;
        return std::move(out_);
    }

  private:
    bool sweep() {
        bool changed = false;
        for (size_t i = 0; i < units_.size(); ++i) changed |= spread(i);
        for (size_t i = units_.size(); i-- > 0;) changed |= spread(i);
        return changed;
    }

    const DimSharding& at(const Tie& t) const { return out_.values.at(t.value).dims[t.dim]; }

    // Whether the dimension, divided over the axes, is what the variable divided over them reads.
    bool follows(const Unit& unit, size_t variable, const Tie& tie, const Axes& axes) const {
        if (!tie.read) return true;
        const auto [known, is_new] = followed_.try_emplace({&tie, axes, halo_}, false);
        if (is_new) known->second = reads_own_part(unit, variable, tie, axes);
        return known->second;
    }

    bool reads_own_part(const Unit& unit, size_t variable, const Tie& tie, const Axes& axes) const {
        const Sizes sizes = *divisible_sizes(*tie.value);
        const Read& read = unit.reads[*tie.read];
        Ranges ranges = whole_ranges(unit);
        for (int64_t rank : mesh_.group(0, axes)) {
            ranges[variable] = block(unit.variables[variable].extent, axes, mesh_, rank);
            if (ranges[variable].length() == 0) continue;
            const Interval own = block(sizes[tie.dim], axes, mesh_, rank);
            const Interval wanted = needed(read, sizes, unit.variables, ranges)[tie.dim];
            const int64_t reach = halo_ ? (own.length() - 1) / 2 : 0;
            if (!Interval{own.low - reach, own.high + reach}.contains(wanted)) return false;
        }
        return true;
    }

    int64_t bytes(const Value* v) const {
        const TensorType& t = v->type().tensor();
        const auto sizes = t.shape.sizes();
        return std::accumulate(sizes->begin(), sizes->end(), int64_t(dtype_bytes(t.dtype)), std::multiplies<>());
    }

    void conflict(const Unit& unit, const std::string& text) {
        if (say_) out_.conflicts.push_back(fmt::format("{} {}: {}", unit.node->op().name, unit.value()->name(), text));
    }

    struct Wish {
        Axes axes;
        bool given = false;  // by the user, for the unit's result
        int64_t bytes = 0;   // of the tensors that are divided so
        const Value* from = nullptr;
    };

    // What the tensors around a variable say of it; where they disagree, what they agree on.
    Wish wish(const Unit& unit, size_t variable, const std::vector<Tie>& ties) {
        Wish w;
        for (const Tie& tie : ties) {
            const Axes& axes = at(tie).axes;
            if (axes.empty() || !follows(unit, variable, tie, axes)) continue;
            w.given |= !tie.read && given_.contains(tie.value);
            w.bytes += bytes(tie.value);
            if (is_prefix(w.axes, axes)) {
                w.axes = axes;
                w.from = tie.value;
            } else if (!is_prefix(axes, w.axes)) {
                conflict(unit, fmt::format("dimension {} of {} is divided over {}, and dimension {} of {} over {}; "
                                           "the part on which they differ is not divided",
                                           ordinal(w.from, ties), w.from->name(), axis_names(mesh_, w.axes), tie.dim,
                                           tie.value->name(), axis_names(mesh_, axes)));
                const auto [differs, _] = std::mismatch(w.axes.begin(), w.axes.end(), axes.begin(), axes.end());
                w.axes.erase(differs, w.axes.end());
            }
        }
        return w;
    }

    static size_t ordinal(const Value* v, const std::vector<Tie>& ties) {
        for (const Tie& t : ties)
            if (t.value == v) return t.dim;
        return 0;
    }

    // The axes of each of a unit's variables. An axis divides one of them: first what the user said of the result, then
    // indices of the result before axes of reductions, then the larger tensors.
    std::vector<Axes> division(size_t number) {
        const Unit& unit = units_[number];
        std::vector<Wish> wishes;
        std::vector<size_t> order;
        for (size_t v = 0; v < unit.variables.size(); ++v) {
            wishes.push_back(wish(unit, v, ties_[number][v]));
            order.push_back(v);
        }
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            auto key = [&](size_t v) {
                return std::tuple(!wishes[v].given, unit.variables[v].reduced, -wishes[v].bytes);
            };
            return key(a) < key(b);
        });
        std::vector<Axes> division(unit.variables.size());
        std::unordered_map<size_t, size_t> taken;  // variable by axis
        for (size_t v : order)
            for (size_t axis : wishes[v].axes) {
                const auto [other, is_new] = taken.emplace(axis, v);
                if (!is_new) {
                    if (!unit.variables[v].reduced && !unit.variables[other->second].reduced)
                        conflict(unit, fmt::format("axis {} divides dimension {} by {}, and so not dimension {}, which "
                                                   "{} divides over it",
                                                   mesh_.axes()[axis].name, other->second,
                                                   wishes[other->second].from->name(), v, wishes[v].from->name()));
                    break;
                }
                division[v].push_back(axis);
            }
        return division;
    }

    // Where nothing around the unit changed since it was spread, nothing will.
    bool spread(size_t number) {
        bool changed = false;
        const Unit& unit = units_[number];
        if (!unit.body || !due_[number]) return false;
        due_[number] = false;
        const std::vector<Axes> division = this->division(number);
        for (size_t v = 0; v < division.size(); ++v) {
            const Axes& axes = division[v];
            if (axes.empty()) continue;
            for (const Tie& tie : ties_[number][v]) {
                Sharding& s = out_.values.at(tie.value);
                DimSharding& d = s.dims[tie.dim];
                if (!d.open || d.axes.size() >= axes.size() || !is_prefix(d.axes, axes)) continue;
                if (std::any_of(axes.begin() + int64_t(d.axes.size()), axes.end(), [&](size_t a) { return s.uses(a); }))
                    continue;
                if ((*divisible_sizes(*tie.value))[tie.dim] < parts(axes, mesh_)) continue;
                if (!follows(unit, v, tie, axes)) continue;
                d.axes = axes;
                changed = true;
                for (size_t other : around_.at(tie.value)) due_[other] = true;
            }
        }
        return changed;
    }

    const std::vector<Unit>& units_;
    const Mesh& mesh_;
    const Shardings& given_;
    std::vector<std::vector<std::vector<Tie>>> ties_;               // by unit and variable
    std::unordered_map<const Value*, std::vector<size_t>> around_;  // units
    std::vector<bool> due_;
    mutable std::map<std::tuple<const Tie*, Axes, int>, bool> followed_;
    Propagated out_;
    int halo_ = 0;
    bool say_ = false;
};

}  // namespace

std::vector<std::vector<Tie>> ties_of(const Unit& unit) {
    std::vector<std::vector<Tie>> ties(unit.variables.size());
    for (size_t v = 0; v < ties.size(); ++v) {
        if (!unit.variables[v].reduced) ties[v].push_back({unit.value(), v, {}});
        for (size_t r = 0; r < unit.reads.size(); ++r)
            for (size_t d = 0; d < unit.reads[r].indices.size(); ++d)
                if (depends_on(unit.reads[r].indices[d], unit.variables[v].var))
                    ties[v].push_back({unit.node->input(unit.reads[r].slot), d, r});
    }
    return ties;
}

Propagated propagate(const Graph& graph, const std::vector<Unit>& units, const Mesh& mesh, const Shardings& given) {
    return Propagation(graph, units, mesh, given).run();
}

}  // namespace tessera::shard
