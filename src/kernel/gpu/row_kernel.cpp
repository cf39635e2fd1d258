#include "kernel/gpu/row_kernel.h"

#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/prepare_operand.h"

namespace tessera {
namespace {

constexpr int64_t kAcross = 32, kDeep = 8;  // threads along columns and along k
constexpr int64_t kRowVectorBytes = 16;
constexpr int64_t kManyColumns = 2048;
constexpr int64_t kApart = 8;         // columns of a thread where neighbours cannot be read at once
constexpr int64_t kAheadOfSums = 16;  // steps of which a thread reads before it adds them up

class RowContraction : ContractionBuilder {
  public:
    RowContraction(const Compute& compute, const Stage& sum, const Stage& out, int a, int64_t lanes, bool vectors,
                   int64_t parts)
        : ContractionBuilder(compute, sum, out, false, 0, parts),
          a_(sum.value.arg(size_t(a))),
          b_(sum.value.arg(size_t(1 - a))),
          lanes_(lanes),
          vectors_(vectors),
          tile_{*rows().as_int(), kAcross * lanes, kDeep} {}

    TiledKernel make() {
        block_m_ = loop_var("block_m", 1), block_n_ = loop_var("block_n", ceil_div(columns(), tile_.n));
        deep_ = loop_var("deep", kDeep), across_ = loop_var("across", kAcross);
        const DType dtype = compute_.buffers[size_t(sum_.buffer)].dtype;
        const int sums = add("sums", dtype, {tile_.m, lanes_}, Scope::Register);
        const int met = add("met", dtype, {kDeep, tile_.m, tile_.n});
        Stmt body = seq({clear(sums, dtype), add_up(sums), keep(met, sums, dtype),
                         make_stmt(Call{"barrier", {}, {}, {}}), finish(met, dtype)});
        body = alloc(sums, std::move(body));
        body = loop_over(across_, kAcross, LoopKind::Bound, std::move(body), "thread.x");
        body = loop_over(deep_, kDeep, LoopKind::Bound, std::move(body), "thread.y");
        return in_blocks(alloc(met, std::move(body)), tile_);
    }

  private:
    template <typename F>
    Stmt for_own(const std::string& name, const F& one) const {
        const Expr row = loop_var("row_" + name, tile_.m), lane = loop_var("lane_" + name, lanes_);
        const LoopKind kind = vectors_ ? LoopKind::Vector : LoopKind::Unrolled;
        return loop_over(row, tile_.m, LoopKind::Unrolled, loop_over(lane, lanes_, kind, one(row, lane)));
    }

    Stmt clear(int sums, DType dtype) const {
        return for_own("clear", [&](const Expr& row, const Expr& lane) {
            return store(sums, {row, lane}, constant(0, dtype));
        });
    }

    Stmt add_up(int sums) const {
        const int64_t depth = *inner().extent.as_int(), steps = depth / (kDeep * parts_);
        const int64_t ahead = vectors_ ? kAheadOfSums : kAheadOfSums / 4;
        const bool full = divides(tile_.n, columns());
        auto sum_at = [&](const std::string& name, const Expr& k) {
            return for_own(name, [&](const Expr& row, const Expr& lane) {
                // Columns that there are not are not stored.
                const Expr column = vectors_ || full ? column_of(lane) : min(column_of(lane), columns() - 1);
                const Expr x = at(a_, row_axis_, row, k, 0), y = at(b_, column_axis_, column, k, 0);
                return store(sums, {row, lane}, x * y, ReduceOp::Sum);
            });
        };
        const Expr step = loop_var("step", steps);
        Stmt all = for_loop({.var = step,
                             .extent = steps,
                             .notes = {{"unroll", ahead}},
                             .body = sum_at("sum", (part_ * steps + step) * kDeep + deep_)});
        // What is left: at most one step for each part.
        if (depth != steps * kDeep * parts_) {
            const Expr k = (parts_ * steps + part_) * kDeep + deep_;
            all = seq({std::move(all), if_then(lt(k, depth), sum_at("rest", k))});
        }
        return !vectors_ || full ? all : if_then(lt(column_of(0), columns()), std::move(all));
    }

    // Of a thread: neighbours, or every kAcross-th.
    Expr in_tile(const Expr& lane) const { return vectors_ ? across_ * lanes_ + lane : lane * kAcross + across_; }
    Expr column_of(const Expr& lane) const { return block_n_ * tile_.n + in_tile(lane); }

