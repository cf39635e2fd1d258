// Reductions along one axis in one loop over blocks of it: running values, corrected when the maximum grows.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "kernel/schedule/schedule.h"

namespace tessera {
namespace {

bool reads_any(const Expr& e, const std::set<int>& slots) {
    std::vector<int> all = loaded_slots(e);
    return std::any_of(all.begin(), all.end(), [&](int slot) { return slots.contains(slot); });
}

bool is_zero(const Expr& e) { return e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real == 0; }

// What a term depends on: exp(score - top) times something free of `top`.
class TermShape {
  public:
    TermShape(Expr top, Expr score) : top_(std::move(top)), score_(std::move(score)) {}

    bool fits(const Expr& e) const {
        switch (e.kind()) {
            case ExprKind::Call: return e.node().fn == Fn::Exp && is_below(e.arg(0));
            case ExprKind::Mul:
                return e.args().size() == 2 &&
                       ((fits(e.arg(0)) && is_free(e.arg(1))) || (is_free(e.arg(0)) && fits(e.arg(1))));
            case ExprKind::Div: return fits(e.arg(0)) && is_free(e.arg(1));
            case ExprKind::Neg: return fits(e.arg(0));
            case ExprKind::Select:
                return is_free(e.arg(0)) && (is_zero(e.arg(1)) || fits(e.arg(1))) &&
                       (is_zero(e.arg(2)) || fits(e.arg(2)));
            default: return false;
        }
    }

  private:
    bool is_free(const Expr& e) const { return !reads_any(e, {top_.node().slot}); }
    // x - top; or, where x is what `top` is the largest of, the smaller of that and 0.
    bool is_below(const Expr& e) const {
        if (e.is(ExprKind::Min) && e.args().size() == 2 && is_zero(e.arg(1)))
            return e.arg(0).is(ExprKind::Sub) && e.arg(0).arg(1) == top_ && e.arg(0).arg(0) == score_;
        return e.is(ExprKind::Sub) && e.arg(1) == top_ && is_free(e.arg(0));
    }

    Expr top_, score_;
};

// The checks of `online`, and what it needs to know of the stages.
class OnlineGroup {
  public:
    OnlineGroup(const Compute& compute, std::vector<size_t> stages) : compute_(compute), stages_(std::move(stages)) {
        for (size_t s : stages_) buffers_.insert(stage(s).buffer);
    }

    std::set<size_t> terms;              // maps on the way from the maximum to sums
    std::vector<std::vector<int>> rows;  // by stage: for each axis of the maximum, the stage's axis that it is

    Status check() {
        const Stage& top = stage(stages_[0]);
        for (size_t s : stages_) {
            const Stage& each = stage(s);
            if (each.reduce.size() != 1 || each.fold)
                return Error(Code::E0602, "{} is not a reduction along one axis", each.name);
            if (!each.reduce[0].extent.same(top.reduce[0].extent))
                return Error(Code::E0602, "{} and {} reduce different numbers of elements, {} and {}", top.name,
                             each.name, to_string(top.reduce[0].extent), to_string(each.reduce[0].extent));
            if (size_t(each.buffer) < compute_.params)
                return Error(Code::E0602, "{} writes an output", each.name)
                    .hint("cache_write computes it into an intermediate");
            if (each.combine != (s == stages_[0] ? ReduceOp::Max : ReduceOp::Sum) || !is_float(each.value.dtype()))
                return Error(Code::E0602, "online takes a maximum of floats, then sums of floats, but {} is neither",
                             each.name);
        }
        for (size_t s : stages_) find_terms(stage(s).value);
        for (size_t t : terms)
            for (size_t r = 0; r < compute_.stages.size(); ++r) {
                const bool in = terms.contains(r) || std::find(stages_.begin(), stages_.end(), r) != stages_.end();
                if (!in && reads_buffer(stage(r), stage(t).buffer))
                    return Error(Code::E0602, "{} also reads {}, which depends on a maximum that is not final",
                                 stage(r).name, stage(t).name)
                        .hint("give each reader its own copy with compute_inline");
            }
        for (size_t s : stages_) TRY(check_term(s));
        return {};
    }

  private:
    const Stage& stage(size_t s) const { return compute_.stages[s]; }

    std::optional<size_t> writer(int slot) const {
        if (size_t(slot) < compute_.params) return std::nullopt;
        for (size_t i = 0; i < compute_.stages.size(); ++i)
            if (stage(i).buffer == slot) return i;
        return std::nullopt;
    }

    // Whether it is computed from what a stage of the group makes.
    bool follows(const Expr& e) const {
        for (int slot : loaded_slots(e)) {
            if (buffers_.contains(slot)) return true;
            if (auto w = writer(slot); w && follows(stage(*w).value)) return true;
        }
        return false;
    }

