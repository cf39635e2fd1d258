#include "kernel/ir/renamed_copy.h"

namespace tessera {

Stmt with_slots(const Stmt& s, const std::function<int(int)>& slot) {
    Stmt moved = map_exprs(s, [&](const Expr& e) {
        return rewrite(e, [&](const Expr& x) {
            if (!x.is(ExprKind::Load) || slot(x.node().slot) == x.node().slot) return x;
            return load(slot(x.node().slot), x.dtype(), x.args());
        });
    });
    return mutate(moved, [&](const Stmt& each) -> Stmt {
        if (!each) return each;
        StmtNode node = *each;
        if (Store* to = std::get_if<Store>(&node.node)) to->to.buffer = slot(to->to.buffer);
        if (Alloc* a = std::get_if<Alloc>(&node.node)) a->buffer = slot(a->buffer);
        if (Call* call = std::get_if<Call>(&node.node)) {
            for (Access& a : call->writes) a.buffer = slot(a.buffer);
            for (Access& a : call->reads) a.buffer = slot(a.buffer);
        }
        return make_stmt(std::move(node.node));
    });
}

std::string RenamedCopies::fresh(const std::string& name) {
    std::string made = name;
    for (int i = 1; !names_.insert(made).second; ++i) made = name + std::to_string(i);
    return made;
}

Stmt RenamedCopies::copy(const Stmt& s, const std::string& suffix) {
    Bindings vars;
    std::map<int, int> slots;
    visit(s, [&](const Stmt& each) {
        if (const For* loop = each->as<For>()) {
            ExprNode node = loop->var.node();
            node.name = fresh(node.name + suffix);
            vars.insert_or_assign(loop->var.node().name, make_expr(std::move(node)));
        }
        if (const Alloc* a = each->as<Alloc>()) {
            Buffer copy = kernel_.buffers[static_cast<size_t>(a->buffer)];
            copy.name = fresh(copy.name + suffix);
            slots.emplace(a->buffer, static_cast<int>(kernel_.buffers.size()));
            kernel_.buffers.push_back(std::move(copy));
        }
    });
    auto slot = [&](int old) {
        auto found = slots.find(old);
        return found == slots.end() ? old : found->second;
    };
    return with_slots(substitute(s, vars), slot);
}

}  // namespace tessera
