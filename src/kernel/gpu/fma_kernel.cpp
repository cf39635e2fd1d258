#include "kernel/gpu/fma_kernel.h"

#include <algorithm>

#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/gpu_loops.h"

namespace tessera {
namespace {

constexpr int64_t kPadding = 4;   // elements after each row of a tile: rows begin in different banks
constexpr int64_t kVector = 4;    // neighbours that a thread has in the tile
constexpr int64_t kUnrolled = 4;  // steps of k

// How a thread's elements along one side of the tile lie: `groups` times `vector` neighbours.
struct Side {
    explicit Side(int64_t tile) : each(tile / kBlockSide), vector(std::min(each, kVector)), groups(each / vector) {}
    int64_t each, vector, groups;
    // Where in the tile element `in` of group `group` of a thread is.
    Expr at(const Expr& thread, const Expr& group, const Expr& in) const {
        return thread * vector + group * (vector * kBlockSide) + in;
    }
};

class FmaContraction : ContractionBuilder {
  public:
    FmaContraction(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, int a,
                   const FmaPlan& plan)
        : ContractionBuilder(compute, sum, out, has_batch, plan.depth.inner, plan.parts),
          a_(sum.value.arg(size_t(a))),
          b_(sum.value.arg(size_t(1 - a))),
          tile_(plan.tile),
          rows_(plan.tile.m),
          columns_(plan.tile.n),
          vectors_(plan.parts > 1 ? divides(columns_.vector, columns()) : plan.store_width >= columns_.vector),
          depth_(plan.depth) {}

    TiledKernel make() {
        const Expr &m = rows(), &n = columns(), &k = inner().extent;
        const Expr steps = ceil_div(ceil_div(k, tile_.k) * others_, parts_), begins = part_ * steps;
        block_m_ = loop_var("block_m", ceil_div(m, tile_.m)), block_n_ = loop_var("block_n", ceil_div(n, tile_.n));
        ty_ = loop_var("thread_m", kBlockSide), tx_ = loop_var("thread_n", kBlockSide);
        const Expr step = loop_var("step", steps);
        const int a = add("tile_a", a_.dtype(), {tile_.k, tile_.m + kPadding});
        const int b = add("tile_b", b_.dtype(), {tile_.k, tile_.n + kPadding});
        const DType dtype = compute_.buffers[size_t(sum_.buffer)].dtype;
        sums_ = add("sums", dtype, {rows_.each, columns_.each}, Scope::Register);
        const int from_a = add("from_a", a_.dtype(), {rows_.each}, Scope::Register);
        const int from_b = add("from_b", b_.dtype(), {columns_.each}, Scope::Register);

        const Stmt barrier = make_stmt(Call{"barrier", {}, {}, {}});
        // What the next step needs is on its way while this one is added up.
        const int next_a = add("next_a", a_.dtype(), {tile_.m * tile_.k / (kBlockSide * kBlockSide)}, Scope::Register);
        const int next_b = add("next_b", b_.dtype(), {tile_.n * tile_.k / (kBlockSide * kBlockSide)}, Scope::Register);
        const Operand of_a{a, next_a, a_, "a", block_m_ * tile_.m, tile_.m, m, row_axis_, depth_.a_along};
        const Operand of_b{b, next_b, b_, "b", block_n_ * tile_.n, tile_.n, n, column_axis_, depth_.b_along};
        const Expr next = begins + min(step + 1, steps - 1);  // what the last brings is not used
        Stmt fetch_next = seq({fetch(of_a, next, k, "next"), fetch(of_b, next, k, "next")});
        Stmt one = seq({keep(of_a), keep(of_b), barrier, fetch_next, add_up(a, b, from_a, from_b), barrier});
        Stmt first = seq({fetch(of_a, begins, k, "first"), fetch(of_b, begins, k, "first")});
        Stmt body = seq({clear(dtype), before_steps(steps, std::move(first)),
                         loop_over(step, steps, LoopKind::Serial, std::move(one)), finish(m, n)});
        for (int own : {next_b, next_a, from_b, from_a, sums_}) body = alloc(own, std::move(body));
        body = loop_over(ty_, kBlockSide, LoopKind::Bound,
                         loop_over(tx_, kBlockSide, LoopKind::Bound, std::move(body), "thread.x"), "thread.y");
        body = alloc(a, alloc(b, std::move(body)));
        return in_blocks(std::move(body), tile_);
    }

  private:
    // A tile of an operand: in shared memory, and what a thread has fetched for it.
    struct Operand {
        int tile, fetched;
        Expr value;
        std::string name;
        Expr first;      // of the block
        int64_t extent;  // of the tile, along its side
        Expr whole;
        size_t axis;
        bool along_k;
    };

    // What a thread brings of a tile: every kBlockSide-th along its side, and along k. Neighbouring threads take
    // neighbours in memory: along k, or along the side.
    template <typename F>
    Stmt for_turns(const Operand& o, const std::string& which, const F& one) const {
        const int64_t sides = o.extent / kBlockSide, parts = tile_.k / kBlockSide;
        const Expr turn = loop_var(which + "turn_" + o.name, sides), part = loop_var(which + "part_" + o.name, parts);
        const Expr in_k = (o.along_k ? tx_ : ty_) + part * kBlockSide,
                   in_side = (o.along_k ? ty_ : tx_) + turn * kBlockSide;
        return loop_over(part, parts, LoopKind::Unrolled,
                         loop_over(turn, sides, LoopKind::Unrolled, one(part * sides + turn, in_k, in_side)));
    }

