// Sums and products along an axis that keep every partial result: one after the other along it, lanes side by side.
#include <algorithm>

#include "kernel/written/write_kernel.h"

namespace tessera {
namespace {

constexpr int64_t kSideBySide = 16;

Stmt run_along(KernelWriter& w, int64_t axis, bool product) {
    const OpView& op = w.op();
    const Shape& x = op.shape(0);
    const bool exclusive = op.integer("exclusive"), reverse = op.integer("reverse");
    const Expr outer = elements_between(x, 0, axis), n = x[axis], inner = elements_between(x, axis + 1, x.rank());
    const int64_t width = inner.as_int() ? std::clamp<int64_t>(*inner.as_int(), 1, kSideBySide) : kSideBySide;
    const Expr blocks = ceil_div(inner, width);
    Elements from = w.in(0, {outer, n, inner}), to = w.out(0, {outer, n, inner});
    return w.parallel(outer * blocks, [&](const Expr& both) {
        Expr o = floor_div(both, blocks), first = mod(both, blocks) * width;
        return w.local(from.read_as(), {Expr(width)}, [&](const Elements& total) {
            Expr here = min(Expr(width), inner - first);
            return seq({
                w.lanes(here, [&](const Expr& j) { return total.set({j}, constant(product ? 1 : 0, total.dtype)); }),
                w.loop(n,
                       [&](const Expr& step) {
                           Expr k = reverse ? n - 1 - step : step;
                           return w.lanes(here, [&](const Expr& j) {
                               Stmt keep = to.set({o, k, first + j}, total.at({j}));
                               Stmt grow = total.combine(product ? ReduceOp::Prod : ReduceOp::Sum, {j},
                                                         from.at({o, k, first + j}));
                               return exclusive ? seq({keep, grow}) : seq({grow, keep});
                           });
                       }),
            });
        });
    });
}

Stmt write_running(KernelWriter& w, bool product) {
    const OpView& op = w.op();
    const int64_t rank = op.rank(0);
    if (rank == 0) return w.refuse("there is one element");
    auto known = op.constant_ints(1);
    if (!known || known->size() != 1) return w.refuse("the axis is known only when it is computed");
    const int64_t axis = (*known)[0];
    return run_along(w, axis < 0 ? axis + rank : axis, product);
}

Stmt write_cum_sum(KernelWriter& w) { return write_running(w, false); }
Stmt write_cum_prod(KernelWriter& w) { return write_running(w, true); }

}  // namespace

std::vector<KernelWriting> running_kernels() { return {{"cum_sum", write_cum_sum}, {"cum_prod", write_cum_prod}}; }

}  // namespace tessera
