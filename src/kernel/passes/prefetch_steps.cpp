// Loops whose iterations copy tiles and multiply them: what the next iteration copies comes into the cache meanwhile.
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

bool has_product(const Kernel& kernel, const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& each) {
        const Store* store = each->as<Store>();
        found |= store && store->combine == ReduceOp::Sum && store->value.is(ExprKind::Mul) &&
                 kernel.buffers[static_cast<size_t>(store->to.buffer)].scope == Scope::Register;
    });
    return found;
}

// A vector that is copied from memory of the caller's, at the next iteration; null where it is not, or stays where it
// is.
Stmt next_of(const Kernel& kernel, const For& vector, const Expr& step) {
    if (vector.kind != LoopKind::Vector) return nullptr;
    const Store* store = vector.body ? vector.body->as<Store>() : nullptr;
    if (!store || store->combine) return nullptr;
    Expr value = store->value;
    if (value.is(ExprKind::Select)) value = value.args()[1];
    if (!value.is(ExprKind::Load) || kernel.buffers[static_cast<size_t>(value.node().slot)].scope != Scope::Global)
        return nullptr;
    const std::vector<Expr>& indices = value.args();
    if (indices.size() != 1) return nullptr;
    const std::string& lane = vector.var.node().name;
    if (!(substitute(indices[0], {{lane, vector.var + Expr(1)}}) - indices[0]).is_int(1)) return nullptr;
    const Expr first = substitute(indices[0], {{lane, Expr(0)}});
    const Expr next = substitute(first, {{step.node().name, step + Expr(1)}});
    if (next == first) return nullptr;
    Call call{.name = "prefetch", .writes = {}, .reads = {{value.node().slot, {next}}}, .args = {kSecondCache}};
    return make_stmt(std::move(call));
}

}  // namespace

void prefetch_steps(Kernel& kernel) {
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        const For* steps = s->as<For>();
        if (!steps || steps->kind != LoopKind::Serial || steps->extent.as_int() || !has_product(kernel, steps->body))
            return s;
        For made = *steps;
        made.body = mutate(steps->body, [&](const Stmt& part) -> Stmt {
            const For* vector = part->as<For>();
            const Stmt fetch = vector ? next_of(kernel, *vector, steps->var) : nullptr;
            return fetch ? seq({fetch, part}) : part;
        });
        return for_loop(std::move(made));
    });
}

}  // namespace tessera
