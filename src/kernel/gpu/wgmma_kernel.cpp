#include "kernel/gpu/wgmma_kernel.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/matrix_operand.h"
#include "kernel/gpu/mma_kernel.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/narrow_floats.h"
#include "kernel/ir/tile_copy.h"

namespace tessera {
namespace {

constexpr int64_t kWgmmaRows = 64;                     // of one instruction
constexpr int64_t kSquareColumns = 64;                 // that are stored at a time
constexpr int64_t kRingRows = 6 * 256;                 // of tiles on their way, both operands together
constexpr int64_t kAlignedBytes = 16;                  // that rows begin at multiples of
constexpr size_t kMostTileDims = 5;                    // of a buffer that tiles are copied of
constexpr int64_t kShortestOfPair = 8;                 // steps of blocks that copy for each other
constexpr int64_t kMostParts = 64, kShortestPart = 4;  // of k; steps of one

// A buffer as [outer axes, rows, columns], columns lying together; with those outer axes that it has.
struct MatrixView {
    int buffer = -1;
    std::vector<Expr> outer, shape, strides;

    bool is_dense() const {
        Expr stride = 1;
        for (size_t d = shape.size(); d-- > 0; stride = stride * shape[d])
            if (!strides[d].same(stride)) return false;
        return true;
    }
    bool same(const MatrixView& o) const {
        if (shape.size() != o.shape.size()) return false;
        for (size_t d = 0; d < shape.size(); ++d)
            if (!shape[d].same(o.shape[d]) || !strides[d].same(o.strides[d])) return false;
        return true;
    }
};

Expr address_of(const Buffer& b, const std::vector<Expr>& indices) {
    Expr total = 0, stride = 1;
    for (size_t d = indices.size(); d-- > 0;) {
        total = total + indices[d] * (b.strides.empty() ? stride : b.strides[d]);
        stride = stride * b.shape[d];
    }
    return total;
}

// `axes` are outer ones, rows, columns.
std::optional<MatrixView> view_of(const Buffer& b, int slot, const std::vector<Expr>& indices,
                                  const std::vector<ReduceAxis>& axes) {
    const Expr address = address_of(b, indices);
    const int64_t aligned = kAlignedBytes / int64_t(dtype_bytes(b.dtype));
    const size_t rows = axes.size() - 2, columns = axes.size() - 1;
    Expr rest = address;
    MatrixView view{.buffer = slot, .outer = {}, .shape = {}, .strides = {}};
    for (size_t d = 0; d < axes.size(); ++d) {
        auto step = step_of(address, axes[d].var);
        if (!step) return {};
        rest = rest - *step * axes[d].var;
        if (d < rows && (step->is_int(0) || axes[d].extent.is_int(1))) continue;
        if (step->is_int(0)) return {};
        if (d == columns ? !step->is_int(1) : !divides(aligned, *step)) return {};
        if (d < rows) view.outer.push_back(axes[d].var);
        view.shape.push_back(axes[d].extent);
        view.strides.push_back(*step);
    }
    if (!rest.is_int(0) || view.shape.size() > kMostTileDims) return {};
    return view;
}

class WgmmaContraction : ContractionBuilder {
  public:
    WgmmaContraction(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, const WgmmaPlan& plan)
        : ContractionBuilder(compute, sum, out, has_batch, plan.inner, has_batch ? 1 : plan.parts),
          tile_(plan.tile),
          depth_(plan.tile.k),
          together_(plan.together),
          pairs_(plan.pairs),
          window_(plan.window) {}

