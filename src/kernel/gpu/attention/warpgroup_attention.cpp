#include "kernel/gpu/attention/warpgroup_attention.h"

#include <algorithm>
#include <cmath>

#include "kernel/gpu/attention/attention_builder.h"
#include "kernel/gpu/attention/attention_kernel.h"
#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/tile_copy.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

constexpr int64_t kTeam = 8;                     // warps
constexpr int64_t kQueries = 128;                // of a tile
constexpr int64_t kKeys = 128, kFewerKeys = 80;  // of a tile: of heads up to 128 elements, and of longer ones
constexpr int64_t kPanel = 64;                   // elements of 16 bits that are copied together
constexpr int64_t kLongestHead = 256, kShortTeamHead = 128;
constexpr size_t kMostDims = 5;      // of a buffer from which tiles are copied
constexpr int64_t kRowElements = 8;  // of 16 bits, that rows begin at multiples of

// A buffer from which tiles are copied: the first of a tile, over the variable of its rows.
struct TileSource {
    int buffer = -1;
    DType dtype = DType::f16;
    std::vector<Expr> at;
    size_t rows = 0;  // dimension
    double factor = 1;
    bool ends_with_rows = false;     // what comes after the last row is outside of the buffer
    bool ends_with_columns = false;  // the same of columns
};

bool rows_are_aligned(const Buffer& b) {
    if (!b.strides.empty() || b.shape.size() < 2 || b.shape.size() > kMostDims) return false;
    Expr stride = 1;
    for (size_t d = b.shape.size(); d-- > 1;) {
        stride = stride * b.shape[d];
        if (!divides(kRowElements, stride)) return false;
    }
    return true;
}

std::optional<TileSource> tile_source(const Compute& compute, const Expr& operand, const ReduceAxis& row,
                                      const ReduceAxis& column) {
    auto found = scaled_load(operand);
    if (!found || !is_copied(found->load.dtype())) return {};
    const int slot = found->load.node().slot;
    if (size_t(slot) >= compute.params) return {};
    const Buffer& b = compute.buffers[size_t(slot)];
    if (!rows_are_aligned(b)) return {};
    TileSource source{.buffer = slot, .dtype = found->load.dtype(), .at = found->load.args(), .factor = found->factor};
    const size_t last = source.at.size() - 1;
    std::optional<size_t> rows;
    for (size_t d = 0; d < source.at.size(); ++d) {
        if (depends_on(source.at[d], column.var) != (d == last)) return {};
        if (!depends_on(source.at[d], row.var)) continue;
        if (rows || d == last) return {};
        rows = d;
    }
    if (!rows) return {};
    const auto down = step_of(source.at[*rows], row.var), along = step_of(source.at[last], column.var);
    if (!down || !down->is_int(1) || !along || !along->is_int(1)) return {};
    source.rows = *rows;
    source.ends_with_rows = source.at[*rows] == row.var && b.shape[*rows] == row.extent;
    source.ends_with_columns = source.at[last] == column.var && b.shape[last] == column.extent;
    source.at[last] = substitute(source.at[last], {{column.var.node().name, Expr(0)}});
    return source;
}

