#include "kernel/lower/place_stages.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {
namespace {

class Placing {
  public:
    explicit Placing(const Schedule& schedule)
        : compute_(schedule.compute()), plans_(schedule.plans()), placed_(plans_.size()), done_(plans_.size()) {}

    Result<std::vector<PlacedStage>> run() {
        for (size_t i = 0; i < placed_.size(); ++i) {
            placed_[i].stage = &compute_.stages[i];
            placed_[i].plan = &plans_[i];
            TRY(find_host(i));
        }
        TRY(check_order());
        // Consumers first, since they say what is needed of a producer; what follows its producer after that one.
        for (size_t left = placed_.size(); left > 0;) {
            size_t before = left;
            for (size_t i = placed_.size(); i-- > 0;) {
                if (done_[i] || !ready(i)) continue;
                TRY(place(i));
                done_[i] = true;
                --left;
            }
            if (left == before) return Error(Code::E0602, "stages are computed in each other's loops");
        }
        TRY(store_stages(compute_, placed_));
        for (PlacedStage& p : placed_)
            if (p.along) TRY(place_start(p));
        for (const PlacedStage& p : placed_)
            for (const PrefetchPlan& prefetch : p.plan->prefetches)
                for (const PlacedStage& other : placed_)
                    if (other.stage->buffer == prefetch.buffer && other.stored_host)
                        return Error(Code::E0602, "{} prefetches a buffer that {} computes in the same nest",
                                     p.stage->name, other.stage->name);
        return std::move(placed_);
    }

  private:
    Status find_host(size_t i) {
        if (plans_[i].at.empty()) {
            if (plans_[i].running.empty() && plans_[i].ahead.empty()) return {};
            return Error(Code::E0602, "{} is part of an online reduction, but is not computed in its loop",
                         compute_.stages[i].name);
        }
        for (size_t h = 0; h < plans_.size(); ++h) {
            size_t loop = plans_[h].position(plans_[i].at);
            if (loop == plans_[h].loops.size()) continue;
            placed_[i].host = h;
            placed_[i].host_loop = loop;
            for (size_t l = 0; l <= loop; ++l)
                if (plans_[h].loops[l].kind == LoopKind::Vector)
                    return Error(Code::E0602, "{} is computed inside {}, which is vectorized", compute_.stages[i].name,
                                 plans_[h].loops[l].name);
            return {};
        }
        return Error(Code::E0602, "{} is computed at {}, which no longer exists", compute_.stages[i].name,
                     plans_[i].at);
    }

    // What a stage reads is complete where it stands: in a nest before its own, computed for it, or made by the
    // iteration that it follows.
    Status check_order() const {
        auto root_of = [&](size_t i) {
            for (size_t steps = 0; placed_[i].host && steps <= placed_.size(); ++steps) i = *placed_[i].host;
            return i;
        };
        auto complete = [&](size_t w, size_t r) {
            // Running values are complete after all of the loop, and are read as they are inside it.
            if (goes_along(compute_, placed_, w)) {
                const size_t host = *placed_[w].host;
                if (!plans_[w].after && is_inside(placed_, r, host, placed_[w].host_loop)) return true;
                if (is_inside(placed_, r, host, 0)) return false;
                w = host;
            }
            if (root_of(w) != root_of(r)) return root_of(w) < root_of(r);
            if (placed_[w].host && !plans_[w].after)
                return is_inside(placed_, r, *placed_[w].host, placed_[w].host_loop);
            return placed_[r].host == w && plans_[r].after;
        };
        for (size_t i = 0; i < placed_.size(); ++i) {
            if (plans_[i].ahead.empty()) continue;
            for (size_t of = 0; of < placed_.size(); ++of)
                if (compute_.stages[of].name == plans_[i].ahead && plans_[of].at != plans_[i].at)
                    return Error(Code::E0602, "{} is computed at {}, not just before {} at {}", compute_.stages[i].name,
                                 plans_[i].at, plans_[i].ahead, plans_[of].at);
        }
        for (size_t w = 0; w < placed_.size(); ++w)
            for (size_t r : readers_of(compute_, w)) {
                if (!complete(w, r))
                    return Error(Code::E0602, "{} reads {} before it is complete", compute_.stages[r].name,
                                 compute_.stages[w].name);
            }
        return {};
    }

