// Sums and products along an axis that keep every partial result: one after the other along it, lanes side by side. By
// blocks of threads a row is cut in pieces.
#include <algorithm>

#include "kernel/written/scan_rows.h"

namespace tessera {
namespace {

constexpr int64_t kSideBySide = 16;
constexpr int64_t kShortRow = 16;  // that one thread adds up

Stmt run_by_blocks(KernelWriter& w, int64_t axis, bool product) {
    const Shape& x = w.op().shape(0);
    const bool reverse = w.op().integer("reverse");
    const Expr rows = elements_between(x, 0, axis), n = x[axis];
    Elements from = w.in(0, {rows, n}), to = w.out(0, {rows, n});
    auto at = [&](const Expr& i) { return reverse ? n - 1 - i : i; };
    return scan_rows(w, {.rows = rows,
                         .n = n,
                         .dtype = from.read_as(),
                         .product = product,
                         .exclusive = w.op().integer("exclusive") != 0,
                         .element =
                             [&](const Expr& row, const Expr& i) {
                                 return from.at({row, at(i)});
                             },
                         .keep =
                             [&](const Expr& row, const Expr& i, const Expr& total) {
                                 return to.set({row, at(i)}, total);
                             }});
}

// Rows side by side: each thread takes a piece of one, from what the pieces before it add up to.
Stmt run_in_pieces(KernelWriter& w, int64_t axis, bool product) {
    constexpr int64_t kThreads = 1 << 16, kMostPieces = 64, kPiece = 128, kShortPiece = 32;
    const OpView& op = w.op();
    const Shape& x = op.shape(0);
    const bool exclusive = op.integer("exclusive"), reverse = op.integer("reverse");
    const Expr outer = elements_between(x, 0, axis), n = x[axis], inner = elements_between(x, axis + 1, x.rank());
    Expr length = kPiece;
    if (auto known = n.as_int()) {
        const int64_t rows = (outer * inner).as_int().value_or(1);
        const int64_t pieces = std::clamp(kThreads / std::max<int64_t>(rows, 1), int64_t{1}, kMostPieces);
        length = std::max((*known + pieces - 1) / pieces, kShortPiece);
    }
    const Expr pieces = ceil_div(n, length);
    Elements from = w.in(0, {outer, n, inner}), to = w.out(0, {outer, n, inner});
    const DType dtype = from.read_as();
    const ReduceOp combine = product ? ReduceOp::Prod : ReduceOp::Sum;
    const Expr nothing = constant(product ? 1 : 0, dtype);
    using Each = std::function<Stmt(const Expr& o, const Expr& piece, const Expr& j, const Elements& total)>;
    auto in_threads = [&](const Each& each) {
        return w.parallel(outer * pieces * inner, [&](const Expr& i) {
            const Expr rest = floor_div(i, inner);
            return w.local(dtype, {}, [&](const Elements& total) {
                return seq(
                    {total.set({}, nothing), each(floor_div(rest, pieces), mod(rest, pieces), mod(i, inner), total)});
            });
        });
    };
    auto along = [&](const Expr& piece, const std::function<Stmt(const Expr&)>& body) {
        return w.loop(min(length, n - piece * length), [&](const Expr& i) {
            const Expr k = piece * length + i;
            return body(reverse ? n - 1 - k : k);
        });
    };
    Elements totals;
    Stmt add_up;
    const bool several = !pieces.is_int(1);
    if (several) {
        totals = w.scratch(dtype, {outer, pieces, inner});
        add_up = in_threads([&](const Expr& o, const Expr& piece, const Expr& j, const Elements& total) {
            auto add = [&](const Expr& k) { return total.combine(combine, {}, from.at({o, k, j})); };
            return seq({along(piece, add), totals.set({o, piece, j}, total.at({}))});
        });
    }
    Stmt run = in_threads([&](const Expr& o, const Expr& piece, const Expr& j, const Elements& total) {
        auto add = [&](const Expr& p) { return total.combine(combine, {}, totals.at({o, p, j})); };
        return seq({several ? w.loop(piece, add) : nullptr, along(piece, [&](const Expr& k) {
                        Stmt keep = to.set({o, k, j}, total.at({}));
                        Stmt grow = total.combine(combine, {}, from.at({o, k, j}));
                        return exclusive ? seq({keep, grow}) : seq({grow, keep});
                    })});
    });
    return seq({add_up, run});
}

Stmt run_along(KernelWriter& w, int64_t axis, bool product) {
    const OpView& op = w.op();
    const Shape& x = op.shape(0);
    const bool exclusive = op.integer("exclusive"), reverse = op.integer("reverse");
    const Expr outer = elements_between(x, 0, axis), n = x[axis], inner = elements_between(x, axis + 1, x.rank());
    const bool by_blocks = w.how().blocks && !w.how().strict;
    if (by_blocks && inner.is_int(1) && n.as_int().value_or(kShortRow + 1) > kShortRow)
        return run_by_blocks(w, axis, product);
    if (by_blocks) return run_in_pieces(w, axis, product);
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