    Stmt keep(int met, int sums, DType dtype) const {
        return for_own("keep", [&](const Expr& row, const Expr& lane) {
            return store(met, {deep_, row, in_tile(lane)}, load(sums, dtype, {row, lane}));
        });
    }

    // Each thread some columns of all that was kept.
    Stmt finish(int met, DType dtype) const {
        const int64_t turns = divide_up(tile_.n, kDeep * kAcross);
        const Expr row = loop_var("row", tile_.m), turn = loop_var("turn", turns);
        const Expr in = turn * (kDeep * kAcross) + deep_ * kAcross + across_, column = block_n_ * tile_.n + in;
        Expr own = load(met, dtype, {0, row, in});
        for (int64_t d = 1; d < kDeep; ++d) own = own + load(met, dtype, {d, row, in});
        Finished made = finished_part(row, column, own);
        Stmt body = store(to_buffer(), std::move(made.to), std::move(made.value));
        if (!divides(tile_.n, columns())) body = if_then(lt(column, columns()), std::move(body));
        if (tile_.n % (kDeep * kAcross)) body = if_then(lt(in, tile_.n), std::move(body));
        return loop_over(row, tile_.m, LoopKind::Unrolled, loop_over(turn, turns, LoopKind::Unrolled, std::move(body)));
    }

    const Expr a_, b_;
    const int64_t lanes_;
    const bool vectors_;  // lanes are neighbours
    const BlockTile tile_;
    Expr deep_, across_;
};

}  // namespace

std::optional<PreparedOperand> prepare_matrix_of_row(Compute& compute) {
    if (compute.stages.empty() || compute.stages.size() > 2) return {};
    const Stage sum = compute.stages[0];
    const auto c = match_contraction(sum);
    if (!c || sum.fold || !c->batch.empty() || c->columns.empty() || sum.reduce.size() != 1) return {};
    for (int i : c->rows)
        if (!sum.axes[size_t(i)].extent.is_int(1)) return {};
    const auto k = sum.reduce[0].extent.as_int();
    const Expr operand = sum.value.arg(size_t(c->b)), read = operand.is(ExprKind::Cast) ? operand.arg(0) : operand;
    if (!read.is(ExprKind::Load) || dtype_bytes(read.dtype()) != 2 || !k || *k % (kRowVectorBytes / 2)) return {};
    const auto step = stride_of(Schedule(compute), read, sum.axes[size_t(c->columns.back())].var);
    if (!step || !step->is_int(1)) return {};
    std::vector<ReduceAxis> order;
    for (int i : c->columns) order.push_back(sum.axes[size_t(i)]);
    order.push_back(sum.reduce[0]);
    return prepare_operand(compute, operand, order);
}

std::optional<TiledKernel> row_kernel(const Schedule& s, const Stage& sum, const Stage& out, int a,
                                      const Machine& machine) {
    if (sum.reduce.size() != 1 || sum.axes.size() != 2) return {};
    const auto m = sum.axes[0].extent.as_int(), n = sum.axes[1].extent.as_int(), k = sum.reduce[0].extent.as_int();
    if (!m || !n || !k || *m > kMostFewRows) return {};
    int64_t bytes = 0;
    bool along = true;
    visit(sum.value.arg(size_t(1 - a)), [&](const Expr& x) {
        if (x.is(ExprKind::Select)) along = false;
        if (!x.is(ExprKind::Load)) return;
        auto step = stride_of(s, x, sum.axes[1].var);
        along &= bytes == 0 && step && step->is_int(1);
        bytes = int64_t(dtype_bytes(x.dtype()));
    });
    if (!along || bytes == 0 || bytes > 4) return {};
    int64_t lanes = kRowVectorBytes / std::max<int64_t>(bytes, 2);
    const bool vectors = *n % lanes == 0;
    // Many sums of one row each are better off in one thread each.
    if (!vectors && *m == 1 && *n >= kManyColumns) return {};
    if (!vectors) lanes = kApart;
    const BlockTile tile{*m, kAcross * lanes, kDeep};
    const int64_t parts = choose_parts(machine, tile, 1, *m, *n, divide_up(*k, kDeep));
    return RowContraction(s.compute(), sum, out, a, lanes, vectors, parts).make();
}

}  // namespace tessera
