#include "kernel/lower/emit_stages.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {
namespace {

Stmt guarded(const std::vector<Guard>& guards, size_t level, bool for_init, const Bindings& renamed, Stmt body) {
    Expr condition = int_const(1, DType::boolean);
    for (const Guard& guard : guards)
        if (guard.level == level && !(for_init && guard.reduces))
            condition = logical_and(condition, substitute(guard.condition, renamed));
    return if_then(condition, std::move(body));
}

}  // namespace

int StageEmitter::slot(int buffer) const {
    auto found = slots_.find(buffer);
    CHECK(found != slots_.end(), "{} is used outside of where it lives",
          compute_.buffers[static_cast<size_t>(buffer)].name);
    return found->second;
}

int StageEmitter::allocate(const PlacedStage& p) {
    const Buffer& buffer = compute_.buffers[static_cast<size_t>(p.stage->buffer)];
    int made = static_cast<int>(kernel_.buffers.size());
    kernel_.buffers.push_back({buffer.name, buffer.dtype, p.shape, p.scope, p.strides});
    slots_.insert_or_assign(p.stage->buffer, made);
    return made;
}

Result<Stmt> StageEmitter::emit_root(const std::vector<size_t>& roots) {
    // What lives around everything is allocated first, so that its slots are known.
    std::vector<int> around;
    for (size_t i = 0; i < placed_.size(); ++i) {
        const PlacedStage& p = placed_[i];
        if (static_cast<size_t>(p.stage->buffer) < compute_.params || p.stored_host || slots_.contains(p.stage->buffer))
            continue;
        size_t root = i;
        while (placed_[root].host) root = *placed_[root].host;
        if (std::find(roots.begin(), roots.end(), root) == roots.end()) continue;
        around.push_back(allocate(p));
    }
    std::vector<Stmt> nests;
    for (size_t r : roots) nests.push_back(TRY(inside(r, 0)));
    Stmt body = seq(std::move(nests));
    for (size_t i = around.size(); i-- > 0;) body = alloc(around[i], std::move(body));
    return body;
}

Stmt StageEmitter::guard(size_t stage, size_t level, Stmt body) const {
    return guarded(placed_[stage].guards, level, false, {}, std::move(body));
}

Result<StageEmitter::Parts> StageEmitter::parts(size_t stage, size_t level) {
    const PlacedStage& p = placed_[stage];
    Parts parts;
    std::vector<size_t> before, after;
    if (level > 0)
        for (size_t i = 0; i < placed_.size(); ++i) {
            const PlacedStage& other = placed_[i];
            if (other.host == stage && other.host_loop == level - 1) (other.plan->after ? after : before).push_back(i);
            if (other.stored_host == stage && other.stored_at == level - 1) parts.allocated.push_back(allocate(other));
        }
    // What reads running values as they were comes before their step.
    for (size_t i : before) {
        if (!placed_[i].plan->ahead.empty()) continue;
        for (size_t j : before)
            if (placed_[j].plan->ahead == placed_[i].stage->name) parts.before.push_back(TRY(inside(j, 0)));
        parts.before.push_back(TRY(inside(i, 0)));
    }
    if (level > 0) parts.rest = prefetches(stage, level - 1);
    for (const PlacedStage& other : placed_)
        if (other.host == stage && other.along == level) parts.rest.push_back(init(*other.start));
    if (!p.stage->reduce.empty() && !p.along && p.init_level == level) parts.rest.push_back(init(p));
    parts.rest.push_back(TRY(next(stage, level)));
    for (size_t i : after) parts.rest.push_back(TRY(inside(i, 0)));
    return parts;
}

Result<Stmt> StageEmitter::inside(size_t stage, size_t level) {
    Parts all = TRY(parts(stage, level));
    std::vector<Stmt> stmts = std::move(all.before);
    stmts.insert(stmts.end(), all.rest.begin(), all.rest.end());
    Stmt body = guard(stage, level, seq(std::move(stmts)));
    for (size_t i = all.allocated.size(); i-- > 0;) body = alloc(all.allocated[i], std::move(body));
    return body;
}

Result<Stmt> StageEmitter::next(size_t stage, size_t level) {
    const PlacedStage& p = placed_[stage];
    if (level == p.loops.vars.size()) return update(stage);
    const LoopPlan& plan = p.plan->loops[level];
    if (!plan.intrinsic.empty()) return tensorized(stage, level);
    if (plan.fission) return fissioned(stage, level);
    if (plan.pipeline > 1) return pipelined(stage, level);
    return loop(stage, level, TRY(inside(stage, level + 1)));
}