    bool ready(size_t i) const {
        if (!placed_[i].host) return true;
        if (!done_[*placed_[i].host]) return false;
        if (!plans_[i].running.empty() || (plans_[i].after && !goes_along(compute_, placed_, i))) return true;
        std::vector<size_t> all = readers_of(compute_, i);
        return std::all_of(all.begin(), all.end(), [&](size_t r) { return done_[r] || is_follower(placed_, r, i); });
    }

    Status place(size_t i) {
        PlacedStage& p = placed_[i];
        const Stage& stage = *p.stage;
        if (p.host) {
            const PlacedStage& host = placed_[*p.host];
            p.around = host.around;
            p.around_whole = host.around_whole;
            for (size_t l = 0; l <= p.host_loop; ++l) {
                const std::string& name = host.plan->loops[l].name;
                p.around.insert_or_assign(name, host.extents[l]);
                p.around_whole.insert_or_assign(name, host.loops.extents[l]);
            }
        }
        if (!p.host) {
            for (const ReduceAxis& axis : stage.axes) p.region.push_back({0, axis.extent - 1});
        } else if (goes_along(compute_, placed_, i)) {
            TRY(place_along(compute_, placed_, i));
        } else if (p.plan->after) {
            TRY(region_made(i));
        } else {
            TRY(region_read(i));
        }
        TRY(make_loops(p));
        find_guards(p);
        cut_short(p);
        return check_loops(p);
    }

    // What is read of it inside the loop where it is computed.
    Status region_read(size_t i) {
        PlacedStage& p = placed_[i];
        bool others = false;
        for (size_t r : readers_of(compute_, i)) others |= !is_follower(placed_, r, i);
        if (!others)
            return Error(Code::E0602, "all readers of {} are computed in its own loops", p.stage->name)
                .hint("compute it at a loop of one of them, with compute_at");
        for (size_t r : readers_of(compute_, i))
            if (!is_inside(placed_, r, *p.host, p.host_loop))
                return Error(Code::E0602, "{} is computed at {}, but {} reads it elsewhere", p.stage->name, p.plan->at,
                             compute_.stages[r].name);
        p.region = all_read(compute_, placed_, i, p.around_whole);
        return {};
    }

    // The init of what goes along with a loop: all that lives outside of it, before the loop.
    Status place_start(PlacedStage& p) {
        const PlacedStage& host = placed_[*p.host];
        auto start = std::make_shared<PlacedStage>(p);
        start->around = host.around;
        start->around_whole = host.around_whole;
        for (size_t l = 0; l < *p.along; ++l) {
            const std::string& name = host.plan->loops[l].name;
            start->around.insert_or_assign(name, host.extents[l]);
            start->around_whole.insert_or_assign(name, host.loops.extents[l]);
        }
        start->region = p.stored;
        for (size_t a = 0; a < p.start_rows.size(); ++a)
            if (p.start_rows[a]) start->region[a] = *p.start_rows[a];
        start->guards.clear();
        start->along.reset();
        start->steps.clear();
        start->step_count.reset();
        TRY(make_loops(*start));
        start->init_level = 0;
        find_guards(*start, false);
        cut_short(*start);
        TRY(check_loops(*start));
        p.start = std::move(start);
        return {};
    }

    // What its producer, in whose loop it stands, makes there.
    Status region_made(size_t i) {
        PlacedStage& p = placed_[i];
        const PlacedStage& host = placed_[*p.host];
        std::vector<Expr> loads = loads_in(p.stage->value, host.stage->buffer);
        if (loads.empty())
            return Error(Code::E0602, "{} is computed after {} at {}, but no longer reads it", p.stage->name,
                         host.stage->name, p.plan->at);
        const Expr& load = loads[0];
        for (size_t l = 0; l <= p.host_loop; ++l)
            if (host.plan->loops[l].reduces)
                return Error(Code::E0602, "{} is computed after {} inside {}, where its elements are not complete",
                             p.stage->name, host.stage->name, host.plan->loops[l].name);
        for (const ReduceAxis& axis : p.stage->axes) p.region.push_back({0, axis.extent - 1});
        std::vector<Interval> made = TRY(region_inside(host, p.host_loop));
        for (const Expr& l : loads)
            for (size_t d = 0; d < l.args().size(); ++d) {
                size_t a = 0;
                while (a < p.region.size() && !p.stage->axes[a].var.same(l.arg(d))) ++a;
                bool matches = a < p.region.size() && p.stage->axes[a].extent.same(host.stage->axes[d].extent);
                if (!matches || !l.same(load))
                    return Error(Code::E0602,
                                 "{} is computed after {}, but does not read it at the indices of its own axes",
                                 p.stage->name, host.stage->name);
                p.region[a] = made[d];
            }
        return {};
    }

