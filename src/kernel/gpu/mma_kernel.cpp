#include "kernel/gpu/mma_kernel.h"

#include <algorithm>

#include "base/check.h"
#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/matrix_operand.h"
#include "kernel/ir/intrinsic.h"

namespace tessera {
namespace {

constexpr int64_t kThreads = kWarps * kGroups * kPairs;
constexpr int64_t kWord = 4;        // bytes that are kept at a time
constexpr double kMmaResident = 2;  // blocks that an SM runs at a time

// One operand: its tile in shared memory, and what a thread has fetched for it.
struct MmaOperand {
    std::string name;
    Expr value;
    OperandPlan plan;
    int64_t side = 0;  // of the tile
    Expr first, whole;
    size_t axis = 0;
    int tile = -1, fetched = -1;

    bool bytes() const { return dtype_bytes(value.dtype()) == 1; }
    int64_t depth() const { return mma_depth(value.dtype()); }  // of k at a time
    bool turned() const { return bytes() && !plan.along_k; }    // on the way to the tile
    bool kept_along_k() const { return plan.along_k || turned(); }
    int64_t lines() const { return kept_along_k() ? side : depth(); }                        // of the tile
    int64_t line() const { return (kept_along_k() ? depth() : side) + (bytes() ? 16 : 8); }  // elements, some unused
    int64_t each() const { return side * depth() / kThreads; }                               // of a thread
    int64_t rows() const { return (plan.along_k ? side : depth()) / (kWarps * kGroups); }    // of the tile, its
    int64_t taken() const { return bytes() ? std::max(plan.width, kWord) : plan.width; }     // neighbours of them
    int64_t vectors() const { return each() / taken() / rows(); }                            // in each of them
};

// Of f32, the operand itself.
Expr narrowed_or_wide(const Expr& operand) { return narrowed(operand).value_or(operand); }

class MmaContraction : ContractionBuilder {
  public:
    MmaContraction(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, int a,
                   const MmaPlan& plan)
        : ContractionBuilder(compute, sum, out, has_batch, plan.depth.inner, plan.parts),
          plan_(plan),
          in_rows_(plan.tile.m / kWarps / 16),
          in_columns_(plan.tile.n / 8) {
        a_.name = "a", a_.value = narrowed_or_wide(sum.value.arg(size_t(a))), a_.plan = plan.a, a_.side = plan.tile.m;
        b_.name = "b", b_.value = narrowed_or_wide(sum.value.arg(size_t(1 - a))), b_.plan = plan.b,
        b_.side = plan.tile.n;
        a_.axis = row_axis_, b_.axis = column_axis_;
    }

    TiledKernel make() {
        const BlockTile& tile = plan_.tile;
        const Expr &m = rows(), &n = columns();
        const Expr steps = ceil_div(ceil_div(inner().extent, tile.k) * others_, parts_), begins = part_ * steps;
        block_m_ = loop_var("block_m", ceil_div(m, tile.m)), block_n_ = loop_var("block_n", ceil_div(n, tile.n));
        a_.first = block_m_ * tile.m, a_.whole = m, b_.first = block_n_ * tile.n, b_.whole = n;
        for (MmaOperand* o : {&a_, &b_}) {
            CHECK(o->depth() == tile.k, "tiles are {} deep, not {}", o->depth(), tile.k);
            o->tile = add("tile_" + o->name, o->value.dtype(), {o->lines(), o->line()});
            o->fetched = add("next_" + o->name, o->value.dtype(), {kWarps, kGroups, kPairs, o->each()});
        }
        sums_ = add("sums", sum_type(), {kWarps, kGroups, kPairs, per_thread()});

        const Expr step = loop_var("step", steps);
        Stmt begin = over_warps("begin", [&](const WarpThread& t) {
            const Expr e = loop_var("cleared", per_thread());
            Stmt zero = store(sums_, t.own(e), constant(0, sum_type()));
            Stmt first = seq({fetch(a_, begins, "first", t), fetch(b_, begins, "first", t)});
            return seq({loop_over(e, per_thread(), LoopKind::Unrolled, zero), before_steps(steps, std::move(first))});
        });
        Stmt bring = over_warps("bring", [&](const WarpThread& t) {
            const Expr next = begins + min(step + 1, steps - 1);  // what the last brings is not used
            return seq({keep(a_, t), keep(b_, t), fetch(a_, next, "next", t), fetch(b_, next, "next", t)});
        });
        Stmt body = seq({begin, loop_over(step, steps, LoopKind::Serial, seq({bring, multiply()})), finish(m, n)});
        for (int own : {sums_, b_.fetched, a_.fetched, b_.tile, a_.tile}) body = alloc(own, std::move(body));
        return in_blocks(std::move(body), tile);
    }

  private:
    int64_t per_thread() const { return in_rows_ * in_columns_ * 4; }
    DType sum_type() const { return matrix_sum(a_.value.dtype()); }