    std::optional<TiledKernel> make(int a) {
        if (window_) {
            a_.view.buffer = window_->buffer, a_.along_k = true, a_.side = tile_.m;
            a_.dtype = compute_.buffers[size_t(window_->buffer)].dtype;
        } else if (!find_operand(sum_.value.arg(size_t(a)), row_axis_, tile_.m, a_)) {
            return {};
        }
        if (!find_operand(sum_.value.arg(size_t(1 - a)), column_axis_, tile_.n, b_) ||
            !are_multiplied(a_.dtype, b_.dtype))
            return {};
        if (parts_ == 1) stored_ = stored_view();
        for (const MatrixView* view : {&a_.view, &b_.view, stored_ ? &*stored_ : nullptr})
            if (view && !(window_ && view == &a_.view) && !take(*view)) return {};
        block_m_ = loop_var("block_m", ceil_div(rows(), tile_.m));
        block_n_ = loop_var("block_n", ceil_div(columns(), tile_.n));
        a_.tile = tile_of(a_, "a"), b_.tile = tile_of(b_, "b");
        sums_ = add("sums", matrix_sum(a_.dtype), {kWarps, kGroups, kPairs, per_thread()});
        if (stored_ || stores_lines())
            for (int i = 0; i < 2; ++i)
                tiles_c_.push_back(add(fmt::format("tile_c{}", i), kernel_.buffers[size_t(out_.buffer)].dtype,
                                       {1, kWgmmaRows, kPieces, kPieceBytes / 2}));
        Stmt begin = over_warps("begin", [&](const WarpThread& t) {
            const Expr e = loop_var("cleared", per_thread());
            return loop_over(e, per_thread(), LoopKind::Unrolled,
                             store(sums_, t.own(e), constant(0, matrix_sum(a_.dtype))));
        });
        Stmt body = seq({begin, steps(), finish()});
        for (int own : tiles_c_) body = alloc(own, std::move(body));
        for (int own : {sums_, b_.tile, a_.tile}) body = alloc(own, std::move(body));
        return in_blocks(std::move(body), tile_);
    }

  private:
    struct TileOperand {
        MatrixView view;
        bool along_k = false;
        int64_t side = 0;
        DType dtype = DType::f16;
        int tile = -1;
    };

    int64_t per_thread() const { return tile_.m / kWgmmaRows * tile_.n / 2; }

    // The axes that an operand may have beside k and its side.
    std::vector<ReduceAxis> outer_axes() const {
        std::vector<ReduceAxis> axes;
        if (batch_axis_) axes.push_back(sum_.axes[*batch_axis_]);
        for (size_t i = 0; i < sum_.reduce.size(); ++i)
            if (i != inner_) axes.push_back(sum_.reduce[i]);
        return axes;
    }

    bool find_operand(const Expr& operand, size_t axis, int64_t side, TileOperand& to) const {
        const auto found = matrix_load(operand);
        if (!found || kPanelBytes / int64_t(dtype_bytes(found->dtype)) != depth_) return false;
        const int slot = found->load.node().slot;
        if (size_t(slot) >= compute_.params) return false;
        const Buffer& b = compute_.buffers[size_t(slot)];
        to.side = side, to.dtype = found->dtype;
        for (bool along_k : {true, false}) {
            if (!along_k && dtype_bytes(to.dtype) != 2) continue;
            std::vector<ReduceAxis> axes = outer_axes();
            axes.push_back(along_k ? sum_.axes[axis] : inner());
            axes.push_back(along_k ? inner() : sum_.axes[axis]);
            auto view = view_of(b, slot, found->load.args(), axes);
            if (!view) continue;
            to.view = std::move(*view), to.along_k = along_k;
            return true;
        }
        return false;
    }

    // Where the output can be stored by tiles.
    std::optional<MatrixView> stored_view() const {
        const Buffer& b = compute_.buffers[size_t(out_.buffer)];
        if (dtype_bytes(b.dtype) != 2) return {};
        std::vector<ReduceAxis> axes{out_.axes[row_axis_], out_.axes[column_axis_]};
        if (batch_axis_) axes.insert(axes.begin(), out_.axes[*batch_axis_]);
        auto view = view_of(b, out_.buffer, out_.store, axes);
        if (view && batch_axis_ && view->outer.empty()) return {};
        return view;
    }

    // Whether rows of the output, which do not begin where tiles can be stored, are stored by threads side by side.
    bool stores_lines() const {
        const Buffer& b = compute_.buffers[size_t(out_.buffer)];
        if (parts_ > 1 || dtype_bytes(b.dtype) != 2) return false;
        const auto along = step_of(address_of(b, out_.store), out_.axes[column_axis_].var);
        return along && along->is_int(1);
    }