    Status make_loops(PlacedStage& p) {
        const Stage& stage = *p.stage;
        std::vector<Expr> extents, reduce_extents;
        for (const Interval& i : p.region) extents.push_back(i.span + 1);
        for (const ReduceAxis& axis : stage.reduce) reduce_extents.push_back(p.step_count.value_or(axis.extent));
        auto derive = [&] {
            p.loops = derive_loops(stage, *p.plan, extents, reduce_extents);
            p.values = p.loops.values;
            for (size_t a = 0; a < stage.axes.size(); ++a) {
                Expr& value = p.values.at(stage.axes[a].var.node().name);
                value = p.region[a].begin + value;
            }
            for (const auto& [name, first] : p.steps) p.values.at(name) = first + p.values.at(name);
        };
        derive();
        // A reduction may run as far as the element says (a causal mask): its extent is over the loops, then.
        bool again = false;
        for (Expr& e : reduce_extents) {
            Expr over_loops = substitute(e, p.values);
            again |= !over_loops.same(e);
            e = over_loops;
        }
        if (again) derive();
        p.extents = p.loops.extents;
        p.value = stage.value;
        size_t first_reduction = 0;
        while (first_reduction < p.plan->loops.size() && !p.plan->loops[first_reduction].reduces) ++first_reduction;
        p.init_level = first_reduction;
        if (!p.plan->init_at.empty()) {
            size_t level = p.plan->position(p.plan->init_at);
            if (level > first_reduction)
                return Error(Code::E0602,
                             "the initialization of {} is placed before {}, which is inside a reduction loop",
                             stage.name, p.plan->init_at);
            p.init_level = level;
        }
        return {};
    }

    void find_guards(PlacedStage& p, bool steps = true) {
        std::vector<Expr> conditions = p.loops.guards;
        if (steps && p.plan->bounded && p.value.is(ExprKind::Select) &&
            p.value.arg(2).same(identity(p.stage->combine, p.value.dtype()))) {
            for (const Expr& c : conjuncts(p.value.arg(0))) conditions.push_back(substitute(c, p.values));
            p.value = p.value.arg(1);
        }
        for (size_t a = 0; a < p.kept_rows.size(); ++a)
            if (p.kept_rows[a])
                conditions.push_back(le(p.values.at(p.stage->axes[a].var.node().name), p.kept_rows[a]->last()));
        if (p.step_count)
            for (const ReduceAxis& axis : p.stage->reduce) {
                const Expr& value = p.values.at(axis.var.node().name);
                conditions.push_back(le(0, value));
                conditions.push_back(lt(value, axis.extent));
            }
        if (p.host)
            for (size_t a = 0; a < p.stage->axes.size(); ++a) {
                const ReduceAxis& axis = p.stage->axes[a];
                const Expr& value = p.values.at(axis.var.node().name);
                conditions.push_back(le(0, value));
                if (!reaches_beyond(p, a)) conditions.push_back(lt(value, substitute(axis.extent, p.values)));
            }
        Extents running = p.running();
        for (const Expr& condition : conditions) {
            if (always(condition, running)) continue;
            Guard guard{condition, 0, false};
            for (size_t l = 0; l < p.loops.vars.size(); ++l)
                if (mentions(condition, p.plan->loops[l].name)) {
                    guard.level = l + 1;
                    guard.reduces |= p.plan->loops[l].reduces;
                }
            p.guards.push_back(std::move(guard));
        }
    }

    // A copy of whole vectors, which says itself what it reads: it has room for places behind its last.
    bool reaches_beyond(const PlacedStage& p, size_t axis) const {
        if (axis >= p.plan->multiples.size() || p.plan->multiples[axis] < 2 || p.plan->scope != Scope::Local)
            return false;
        if (!p.stage->reduce.empty()) return false;
        const Expr& var = p.stage->axes[axis].var;
        for (const Expr& load : loads_in(p.stage->value))
            for (size_t d = 0; d < load.args().size(); ++d)
                if (depends_on(load.arg(d), var) &&
                    !chooses_inside(p.stage->value, load, d, compute_.buffers[size_t(load.node().slot)].shape[d]))
                    return false;
        return true;
    }