    // A vector of a thread, by number, where it begins along the side and along k, and which of its elements is meant.
    struct Taken {
        Expr number, side, k, in;
    };

    // The vectors of a thread. Pairs take neighbours. `whole`: as vectors, or element by element.
    template <typename F>
    Stmt for_vectors(const MmaOperand& o, const std::string& which, const WarpThread& t, bool whole,
                     const F& one) const {
        const int64_t width = o.taken();
        const Expr r = loop_var(which + "row_" + o.name, o.rows()), c = loop_var(which + "turn_" + o.name, o.vectors());
        const Expr in = width > 1 ? loop_var(which + "in_" + o.name, width) : Expr(0);
        const Expr row = r * (kWarps * kGroups) + t.warp * kGroups + t.group, column = (c * kPairs + t.pair) * width;
        const Expr number = (r * o.vectors() + c) * width + in;
        Stmt body = one(o.plan.along_k ? Taken{number, row, column, in} : Taken{number, column, row, in});
        if (width > 1) body = loop_over(in, width, whole ? LoopKind::Vector : LoopKind::Unrolled, std::move(body));
        return loop_over(r, o.rows(), LoopKind::Unrolled,
                         loop_over(c, o.vectors(), LoopKind::Unrolled, std::move(body)));
    }

    // The same of bytes that are turned: a thread takes four vectors that follow each other along k, and keeps words
    // along k of them. Groups take neighbours.
    template <typename F>
    Stmt for_words(const MmaOperand& o, const std::string& which, const WarpThread& t, bool keeps, const F& one) const {
        const int64_t width = o.plan.width, turns = o.side / (kGroups * width),
                      rows = o.depth() / (kWarps * kPairs * kWord);
        const Expr r = loop_var(which + "row_" + o.name, rows), c = loop_var(which + "turn_" + o.name, turns);
        const Expr word = loop_var(which + "word_" + o.name, kWord);
        const Expr in = width > 1 ? loop_var(which + "in_" + o.name, width) : Expr(0);
        const Expr side = (c * kGroups + t.group) * width;
        const Expr k = ((r * kWarps + t.warp) * kPairs + t.pair) * kWord + word,
                   number = ((r * turns + c) * kWord + word) * width + in;
        Stmt body = one(Taken{number, side, k, in});
        auto along_side = [&](LoopKind kind) {
            if (width > 1) body = loop_over(in, width, kind, std::move(body));
        };
        if (!keeps) along_side(LoopKind::Vector);
        body = loop_over(word, kWord, keeps ? LoopKind::Vector : LoopKind::Unrolled, std::move(body));
        if (keeps) along_side(LoopKind::Unrolled);
        return loop_over(r, rows, LoopKind::Unrolled, loop_over(c, turns, LoopKind::Unrolled, std::move(body)));
    }

    Stmt fetch(const MmaOperand& o, const Expr& step, const std::string& which, const WarpThread& t) const {
        const bool along = o.plan.along_k, whole = o.plan.width == o.taken();
        auto one = [&](const Taken& v) {
            // All of a vector is inside or nothing of it is.
            const Expr single = whole || o.turned() ? Expr(0) : v.in;
            const Expr first = floor_div(step, others_) * o.depth() + v.k, side = o.first + v.side, k = first + single;
            Expr inside = int_const(1, DType::boolean);
            if (!divides(o.side, o.whole)) inside = logical_and(inside, lt(side, o.whole));
            if (!divides(o.depth(), inner().extent) || !parts_are_even(o.depth()))
                inside = logical_and(inside, lt(k, inner().extent));
            Expr value = at(o.value, o.axis, along ? side : side + v.in, along ? first + v.in : first, step);
            value = select(inside, value, constant(0, o.value.dtype()));
            return store(o.fetched, t.own(v.number), std::move(value));
        };
        return o.turned() ? for_words(o, which + "_", t, false, one) : for_vectors(o, which + "_", t, whole, one);
    }

    Stmt keep(const MmaOperand& o, const WarpThread& t) const {
        auto one = [&](const Taken& v) {
            const Expr side = o.plan.along_k ? v.side : v.side + v.in, k = o.plan.along_k ? v.k + v.in : v.k;
            std::vector<Expr> at{side, k};
            if (!o.kept_along_k()) at = {k, side};
            return store(o.tile, std::move(at), load(o.fetched, o.value.dtype(), t.own(v.number)));
        };
        return o.turned() ? for_words(o, "", t, true, one) : for_vectors(o, "", t, true, one);
    }