    // From here on the kernel sees the buffer so, which nothing else in it may read otherwise.
    bool take(const MatrixView& view) {
        if (window_ && window_->buffer == view.buffer) return false;
        for (const MatrixView* other : {&a_.view, &b_.view, stored_ ? &*stored_ : nullptr})
            if (other && other->buffer == view.buffer && !other->same(view)) return false;
        bool read = false;
        visit(out_.value, [&](const Expr& x) { read |= x.is(ExprKind::Load) && x.node().slot == view.buffer; });
        if (read) return false;
        Buffer& b = kernel_.buffers[size_t(view.buffer)];
        b.shape = view.shape;
        b.strides = view.is_dense() ? std::vector<Expr>() : view.strides;
        return true;
    }

    int tile_of(const TileOperand& o, const std::string& name) {
        return add("tile_" + name, stored_as(o.dtype),
                   o.along_k ? std::vector<int64_t>{o.side, depth_} : std::vector<int64_t>{depth_, o.side});
    }

    std::vector<Expr> place(const MatrixView& view, const Expr& row, const Expr& column, const Expr& step) const {
        const Bindings values = stepped(step);
        std::vector<Expr> at;
        for (const Expr& axis : view.outer) {
            auto known = values.find(axis.node().name);
            at.push_back(known == values.end() ? batch_ : known->second);
        }
        at.push_back(row);
        at.push_back(column);
        return at;
    }

    Stmt copy(const char* name, Access to, Access from) const {
        const auto dims = int64_t(std::string_view(name) == kStoreTile ? to.indices.size() : from.indices.size());
        return make_stmt(Call{name, {std::move(to)}, {std::move(from)}, {dims - 2, dims - 1}});
    }

    Stmt bring(const TileOperand& o, const Expr& first, const Expr& step_of_part) const {
        const Expr step = part_ * steps_of_part() + step_of_part, k = floor_div(step, others_) * depth_;
        if (window_ && &o == &a_) return bring_places(first, step, k);
        std::vector<Expr> at = o.along_k ? place(o.view, first, k, step) : place(o.view, k, first, step);
        Stmt brought = copy(kCopyTile, {o.tile, {0, 0}}, {o.view.buffer, std::move(at)});
        // Rows that there are not would be filled with zeros, which takes time.
        const int64_t there = rows_there(o);
        if (there >= o.side) return brought;
        Call some = *brought->as<Call>();
        some.args.push_back(there);
        return make_stmt(std::move(some));
    }

    // Rows of a tile that there are at most.
    int64_t rows_there(const TileOperand& o) const {
        if (!o.along_k || (window_ && &o == &a_)) return o.side;
        return std::min(o.side, o.view.shape[o.view.shape.size() - 2].as_int().value_or(o.side));
    }

    Stmt bring_places(const Expr& first, const Expr& step, const Expr& k) const {
        const Window& w = *window_;
        std::array<Expr, 2> further{0, 0};
        const Bindings values = stepped(step);
        for (size_t i = 0; i < sum_.reduce.size(); ++i) {
            auto at = values.find(sum_.reduce[i].var.node().name);
            if (at == values.end()) continue;
            for (size_t d : {0, 1}) further[d] = further[d] + at->second * w.further[i][d];
        }
        Call call{kCopyPlaces, {{a_.tile, {0, 0}}}, {{w.buffer, {0, 0, 0, batch_ * w.apart + k}}}, {first}};
        for (const auto& pair : {w.size, w.every, w.from})
            for (int64_t n : pair) call.args.push_back(n);
        for (const Expr& e : further) call.args.push_back(e);
        return make_stmt(std::move(call));
    }

    Expr steps_of_part() const { return ceil_div(ceil_div(inner().extent, depth_) * others_, parts_); }

    Stmt steps() const {
        const Expr count = steps_of_part(), step = loop_var("step", count);
        std::vector<Stmt> body{bring(a_, block_m_ * tile_.m, step), bring(b_, block_n_ * tile_.n, step)};
        for (int tile : {a_.tile, b_.tile}) body.push_back(make_stmt(Call{kWaitTile, {{tile, {0, 0}}}, {}, {}}));
        body.push_back(multiply());
        std::map<std::string, int64_t> notes{{"pipeline", kRingRows / (rows_there(a_) + tile_.n)}};
        if (const int64_t early = (is_known(a_) ? 1 : 0) | (is_known(b_) ? 2 : 0)) notes.emplace("early", early);
        if (together_ > 1) notes.emplace("together", together_);
        if (pairs_ && can_pair()) notes.emplace("pairs", 2);
        return for_loop({.var = step, .extent = count, .notes = std::move(notes), .body = seq(std::move(body))});
    }

