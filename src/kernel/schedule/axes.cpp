// Primitives that change the axes of stages: merged, rounded up, or cut out of a reduction.
#include <algorithm>

#include "expr/simplify.h"
#include "kernel/ir/regions.h"
#include "kernel/schedule/schedule.h"

namespace tessera {
namespace {

using Groups = std::vector<std::vector<int>>;

std::string groups_text(const Groups& groups) {
    std::string text;
    for (size_t g = 0; g < groups.size(); ++g) {
        if (g > 0) text += ";";
        for (size_t i = 0; i < groups[g].size(); ++i) text += fmt::format("{}{}", i ? "," : "", groups[g][i]);
    }
    return text;
}

bool is_partition(const Groups& groups, size_t count) {
    std::vector<bool> seen(count);
    size_t total = 0;
    for (const auto& group : groups)
        for (int i : group) {
            if (i < 0 || static_cast<size_t>(i) >= count || seen[static_cast<size_t>(i)]) return false;
            seen[static_cast<size_t>(i)] = true;
            ++total;
        }
    return total == count && std::none_of(groups.begin(), groups.end(), [](const auto& g) { return g.empty(); });
}

// One axis for each group; `values` gets what the old variables are.
std::vector<ReduceAxis> merged(const std::vector<ReduceAxis>& axes, const Groups& groups, Bindings& values) {
    std::vector<ReduceAxis> result;
    for (const auto& group : groups) {
        if (group.size() == 1) {
            result.push_back(axes[static_cast<size_t>(group[0])]);
            continue;
        }
        std::string name;
        Expr extent = 1;
        for (int i : group) {
            const ReduceAxis& axis = axes[static_cast<size_t>(i)];
            name += (name.empty() ? "" : "_") + axis.var.node().name;
            extent = extent * axis.extent;
        }
        Expr var = index_var(name, extent.as_int());
        Expr inner = 1;
        auto larger = [&](int i) { return !axes[static_cast<size_t>(i)].extent.is_int(1); };
        for (size_t i = group.size(); i-- > 0;) {
            const ReduceAxis& axis = axes[static_cast<size_t>(group[i])];
            Expr value = floor_div(var, inner);
            if (std::any_of(group.begin(), group.begin() + static_cast<ptrdiff_t>(i), larger))
                value = mod(value, axis.extent);
            values.insert_or_assign(axis.var.node().name, axis.extent.is_int(1) ? Expr(0) : value);
            inner = inner * axis.extent;
        }
        result.push_back({var, extent});
    }
    return result;
}

// What var is multiplied by in a sum; empty where it stands anywhere but as a factor of a term.
std::optional<Expr> coefficient_of(const Expr& sum, const Expr& var) {
    Expr coefficient = 0;
    for (const Expr& term : terms_of(sum)) {
        if (!mentions(term, var.node().name)) continue;
        Monomial m = as_monomial(term);
        std::vector<Expr> others;
        bool found = false;
        for (size_t i = 0; i < m.count; ++i) {
            if (!found && m.atoms[i].same(var))
                found = true;
            else if (mentions(m.atoms[i], var.node().name))
                return std::nullopt;
            else
                others.push_back(m.atoms[i]);
        }
        if (!found) return std::nullopt;
        coefficient = coefficient + make_term(m.coefficient, others.data(), others.size());
    }
    return coefficient;
}

// i*(c*J) + j*c becomes c times the merged variable, also where J is a symbol that may be 0, so that a quotient and a
// remainder would not come together again. Axes of one element stand for 0 and change nothing.
Expr recombined(const Expr& e, const std::vector<ReduceAxis>& axes, const Groups& groups,
                const std::vector<ReduceAxis>& made) {
    if (e.is(ExprKind::Load) || e.dtype() != DType::i64) return e;
    Expr result = e;
    for (size_t g = 0; g < groups.size(); ++g) {
        std::vector<const ReduceAxis*> larger;
        for (int i : groups[g])
            if (const ReduceAxis& axis = axes[static_cast<size_t>(i)]; !axis.extent.is_int(1)) larger.push_back(&axis);
        if (groups[g].size() < 2 || larger.empty()) continue;
        std::optional<Expr> step = coefficient_of(result, larger.back()->var);
        if (!step || step->is_int(0)) continue;
        Expr old = 0, inner = *step;
        bool fits = true;
        for (size_t i = larger.size(); i-- > 0 && fits;) {
            std::optional<Expr> c = coefficient_of(result, larger[i]->var);
            fits = c && c->same(inner);
            old = old + inner * larger[i]->var;
            inner = inner * larger[i]->extent;
        }
        if (fits) result = result - old + *step * made[g].var;
    }
    return result;
}

// Whether an index stays below an extent, each side of a choice where it is chosen; `known` are conditions that hold.
bool stays_inside(const Expr& index, const Expr& extent, const Extents& running, const std::vector<Expr>& known) {
    if (index.is(ExprKind::Select)) {
        std::vector<Expr> chosen = conjuncts(index.arg(0));
        chosen.insert(chosen.end(), known.begin(), known.end());
        return stays_inside(index.arg(1), extent, running, chosen) &&
               stays_inside(index.arg(2), extent, running, known);
    }
    auto holds = [&](const Expr& condition) {
        return std::any_of(known.begin(), known.end(), [&](const Expr& k) { return k.same(condition); }) ||
               always(condition, running);
    };
    return holds(le(0, index)) && holds(lt(index, extent));
}

// Every factor of the product is a load at an index with the variable in it.
bool vanishes_with(const Expr& value, const std::string& var) {
    Expr e = value;
    while (e.is(ExprKind::Cast) && is_float(e.dtype()) == is_float(e.arg(0).dtype())) e = e.arg(0);
    if (e.is(ExprKind::Mul) || is_product(e))
        return std::all_of(e.args().begin(), e.args().end(), [&](const Expr& f) { return vanishes_with(f, var); });
    return e.is(ExprKind::Load) && mentions(e, var);
}

}  // namespace

Status Schedule::merge_axes(std::string_view name, const Groups& groups, const Groups& reduce_groups) {
    size_t s = TRY(find_stage(name));
    TRY(untouched(s, "merge_axes"));
    Stage& stage = compute_.stages[s];
    if (!is_partition(groups, stage.axes.size()))
        return Error(Code::E0602, "the groups {} do not contain each of the {} axes of {} exactly once",
                     groups_text(groups), stage.axes.size(), name);
    if (!reduce_groups.empty() && !is_partition(reduce_groups, stage.reduce.size()))
        return Error(Code::E0602, "the groups {} do not contain each of the {} reduction axes of {} exactly once",
                     groups_text(reduce_groups), stage.reduce.size(), name);
    if (plans_[s].layout)
        return Error(Code::E0602, "{} already has a layout", name).hint("apply merge_axes before transform_layout");
    for (const auto& group : groups) merge_parameters(s, group);
    for (std::vector<int> group : reduce_groups) {
        for (int& i : group) i += int(stage.axes.size());
        merge_parameters(s, group);
    }
    Bindings values;
    std::vector<ReduceAxis> before = stage.axes, reduce_before = stage.reduce;
    stage.axes = merged(before, groups, values);
    if (!reduce_groups.empty()) stage.reduce = merged(reduce_before, reduce_groups, values);
    auto index = [&](const Expr& e) {
        return recombined(recombined(e, before, groups, stage.axes), reduce_before, reduce_groups, stage.reduce);
    };
    stage.value = rewrite(stage.value, [&](const Expr& e) -> Expr {
        if (!e.is(ExprKind::Load)) return e;
        std::vector<Expr> at;
        for (const Expr& i : e.args()) at.push_back(index(i));
        return load(e.node().slot, e.dtype(), std::move(at));
    });
    stage.value = substitute(stage.value, values);
    if (is_parameter(stage.buffer)) {
        for (Expr& e : stage.store) e = substitute(index(e), values);
    } else {
        int buffer = stage.buffer;
        stage.store.clear();
        std::vector<Expr> shape;
        for (const ReduceAxis& axis : stage.axes) {
            stage.store.push_back(axis.var);
            shape.push_back(axis.extent);
        }
        compute_.buffers[static_cast<size_t>(buffer)].shape = shape;
        for (size_t r : readers(buffer)) {
            Stage& reader = compute_.stages[r];
            reader.value = rewrite(reader.value, [&](const Expr& e) -> Expr {
                if (!e.is(ExprKind::Load) || e.node().slot != buffer) return e;
                std::vector<Expr> at;
                for (const auto& group : groups) {
                    Expr index = 0;
                    for (int i : group)
                        index = index * before[static_cast<size_t>(i)].extent + e.arg(static_cast<size_t>(i));
                    at.push_back(index);
                }
                return load(buffer, e.dtype(), at);
            });
        }
    }
    StagePlan plain = plain_plan(stage);
    plans_[s].loops = std::move(plain.loops);
    plans_[s].multiples.clear();
    record("merge_axes", {std::string(name), groups_text(groups), groups_text(reduce_groups)});
    return {};
}

// A parameter that the stage reads or writes at just the axes of a group, in their order, gets one dimension for them
// and for those of one element between them.
// Reduction axes are counted on after the others.
void Schedule::merge_parameters(size_t s, const std::vector<int>& group) {
    if (group.size() < 2) return;
    const Stage& stage = compute_.stages[s];
    std::vector<ReduceAxis> axes = stage.axes;
    axes.insert(axes.end(), stage.reduce.begin(), stage.reduce.end());
    std::vector<Access> accesses;
    for (const Expr& l : loads_in(stage.value)) accesses.push_back({l.node().slot, l.args()});
    accesses.push_back({stage.buffer, stage.store});
    Bindings units;  // variables of single elements
    for (const ReduceAxis& a : axes)
        if (a.extent.is_int(1) && std::none_of(group.begin(), group.end(),
                                               [&](int i) { return axes[static_cast<size_t>(i)].var.same(a.var); }))
            units.emplace(a.var.node().name, 0);
    for (Access& access : accesses) {
        for (Expr& index : access.indices) index = substitute(index, units);
        Buffer& buffer = compute_.buffers[static_cast<size_t>(access.buffer)];
        if (!is_parameter(access.buffer) || !buffer.strides.empty()) continue;
        // The outermost dimension may be read in part, from some place on.
        auto begins_with = [&](const Expr& index, const Expr& var) {
            const Expr from = index - var;
            return std::none_of(axes.begin(), axes.end(), [&](const ReduceAxis& a) { return depends_on(from, a.var); });
        };
        auto is_one = [&](size_t d) {
            return buffer.shape[d].is_int(1) && std::none_of(axes.begin(), axes.end(), [&](const ReduceAxis& a) {
                       return !a.extent.is_int(1) && depends_on(access.indices[d], a.var);
                   });
        };
        // The dimension after those of the group, which begin at d; d where they do not.
        auto end_of = [&](size_t d) {
            size_t end = d;
            for (size_t i = 0; i < group.size();) {
                const ReduceAxis& axis = axes[static_cast<size_t>(group[i])];
                const bool inside = end < buffer.shape.size();
                if (inside && (end == d ? begins_with(access.indices[end], axis.var)
                                        : access.indices[end].same(axis.var) && buffer.shape[end].same(axis.extent)))
                    ++end, ++i;
                else if (inside && end > d && is_one(end))
                    ++end;
                else if (axis.extent.is_int(1))
                    ++i;
                else
                    return d;
            }
            return end;
        };
        for (size_t d = 0; d + 1 < buffer.shape.size() && buffer.shape.size() == access.indices.size(); ++d) {
            const size_t end = end_of(d);
            if (end < d + 2) continue;
            const std::vector<Expr> shape = buffer.shape;
            auto merged = [&](std::vector<Expr> indices) {
                for (size_t i = d + 1; i < end; ++i) indices[d] = indices[d] * shape[i] + indices[i];
                indices.erase(indices.begin() + static_cast<ptrdiff_t>(d) + 1,
                              indices.begin() + static_cast<ptrdiff_t>(end));
                return indices;
            };
            for (size_t i = d + 1; i < end; ++i) buffer.shape[d] = buffer.shape[d] * shape[i];
            buffer.shape.erase(buffer.shape.begin() + static_cast<ptrdiff_t>(d) + 1,
                               buffer.shape.begin() + static_cast<ptrdiff_t>(end));
            for (Stage& each : compute_.stages) {
                if (each.buffer == access.buffer) each.store = merged(each.store);
                each.value = rewrite(each.value, [&](const Expr& e) -> Expr {
                    if (!e.is(ExprKind::Load) || e.node().slot != access.buffer) return e;
                    return load(access.buffer, e.dtype(), merged(e.args()));
                });
            }
            break;
        }
    }
}

Status Schedule::pad(std::string_view name, const std::vector<int64_t>& multiples) {
    size_t s = TRY(find_stage(name));
    const Stage& old = compute_.stages[s];
    if (is_parameter(old.buffer))
        return Error(Code::E0602, "{} writes an output, which cannot be padded", name)
            .hint("cache_write computes it into an intermediate");
    if (multiples.size() != old.axes.size() + old.reduce.size() ||
        std::any_of(multiples.begin(), multiples.end(), [](int64_t m) { return m < 1; }))
        return Error(Code::E0602, "{} has {} axes and {} reduction axes: expected a multiple of at least 1 for each",
                     name, old.axes.size(), old.reduce.size());
    if (plans_[s].layout)
        return Error(Code::E0602, "{} already has a layout", name).hint("apply pad before transform_layout");
    if (old.fold || !plans_[s].running.empty())
        return Error(Code::E0602, "{} is part of an online reduction", name).hint("apply pad before online");
    Schedule before = *this;
    auto padded = [&]() -> Status {
        Stage& stage = compute_.stages[s];
        Bindings renewed;
        Extents running;
        Expr inside = int_const(1, DType::boolean);  // of the reduction, as it was
        bool vanishes = stage.combine == ReduceOp::Sum;
        auto round_up = [&](ReduceAxis& axis, int64_t multiple, bool reduces) {
            Expr extent = ceil_div(axis.extent, multiple) * multiple;
            std::string var = axis.var.node().name;
            if (!extent.same(axis.extent)) {
                Expr wider = index_var(var, extent.as_int());
                if (reduces) {
                    inside = logical_and(inside, lt(wider, axis.extent));
                    vanishes &= vanishes_with(stage.value, var);
                }
                renewed.emplace(var, wider);
                axis = {wider, extent};
            }
            running.emplace(var, axis.extent);
        };
        for (size_t i = 0; i < stage.axes.size(); ++i) round_up(stage.axes[i], multiples[i], false);
        plans_[s].multiples.assign(multiples.begin(), multiples.begin() + static_cast<ptrdiff_t>(stage.axes.size()));
        for (size_t i = 0; i < stage.reduce.size(); ++i)
            round_up(stage.reduce[i], multiples[stage.axes.size() + i], true);
        stage.value = substitute(stage.value, renewed);
        for (Expr& e : stage.store) e = substitute(e, renewed);
        std::vector<Expr> shape;
        for (const ReduceAxis& axis : stage.axes) shape.push_back(axis.extent);
        compute_.buffers[static_cast<size_t>(stage.buffer)].shape = shape;
        for (const Expr& l : loads_in(stage.value)) TRY(widen(stage.value, l, running, stage.name));
        if (!vanishes && !inside.is(ExprKind::Const)) {
            DType dtype = stage.value.dtype();
            stage.value = select(inside, stage.value, identity(stage.combine, dtype));
        }
        return {};
    };
    Status status = padded();
    if (!status) {
        *this = std::move(before);
        return status;
    }
    std::vector<std::string> args{std::string(name)};
    for (int64_t m : multiples) args.push_back(std::to_string(m));
    record("pad", std::move(args));
    return {};
}

// Makes the stage that fills what is loaded cover every index that the loops reach; the rest of it is 0.
Status Schedule::widen(const Expr& value, const Expr& load, const Extents& running, const std::string& reader) {
    int buffer = load.node().slot;
    std::optional<size_t> w;
    if (!is_parameter(buffer)) w = writer(buffer);
    const std::vector<Expr> shape = compute_.buffers[static_cast<size_t>(buffer)].shape;
    Expr inside = int_const(1, DType::boolean);
    Bindings renewed;
    for (size_t d = 0; d < load.args().size(); ++d) {
        if (!mentions_any(load.arg(d), running)) continue;
        std::optional<Interval> reach = interval_of(load.arg(d), running);
        if (reach && always(lt(reach->last(), shape[d]), {}) && always(le(0, reach->begin), {})) continue;
        if (load.arg(d).is(ExprKind::Select) && stays_inside(load.arg(d), shape[d], running, {})) continue;
        if (chooses_inside(value, load, d, shape[d])) continue;
        const std::string& of = compute_.buffers[static_cast<size_t>(buffer)].name;
        if (!reach || !always(le(0, reach->begin), {}))
            return Error(Code::E0602, "cannot determine which elements of {} the padded {} reads: index {}", of, reader,
                         to_string(load.arg(d)));
        if (!w)
            return Error(Code::E0602, "the padded {} would read {} out of bounds: index {} of {}", reader, of,
                         to_string(load.arg(d)), to_string(shape[d]))
                .hint("insert a stage between them, which is padded with zeros, with reindex or cache_read");
        Stage& stage = compute_.stages[*w];
        if (plans_[*w].layout)
            return Error(Code::E0602, "{} already has a layout", stage.name).hint("apply pad before transform_layout");
        ReduceAxis& axis = stage.axes[d];
        Expr extent = reach->last() + 1;
        if (!always(le(axis.extent, extent), {})) extent = max(axis.extent, extent);
        Expr wider = index_var(axis.var.node().name, extent.as_int());
        inside = logical_and(inside, lt(wider, axis.extent));
        renewed.emplace(axis.var.node().name, wider);
        axis = {wider, extent};
        compute_.buffers[static_cast<size_t>(buffer)].shape[d] = extent;
    }
    if (renewed.empty() || !w) return {};
    Stage& stage = compute_.stages[*w];
    for (Expr& e : stage.store) e = substitute(e, renewed);
    Expr fill = stage.reduce.empty() ? constant(0, stage.value.dtype()) : identity(stage.combine, stage.value.dtype());
    stage.value = select(inside, substitute(stage.value, renewed), fill);
    return {};
}

Result<std::string> Schedule::rfactor(const Loop& reduction) {
    Place place = TRY(find_loop(reduction));
    if (!at(place).reduces)
        return Error(Code::E0602, "{} is not a reduction loop", reduction.name)
            .hint("rfactor takes a reduction loop, for example one that split created");
    size_t s = place.stage;
    Stage& stage = compute_.stages[s];
    StagePlan& plan = plans_[s];
    if (stage.fold)
        return Error(Code::E0602, "{} is part of an online reduction", stage.name).hint("apply rfactor before online");
    for (const LoopPlan& loop : plan.loops) {
        if (!loop.reduces || loop.name == reduction.name) continue;
        for (const StagePlan& other : plans_)
            if (other.at == loop.name)
                return Error(Code::E0602, "a stage is computed at {}", loop.name)
                    .hint("apply rfactor before compute_at");
    }
    std::vector<Expr> extents, reduce_extents;
    for (const ReduceAxis& axis : stage.axes) extents.push_back(axis.extent);
    for (const ReduceAxis& axis : stage.reduce) {
        for (const ReduceAxis& outer : stage.axes)
            if (mentions(axis.extent, outer.var.node().name))
                return Error(Code::E0602, "the extent of the reduction in {} depends on {}", stage.name,
                             outer.var.node().name);
        reduce_extents.push_back(axis.extent);
    }
    DerivedLoops derived = derive_loops(stage, plan, extents, reduce_extents);

    Stage partial;
    partial.name = fresh_stage_name(stage.name + "_rf");
    partial.axes = stage.axes;
    partial.combine = stage.combine;
    Bindings to_axes;  // from loop variables
    ReduceAxis kept;
    Expr inside = int_const(1, DType::boolean);
    for (size_t l = 0; l < plan.loops.size(); ++l) {
        const LoopPlan& loop = plan.loops[l];
        if (!loop.reduces) continue;
        ReduceAxis axis{index_var(loop.name.substr(stage.name.size() + 1), derived.extents[l].as_int()),
                        derived.extents[l]};
        to_axes.emplace(loop.name, axis.var);
        if (loop.name == reduction.name) {
            partial.axes.push_back(axis);
            kept = axis;
        } else {
            partial.reduce.push_back(axis);
        }
    }
    for (const Expr& guard : derived.guards)
        for (const auto& [name, var] : to_axes)
            if (mentions(guard, name)) {
                inside = logical_and(inside, substitute(guard, to_axes));
                break;
            }
    Bindings values;
    for (const ReduceAxis& axis : stage.reduce)
        values.emplace(axis.var.node().name, substitute(derived.values.at(axis.var.node().name), to_axes));
    std::vector<Expr> shape;
    for (const ReduceAxis& axis : partial.axes) {
        partial.store.push_back(axis.var);
        shape.push_back(axis.extent);
    }
    DType dtype = compute_.buffers[static_cast<size_t>(stage.buffer)].dtype;
    Extents running;
    for (const auto& [name, var] : to_axes) running.emplace(var.node().name, derived.all_extents.at(name));
    partial.value = substitute(stage.value, values);
    if (!always(inside, running)) partial.value = select(inside, partial.value, identity(stage.combine, dtype));
    partial.buffer = add_buffer(partial.name, dtype, shape);
    std::vector<int64_t> multiples = plan.multiples;
    if (!multiples.empty()) multiples.push_back(1);

    stage.value = load(partial.buffer, dtype, partial.store);
    stage.reduce = {kept};
    std::erase_if(plan.loops, [&](const LoopPlan& l) { return l.reduces && l.name != reduction.name; });
    // Of the steps from axes to loops, those of the reduction are gone.
    std::vector<std::string> spatial;
    for (const ReduceAxis& axis : stage.axes) spatial.push_back(loop_name(stage, axis));
    std::vector<LoopRelation> relations;
    for (const LoopRelation& r : plan.relations) {
        auto known = [&](const std::string& n) {
            return std::find(spatial.begin(), spatial.end(), n) != spatial.end();
        };
        bool splits = r.kind == LoopRelation::Kind::Split || r.kind == LoopRelation::Kind::SplitParts ||
                      r.kind == LoopRelation::Kind::SplitWhole;
        if (!(splits ? known(r.parent) : known(r.outer))) continue;
        spatial.insert(spatial.end(), {r.parent, r.outer, r.inner});
        relations.push_back(r);
    }
    plan.relations = std::move(relations);
    std::string made = partial.name;
    plans_[insert_stage(s, std::move(partial))].multiples = std::move(multiples);
    record("rfactor", {reduction.name}, {made});
    return made;
}

}  // namespace tessera