    // A loop runs only as far as some iteration inside it counts; guards that then always hold are gone.
    void cut_short(PlacedStage& p) {
        for (size_t l = 0; l < p.extents.size(); ++l) {
            const LoopPlan& loop = p.plan->loops[l];
            if (loop.kind != LoopKind::Serial && loop.kind != LoopKind::Parallel) continue;
            if (!loop.intrinsic.empty()) break;
            Extents inner;
            for (size_t k = l + 1; k < p.extents.size(); ++k) inner.emplace(p.plan->loops[k].name, p.loops.extents[k]);
            for (const Guard& guard : p.guards) {
                if (guard.level <= l || guard.reduces != loop.reduces) continue;
                std::optional<Expr> some = holds_for_any(guard.condition, inner);
                if (!some) continue;
                std::optional<Expr> limit = solve_upper(*some, p.loops.vars[l]);
                if (!limit || mentions_any(*limit, inner)) continue;
                Extents running = p.running();
                if (always(le(p.extents[l], *limit), running)) continue;
                if (!always(le(0, *limit), running)) limit = max(*limit, 0);
                p.extents[l] = min(p.extents[l], *limit);
            }
        }
        Extents running = p.running();
        std::erase_if(p.guards, [&](const Guard& guard) { return always(guard.condition, running); });
    }

    Status check_loops(const PlacedStage& p) {
        for (const LoopRelation& r : p.plan->relations)
            if (r.kind == LoopRelation::Kind::SplitWhole &&
                (p.host || !p.stage->reduce.empty() || !always(le(r.amount, p.loops.all_extents.at(r.parent)), {})))
                return Error(Code::E0602, "{} may have fewer than {} iterations", r.parent, r.amount);
        for (const PrefetchPlan& prefetch : p.plan->prefetches) {
            size_t last = p.plan->position(prefetch.loop);
            if (last == p.plan->loops.size())
                return Error(Code::E0602, "{} prefetches in {}, which no longer exists", p.stage->name, prefetch.loop);
            for (const std::string& outer : {prefetch.outer, prefetch.part})
                if (!outer.empty() && !p.around.count(outer))
                    return Error(Code::E0602, "{} prefetches for {}, which does not enclose it", p.stage->name, outer);
            for (size_t l = 0; l <= last; ++l)
                if (p.plan->loops[l].kind == LoopKind::Vector)
                    return Error(Code::E0602, "{} prefetches inside {}, which is vectorized", p.stage->name,
                                 p.plan->loops[l].name);
        }
        for (size_t l = 0; l < p.extents.size(); ++l) {
            const LoopPlan& loop = p.plan->loops[l];
            bool expanded = loop.kind == LoopKind::Vector || loop.kind == LoopKind::Unrolled;
            if (expanded && !p.extents[l].as_int())
                return Error(Code::E0602, "{} is {}, but its extent {} is not constant", loop.name,
                             loop_kind_name(loop.kind), to_string(p.extents[l]))
                    .hint("split it by a constant");
            if (loop.kind == LoopKind::Parallel && (l > 0 || p.host))
                return Error(Code::E0602, "{} is parallel, but not the outermost loop of its nest", loop.name);
            if (loop.kind == LoopKind::Vector)
                for (size_t k = l + 1; k < p.extents.size(); ++k)
                    if (p.plan->loops[k].kind != LoopKind::Unrolled && !p.extents[k].is_int(1))
                        return Error(Code::E0602, "{} is vectorized, but {} is inside it", loop.name,
                                     p.plan->loops[k].name)
                            .hint("reorder it to be innermost, or above unrolled loops only");
            for (size_t k = l; k < p.extents.size(); ++k)
                if (mentions(p.extents[l], p.plan->loops[k].name))
                    return Error(Code::E0602, "the extent of {} depends on {}, which is inside it", loop.name,
                                 p.plan->loops[k].name);
        }
        return {};
    }

    const Compute& compute_;
    const std::vector<StagePlan>& plans_;
    std::vector<PlacedStage> placed_;
    std::vector<bool> done_;
};

}  // namespace