    // The second of a pair may have no rows: what it would store is seen not to be there.
    bool can_pair() const { return !divides(tile_.m, rows()) || divides(2 * tile_.m, rows()); }

    bool is_known(const TileOperand& o) const {
        const auto slot = size_t(o.view.buffer);
        return slot < compute_.known.size() && compute_.known[slot];
    }

    Stmt multiply() const {
        const int64_t own = per_thread(), none = 0;
        const int64_t a = a_.along_k ? depth_ : 1, a_k = a_.along_k ? 1 : a_.side;
        const int64_t b = b_.along_k ? depth_ : 1, b_k = b_.along_k ? 1 : b_.side;
        Call call{block_matrix_name("wgmma", a_.dtype, b_.dtype, tile_.m, tile_.n),
                  {{sums_, {0, 0, 0, 0}}},
                  {{a_.tile, {0, 0}}, {b_.tile, {0, 0}}},
                  {}};
        // Along warps, 64 rows, 8 columns, half, group, pair, which of it; then k.
        const std::vector<int64_t> strides{32 * own, tile_.n / 2,    4,     2,     4 * own, own,   1,    none,  //
                                           16 * a,   kWgmmaRows * a, none,  8 * a, a,       none,  none, a_k,   //
                                           none,     none,           8 * b, none,  none,    2 * b, b,    b_k};
        for (int64_t stride : strides) call.args.push_back(stride);
        return make_stmt(std::move(call));
    }

    // Squares of 64 rows and columns, one after the other; those that are stored by turns in two places.
    Stmt finish() const {
        std::vector<Stmt> all;
        size_t turn = 0;
        for (int64_t row = 0; row < tile_.m; row += kWgmmaRows)
            for (int64_t column = 0; column < tile_.n; column += kSquareColumns, ++turn) {
                const int to = tiles_c_.empty() ? to_buffer() : tiles_c_[turn % 2];
                all.push_back(finish_square(fmt::format("end{}", turn), row, column, to));
                if (tiles_c_.empty()) continue;
                if (!stored_) {
                    all.push_back(store_lines(fmt::format("line{}", turn), row, column, to));
                    continue;
                }
                std::vector<Expr> at = place(*stored_, block_m_ * tile_.m + row, block_n_ * tile_.n + column, 0);
                all.push_back(copy(kStoreTile, {stored_->buffer, std::move(at)}, {to, {0, 0, 0, 0}}));
            }
        return seq(std::move(all));
    }

    Stmt finish_square(const std::string& name, int64_t first_row, int64_t first_column, int to) const {
        return over_warps(name, [&](const WarpThread& t) {
            const Expr half = loop_var("half_" + name, 2), x = loop_var("column_" + name, kPieces),
                       in = loop_var("in_pair_" + name, 2);
            const Expr in_row = t.warp * 16 + half * 8 + t.group;
            const Expr row = block_m_ * tile_.m + first_row + in_row;
            const Expr column = block_n_ * tile_.n + first_column + x * 8 + t.pair * 2;
            const int64_t first = first_row / kWgmmaRows * (tile_.n / 2) + first_column / 2;
            const Expr own = load(sums_, matrix_sum(a_.dtype), t.own(x * 4 + half * 2 + in + first));
            const bool full = divides(tile_.n, columns()), even = full || divides(2, columns());
            // What lies outside of the output is not stored from shared memory: only reads must stay inside of it.
            const bool in_tile = !tiles_c_.empty(), all_rows = divides(tile_.m, rows());
            const Expr near = in_tile && !full && even ? min(column, columns() - 2) + in : column + in;
            Finished made = finished_part(in_tile && !all_rows ? min(row, rows() - 1) : row,
                                          in_tile && !even ? min(near, columns() - 1) : near, own);
            if (in_tile) made.to = {0, in_row, bit(ExprKind::BitXor, x, t.group), t.pair * 2 + in};
            Stmt body = store(to, std::move(made.to), std::move(made.value));
            if (!even && !in_tile) body = if_then(lt(column + in, columns()), std::move(body));
            body = loop_over(in, 2, in_tile || even ? LoopKind::Vector : LoopKind::Unrolled, std::move(body));
            if (!full && even && !in_tile) body = if_then(lt(column, columns()), std::move(body));
            body = loop_over(x, kPieces, LoopKind::Unrolled, std::move(body));
            if (!all_rows && !in_tile) body = if_then(lt(row, rows()), std::move(body));
            return loop_over(half, 2, LoopKind::Unrolled, std::move(body));
        });
    }