// Each statement in a loop of its own. What they hand on has a copy for each iteration, and is allocated outside.
Result<Stmt> StageEmitter::fissioned(size_t stage, size_t level) {
    Parts all = TRY(parts(stage, level + 1));
    CHECK(all.allocated.empty(), "something is allocated inside a loop whose statements are apart");
    std::vector<Stmt> stmts = std::move(all.before), loops;
    stmts.insert(stmts.end(), all.rest.begin(), all.rest.end());
    const Expr& var = placed_[stage].loops.vars[level];
    for (size_t i = 0; i < stmts.size(); ++i) {
        Stmt made = loop(stage, level, guard(stage, level + 1, stmts[i]));
        if (i + 1 < stmts.size()) {
            ExprNode node = var.node();
            node.name += ".part" + std::to_string(i);
            made = substitute(made, {{var.node().name, make_expr(std::move(node))}});
        }
        loops.push_back(std::move(made));
    }
    return seq(std::move(loops));
}

// The stages computed in the loop run some iterations ahead of what reads them.
Result<Stmt> StageEmitter::pipelined(size_t stage, size_t level) {
    const PlacedStage& p = placed_[stage];
    Parts all = TRY(parts(stage, level + 1));
    const Expr &var = p.loops.vars[level], &extent = p.extents[level];
    int64_t ahead = p.plan->loops[level].pipeline - 1;
    auto make_ahead = [&](const Expr& later) {
        Stmt body = substitute(guard(stage, level + 1, seq(all.before)), {{var.node().name, later}});
        return if_then(lt(later, extent), std::move(body));
    };
    std::vector<Stmt> first;
    for (int64_t i = 0; i < ahead; ++i) first.push_back(copies_.copy(make_ahead(i), ".first"));
    std::vector<Stmt> stmts{make_ahead(var + ahead), guard(stage, level + 1, seq(all.rest))};
    Stmt body = seq(std::move(stmts));
    for (size_t i = all.allocated.size(); i-- > 0;) body = alloc(all.allocated[i], std::move(body));
    first.push_back(loop(stage, level, std::move(body)));
    return seq(std::move(first));
}

// Where the stage will read some iterations on, from the first of the loops inside; or in the next iteration of a loop
// around it.
std::vector<Stmt> StageEmitter::prefetches(size_t stage, size_t level) const {
    const PlacedStage& p = placed_[stage];
    std::vector<Stmt> calls;
    for (const PrefetchPlan& plan : p.plan->prefetches) {
        if (plan.loop != p.plan->loops[level].name || !reads_buffer(*p.stage, plan.buffer)) continue;
        Bindings later;
        for (size_t l = level + 1; l < p.loops.vars.size(); ++l) later.emplace(p.plan->loops[l].name, 0);
        const bool next = !plan.outer.empty();
        if (next) later.emplace(plan.outer, loop_around(p, plan.outer) + 1);
        later.emplace(plan.loop, next ? Expr(0) : p.loops.vars[level] + plan.ahead);
        for (const Expr& l : loads_in(p.stage->value, plan.buffer)) {
            std::vector<Expr> indices;
            bool computed = false;
            for (const Expr& index : l.args()) {
                indices.push_back(substitute(index, p.values));
                computed |= index.node().reads;
            }
            if (computed) continue;  // where that lies is not known before
            for (const PlacedStage& other : placed_)
                if (other.stage->buffer == plan.buffer && static_cast<size_t>(plan.buffer) >= compute_.params)
                    indices = other.location(indices);
            Access at{slot(plan.buffer), {}};
            for (const Expr& index : indices) at.indices.push_back(substitute(index, later));
            if (next) {
                int64_t row = 1;
                for (size_t l = level + 1; l < p.loops.vars.size(); ++l)
                    if (std::any_of(indices.begin(), indices.end(),
                                    [&](const Expr& i) { return depends_on(i, p.loops.vars[l]); }))
                        row *= p.extents[l].as_int().value_or(1);
                calls.push_back(prefetch_part(p, plan, level, row, at));
                continue;
            }
            Call call{.name = "prefetch", .writes = {}, .reads = {at}, .args = {}};
            calls.push_back(
                if_then(lt(p.loops.vars[level] + plan.ahead, p.extents[level]), make_stmt(std::move(call))));
        }
    }
    return calls;
}

