#include "kernel/ir/atomics.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/tile_calls.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/compile_kernels.h"

namespace tessera {

bool can_compute(DType dtype) { return dtype == DType::boolean || is_int(dtype) || kWideFloats.has(dtype); }

Decision can_compile(const Kernel& kernel, bool blocks) {
    for (const Buffer& b : kernel.buffers)
        if (!can_compute(b.dtype)) return no("buffer {} has element type {}", b.name, dtype_name(b.dtype));
    Decision out = yes();
    visit(kernel.body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        if (!out || !call || call->name == "prefetch" || find_intrinsic(call->name)) return;
        if (is_atomic(*call) || is_tile_language_call(*call)) return;
        if (blocks && (call->name == "barrier" || is_tile_call(*call))) return;
        if (blocks && (call->name == "barrier" || is_tile_call(*call) || is_group_step(*call))) return;
        // Blocks and threads run one after the other, as loops do, and so cannot wait for each other.
        out = call->name == "barrier" ? no("threads of a block meet at a barrier, and here they run one by one")
                                      : no("there is no intrinsic {} on a processor", call->name);
    });
    visit_exprs(kernel.body, [&](const Expr& whole) {
        visit(whole, [&](const Expr& e) {
            if (!out) return;
            if (!can_compute(e.dtype())) out = no("an expression has element type {}", dtype_name(e.dtype()));
            if (e.is(ExprKind::Reduce)) out = no("a reduction stands inside an expression");
        });
    });
    return out;
}

}  // namespace tessera