    // What a square is in shared memory, each warp line by line.
    Stmt store_lines(const std::string& name, int64_t first_row, int64_t first_column, int from) const {
        return over_warps(name, [&](const WarpThread& t) {
            const bool all = divides(tile_.m, rows()) && divides(tile_.n, columns());
            if (all) return own_lines(name, first_row, first_column, from, t, false);
            const Expr row = block_m_ * tile_.m + first_row + t.warp * 16, column = block_n_ * tile_.n + first_column;
            return if_then(logical_and(le(row + 16, rows()), le(column + kSquareColumns, columns())),
                           own_lines("all_" + name, first_row, first_column, from, t, false),
                           own_lines(name, first_row, first_column, from, t, true));
        });
    }

    // Those of a warp. What is known to be inside is read ahead of what is stored.
    Stmt own_lines(const std::string& name, int64_t first_row, int64_t first_column, int from, const WarpThread& t,
                   bool at_edge) const {
        const Expr in_row = loop_var("row_" + name, 16), turn = loop_var("turn_" + name, 2);
        const Expr piece = turn * 4 + floor_div(t.group, 2), in_piece = mod(t.group, 2) * 4 + t.pair;
        const Expr row = block_m_ * tile_.m + first_row + t.warp * 16 + in_row;
        const Expr column = block_n_ * tile_.n + first_column + piece * 8 + in_piece;
        const DType dtype = kernel_.buffers[size_t(from)].dtype;
        const Expr kept =
            load(from, dtype, {0, t.warp * 16 + in_row, bit(ExprKind::BitXor, piece, mod(in_row, 8)), in_piece});
        Stmt body = store(out_.buffer, finished(row, column, constant(0, matrix_sum(a_.dtype))).to, kept);
        if (at_edge) body = if_then(logical_and(lt(row, rows()), lt(column, columns())), std::move(body));
        body = loop_over(turn, 2, LoopKind::Unrolled, std::move(body));
        return loop_over(in_row, 16, LoopKind::Unrolled, std::move(body));
    }