    // Strides along the axes of the intrinsic: warps, 16 rows, 8 columns, half, group, pair, which of it; then k.
    Stmt multiply() const {
        const int64_t own = per_thread(), none = 0, m = plan_.tile.m / kWarps;
        const int64_t a = a_.kept_along_k() ? a_.line() : 1, a_k = a_.kept_along_k() ? 1 : a_.line();
        const int64_t b = b_.kept_along_k() ? b_.line() : 1, b_k = b_.kept_along_k() ? 1 : b_.line();
        Call call{block_matrix_name("mma", a_.value.dtype(), b_.value.dtype(), plan_.tile.m, plan_.tile.n),
                  {{sums_, {0, 0, 0, 0}}},
                  {{a_.tile, {0, 0}}, {b_.tile, {0, 0}}},
                  {}};
        const std::vector<int64_t> strides{32 * own, in_columns_ * 4,
                                           4,        2,
                                           4 * own,  own,
                                           1,        none,  //
                                           m * a,    16 * a,
                                           none,     8 * a,
                                           a,        none,
                                           none,     a_k,  //
                                           none,     none,
                                           8 * b,    none,
                                           none,     2 * b,
                                           b,        b_k};
        for (int64_t stride : strides) call.args.push_back(stride);
        return make_stmt(std::move(call));
    }

    // Where more is read, a half row is computed before it is stored: loads do not pass stores, but wait together.
    bool reads_ahead() const {
        bool reads = false;
        visit(out_.value, [&](const Expr& x) { reads |= x.is(ExprKind::Load) && x.node().slot != sum_.buffer; });
        const DType to = kernel_.buffers[size_t(to_buffer())].dtype;
        return reads && parts_ == 1 && sum_type() == DType::f32 && is_float(to) && dtype_bytes(to) <= 4;
    }

    enum class Finish : uint8_t { Whole, Compute, Store };

    Stmt finish(const Expr& m, const Expr& n) const {
        return over_warps("end", [&](const WarpThread& t) {
            const Expr i = loop_var("row", in_rows_), half = loop_var("half", 2);
            const Expr row = block_m_ * plan_.tile.m + t.warp * (plan_.tile.m / kWarps) + i * 16 + half * 8 + t.group;
            Stmt body = reads_ahead() ? seq({finish_half_row(t, i, half, row, n, Finish::Compute),
                                             finish_half_row(t, i, half, row, n, Finish::Store)})
                                      : finish_half_row(t, i, half, row, n, Finish::Whole);
            if (!divides(plan_.tile.m, m)) body = if_then(lt(row, m), std::move(body));
            body = loop_over(half, 2, LoopKind::Unrolled, std::move(body));
            return loop_over(i, in_rows_, LoopKind::Unrolled, std::move(body));
        });
    }

    Stmt finish_half_row(const WarpThread& t, const Expr& i, const Expr& half, const Expr& row, const Expr& n,
                         Finish what) const {
        const std::string of = what == Finish::Store ? "_stored" : "";
        const Expr j = loop_var("column" + of, in_columns_), in = loop_var("in_pair" + of, 2);
        const Expr column = block_n_ * plan_.tile.n + j * 8 + t.pair * 2;
        std::vector<Expr> place = t.own(i * (in_columns_ * 4) + j * 4 + half * 2 + in);
        const Expr own = load(sums_, sum_type(), place);
        Finished made = finished_part(row, column + in, own);
        const DType dtype = made.value.dtype();
        Stmt body = what == Finish::Compute ? store(sums_, std::move(place), cast(made.value, sum_type()))
                                            : store(to_buffer(), std::move(made.to),
                                                    what == Finish::Store ? cast(own, dtype) : std::move(made.value));
        const bool vector = parts_ > 1 ? divides(2, n) : plan_.store_width > 1, full = divides(plan_.tile.n, n);
        if (!vector && !full) body = if_then(lt(column + in, n), std::move(body));
        body = loop_over(in, 2, vector ? LoopKind::Vector : LoopKind::Unrolled, std::move(body));
        if (vector && !full) body = if_then(lt(column, n), std::move(body));
        return loop_over(j, in_columns_, LoopKind::Unrolled, std::move(body));
    }
    const MmaPlan& plan_;
    const int64_t in_rows_, in_columns_;  // instructions of a warp along its rows and columns
    MmaOperand a_, b_;
    int sums_ = -1;
};

}  // namespace

BlockTile choose_mma_tile(const Machine& machine, int64_t batch, int64_t m, int64_t n, DType dtype) {
    const double at_once = kMmaResident * double(machine.cores);
    BlockTile best;
    double least = 0;
    for (int64_t bm : {128, 64})
        for (int64_t bn : {128, 64}) {
            const double blocks = double(batch) * double((m + bm - 1) / bm) * double((n + bn - 1) / bn);
            const double x = double(bm) / 16, y = double(bn) / 16;
            const double cost = (x * y + 2 * (x + y) + 4) * std::max(1.0, blocks / at_once);
            if (best.m && cost >= least) continue;
            least = cost;
            best = {bm, bn, mma_depth(dtype)};
        }
    return best;
}

TiledKernel mma_kernel(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, int a,
                       const MmaPlan& plan) {
    return MmaContraction(compute, sum, out, has_batch, a, plan).make();
}

}  // namespace tessera