std::vector<Interval> all_read(const Compute& compute, const std::vector<PlacedStage>& placed, size_t i,
                               const Extents& around) {
    const PlacedStage& p = placed[i];
    std::vector<std::optional<Interval>> all(p.stage->axes.size());
    std::vector<bool> unknown(all.size());
    std::vector<Interval> region;
    for (size_t r : readers_of(compute, i)) {
        if (is_follower(placed, r, i)) continue;
        const PlacedStage& reader = placed[r];
        Extents running = reader.around_whole;
        for (size_t l = 0; l < reader.loops.vars.size(); ++l)
            running.insert_or_assign(reader.plan->loops[l].name, reader.loops.extents[l]);
        for (const auto& [name, extent] : around) running.erase(name);
        for (const Expr& load : loads_in(reader.stage->value, p.stage->buffer))
            for (size_t d = 0; d < all.size(); ++d) {
                std::optional<Interval> one = interval_of(substitute(load.arg(d), reader.values), running);
                if (!one || mentions_any(one->begin, running) || mentions_any(one->span, running))
                    unknown[d] = true;
                else
                    all[d] = all[d] ? unite(*all[d], *one) : *one;
            }
    }
    for (size_t d = 0; d < all.size(); ++d) {
        const Expr& whole = p.stage->axes[d].extent;
        Interval everything{0, whole - 1};
        bool use = all[d] && !unknown[d];
        if (use && d < p.plan->multiples.size()) {
            int64_t m = p.plan->multiples[d];
            if (mod(all[d]->begin, m).is_int(0)) all[d]->span = ceil_div(all[d]->span + 1, m) * m - 1;
        }
        if (use && !all[d]->span.as_int() && whole.as_int()) use = false;
        if (use && mentions_any(all[d]->span, around)) use = false;  // it is allocated once for all iterations
        if (use && all[d]->begin.is_int(0) && always(le(whole - 1, all[d]->span), {})) use = false;
        region.push_back(use ? *all[d] : everything);
    }
    return region;
}

Result<std::vector<Interval>> region_inside(const PlacedStage& p, size_t loop) {
    Extents running;
    Expr points = 1, box = 1;
    for (size_t l = loop + 1; l < p.loops.vars.size(); ++l) {
        running.emplace(p.plan->loops[l].name, p.loops.extents[l]);
        if (!p.plan->loops[l].reduces) points = points * p.loops.extents[l];
    }
    std::vector<Interval> made;
    for (const ReduceAxis& axis : p.stage->axes) {
        std::optional<Interval> one = interval_of(p.values.at(axis.var.node().name), running);
        if (one) box = box * (one->span + 1);
        made.push_back(one ? *one : Interval{});
    }
    if (!box.same(points))
        return Error(Code::E0602, "the elements of {} that are computed inside {} are not an interval along each axis",
                     p.stage->name, p.plan->loops[loop].name)
            .hint("choose a loop outside those that were fused or skewed");
    return made;
}

bool is_follower(const std::vector<PlacedStage>& placed, size_t r, size_t i) {
    return placed[r].host == i && placed[r].plan->after;
}

bool is_inside(const std::vector<PlacedStage>& placed, size_t r, size_t h, size_t loop) {
    for (size_t steps = 0; r != h; ++steps) {
        if (!placed[r].host || steps > placed.size()) return false;
        if (*placed[r].host == h) return placed[r].host_loop >= loop;
        r = *placed[r].host;
    }
    return true;
}

std::vector<size_t> readers_of(const Compute& compute, size_t i) {
    std::vector<size_t> found;
    for (size_t r = 0; r < compute.stages.size(); ++r)
        if (r != i && reads_buffer(compute.stages[r], compute.stages[i].buffer)) found.push_back(r);
    return found;
}

Extents PlacedStage::running() const {
    Extents all = around;
    for (size_t l = 0; l < extents.size(); ++l) all.insert_or_assign(plan->loops[l].name, extents[l]);
    return all;
}

std::vector<Expr> PlacedStage::location(const std::vector<Expr>& indices) const {
    std::vector<Expr> inside;
    for (size_t d = 0; d < indices.size(); ++d) inside.push_back(indices[d] - stored[d].begin);
    if (plan->layout) {
        Bindings bindings;
        for (size_t d = 0; d < inside.size(); ++d)
            bindings.insert_or_assign(plan->layout->vars[d].node().name, inside[d]);
        inside.clear();
        for (const Expr& index : plan->layout->indices) inside.push_back(substitute(index, bindings));
    }
    std::vector<Expr> at = copy;
    for (size_t d = 0; d < inside.size(); ++d)
        if (kept[d]) at.push_back(inside[d]);
    return at;
}

Result<std::vector<PlacedStage>> place_stages(const Schedule& schedule) { return Placing(schedule).run(); }

}  // namespace tessera