    Stmt fetch(const Operand& o, const Expr& step, const Expr& depth, const std::string& which) const {
        return for_turns(o, which + "_", [&](const Expr& number, const Expr& in_k, const Expr& in_side) {
            const Expr k = floor_div(step, others_) * tile_.k + in_k, side = o.first + in_side;
            Expr value = at(o.value, o.axis, side, k, step);
            Expr inside = int_const(1, DType::boolean);
            if (!divides(o.extent, o.whole)) inside = logical_and(inside, lt(side, o.whole));
            if (!divides(tile_.k, depth) || !parts_are_even(tile_.k)) inside = logical_and(inside, lt(k, depth));
            value = select(inside, value, constant(0, value.dtype()));
            return store(o.fetched, {number}, value);
        });
    }

    Stmt keep(const Operand& o) const {
        return for_turns(o, "", [&](const Expr& number, const Expr& in_k, const Expr& in_side) {
            return store(o.tile, {in_k, in_side}, load(o.fetched, o.value.dtype(), {number}));
        });
    }

    Stmt clear(DType dtype) {
        const Expr i = loop_var("row_0", rows_.each), j = loop_var("column_0", columns_.each);
        Stmt zero = store(sums_, {i, j}, constant(0, dtype));
        return loop_over(i, rows_.each, LoopKind::Unrolled,
                         loop_over(j, columns_.each, LoopKind::Unrolled, std::move(zero)));
    }

    Stmt take(int to, int from, const Side& side, const Expr& thread, const Expr& k, const std::string& name) {
        const Expr group = loop_var("group_" + name, side.groups), in = loop_var("lane_" + name, side.vector);
        const Expr value = load(from, kernel_.buffers[size_t(from)].dtype, {k, side.at(thread, group, in)});
        Stmt one = store(to, {group * side.vector + in}, value);
        return loop_over(group, side.groups, LoopKind::Unrolled,
                         loop_over(in, side.vector, LoopKind::Vector, std::move(one)));
    }

    Stmt add_up(int a, int b, int from_a, int from_b) {
        const Expr k = loop_var("k", tile_.k), i = loop_var("row", rows_.each), j = loop_var("column", columns_.each);
        const Expr x = load(from_a, a_.dtype(), {i}), y = load(from_b, b_.dtype(), {j});
        Stmt product = store(sums_, {i, j}, x * y, ReduceOp::Sum);
        Stmt all = loop_over(i, rows_.each, LoopKind::Unrolled,
                             loop_over(j, columns_.each, LoopKind::Unrolled, std::move(product)));
        For made{.var = k, .extent = tile_.k, .notes = {{"unroll", kUnrolled}}, .body = {}};
        made.body = seq({take(from_a, a, rows_, ty_, k, "a"), take(from_b, b, columns_, tx_, k, "b"), all});
        return for_loop(std::move(made));
    }

    // What is made of the sums.
    Stmt finish(const Expr& m, const Expr& n) {
        const int64_t lanes = vectors_ ? columns_.vector : 1;
        const Expr group_m = loop_var("group_m", rows_.groups), in_m = loop_var("in_m", rows_.vector);
        const Expr group_n = loop_var("group_n", columns_.groups), in_n = loop_var("in_n", columns_.vector);
        const Expr row = block_m_ * tile_.m + rows_.at(ty_, group_m, in_m);
        const Expr column = block_n_ * tile_.n + columns_.at(tx_, group_n, in_n);
        const Expr own = load(sums_, kernel_.buffers[size_t(sums_)].dtype,
                              {group_m * rows_.vector + in_m, group_n * columns_.vector + in_n});
        Finished made = finished_part(row, column, own);
        Stmt body = store(to_buffer(), std::move(made.to), std::move(made.value));
        Expr inside = int_const(1, DType::boolean);
        if (!divides(tile_.n, n)) {
            // All lanes or none, where their number divides the extent.
            const Expr first = lanes > 1 ? substitute(column, {{in_n.node().name, Expr(0)}}) : column;
            inside = lt(first, n);
        }
        if (lanes > 1) body = loop_over(in_n, columns_.vector, LoopKind::Vector, std::move(body));
        body = if_then(inside, std::move(body));
        if (lanes == 1) body = loop_over(in_n, columns_.vector, LoopKind::Unrolled, std::move(body));
        body = loop_over(group_n, columns_.groups, LoopKind::Unrolled, std::move(body));
        if (!divides(tile_.m, m)) body = if_then(lt(row, m), std::move(body));
        body = loop_over(in_m, rows_.vector, LoopKind::Unrolled, std::move(body));
        return loop_over(group_m, rows_.groups, LoopKind::Unrolled, std::move(body));
    }

    const Expr a_, b_;
    const BlockTile tile_;
    const Side rows_, columns_;
    const bool vectors_;  // are stored
    const Depth depth_;
    Expr ty_ = 0, tx_ = 0;
    int sums_ = -1;
};

}  // namespace

TiledKernel fma_kernel(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, int a,
                       const FmaPlan& plan) {
    return FmaContraction(compute, sum, out, has_batch, a, plan).make();
}

}  // namespace tessera