    const BlockTile tile_;
    const int64_t depth_;  // of k at a time: a panel
    const int64_t together_;
    const bool pairs_;
    const std::optional<Window> window_;
    TileOperand a_, b_;
    std::optional<MatrixView> stored_;
    int sums_ = -1;
    std::vector<int> tiles_c_;  // what is stored
};

// What a launch takes, in microseconds on an H200, beside what all do: the steps of the tiles that a multiprocessor
// takes one after the other, by turns of two groups of threads of which one ends its tile while the other multiplies,
// or to read the operands once; the last tile's end; with parts a second launch, and sums that go through memory.
double wgmma_time(const Machine& machine, const WgmmaShape& s, const WgmmaProduct& p) {
    constexpr double kBytesRead = 4.2e6, kSumBytes = 3e6, kSecondLaunch = 1.5, kStored = 0.25;
    constexpr double kWhole = 8;  // turns, of which fewer are all taken for whole ones
    const double x = double(s.tile.m) / 64, y = double(s.tile.n) / 64;
    const int64_t down = s.pairs ? 2 * divide_up(p.m, 2 * s.tile.m) : divide_up(p.m, s.tile.m);
    double turns = double(p.batch * down * divide_up(p.n, s.tile.n) * s.parts) / double(machine.cores);
    if (turns < kWhole) turns = std::ceil(turns);
    const double wait = p.dtype == DType::f32 ? 1.45 : 1;  // for tiles to come
    if (s.together > 1) {
        // Two share what comes in to both, and send sums to each other.
        constexpr double kStep = 0.21, kSent = 0.7;
        const double read = double((p.m + p.n) * p.steps * kPanelBytes) / kBytesRead;
        return std::max(read, double(divide_up(p.steps, s.together)) * kStep + kSent) + p.end;
    }
    constexpr double kRead = 0.07;
    const double read_step = kRead * ((1 + p.misaligned[0]) * x + (1 + p.misaligned[1]) * y / (s.pairs ? 2 : 1));
    constexpr double kPairStep = 1.1, kPairLaunch = 2;  // each waits for the other
    const double step = std::max({0.01 + wait * (0.095 * x + 0.05 * y), (y > 2 ? 0.0785 : 0.0825) * x * y, read_step}) *
                        (s.pairs ? kPairStep : 1);
    const int64_t steps = std::max<int64_t>(p.steps, 1);
    const double product = double(divide_up(steps, s.parts)) * step, end = (s.parts == 1 ? p.end : kStored) * x * y;
    const double read = double(p.batch * (p.m + p.n) * steps * kPanelBytes) / kBytesRead;
    const bool even = std::fmod(turns, 2) == 0;
    const double in_turn = even ? turns / 2 * (product + end) + product : (turns + 1) / 2 * (product + end);
    const double time = std::max({read + end, turns * product + end, in_turn}) + (s.pairs ? kPairLaunch : 0);
    if (s.parts == 1) return time;
    constexpr double kUneven = 1.05;  // what a shorter part saves is waited for
    const double in_parts = time + kSecondLaunch + double(2 * s.parts * p.m * p.n * 4) / kSumBytes;
    return steps % s.parts ? kUneven * in_parts : in_parts;
}

}  // namespace

double end_of_square(const Compute& compute, const Stage& out, int sum) {
    constexpr double kStored = 0.25, kRead = 0.3, kFunction = 1.3, kLines = 1.2;
    std::set<int> read;
    bool computed = false;
    visit(out.value, [&](const Expr& x) {
        if (x.is(ExprKind::Load) && x.node().slot != sum) read.insert(x.node().slot);
        computed |= x.is(ExprKind::Call) || x.is(ExprKind::Pow);
    });
    // Lines that begin anywhere are stored element by element.
    const Buffer& to = compute.buffers[size_t(out.buffer)];
    const auto line = to.shape.empty() ? std::optional<int64_t>() : to.shape.back().as_int();
    const bool by_elements = line && dtype_bytes(to.dtype) == 2 && *line % (kAlignedBytes / 2) != 0;
    return kStored + kRead * double(read.size()) + (computed ? kFunction : 0) + (by_elements ? kLines : 0);
}

WgmmaShape choose_wgmma(const Machine& machine, const WgmmaProduct& p) {
    const int64_t depth = kPanelBytes / int64_t(dtype_bytes(p.dtype));
    WgmmaShape best;
    for (int64_t bm : {128, 64})
        for (int64_t bn : {128, 64, 192})
            for (int64_t parts = 1; parts <= (p.batch > 1 ? 1 : kMostParts); ++parts) {
                const int64_t each = divide_up(p.steps, parts);
                if (parts > 1 && (each < kShortestPart || divide_up(p.steps, each) != parts)) continue;
                if (p.even_parts && p.steps % parts) continue;
                for (bool pairs : {false, true}) {
                    if (pairs && !(p.may_pair && p.misaligned[1] > 0 && p.m > bm && each >= kShortestOfPair)) continue;
                    WgmmaShape shape{{bm, bn, depth}, parts, 1, pairs};
                    shape.time = wgmma_time(machine, shape, p);
                    if (!best.tile.m || shape.time < best.time) best = shape;
                }
            }
    // Of fewer rows, and of tiles that more than two share, it was slower where it was measured.
    WgmmaShape shared{{kWgmmaRows, kWgmmaRows, depth}, 1, 2, false};
    shared.time = wgmma_time(machine, shared, p);
    const int64_t blocks = divide_up(p.m, kWgmmaRows) * divide_up(p.n, kWgmmaRows) * shared.together;
    const bool fits = p.may_share && p.batch == 1 && p.m >= kWgmmaRows && p.steps > 0 && blocks <= machine.cores;
    return fits && shared.time < best.time ? shared : best;
}

std::optional<TiledKernel> wgmma_kernel(const Schedule& s, const Stage& sum, const Stage& out, bool has_batch, int a,
                                        const WgmmaPlan& plan) {
    if (sum.reduce.size() != 1 && !plan.window) return {};
    return WgmmaContraction(s.compute(), sum, out, has_batch, plan).make(a);
}

}  // namespace tessera