int64_t padded(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

class TeamAttention : AttentionBuilder {
  public:
    TeamAttention(const Compute& compute, const Attention& attention) : AttentionBuilder(compute, attention) {}

    std::optional<Kernel> make() {
        if (!find_operands() || !bind_blocks()) return {};
        find_tiles();
        allocate();
        Stmt body = seq({bring(q_tile_, q_, block_m_), wait(q_tile_), begin(), first_keys(), other_keys(), finish()});
        if (mask_ >= 0) body = alloc(mask_, std::move(body));
        for (int own : {out_, weights_, scores_, parts_, base_, scale_, sums_, next_, most_, v_tile_, k_tile_, q_tile_})
            body = alloc(own, std::move(body));
        if (stored_) body = alloc(o_tile_, std::move(body));
        For tiles{.var = block_m_, .extent = ceil_div(queries(), kQueries), .kind = LoopKind::Bound, .axis = "block.y"};
        if (causal_) tiles.notes = {{"uneven", 1}};
        tiles.body = std::move(body);
        body = for_loop(std::move(tiles));
        for (For& loop : blocks_) {
            loop.body = std::move(body);
            body = for_loop(std::move(loop));
        }
        kernel_.body = std::move(body);
        return std::move(kernel_);
    }

  private:
    const ReduceAxis& query_axis() const { return a_.product->axes[*a_.query]; }
    const Expr& queries() const { return query_axis().extent; }
    int64_t head() const { return padded(*a_.depth.extent.as_int()); }
    int64_t columns() const { return padded(*column_axis().extent.as_int()); }
    bool long_head() const { return std::max(head(), columns()) > kShortTeamHead; }
    int64_t tile_keys() const { return long_head() ? kFewerKeys : kKeys; }

    bool find_operands() {
        if (compute_.buffers[size_t(a_.product->buffer)].dtype != DType::f32) return false;
        auto q = tile_source(compute_, a_.q, query_axis(), a_.depth), k = tile_source(compute_, a_.k, a_.key, a_.depth);
        auto v = tile_source(compute_, a_.v, a_.key, column_axis());
        if (!q || !k || !v || q->dtype != k->dtype || !v->ends_with_rows) return false;
        if (head() > kLongestHead || columns() > kLongestHead) return false;
        const bool whole = head() == *a_.depth.extent.as_int();
        if (!whole && !(q->ends_with_columns && k->ends_with_columns)) return false;
        q_ = std::move(*q), k_ = std::move(*k), v_ = std::move(*v);
        return true;
    }

    // The first of the outer axes on z, the others on x; queries between them.
    bool bind_blocks() {
        std::vector<size_t> outer;
        for (size_t i : a_.outer) {
            const ReduceAxis& axis = a_.product->axes[i];
            if (axis.extent.is_int(1))
                names_.insert_or_assign(axis.var.node().name, Expr(0));
            else
                outer.push_back(i);
        }
        block_m_ = loop_var("block_m", ceil_div(queries(), kQueries));
        auto add_block = [&](const Expr& var, const Expr& extent, const char* axis) {
            blocks_.push_back({.var = var, .extent = extent, .kind = LoopKind::Bound, .axis = axis});
        };
        if (outer.size() > 2)
            for (size_t i = 1; i < outer.size(); ++i)
                if (!a_.product->axes[outer[i]].extent.as_int()) return false;
        Expr inner = 1;
        for (size_t i = outer.size() > 1 ? 1 : 0; i < outer.size(); ++i)
            inner = inner * a_.product->axes[outer[i]].extent;
        if (!outer.empty()) {
            const Expr block = loop_var("block_h", inner);
            Expr left = block;
            for (size_t i = outer.size(); i-- > (outer.size() > 1 ? 1 : 0);) {
                const ReduceAxis& axis = a_.product->axes[outer[i]];
                const bool alone = outer.size() <= 2;
                names_.insert_or_assign(axis.var.node().name, alone ? left : mod(left, axis.extent));
                if (!alone) left = floor_div(left, axis.extent);
            }
            add_block(block, inner, "block.x");
        }
        if (outer.size() > 1) {
            const ReduceAxis& axis = a_.product->axes[outer[0]];
            const Expr block = loop_var("block_b", axis.extent);
            names_.insert_or_assign(axis.var.node().name, block);
            add_block(block, axis.extent, "block.z");
        }
        return true;
    }

    void find_tiles() {
        find_score(q_.factor * k_.factor);
        for (size_t i = 0; i < score_.conditions.size() && !causal_; ++i)
            if (auto offset = causal_offset(score_.conditions[i], query_axis().var, a_.key.var)) {
                causal_ = substitute(*offset, names_);
                causal_condition_ = i;
            }
        find_mask();
        const Expr all = ceil_div(keys(), tile_keys());
        count_ = all;
        clear_ = all - 1;
        if (causal_) {
            const Expr last = min(block_m_ * kQueries + kQueries, queries()) + *causal_;
            count_ = ceil_div(min(keys(), last), tile_keys());
            clear_ = floor_div(block_m_ * kQueries + *causal_ + 1, tile_keys());
        }
        if (causal_ || bounds(keys()).low.value_or(0) < 1) count_ = max(count_, 1);
        if (causal_)
            clear_ = max(min(clear_, count_ - 1), 0);
        else
            clear_ = count_ - 1;
    }

    // What scores load for each key, if it is one load of 16 bits: it can be fetched while the product goes on.
    void find_mask() {
        std::vector<Expr> found;
        auto look = [&](const Expr& e) {
            visit(e, [&](const Expr& x) {
                if (!x.is(ExprKind::Load) || x == a_.score_load || !depends_on(x, a_.key.var)) return;
                if (std::none_of(found.begin(), found.end(), [&](const Expr& f) { return f == x; })) found.push_back(x);
            });
        };
        look(score_.value);
        for (const Expr& c : score_.conditions) look(c);
        if (found.size() == 1 && dtype_bytes(found[0].dtype()) == 2 && !long_head()) fetched_ = found[0];
    }

    int add_own(const char* name, DType dtype, int64_t elements) {
        return add(name, dtype, {kTeam, kGroups, kPairs, elements});
    }

    void allocate() {
        q_tile_ = add("tile_q", q_.dtype, {kQueries, head()});
        k_tile_ = add("tile_k", k_.dtype, {tile_keys(), head()});
        v_tile_ = add("tile_v", v_.dtype, {tile_keys(), columns()});
        most_ = add_own("most", DType::f32, 2), next_ = add_own("next_most", DType::f32, 2);
        sums_ = add_own("sums", DType::f32, 4), scale_ = add_own("scale", DType::f32, 2);
        base_ = add_own("base", DType::f32, 2), parts_ = add_own("parts", DType::f32, 4);
        scores_ = add_own("scores", DType::f32, tile_keys() / 2);
        weights_ = add_own("weights", v_.dtype, tile_keys() / 2);
        if (fetched_) mask_ = add_own("mask", fetched_->dtype(), tile_keys() / 2);
        out_ = add_own("out", DType::f32, columns() / 2);
        if (!long_head()) stored_ = stored_rows();  // there is no room for a tile of longer ones
        if (stored_) o_tile_ = add("tile_o", stored_->dtype, {columns() / kPanel, kQueries, kPieces, kPieceBytes / 2});
    }

    // Steps of the block.
    Stmt bring(int tile, const TileSource& from, const Expr& number) const {
        const Expr& var = tile == q_tile_ ? query_axis().var : a_.key.var;
        Bindings names = names_;
        names.insert_or_assign(var.node().name, number * (tile == q_tile_ ? kQueries : tile_keys()));
        std::vector<Expr> at;
        for (const Expr& e : from.at) at.push_back(substitute(e, names));
        const auto last = int64_t(at.size()) - 1;
        return make_stmt(Call{kCopyTile, {{tile, {0, 0}}}, {{from.buffer, std::move(at)}}, {int64_t(from.rows), last}});
    }
    static Stmt wait(int tile) { return make_stmt(Call{kWaitTile, {{tile, {0, 0}}}, {}, {}}); }
    static Stmt free(int tile) { return make_stmt(Call{kFreeTile, {{tile, {0, 0}}}, {}, {}}); }
    static Access whole(int own) { return {own, {0, 0, 0, 0}}; }
    static Stmt settled(int own) { return make_stmt(Call{kWaitProduct, {whole(own)}, {}, {}}); }
    static Stmt quad(const char* name, int own) { return make_stmt(Call{name, {whole(own)}, {whole(own)}, {}}); }

    // Strides along warps, columns of 8, half, group, pair, which of it; then what is added up: of 8, pair, which.
    Stmt score_product() const {
        const int64_t own = tile_keys() / 2, none = 0, n = head();
        return product(team_matrix_name(q_.dtype, tile_keys(), n, false), scores_, {q_tile_, {0, 0}}, {k_tile_, {0, 0}},
                       {32 * own, 4,     2,     4 * own, own,   1,    none, none, none,  //
                        16 * n,   none,  8 * n, n,       none,  none, 8,    2,    1,     //
                        none,     8 * n, none,  none,    2 * n, n,    8,    2,    1});
    }
    Stmt value_product() const {
        const int64_t own = columns() / 2, p = tile_keys() / 2, none = 0, n = columns();
        return product(team_matrix_name(v_.dtype, n, tile_keys(), true), out_, whole(weights_), {v_tile_, {0, 0}},
                       {32 * own, 4,    2,    4 * own, own,  1,    none,  none,  none,  //
                        32 * p,   none, 2,    4 * p,   none, none, 4,     p,     1,     //
                        none,     8,    none, none,    2,    1,    8 * n, 2 * n, n});
    }
    static Stmt product(std::string name, int to, Access a, Access b, const std::vector<int64_t>& strides) {
        Call call{std::move(name), {whole(to)}, {std::move(a), std::move(b)}, {}};
        for (int64_t stride : strides) call.args.push_back(stride);
        return make_stmt(std::move(call));
    }

    // What each thread does with its part.
    template <typename F>
    static Stmt by_threads(const std::string& name, const F& body) {
        const WarpThread t{loop_var("warp_" + name, kTeam), loop_var("group_" + name, kGroups),
                           loop_var("pair_" + name, kPairs)};
        Stmt all = loop_over(t.pair, kPairs, LoopKind::Bound, body(t), "thread.x");
        all = loop_over(t.group, kGroups, LoopKind::Bound, std::move(all), "thread.y");
        return loop_over(t.warp, kTeam, LoopKind::Bound, std::move(all), "thread.z");
    }
    // For one of a thread's two rows, and its columns of it: number in its part, which of a pair, column.
    template <typename F>
    static Stmt elements(const std::string& name, const Expr& half, int64_t columns, LoopKind pairs,
                         const WarpThread& t, const F& one) {
        const Expr x = loop_var("column_" + name, columns / 8), in = loop_var("in_pair_" + name, 2);
        Stmt body = loop_over(in, 2, pairs, one(x * 4 + half * 2 + in, in, x * 8 + t.pair * 2 + in));
        return loop_over(x, columns / 8, LoopKind::Unrolled, std::move(body));
    }
    static Expr own(int buffer, const WarpThread& t, const Expr& e) { return load(buffer, DType::f32, t.own(e)); }
    Expr sum(const WarpThread& t, const Expr& half) const {
        return own(sums_, t, half * 2) + own(sums_, t, half * 2 + 1);
    }
    Expr row(const WarpThread& t, const Expr& half) const {
        return block_m_ * kQueries + t.warp * 16 + half * 8 + t.group;
    }

    Stmt begin() const {
        return by_threads("begin", [&](const WarpThread& t) {
            const Expr half = loop_var("half_begin", 2), e = loop_var("cleared", columns() / 2);
            Stmt rows = seq({store(most_, t.own(half), real(-INFINITY)), store(sums_, t.own(half * 2), real(0)),
                             store(sums_, t.own(half * 2 + 1), real(0))});
            return seq({loop_over(half, 2, LoopKind::Unrolled, std::move(rows)),
                        loop_over(e, columns() / 2, LoopKind::Unrolled, store(out_, t.own(e), real(0)))});
        });
    }

    // Scores of a tile of keys: `ends`, it may be the last one; `masked`, some queries may not see some of its keys.
    // `mask` is what was fetched for it.
    Expr score(const Expr& query, const Expr& key, const Expr& product, const Expr& mask, bool ends,
               bool masked) const {
        Bindings names = names_;
        const bool full = divides(kQueries, queries());
        names.insert_or_assign(query_axis().var.node().name, full ? query : min(query, queries() - 1));
        names.insert_or_assign(a_.key.var.node().name, key);
        const bool skips = causal_ && !masked;
        Expr value = AttentionBuilder::score(names, product, skips ? std::optional(causal_condition_) : std::nullopt);
        if (fetched_) {
            const Expr placed = substitute(*fetched_, names);
            value = map_loads(value, [&](const Expr& x) -> Expr { return x == placed ? mask : x; });
        }
        if (ends && !divides(tile_keys(), keys())) value = select(lt(key, keys()), value, real(-INFINITY));
        return value;
    }

    Stmt fetch_mask(const std::string& name, const Expr& number, bool ends) const {
        if (!fetched_) return nullptr;
        return by_threads("mask_" + name, [&](const WarpThread& t) {
            const Expr half = loop_var("half_mask_" + name, 2);
            const bool full = divides(kQueries, queries());
            auto one = [&](const Expr& e, const Expr&, const Expr& column) {
                const Expr key = number * tile_keys() + column, query = row(t, half);
                Bindings names = names_;
                names.insert_or_assign(query_axis().var.node().name, full ? query : min(query, queries() - 1));
                names.insert_or_assign(a_.key.var.node().name, key);
                Expr value = substitute(*fetched_, names);
                if (ends && !divides(tile_keys(), keys()))
                    value = select(lt(key, keys()), value, constant(0, value.dtype()));
                return store(mask_, t.own(e), std::move(value));
            };
            return loop_over(half, 2, LoopKind::Unrolled,
                             elements("mask_" + name, half, tile_keys(), LoopKind::Vector, t, one));
        });
    }

    Stmt make_weights(const std::string& name, const Expr& number, bool ends, bool masked) const {
        const double log2_e = 1.4426950408889634;
        const Expr factor = real(score_.scale * log2_e);
        Stmt largest = by_threads("max_" + name, [&](const WarpThread& t) {
            const Expr half = loop_var("half_max_" + name, 2);
            auto one = [&](const Expr& e, const Expr& in, const Expr& column) {
                const Expr plain = own(scores_, t, e);
                const Expr mask = fetched_ ? load(mask_, fetched_->dtype(), t.own(e)) : Expr(0);
                const Expr value = score(row(t, half), number * tile_keys() + column, plain, mask, ends, masked);
                Stmt next = store(parts_, t.own(half * 2 + in), own(scores_, t, e), ReduceOp::Max);
                if (value == plain) return next;
                return seq({store(scores_, t.own(e), value), std::move(next)});
            };
            auto part = [&](int in) { return half * 2 + in; };
            Stmt body = seq({store(parts_, t.own(part(0)), own(most_, t, half)),
                             store(parts_, t.own(part(1)), own(most_, t, half)),
                             elements("max_" + name, half, tile_keys(), pairs_of_scores(), t, one),
                             store(next_, t.own(half), max(own(parts_, t, part(0)), own(parts_, t, part(1))))});
            return loop_over(half, 2, LoopKind::Unrolled, std::move(body));
        });
        // A row that has seen nothing yet has a weight of 0 for each key. One multiplication and addition for each
        // score is enough where what is multiplied cannot be too large.
        Stmt exps = by_threads("exp_" + name, [&](const WarpThread& t) {
            const Expr half = loop_var("half_exp_" + name, 2);
            const Expr next = own(next_, t, half), base = own(base_, t, half);
            auto two_to = [&](const Expr& x) {
                return pow(real(2), plain_score() ? x * factor - base : (x - base) * factor);
            };
            const Expr seen = select(eq(next, real(-INFINITY)), real(0), next);
            auto one = [&](const Expr& e, const Expr& in, const Expr&) {
                return seq({store(scores_, t.own(e), two_to(own(scores_, t, e))),
                            store(sums_, t.own(half * 2 + in), own(scores_, t, e), ReduceOp::Sum)});
            };
            auto rescale = [&](const Expr& part) {
                return store(sums_, t.own(part), own(sums_, t, part) * own(scale_, t, half));
            };
            Stmt body = seq({store(base_, t.own(half), plain_score() ? seen * factor : seen),
                             store(scale_, t.own(half), two_to(own(most_, t, half))), store(most_, t.own(half), next),
                             rescale(half * 2), rescale(half * 2 + 1),
                             elements("exp_" + name, half, tile_keys(), LoopKind::Unrolled, t, one)});
            return loop_over(half, 2, LoopKind::Unrolled, std::move(body));
        });
        return seq({std::move(largest), quad(kQuadMax, next_), std::move(exps)});
    }

    // Weights of 16 bits; and what was added up so far, for the new maximum.
    Stmt keep_weights(const std::string& name, bool rescale) const {
        return by_threads("keep_" + name, [&](const WarpThread& t) {
            const Expr half = loop_var("half_keep_" + name, 2);
            auto one = [&](const Expr& e, const Expr&, const Expr&) {
                return store(weights_, t.own(e), cast(own(scores_, t, e), v_.dtype));
            };
            auto scaled = [&](const Expr& e, const Expr&, const Expr&) {
                return store(out_, t.own(e), own(out_, t, e) * own(scale_, t, half));
            };
            Stmt body = elements("keep_" + name, half, tile_keys(), LoopKind::Vector, t, one);
            if (rescale)
                body =
                    seq({std::move(body), elements("scale_" + name, half, columns(), LoopKind::Unrolled, t, scaled)});
            return loop_over(half, 2, LoopKind::Unrolled, std::move(body));
        });
    }

    Stmt first_keys() const {
        return seq({bring(k_tile_, k_, count_ - 1), wait(k_tile_), score_product(),
                    fetch_mask("first", count_ - 1, true), settled(scores_), free(k_tile_),
                    make_weights("first", count_ - 1, true, true), keep_weights("first", false)});
    }

    Stmt key_loop(const std::string& name, const Expr& extent, const Expr& last, bool masked) const {
        const Expr i = loop_var("keys_" + name, extent), number = last - i;
        Stmt body =
            seq({bring(k_tile_, k_, number), wait(k_tile_), score_product(), bring(v_tile_, v_, number + 1),
                 wait(v_tile_), value_product(), fetch_mask(name, number, false), settled(scores_), free(k_tile_),
                 make_weights(name, number, false, masked), settled(out_), free(v_tile_), keep_weights(name, true)});
        return loop_over(i, extent, LoopKind::Serial, std::move(body));
    }

    // First those of which some queries see only some, then those that all see.
    Stmt other_keys() const {
        std::vector<Stmt> all;
        const bool in_step = causal_ && causal_->as_int() && divides(tile_keys(), *causal_) &&
                             tile_keys() == kQueries;  // all but the last are clear
        if (causal_ && !in_step) all.push_back(key_loop("masked", count_ - 1 - clear_, count_ - 2, true));
        if (causal_)
            all.push_back(key_loop("clear", in_step ? count_ - 1 : clear_, (in_step ? count_ - 1 : clear_) - 1, false));
        else
            all.push_back(key_loop("clear", count_ - 1, count_ - 2, true));
        all.push_back(free(q_tile_));
        for (Stmt& each : std::vector<Stmt>{bring(v_tile_, v_, 0), wait(v_tile_), value_product(), settled(out_),
                                            free(v_tile_), quad(kQuadSum, sums_)})
            all.push_back(std::move(each));
        return seq(std::move(all));
    }

    // Results of 16 bits go to shared memory, from where they are copied; others where they belong.
    Stmt finish() const {
        Stmt by_thread = by_threads("end", [&](const WarpThread& t) {
            const Expr half = loop_var("half_end", 2), x = loop_var("column_end", columns() / 8);
            const Expr in = loop_var("in_pair_end", 2), at = row(t, half), column = x * 8 + t.pair * 2;
            const Expr& whole = column_axis().extent;
            const bool rows_end = !divides(kQueries, queries());
            Finished made = finished(stored_ && rows_end ? min(at, queries() - 1) : at, column + in,
                                     own(out_, t, x * 4 + half * 2 + in) * own(base_, t, half), sum(t, half));
            const bool full = stored_ || divides(columns(), whole), even = full || divides(2, whole);
            if (stored_)
                made.to = {floor_div(x, kPieces), t.warp * 16 + half * 8 + t.group,
                           bit(ExprKind::BitXor, mod(x, kPieces), t.group), t.pair * 2 + in};
            Stmt body = store(stored_ ? o_tile_ : made.buffer, std::move(made.to), std::move(made.value));
            if (!even) body = if_then(lt(column + in, whole), std::move(body));
            body = loop_over(in, 2, even ? LoopKind::Vector : LoopKind::Unrolled, std::move(body));
            if (!full && even) body = if_then(lt(column, whole), std::move(body));
            body = loop_over(x, columns() / 8, LoopKind::Unrolled, std::move(body));
            body = seq({store(base_, t.own(half), real(v_.factor) / sum(t, half)), std::move(body)});
            if (!stored_ && rows_end) body = if_then(lt(at, queries()), std::move(body));
            return loop_over(half, 2, LoopKind::Unrolled, std::move(body));
        });
        if (!stored_) return by_thread;
        std::vector<Expr> to = stored_->at;
        to[stored_->rows] = block_m_ * kQueries;
        const auto last = int64_t(to.size()) - 1;
        return seq({std::move(by_thread), make_stmt(Call{kStoreTile,
                                                         {{stored_->buffer, std::move(to)}},
                                                         {{o_tile_, {0, 0, 0, 0}}},
                                                         {int64_t(stored_->rows), last}})});
    }

    // Where results lie in rows, as operands do; what is after the last of them is outside.
    std::optional<TileSource> stored_rows() const {
        const Expr query = index_var("%query", queries().as_int()), column = index_var("%column", columns());
        const Finished made = finished(query, column, real(0), real(0));
        const Buffer& b = kernel_.buffers[size_t(made.buffer)];
        if (!is_copied(b.dtype) || !rows_are_aligned(b)) return {};
        TileSource to{.buffer = made.buffer, .dtype = b.dtype, .at = made.to};
        std::optional<size_t> rows;
        const size_t last = to.at.size() - 1;
        for (size_t d = 0; d < to.at.size(); ++d) {
            if (depends_on(to.at[d], column) != (d == last)) return {};
            if (!depends_on(to.at[d], query)) continue;
            if (rows || d == last || !(to.at[d] == query) || !(b.shape[d] == queries())) return {};
            rows = d;
        }
        const auto along = step_of(to.at[last], column);
        if (!rows || !along || !along->is_int(1)) return {};
        const Expr& whole = column_axis().extent;
        if (!divides(columns(), whole) && !(to.at[last] == column && b.shape[last] == whole)) return {};
        to.rows = *rows;
        to.at[last] = substitute(to.at[last], {{column.node().name, Expr(0)}});
        return to;
    }

    Finished finished(const Expr& query, const Expr& column, Expr value, const Expr& weights) const {
        Bindings names = names_;
        names.insert_or_assign(query_axis().var.node().name, query);
        names.insert_or_assign(column_axis().var.node().name, column);
        return AttentionBuilder::finished(std::move(names), std::move(value), weights);
    }

    TileSource q_, k_, v_;
    Bindings names_;  // of outer axes
    std::vector<For> blocks_;
    Expr block_m_;
    std::optional<Expr> causal_;
    size_t causal_condition_ = 0;
    Expr count_, clear_;  // tiles of keys, and those that all queries of the block see
    std::optional<TileSource> stored_;
    int q_tile_ = -1, k_tile_ = -1, v_tile_ = -1, o_tile_ = -1;
    int most_ = -1, next_ = -1, sums_ = -1, scale_ = -1, base_ = -1, parts_ = -1;  // of each row
    int scores_ = -1, weights_ = -1, out_ = -1, mask_ = -1;
    std::optional<Expr> fetched_;  // into mask_
};

}  // namespace

Result<std::optional<Lowered>> warpgroup_attention(const Compute& compute, const Attention& attention) {
    auto made = TeamAttention(compute, attention).make();
    if (!made) return std::optional<Lowered>();
    simplify_kernel(*made);
    drop_unused_buffers(*made);
    TRY(verify(*made));
    Lowered lowered;
    lowered.kernel = std::move(*made);
    return std::optional(std::move(lowered));
}

}  // namespace tessera
