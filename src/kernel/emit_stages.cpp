#include "kernel/emit_stages.h"

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

Stmt StageEmitter::emit_root(const std::vector<size_t>& roots) {
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
    for (size_t r : roots) nests.push_back(nest(r));
    Stmt body = seq(std::move(nests));
    for (size_t i = around.size(); i-- > 0;) body = alloc(around[i], std::move(body));
    return body;
}

Stmt StageEmitter::nest(size_t stage) { return inside(stage, 0); }

Stmt StageEmitter::inside(size_t stage, size_t level) {
    const PlacedStage& p = placed_[stage];
    std::vector<int> allocated;
    std::vector<size_t> before, after;
    if (level > 0) {
        for (size_t i = 0; i < placed_.size(); ++i) {
            const PlacedStage& other = placed_[i];
            if (other.host == stage && other.host_loop == level - 1) (other.plan->after ? after : before).push_back(i);
            if (other.stored_host != stage || other.stored_at != level - 1) continue;
            allocated.push_back(allocate(other));
        }
    }
    std::vector<Stmt> stmts;
    for (size_t i : before) stmts.push_back(nest(i));
    if (!p.stage->reduce.empty() && p.init_level == level) stmts.push_back(init(stage));
    stmts.push_back(level == p.loops.vars.size() ? update(stage) : loop(stage, level, inside(stage, level + 1)));
    for (size_t i : after) stmts.push_back(nest(i));
    Stmt body = guarded(p.guards, level, false, {}, seq(std::move(stmts)));
    for (size_t i = allocated.size(); i-- > 0;) body = alloc(allocated[i], std::move(body));
    return body;
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
Stmt StageEmitter::init(size_t stage) {
    const PlacedStage& p = placed_[stage];
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
    Expr value = substitute(p.stage->value, p.values);
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
    std::optional<ReduceOp> combine;
    if (!p.stage->reduce.empty()) combine = p.stage->combine;
    return tessera::store(slot(p.stage->buffer), target(p, p.values), value_of(p), combine);
}

}  // namespace tessera
