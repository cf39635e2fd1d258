// Where placed stages keep their elements: which region, in which memory, allocated inside which loop, laid out how.
#include <algorithm>

#include "kernel/lower/place_stages.h"

namespace tessera {
namespace {

class Storing {
  public:
    Storing(const Compute& compute, std::vector<PlacedStage>& placed) : compute_(compute), placed_(placed) {}

    Status store(size_t i) {
        PlacedStage& p = placed_[i];
        const Stage& stage = *p.stage;
        if (static_cast<size_t>(stage.buffer) < compute_.params) return {};
        if (p.along) {
            TRY(store_outside(i));
        } else {
            p.scope = p.plan->scope.value_or(p.host && !p.plan->after ? Scope::Local : Scope::Global);
            p.stored = p.region;
            p.stored_host = p.host;
            if (p.host) p.stored_at = p.host_loop;
            if (!p.host || p.plan->after) TRY(store_for_followers(i));
        }
        std::vector<Expr> copies = keep_copies(p);
        if (!copies.empty() && p.scope == Scope::Register)
            return Error(Code::E0602, "{} is in registers, which cannot hold it across iterations of a loop",
                         stage.name)
                .hint("set_scope to local");
        bool local = p.scope == Scope::Local || p.scope == Scope::Register;
        if (p.stored_host && !p.plan->after && p.scope == Scope::Global)
            return Error(Code::E0602, "{} is computed inside {}: its iterations cannot share global memory", stage.name,
                         p.plan->at)
                .hint("set_scope to local or register");
        if (!p.stored_at && local && runs_parallel())
            return Error(Code::E0602, "{} is computed at the root, in {} memory, which parallel loops do not share",
                         stage.name, scope_name(p.scope))
                .hint("compute it inside a loop of its reader");
        TRY(make_shape(p));
        p.shape.insert(p.shape.begin(), copies.begin(), copies.end());
        if (p.strides.empty()) return {};
        Expr all = p.strides[0] * p.shape[copies.size()];
        for (size_t i = copies.size(); i-- > 0; all = all * copies[i]) p.strides.insert(p.strides.begin(), all);
        return {};
    }

  private:
    // A loop whose statements are apart, or whose iterations overlap, keeps what one leaves for another: a copy for
    // each iteration, allocated outside of it. The numbers of copies.
    std::vector<Expr> keep_copies(PlacedStage& p) {
        std::vector<Expr> copies;
        bool doubled = p.plan->double_buffer;
        while (p.stored_at) {
            const PlacedStage& host = placed_[*p.stored_host];
            const LoopPlan& loop = host.plan->loops[*p.stored_at];
            const Expr& var = host.loops.vars[*p.stored_at];
            bool ahead = loop.pipeline > 1 && p.host == p.stored_host && p.host_loop == *p.stored_at && !p.plan->after;
            int64_t iterations = ahead ? loop.pipeline : doubled ? 2 : 0;
            if (!loop.fission && iterations == 0) break;
            doubled = false;
            copies.insert(copies.begin(), loop.fission ? host.loops.extents[*p.stored_at] : Expr(iterations));
            p.copy.insert(p.copy.begin(), loop.fission ? var : mod(var, iterations));
            if (*p.stored_at > 0) {
                --*p.stored_at;
            } else {
                p.stored_at = host.host ? std::optional<size_t>(host.host_loop) : std::nullopt;
                p.stored_host = host.host;
            }
        }
        return copies;
    }

    // Running values live where the nest of the loop stands that they go along with.
    Status store_outside(size_t i) {
        PlacedStage& p = placed_[i];
        const PlacedStage& host = placed_[*p.host];
        p.stored = all_read(compute_, placed_, i, host.around_whole);
        for (size_t a = 0; a < p.kept_rows.size(); ++a)
            if (const auto& made = p.kept_rows[a]) {
                const Interval read = unite(p.stored[a], *made);
                if (!read.begin.same(made->begin) || !read.span.same(made->span))
                    return Error(Code::E0602, "{} is read beyond the elements that {} computes", p.stage->name,
                                 host.stage->name);
                p.stored[a] = read;
            }
        p.stored_host = host.host;
        if (host.host) p.stored_at = host.host_loop;
        p.scope = p.plan->scope.value_or(host.host ? Scope::Local : Scope::Global);
        return {};
    }