    void find_terms(const Expr& value) {
        for (int slot : loaded_slots(value)) {
            auto w = writer(slot);
            if (!w || !stage(*w).reduce.empty() || !follows(stage(*w).value) || !terms.insert(*w).second) continue;
            find_terms(stage(*w).value);
        }
    }

    // With the terms' values in place of their loads.
    Expr spelled(const Expr& e) const {
        return map_loads(e, [&](const Expr& l) -> Expr {
            auto w = writer(l.node().slot);
            if (!w || !terms.contains(*w)) return l;
            Bindings at;
            for (size_t d = 0; d < l.args().size(); ++d)
                at.insert_or_assign(stage(*w).axes[d].var.node().name, l.arg(d));
            return substitute(spelled(stage(*w).value), at);
        });
    }

    Status check_term(size_t s) {
        const Stage &top = stage(stages_[0]), &each = stage(s);
        rows.emplace_back();
        if (s == stages_[0]) {
            for (size_t a = 0; a < top.axes.size(); ++a) rows.back().push_back(int(a));
            if (follows(top.value)) return Error(Code::E0602, "{} depends on its own sums", top.name);
            return {};
        }
        const Expr term = spelled(each.value);
        std::vector<Expr> loads = loads_in(term, top.buffer);
        if (loads.empty()) return Error(Code::E0602, "{} does not depend on {}", each.name, top.name);
        Bindings at{{top.reduce[0].var.node().name, each.reduce[0].var}};
        for (size_t a = 0; a < top.axes.size(); ++a) {
            const Expr& index = loads[0].arg(a);
            size_t axis = 0;
            while (axis < each.axes.size() && !each.axes[axis].var.same(index)) ++axis;
            const auto& used = rows.back();
            if (axis == each.axes.size() || std::find(used.begin(), used.end(), int(axis)) != used.end())
                return Error(Code::E0602, "{} does not read {} at the indices of its own axes", each.name, top.name);
            rows.back().push_back(int(axis));
            at.insert_or_assign(top.axes[a].var.node().name, index);
        }
        bool other = false;
        for (const Expr& l : loads_in(term)) other |= !l.same(loads[0]) && follows(l);
        if (other || !TermShape(loads[0], substitute(top.value, at)).fits(term))
            return Error(Code::E0602, "a term of {} is not exp(x - {}) times a factor that does not depend on it: {}",
                         each.name, top.name, to_string(term))
                .hint("only sums of such terms can be rescaled when {} grows", top.name);
        return {};
    }

