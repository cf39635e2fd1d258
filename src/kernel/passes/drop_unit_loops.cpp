#include "kernel/passes/clean_up.h"

namespace tessera {

void drop_unit_loops(Kernel& kernel) {
    kernel.body = mutate(kernel.body, [](const Stmt& s) -> Stmt {
        if (!s) return s;
        const For* loop = s->as<For>();
        if (!loop) return s;
        if (!loop->body || loop->extent.is_int(0)) return nullptr;
        if (!loop->extent.is_int(1) || loop->kind == LoopKind::Bound) return s;
        return substitute(loop->body, {{loop->var.node().name, Expr(0)}});
    });
}

}  // namespace tessera