    // A stage whose readers all follow it inside one of its loops keeps no more than an iteration of that loop makes;
    // one that follows its producer and is read elsewhere keeps all of its elements.
    Status store_for_followers(size_t i) {
        PlacedStage& p = placed_[i];
        const std::vector<size_t> all = readers_of(compute_, i);
        bool local = p.scope == Scope::Local || p.scope == Scope::Register;
        if (local && !all.empty()) {
            size_t loop = p.plan->loops.size();
            bool follow = true, inside_host = p.host.has_value();
            for (size_t r : all) {
                follow &= placed_[r].host == i;
                if (follow) loop = std::min(loop, placed_[r].host_loop);
                inside_host = inside_host && is_inside(placed_, r, *p.host, p.host_loop);
            }
            if (follow) {
                if (!p.stage->reduce.empty() && p.init_level <= loop)
                    return Error(Code::E0602,
                                 "the initialization of {} is outside of {}, inside which its buffer is allocated",
                                 p.stage->name, p.plan->loops[loop].name);
                p.stored = TRY(region_inside(p, loop));
                p.stored_at = loop;
                p.stored_host = i;
                return {};
            }
            if (inside_host) return {};
        }
        if (!p.host) return {};
        p.stored.clear();
        for (const ReduceAxis& axis : p.stage->axes) p.stored.push_back({0, axis.extent - 1});
        p.stored_at.reset();
        p.stored_host.reset();
        return {};
    }

    bool runs_parallel() const {
        return std::any_of(placed_.begin(), placed_.end(), [](const PlacedStage& p) {
            return !p.plan->loops.empty() && p.plan->loops[0].kind == LoopKind::Parallel;
        });
    }

    Status make_shape(PlacedStage& p) {
        std::vector<Expr> sizes;
        for (const Interval& i : p.stored) sizes.push_back(i.span + 1);
        if (p.plan->layout) {
            const IndexMap& map = *p.plan->layout;
            Extents running;
            for (size_t d = 0; d < map.vars.size(); ++d) running.emplace(map.vars[d].node().name, sizes[d]);
            sizes.clear();
            for (size_t d = 0; d < map.indices.size(); ++d) {
                std::optional<Interval> i = interval_of(map.indices[d], running);
                bool fits = i && always(le(0, i->begin), {});
                sizes.push_back(fits ? i->last() + 1 : map.shape[d]);
            }
        }
        // A dimension that has a single place is left out of what lives inside a loop.
        p.kept.assign(sizes.size(), true);
        for (size_t d = 0; d < sizes.size(); ++d) {
            if ((p.stored_at || !p.copy.empty()) && sizes[d].is_int(1)) p.kept[d] = false;
            if (p.kept[d]) p.shape.push_back(sizes[d]);
        }
        for (const AlignPlan& align : p.plan->aligned) {
            if (p.strides.empty()) {
                p.strides.assign(sizes.size(), 1);
                for (size_t d = sizes.size(); d-- > 1;) p.strides[d - 1] = p.strides[d] * sizes[d];
            }
            auto d = static_cast<size_t>(align.dim);
            if (d >= sizes.size()) return Error(Code::E0602, "{} has no dimension {}", p.stage->name, align.dim);
            // The next stride up that is `offset` over a multiple of `factor`; outer ones follow.
            Expr aligned = ceil_div(p.strides[d] - align.offset, align.factor) * align.factor + align.offset;
            p.strides[d] = aligned;
            for (size_t o = d; o-- > 0;) p.strides[o] = p.strides[o + 1] * sizes[o + 1];
        }
        if (!p.strides.empty()) {
            std::vector<Expr> kept;
            for (size_t d = 0; d < sizes.size(); ++d)
                if (p.kept[d]) kept.push_back(p.strides[d]);
            p.strides = std::move(kept);
        }
        return {};
    }

    const Compute& compute_;
    std::vector<PlacedStage>& placed_;
};

}  // namespace

Status store_stages(const Compute& compute, std::vector<PlacedStage>& placed) {
    Storing storing(compute, placed);
    for (size_t i = 0; i < placed.size(); ++i) TRY(storing.store(i));
    return {};
}

}  // namespace tessera