    const Compute& compute_;
    std::vector<size_t> stages_;
    std::set<int> buffers_;
};

// Nothing is subtracted where all so far is -inf: exp is 0 there, and not NaN.
Expr shift_of(const Expr& top) { return select(eq(top, infinity(top.dtype(), true)), constant(0, top.dtype()), top); }

std::string fresh_axis(const Stage& stage, std::string name) {
    auto taken = [&](const ReduceAxis& a) { return a.var.node().name == name; };
    while (std::any_of(stage.axes.begin(), stage.axes.end(), taken)) name += "_";
    return name;
}

std::vector<Expr> vars_at(const Stage& stage, const std::vector<int>& axes) {
    std::vector<Expr> vars;
    for (int a : axes) vars.push_back(stage.axes[size_t(a)].var);
    return vars;
}

std::vector<Expr> extents_of(const Stage& stage) {
    std::vector<Expr> extents;
    for (const ReduceAxis& a : stage.axes) extents.push_back(a.extent);
    return extents;
}

// Its reduction of one block of `size` elements: the value that one step takes in.
Stage block_of(const Stage& stage, const ReduceAxis& step, int64_t size) {
    const ReduceAxis& old = stage.reduce[0];
    ReduceAxis inner{index_var(old.var.node().name, size), size};
    Stage part = stage;
    part.axes.push_back(step);
    part.reduce = {inner};
    part.store.push_back(step.var);
    const Expr at = step.var * size + inner.var;
    part.value = substitute(stage.value, {{old.var.node().name, at}});
    if (!mod(old.extent, size).is_int(0))
        part.value = select(lt(at, old.extent), part.value, identity(stage.combine, stage.value.dtype()));
    return part;
}

}  // namespace

Result<std::vector<std::string>> Schedule::online(const std::vector<std::string>& names, int64_t block) {
    if (names.size() < 2) return Error(Code::E0602, "online takes a maximum and at least one sum");
    if (block < 1) return Error(Code::E0602, "expected a block of at least 1 element, got {}", block);
    std::vector<size_t> stages;
    for (const std::string& name : names) {
        stages.push_back(TRY(find_stage(name)));
        TRY(untouched(stages.back(), "online"));
        if (!plans_[stages.back()].at.empty() || plans_[stages.back()].layout)
            return Error(Code::E0602, "{} already has a place or a layout", name)
                .hint("apply online before compute_at and transform_layout");
        if (stages.size() > 1 && stages[stages.size() - 2] >= stages.back())
            return Error(Code::E0602, "{} must come before {}, but does not", names[stages.size() - 2], name);
    }
    OnlineGroup group(compute_, stages);
    TRY(group.check());
    for (size_t t : group.terms)
        if (!plans_[t].at.empty())
            return Error(Code::E0602, "{} already has a place", compute_.stages[t].name)
                .hint("apply online before compute_at");

    const Stage top = compute_.stages[stages[0]];
    const DType dtype = top.value.dtype();
    const Expr blocks = ceil_div(top.reduce[0].extent, block);
    auto step_axis = [&](const Stage& s) {
        return ReduceAxis{index_var(fresh_axis(s, s.reduce[0].var.node().name + "_block"), blocks.as_int()), blocks};
    };
    const Stage& last = compute_.stages[stages.back()];
    const std::string loop = loop_name(last, step_axis(last));
    Stage shift{.name = fresh_stage_name(top.name + "_shift"), .axes = top.axes, .store = top.store};
    shift.buffer = add_buffer(shift.name, dtype, extents_of(shift));
    shift.value = shift_of(load(top.buffer, dtype, top.store));
    const int scale = add_buffer(fresh_stage_name(top.name + "_scale"), dtype, {});
    for (size_t t : group.terms) {
        redirect(t, top.buffer, shift.buffer);
        plans_[t].at = loop;
    }
    for (size_t n = 1; n < stages.size(); ++n) {
        redirect(stages[n], top.buffer, shift.buffer);
        restore_blind(top, compute_.stages[stages[n]].buffer, group.rows[n]);
    }

    std::vector<std::string> made;
    for (size_t n = stages.size(); n-- > 0;) {
        Stage& stage = compute_.stages[stages[n]];
        const ReduceAxis step = step_axis(stage);
        Stage part = block_of(stage, step, block);
        part.name = fresh_stage_name(stage.name + "_block");
        part.buffer = add_buffer(part.name, part.value.dtype(), extents_of(part));
        stage.reduce = {step};
        stage.value = load(part.buffer, part.value.dtype(), part.store);
        if (n > 0) {
            std::vector<Expr> row = vars_at(stage, group.rows[n]);
            row.push_back(step.var);
            stage.fold = true;
            stage.value = load(stage.buffer, stage.value.dtype(), stage.store) *
                              cast(load(scale, dtype, std::move(row)), stage.value.dtype()) +
                          stage.value;
        }
        StagePlan& plan = plans_[stages[n]];
        plan.loops = plain_plan(stage).loops;
        if (n + 1 < stages.size()) {
            plan.loops.pop_back();
            plan.running = plan.at = loop;
            plan.rows.assign(stage.axes.size(), -1);
            for (size_t a = 0; a < top.axes.size(); ++a) plan.rows[size_t(group.rows[n][a])] = group.rows.back()[a];
        }
        if (n == 0) {
            Stage correct{.name = compute_.buffers[size_t(scale)].name, .buffer = scale, .axes = part.axes};
            correct.store = part.store;
            compute_.buffers[size_t(scale)].shape = extents_of(correct);
            const Expr before = load(top.buffer, dtype, top.store);
            const Expr now = max(before, load(part.buffer, dtype, part.store));
            correct.value = call(Fn::Exp, {min(before - shift_of(now), constant(0, dtype))});
            made.insert(made.end(), {correct.name, shift.name});
            plans_[insert_stage(stages[0] + 1, std::move(shift))].at = loop;
            StagePlan& ahead = plans_[insert_stage(stages[0] + 1, std::move(correct))];
            ahead.at = loop;
            ahead.ahead = top.name;
        }
        made.insert(made.begin(), part.name);
        StagePlan& own = plans_[insert_stage(stages[n], std::move(part))];
        own.at = loop;
        own.bounded = !mod(top.reduce[0].extent, block).is_int(0);
    }
    std::vector<std::string> args = names;
    args.push_back(std::to_string(block));
    record("online", std::move(args), made);
    return made;
}

// Sums are read as they would be: NaN where the maximum is -inf, of which 0 was subtracted. (Over nothing they are 0.)
void Schedule::restore_blind(const Stage& top, int buffer, const std::vector<int>& rows) {
    const DType dtype = top.value.dtype();
    for (size_t r : readers(buffer)) {
        Stage& reader = compute_.stages[r];
        reader.value = map_loads(reader.value, [&](const Expr& l) -> Expr {
            if (l.node().slot != buffer) return l;
            std::vector<Expr> at;
            for (int a : rows) at.push_back(l.arg(size_t(a)));
            Expr blind = eq(load(top.buffer, dtype, at), infinity(dtype, true));
            return select(logical_and(lt(0, top.reduce[0].extent), blind), real_const(NAN, l.dtype()), l);
        });
    }
}

}  // namespace tessera
