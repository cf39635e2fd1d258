#include "kernel/schedule/split_axes.h"

#include <algorithm>

#include "kernel/schedule/stage_plan.h"

namespace tessera {
namespace {

constexpr int kRounds = 12;

struct Place {
    size_t stage, axis;
    bool operator==(const Place&) const = default;
};

class Splitting {
  public:
    explicit Splitting(Compute& compute) : c_(compute) {}

    void run() {
        for (int round = 0; round < kRounds; ++round)
            if (!split_one()) return;
    }

    // Splits one axis of a result that a later stage reads by digits, such as phases of a transposed convolution.
    bool split_read_one() {
        for (const Stage& reader : c_.stages)
            for (size_t s = 0; s < c_.stages.size(); ++s)
                for (const Expr& load : loads_in(reader.value, c_.stages[s].buffer))
                    for (size_t d = 0; d < load.args().size(); ++d) {
                        const auto by = step_between_digits(load.arg(d), c_.stages[s].axes[d].extent);
                        std::vector<Place> shared;
                        if (!by || !collect({s, d}, *by, shared)) continue;
                        for (const Place& p : shared) split_axis(p, *by);
                        return true;
                    }
        return false;
    }

  private:
    // The least factor, above 1, of a variable in an index that falls apart by it.
    static std::optional<int64_t> step_between_digits(const Expr& index, const Expr& extent) {
        if (!index.is(ExprKind::Add)) return {};
        std::optional<int64_t> least;
        visit(index, [&](const Expr& e) {
            if (!e.is(ExprKind::Var)) return;
            const auto step = step_of(index, e);
            const auto by = step ? step->as_int() : std::nullopt;
            if (by && *by > 1 && (!least || *by < *least)) least = by;
        });
        if (!least || !mod(extent, *least).is_int(0) || extent.is_int(*least)) return {};
        return falls_apart(index, *least) ? least : std::nullopt;
    }

    bool split_one() {
        for (size_t s = 0; s < c_.stages.size(); ++s) {
            Stage& stage = c_.stages[s];
            for (size_t a = 0; a < stage.axes.size(); ++a)
                if (auto by = divisor(stage, stage.axes[a])) {
                    std::vector<Place> shared;
                    if (collect({s, a}, *by, shared)) {
                        for (const Place& p : shared) split_axis(p, *by);
                        return true;
                    }
                }
            for (size_t r = 0; r < stage.reduce.size(); ++r)
                if (auto by = divisor(stage, stage.reduce[r]); by && !indexes_made(stage, stage.reduce[r].var)) {
                    split(stage, stage.reduce, r, *by);
                    return true;
                }
        }
        return false;
    }

    // By what the axis is divided somewhere in the stage, and can be without a rest.
    static std::optional<int64_t> divisor(const Stage& stage, const ReduceAxis& axis) {
        std::optional<int64_t> found;
        visit(stage.value, [&](const Expr& e) {
            if (found || (!e.is(ExprKind::FloorDiv) && !e.is(ExprKind::Mod)) || !(e.arg(0) == axis.var)) return;
            auto by = e.arg(1).as_int();
            if (!by || *by < 2 || !mod(axis.extent, *by).is_int(0) || axis.extent.is_int(*by)) return;
            found = by;
        });
        return found;
    }

    bool made(int buffer) const {  // by a stage of this compute
        return std::any_of(c_.stages.begin(), c_.stages.end(), [&](const Stage& s) { return s.buffer == buffer; });
    }

    bool indexes_made(const Stage& stage, const Expr& var) const {
        bool found = false;
        visit(stage.value, [&](const Expr& e) {
            if (!e.is(ExprKind::Load) || !made(e.node().slot)) return;
            for (const Expr& at : e.args()) found |= depends(at, var);
        });
        return found;
    }

    static bool depends(const Expr& e, const Expr& var) {
        bool found = false;
        visit(e, [&](const Expr& x) { found |= x == var; });
        return found;
    }

    // Is an index a multiple of `by`, and something less, as it is written?
    static bool falls_apart(const Expr& index, int64_t by) {
        bool divided = false;
        for (const Expr& part : {floor_div(index, by), mod(index, by)})
            visit(part, [&](const Expr& e) { divided |= e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod); });
        return !divided;
    }

