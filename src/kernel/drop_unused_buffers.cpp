#include "kernel/clean_up.h"

namespace tessera {
namespace {

void move_to(Access& access, const std::vector<int>& slots) {
    access.buffer = slots[static_cast<size_t>(access.buffer)];
}

}  // namespace

void drop_unused_buffers(Kernel& kernel) {
    std::vector<bool> used(kernel.buffers.size());
    for (size_t i = 0; i < kernel.params; ++i) used[i] = true;
    visit(kernel.body, [&](const Stmt& s) {
        if (const Alloc* a = s->as<Alloc>()) used[static_cast<size_t>(a->buffer)] = true;
    });
    std::vector<int> slots(kernel.buffers.size(), -1);
    std::vector<Buffer> kept;
    for (size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) continue;
        slots[i] = static_cast<int>(kept.size());
        kept.push_back(kernel.buffers[i]);
    }
    if (kept.size() == kernel.buffers.size()) return;
    kernel.buffers = std::move(kept);
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        if (!s) return s;
        auto node = s->node;
        if (Store* store = std::get_if<Store>(&node)) move_to(store->to, slots);
        if (Alloc* a = std::get_if<Alloc>(&node)) a->buffer = slots[static_cast<size_t>(a->buffer)];
        if (Call* call = std::get_if<Call>(&node)) {
            for (Access& w : call->writes) move_to(w, slots);
            for (Access& r : call->reads) move_to(r, slots);
        }
        return make_stmt(std::move(node));
    });
    kernel.body = map_exprs(kernel.body, [&](const Expr& e) {
        return rewrite(e, [&](const Expr& x) {
            return x.is(ExprKind::Load) ? load(slots[static_cast<size_t>(x.node().slot)], x.dtype(), x.args()) : x;
        });
    });
}

}  // namespace tessera