// Lines of what lies from there on, every few iterations: with all parts, `row` elements for each iteration.
Stmt StageEmitter::prefetch_part(const PlacedStage& p, const PrefetchPlan& plan, size_t level, int64_t row,
                                 const Access& from) const {
    constexpr int64_t kLineBytes = 64, kEvery = 4, kOpenParts = 4;
    const DType dtype = compute_.buffers[static_cast<size_t>(plan.buffer)].dtype;
    const int64_t line = std::max<int64_t>(1, kLineBytes / dtype_bytes(dtype));
    const int64_t parts = std::max<int64_t>(1, p.around.at(plan.part).as_int().value_or(kOpenParts));
    const int64_t needed = row * kEvery, lines = (needed + line * parts - 1) / (line * parts);
    const int64_t enough = (needed + line * lines - 1) / (line * lines);  // parts
    const Expr& iteration = p.loops.vars[level];
    const Expr part = loop_around(p, plan.part);
    const Expr begin = (part * floor_div(p.extents[level], kEvery) + floor_div(iteration, kEvery)) * (line * lines);
    Call call{.name = "prefetch", .writes = {}, .reads = {}, .args = {2}};
    for (int64_t i = 0; i < lines; ++i) {
        call.reads.push_back(from);
        call.reads.back().indices.back() = from.indices.back() + begin + i * line;
    }
    // Parts after these have nothing left to announce.
    return if_then(logical_and(eq(mod(iteration, kEvery), 0), lt(part, enough)), make_stmt(std::move(call)));
}

Expr StageEmitter::loop_around(const PlacedStage& p, const std::string& name) const {
    CHECK(p.host, "{} is not around {}", name, p.stage->name);
    const PlacedStage& host = placed_[*p.host];
    const size_t l = host.plan->position(name);
    return l < host.loops.vars.size() ? host.loops.vars[l] : loop_around(host, name);
}

Stmt StageEmitter::loop(size_t stage, size_t level, Stmt body) const {
    const PlacedStage& p = placed_[stage];
    const LoopPlan& plan = p.plan->loops[level];
    For loop{.var = p.loops.vars[level], .extent = p.extents[level], .kind = plan.kind, .body = std::move(body)};
    loop.axis = plan.axis;
    loop.notes = plan.notes;
    if (plan.partition) loop.notes.insert_or_assign("partition", 1);
    return for_loop(std::move(loop));
}

std::vector<Expr> StageEmitter::target(const PlacedStage& p, const Bindings& values) const {
    std::vector<Expr> to;
    for (const Expr& index : p.stage->store) to.push_back(substitute(index, values));
    return static_cast<size_t>(p.stage->buffer) < compute_.params ? to : p.location(to);
}

// The loops inside the init's place, without those that reduce.
Stmt StageEmitter::init(const PlacedStage& p) {
    Bindings renamed;
    std::vector<size_t> levels;
    for (size_t l = p.init_level; l < p.loops.vars.size(); ++l) {
        if (p.plan->loops[l].reduces) continue;
        const std::string& name = p.plan->loops[l].name;
        renamed.emplace(name, index_var(name + ".init", p.loops.extents[l].as_int()));
        levels.push_back(l);
    }
    Bindings values;
    for (const auto& [name, value] : p.values) values.emplace(name, substitute(value, renamed));
    DType dtype = compute_.buffers[static_cast<size_t>(p.stage->buffer)].dtype;
    Stmt body = tessera::store(slot(p.stage->buffer), target(p, values), identity(p.stage->combine, dtype));
    size_t below = p.loops.vars.size();
    for (size_t i = levels.size(); i-- > 0;) {
        size_t l = levels[i];
        for (size_t g = below; g > l; --g) body = guarded(p.guards, g, true, renamed, std::move(body));
        below = l;
        const LoopPlan& plan = p.plan->loops[l];
        For loop{.var = renamed.at(plan.name),
                 .extent = substitute(p.extents[l], renamed),
                 .kind = plan.kind,
                 .axis = plan.axis,
                 .body = std::move(body)};
        if (plan.partition) loop.notes.insert_or_assign("partition", 1);
        body = for_loop(std::move(loop));
    }
    for (size_t g = below; g > p.init_level; --g) body = guarded(p.guards, g, true, renamed, std::move(body));
    return body;
}

Expr StageEmitter::value_of(const PlacedStage& p) const {
    Extents running = p.running();
    Expr value = substitute(p.value, p.values);
    return rewrite(value, [&](const Expr& e) -> Expr {
        if (e.is(ExprKind::Select)) {
            if (always(e.arg(0), running)) return e.arg(1);
            if (never(e.arg(0), running)) return e.arg(2);
        }
        if (!e.is(ExprKind::Load)) return e;
        int buffer = e.node().slot;
        for (const PlacedStage& other : placed_)
            if (other.stage->buffer == buffer && static_cast<size_t>(buffer) >= compute_.params)
                return load(slot(buffer), e.dtype(), other.location(e.args()));
        return load(slot(buffer), e.dtype(), e.args());
    });
}

Stmt StageEmitter::update(size_t stage) {
    const PlacedStage& p = placed_[stage];
    return tessera::store(slot(p.stage->buffer), target(p, p.values), value_of(p), combine_of(*p.stage));
}

}  // namespace tessera