    // The axis, those of stages that read what it runs over, and those of stages whose results it reads.
    bool collect(const Place& start, int64_t by, std::vector<Place>& all) const {
        all = {start};
        for (size_t i = 0; i < all.size(); ++i) {
            const Place at = all[i];
            const Stage& stage = c_.stages[at.stage];
            const Expr& var = stage.axes[at.axis].var;
            bool fits = true;
            auto add = [&](Place p) {
                if (std::find(all.begin(), all.end(), p) == all.end()) all.push_back(p);
            };
            auto link = [&](size_t other, const Expr& load, bool reading) {
                for (size_t d = 0; d < load.args().size(); ++d) {
                    const Expr& index = load.arg(d);
                    if (!reading) {  // what `at` makes is read there
                        if (d != at.axis) continue;
                        const auto& axes = c_.stages[other].axes;
                        auto found =
                            std::find_if(axes.begin(), axes.end(), [&](const ReduceAxis& a) { return a.var == index; });
                        if (found != axes.end())
                            add({other, size_t(found - axes.begin())});
                        else
                            fits &= falls_apart(index, by);
                    } else if (index == var) {
                        add({other, d});
                    }
                }
            };
            for (size_t other = 0; other < c_.stages.size(); ++other) {
                const Stage& o = c_.stages[other];
                visit(o.value, [&](const Expr& e) {
                    if (e.is(ExprKind::Load) && e.node().slot == stage.buffer) link(other, e, false);
                });
                visit(stage.value, [&](const Expr& e) {
                    if (e.is(ExprKind::Load) && e.node().slot == o.buffer) link(other, e, true);
                });
            }
            bool read = false;
            for (const Stage& o : c_.stages)
                visit(o.value, [&](const Expr& e) { read |= e.is(ExprKind::Load) && e.node().slot == stage.buffer; });
            if (read && size_t(stage.buffer) < c_.params) fits = false;  // it is read as it is kept
            if (!fits) return false;
        }
        return true;
    }

    // One axis of a list by two; gives what the old one is.
    Expr split(Stage& stage, std::vector<ReduceAxis>& axes, size_t at, int64_t by) {
        const ReduceAxis old = axes[at];
        Expr outer = floor_div(old.extent, by);
        Expr high = index_var(fmt::format("%s{}", next_++), outer.as_int());
        Expr low = index_var(fmt::format("%s{}", next_++), by);
        axes[at] = {high, outer};
        axes.insert(axes.begin() + std::ptrdiff_t(at) + 1, {low, Expr(by)});
        Bindings names{{old.var.node().name, high * by + low}};
        stage.value = substitute(stage.value, names);
        for (Expr& e : stage.store) e = substitute(e, names);
        return high * by + low;
    }

    void split_axis(const Place& p, int64_t by) {
        Stage& stage = c_.stages[p.stage];
        const bool own = size_t(stage.buffer) >= c_.params;
        split(stage, stage.axes, p.axis, by);
        if (!own) return;
        // A buffer that only this compute knows gets the new dimensions, and its readers two indices.
        Buffer& b = c_.buffers[size_t(stage.buffer)];
        b.shape.clear();
        stage.store.clear();
        for (const ReduceAxis& a : stage.axes) {
            b.shape.push_back(a.extent);
            stage.store.push_back(a.var);
        }
        for (Stage& reader : c_.stages)
            reader.value = map_loads(reader.value, [&](const Expr& e) -> Expr {
                if (e.node().slot != stage.buffer || e.args().size() == b.shape.size()) return e;
                std::vector<Expr> at = e.args();
                const Expr whole = at[p.axis];
                at[p.axis] = floor_div(whole, by);
                at.insert(at.begin() + std::ptrdiff_t(p.axis) + 1, mod(whole, by));
                return load(e.node().slot, e.dtype(), std::move(at));
            });
    }

    Compute& c_;
    int next_ = 0;
};

}  // namespace

void split_axes(Compute& compute) { Splitting(compute).run(); }

void split_read_axes(Compute& compute) {
    Splitting splitting(compute);
    for (int round = 0; round < kRounds && splitting.split_read_one();) ++round;
}

}  // namespace tessera
