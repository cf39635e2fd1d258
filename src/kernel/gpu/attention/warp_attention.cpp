#include "kernel/gpu/attention/warp_attention.h"

#include <algorithm>
#include <cmath>

#include "kernel/gpu/attention/attention_builder.h"
#include "kernel/gpu/attention/attention_kernel.h"
#include "kernel/gpu/attention/attention_rows.h"
#include "kernel/gpu/contraction_builder.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

constexpr int64_t kWarpThreads = kWarps * kGroups * kPairs;
constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kCombined = 8;  // parts of which a thread reads before it combines them

// Of a tile.
int64_t most_rows_of_few(const Machine& machine) { return machine.has("wgmma") ? 64 : 16; }

class WarpAttention : AttentionBuilder {
  public:
    // `few`: there are at most most_rows_of_few rows for each block, whatever their number is.
    WarpAttention(const Compute& compute, const Attention& attention, const Machine& machine, bool few)
        : AttentionBuilder(compute, attention), rows_(attention), machine_(machine), few_(few) {}

    std::optional<Lowered> make() {
        if (!find_operands() || !rows_.ok()) return {};
        const auto rows = few_ ? std::optional(most_rows_of_few(machine_)) : rows_.count().as_int();
        tiles_ = choose_warp_tiles({.rows = rows,
                                    .keys = keys().as_int(),
                                    .blocks = rows_.blocks().as_int(),
                                    .depth = depth(),
                                    .columns = *column_axis().extent.as_int()},
                                   machine_);
        if (!tiles_.rows) return {};
        parts_ = choose_key_parts(blocks_known(), keys().as_int(), tiles_, rows && *rows <= tiles_.rows, machine_);
        find_score(q_.factor * k_.factor);
        find_causal();
        bind_blocks();
        allocate();
        Stmt body = seq({load_queries(), begin(), key_loop(), sum_rows(), finish()});
        for (int own : {out_, scores_, sums_, scale_, next_, most_, row_sum_, row_max_, weights_, q_tile_})
            if (own >= 0) body = alloc(own, std::move(body));
        body = in_blocks(std::move(body));
        Lowered lowered;
        if (parts_ > 1) {
            lowered.scratch = {part_out_, part_most_, part_sum_};
            body = seq({std::move(body), combine()});
        }
        kernel_.body = std::move(body);
        lowered.kernel = std::move(kernel_);
        return lowered;
    }

  private:
    int64_t depth() const { return *a_.depth.extent.as_int(); }
    int64_t head() const { return tiles_.padded_depth(depth()); }
    int64_t columns() const { return tiles_.padded_columns(*column_axis().extent.as_int()); }
    int64_t squares() const { return tiles_.rows / tiles_.down / 16; }  // of 16 rows, of a warp
    int64_t own_keys() const { return tiles_.keys / tiles_.across; }    // columns of a warp
    int64_t own_columns() const { return columns() / tiles_.across; }
    Expr row_tiles() const { return ceil_div(rows_.count(), tiles_.rows); }

    bool find_operands() {
        if (compute_.buffers[size_t(a_.product->buffer)].dtype != DType::f32) return false;
        auto q = vector_source(compute_, a_.q, a_.depth), k = vector_source(compute_, a_.k, a_.depth);
        auto v = vector_source(compute_, a_.v, column_axis());
        if (!q || !k || !v || q->load.dtype() != k->load.dtype()) return false;
        q_ = std::move(*q), k_ = std::move(*k), v_ = std::move(*v);
        return true;
    }

    std::optional<int64_t> blocks_known() const {
        const auto tiles = few_ ? std::optional<int64_t>(1) : row_tiles().as_int(), outer = rows_.blocks().as_int();
        if (!tiles || !outer) return {};
        return *tiles * *outer;
    }

    // A condition of the form key <= query + c, where c is the same for all rows of a block.
    void find_causal() {
        if (!a_.query) return;
        for (size_t i = 0; i < score_.conditions.size() && !causal_; ++i) {
            auto offset = causal_offset(score_.conditions[i], a_.product->axes[*a_.query].var, a_.key.var);
            if (offset && !rows_.depends(*offset)) causal_ = offset;
        }
    }

    void bind_blocks() {
        const auto tiles = row_tiles().as_int();
        tiles_apart_ = !tiles;
        block_ = loop_var("block", rows_.inner_blocks() * (tiles ? row_tiles() : Expr(1)));
        row_tile_ = !tiles ? loop_var("row_tile", row_tiles()) : mod(block_, *tiles);
        outer_ = !tiles ? block_ : floor_div(block_, *tiles);
        other_ = rows_.other_blocks().is_int(1) ? Expr(0) : loop_var("other", rows_.other_blocks());
        part_ = parts_ > 1 ? loop_var("part", parts_) : Expr(0);
        names_ = rows_.outer_names(outer_, other_);
    }

    Stmt in_blocks(Stmt body) const {
        body = loop_over(block_, rows_.inner_blocks() * (tiles_apart_ ? Expr(1) : row_tiles()), LoopKind::Bound,
                         std::move(body), "block.x");
        if (tiles_apart_)
            body = loop_over(row_tile_, row_tiles(), LoopKind::Bound, std::move(body), "block.y");
        else if (!rows_.other_blocks().is_int(1))
            body = loop_over(other_, rows_.other_blocks(), LoopKind::Bound, std::move(body), "block.y");
        if (parts_ > 1) body = loop_over(part_, parts_, LoopKind::Bound, std::move(body), "block.z");
        return body;
    }

    int add_part(const char* name, std::vector<Expr> shape) {
        shape.insert(shape.begin(), {Expr(parts_), rows_.inner_blocks(), rows_.other_blocks(), rows_.count()});
        kernel_.buffers.push_back({.name = name, .dtype = DType::f32, .shape = std::move(shape)});
        return int(kernel_.params++);
    }
    int add_own(const char* name, DType dtype, int64_t elements) {
        return add(name, dtype, {kWarps, kGroups, kPairs, elements});
    }

    void allocate() {
        if (parts_ > 1) {
            part_out_ = add_part("part_out", {column_axis().extent});
            part_most_ = add_part("part_most", {}), part_sum_ = add_part("part_sum", {});
        }
        const int64_t skew = tiles_.skew();
        q_tile_ = add("tile_q", q_.load.dtype(), {tiles_.rows, head() + skew});
        k_tile_ = add("tile_k", k_.load.dtype(), {tiles_.keys, head() + skew});
        v_tile_ = add("tile_v", v_.load.dtype(), {tiles_.keys, columns() + skew});
        if (tiles_.wide)
            weights_ = add_own("weights", v_.load.dtype(), squares() * own_keys() / 2);
        else
            weights_ = add("tile_p", v_.load.dtype(), {tiles_.rows, tiles_.keys + skew});
        if (tiles_.across > 1) {
            row_max_ = add("row_max", DType::f32, {tiles_.across, tiles_.rows});
            row_sum_ = add("row_sum", DType::f32, {tiles_.across, tiles_.rows});
        }
        most_ = add_own("most", DType::f32, 2 * squares()), next_ = add_own("next_most", DType::f32, 2 * squares());
        sums_ = add_own("sums", DType::f32, 2 * squares()), scale_ = add_own("scale", DType::f32, 2 * squares());
        scores_ = add_own("scores", DType::f32, squares() * own_keys() / 2);
        out_ = add_own("out", DType::f32, squares() * own_columns() / 2);
    }

    // A thread, and for each of its rows: number, and place in the tile.
    template <typename F>
    Stmt by_threads(const std::string& name, const F& body) const {
        return over_warps(name, body);
    }
    template <typename F>
    Stmt own_rows(const std::string& name, const WarpThread& t, const F& body) const {
        const Expr v = loop_var("square_" + name, squares()), half = loop_var("half_" + name, 2);
        const Expr in_tile =
            floor_div(t.warp, tiles_.across) * (tiles_.rows / tiles_.down) + v * 16 + half * 8 + t.group;
        Stmt one = loop_over(half, 2, LoopKind::Unrolled, body(v * 2 + half, in_tile, v, half));
        return loop_over(v, squares(), LoopKind::Unrolled, std::move(one));
    }
    // Of a row, the elements of a thread: number, and column; `all` of the warp.
    template <typename F>
    Stmt own_elements(const std::string& name, const WarpThread& t, const Expr& v, const Expr& half, int64_t all,
                      LoopKind pairs, const F& body) const {
        const Expr x = loop_var("eight_" + name, all / 8), in = loop_var("in_pair_" + name, 2);
        const Expr number = (v * (all / 8) + x) * 4 + half * 2 + in;
        const Expr column = mod(t.warp, tiles_.across) * all + x * 8 + t.pair * 2 + in;
        return loop_over(x, all / 8, LoopKind::Unrolled, loop_over(in, 2, pairs, body(number, column)));
    }
    static Expr own(int buffer, const WarpThread& t, const Expr& e) { return load(buffer, DType::f32, t.own(e)); }

    Bindings at_row(const Expr& in_tile) const {
        const Expr row = row_tile_ * tiles_.rows + in_tile;
        const bool whole = divides(tiles_.rows, rows_.count());
        return rows_.names(names_, whole ? row : min(row, rows_.count() - 1));
    }

    // Copies a tile, vector by vector: `value` of its row and column.
    template <typename F>
    Stmt copy_rows(const std::string& name, int tile, int64_t rows, int64_t columns, const F& value) const {
        return by_threads(name, [&](const WarpThread& t) {
            const int64_t across = columns / kVectorElements, all = rows * across;
            const int64_t turns = (all + kWarpThreads - 1) / kWarpThreads;
            const Expr turn = loop_var("turn_" + name, turns), in = loop_var("in_" + name, kVectorElements);
            const Expr number = turn * kWarpThreads + t.warp * (kGroups * kPairs) + t.group * kPairs + t.pair;
            const Expr row = floor_div(number, across), column = mod(number, across) * kVectorElements;
            Stmt body = store(tile, {row, column + in}, value(row, column, in));
            body = loop_over(in, kVectorElements, LoopKind::Vector, std::move(body));
            if (all % kWarpThreads) body = if_then(lt(number, all), std::move(body));
            return loop_over(turn, turns, LoopKind::Unrolled, std::move(body));
        });
    }

    // A vector of an operand where it exists, else zeros: also behind the end of a head, up to the tile's.
    static Expr element(const VectorSource& from, const ReduceAxis& along, Bindings at, int64_t columns,
                        const Expr& column, const Expr& in, Expr exists) {
        at.insert_or_assign(along.var.node().name, column + in);
        if (!along.extent.is_int(columns)) exists = logical_and(exists, lt(column, along.extent));
        return select(exists, substitute(from.load, at), constant(0, from.load.dtype()));
    }

    Stmt load_queries() const {
        return copy_rows(
            "queries", q_tile_, tiles_.rows, head(), [&](const Expr& row, const Expr& column, const Expr& in) {
                const bool whole = divides(tiles_.rows, rows_.count());
                const Expr exists =
                    whole ? int_const(1, DType::boolean) : lt(row_tile_ * tiles_.rows + row, rows_.count());
                return element(q_, a_.depth, at_row(row), head(), column, in, exists);
            });
    }

    Stmt bring(const char* name, int tile, const VectorSource& from, const ReduceAxis& along, int64_t columns,
               const Expr& first_key) const {
        Stmt nest =
            copy_rows(name, tile, tiles_.keys, columns, [&](const Expr& row, const Expr& column, const Expr& in) {
                const Expr key = first_key + row;
                Bindings at = rows_.names(names_, 0);  // the same keys for all rows
                at.insert_or_assign(a_.key.var.node().name, key);
                const bool whole = divides(tiles_.keys, keys());
                return element(from, along, std::move(at), columns, column, in,
                               whole ? int_const(1, DType::boolean) : lt(key, keys()));
            });
        For made = *nest->as<For>();
        made.notes["brings"] = 1;
        return make_stmt(std::move(made));
    }

    Stmt begin() const {
        return by_threads("begin", [&](const WarpThread& t) {
            const Expr e = loop_var("cleared", squares() * own_columns() / 2);
            Stmt rows = own_rows("begin", t, [&](const Expr& r, const Expr&, const Expr&, const Expr&) {
                return seq({store(most_, t.own(r), real(-INFINITY)), store(sums_, t.own(r), real(0))});
            });
            return seq({std::move(rows), loop_over(e, squares() * own_columns() / 2, LoopKind::Unrolled,
                                                   store(out_, t.own(e), real(0)))});
        });
    }

    // `to` += a b, the sums of each thread side by side.
    Stmt product(DType dtype, int to, int a, int b, int64_t columns, int64_t deep, bool b_along_k) const {
        const bool of_threads = tiles_.wide && a == weights_;
        const int64_t pitch = *kernel_.buffers[size_t(b)].shape[1].as_int();
        const int64_t b_column = b_along_k ? pitch : 1, b_k = b_along_k ? 1 : pitch;
        const Access left{a, of_threads ? std::vector<Expr>(4, 0) : std::vector<Expr>{0, 0}};
        Call call{.name = {}, .writes = {{to, {0, 0, 0, 0}}}, .reads = {left, {b, {0, 0}}}, .args = {}};
        if (tiles_.wide)
            call.name = wide_matrix_name(dtype, tiles_.rows, columns, deep, tiles_.down, tiles_.across, of_threads);
        else
            call.name = warp_matrix_name(dtype, tiles_.rows, columns, deep, tiles_.down, tiles_.across);
        const int64_t pa = of_threads ? 0 : *kernel_.buffers[size_t(a)].shape[1].as_int();
        for (int64_t stride : tiles_.wide ? wide_strides(columns, deep, of_threads, pa, b_column, b_k)
                                          : warp_strides(columns, pa, b_column, b_k))
            call.args.push_back(stride);
        return make_stmt(std::move(call));
    }

    // Along row and column warps, 16 rows, 8 columns, half, group, pair, which of it; then what is added up.
    std::vector<int64_t> warp_strides(int64_t columns, int64_t pa, int64_t b_column, int64_t b_k) const {
        const int64_t x = columns / tiles_.across, own = squares() * x / 2, none = 0;
        const int64_t below = tiles_.rows / tiles_.down * pa, beside = x * b_column;
        return {32 * own * tiles_.across,
                32 * own,
                x / 2,
                4,
                2,
                4 * own,
                own,
                1,
                none,
                below,
                none,
                16 * pa,
                none,
                8 * pa,
                pa,
                none,
                none,
                1,
                none,
                beside,
                none,
                8 * b_column,
                none,
                none,
                2 * b_column,
                b_column,
                b_k};
    }

    // The same, but that warps take 16 rows in turn, and what is added up is cut as columns are.
    std::vector<int64_t> wide_strides(int64_t columns, int64_t deep, bool of_threads, int64_t pa, int64_t b_column,
                                      int64_t b_k) const {
        const int64_t own = squares() * columns / 2, held = squares() * deep / 2, none = 0;
        std::vector<int64_t> all{32 * own, 32 * own * tiles_.down, columns / 2, 4, 2, 4 * own, own, 1, none, none,
                                 none};
        if (of_threads)
            all.insert(all.end(), {32 * held, none, deep / 2, none, 2, 4 * held, none, none, 4, held, 1});
        else
            all.insert(all.end(), {16 * pa, none, 16 * tiles_.down * pa, none, 8 * pa, pa, none, none, 8, 2, 1});
        all.insert(all.end(), {none, columns * b_column, none, 8 * b_column, none, none, 2 * b_column, b_column,
                               8 * b_k, 2 * b_k, b_k});
        return all;
    }

    static Stmt quad(const char* name, int own) {
        const Access whole{own, {0, 0, 0, 0}};
        return make_stmt(Call{name, {whole}, {whole}, {}});
    }

    // What threads have of a row, at the place of the warp: for the warps that have other columns of it.
    Stmt share(const std::string& name, int to, int from) const {
        return by_threads(name, [&](const WarpThread& t) {
            Stmt rows = own_rows(name, t, [&](const Expr& r, const Expr& in_tile, const Expr&, const Expr&) {
                return store(to, {mod(t.warp, tiles_.across), in_tile}, own(from, t, r));
            });
            return if_then(eq(t.pair, 0), std::move(rows));
        });
    }
    Expr shared(int buffer, int64_t c, const Expr& in_tile) const { return load(buffer, DType::f32, {c, in_tile}); }

    Stmt make_scores(const Expr& first_key) const {
        return by_threads("score", [&](const WarpThread& t) {
            return own_rows("score", t, [&](const Expr& r, const Expr& in_tile, const Expr& v, const Expr& half) {
                auto one = [&](const Expr& e, const Expr& column) {
                    const Expr plain = own(scores_, t, e), key = first_key + column;
                    Bindings at = at_row(in_tile);
                    at.insert_or_assign(a_.key.var.node().name, key);
                    Expr value = score(at, plain);
                    if (!divides(tiles_.keys, keys())) value = select(lt(key, keys()), value, real(-INFINITY));
                    Stmt next = store(next_, t.own(r), own(scores_, t, e), ReduceOp::Max);
                    if (value == plain) return next;
                    return seq({store(scores_, t.own(e), value), std::move(next)});
                };
                return seq({store(next_, t.own(r), own(most_, t, r)),
                            own_elements("score", t, v, half, own_keys(), pairs_of_scores(), one)});
            });
        });
    }

    // Weights for a new maximum, and what was added up so far. A row that has seen nothing yet has weights of 0. One
    // multiplication and addition for each score is enough where what is multiplied cannot be too large.
    Stmt make_weights() const {
        const Expr factor = real(score_.scale * kLog2E);
        return by_threads("weigh", [&](const WarpThread& t) {
            return own_rows("weigh", t, [&](const Expr& r, const Expr& in_tile, const Expr& v, const Expr& half) {
                Expr largest = own(next_, t, r);
                if (tiles_.across > 1) largest = shared(row_max_, 0, in_tile);
                for (int64_t c = 1; c < tiles_.across; ++c) largest = max(largest, shared(row_max_, c, in_tile));
                const Expr next = own(next_, t, r), seen = select(eq(next, real(-INFINITY)), real(0), next);
                auto two_to = [&](const Expr& x) {
                    return pow(real(2), plain_score() ? x * factor - seen * factor : (x - seen) * factor);
                };
                auto weigh = [&](const Expr& e, const Expr&) {
                    return seq({store(scores_, t.own(e), two_to(own(scores_, t, e))),
                                store(sums_, t.own(r), own(scores_, t, e), ReduceOp::Sum)});
                };
                auto keep = [&](const Expr& e, const Expr& column) {
                    const Expr weight = cast(own(scores_, t, e), v_.load.dtype());
                    return tiles_.wide ? store(weights_, t.own(e), weight) : store(weights_, {in_tile, column}, weight);
                };
                auto rescale = [&](const Expr& e, const Expr&) {
                    return store(out_, t.own(e), own(out_, t, e) * own(scale_, t, r));
                };
                return seq({store(next_, t.own(r), largest), store(scale_, t.own(r), two_to(own(most_, t, r))),
                            store(most_, t.own(r), next), store(sums_, t.own(r), own(sums_, t, r) * own(scale_, t, r)),
                            own_elements("weigh", t, v, half, own_keys(), LoopKind::Unrolled, weigh),
                            own_elements("keep", t, v, half, own_keys(), LoopKind::Vector, keep),
                            own_elements("rescale", t, v, half, own_columns(), LoopKind::Unrolled, rescale)});
            });
        });
    }

    Stmt clear_scores() const {
        return by_threads("clear", [&](const WarpThread& t) {
            const Expr e = loop_var("cleared_score", squares() * own_keys() / 2);
            return loop_over(e, squares() * own_keys() / 2, LoopKind::Unrolled, store(scores_, t.own(e), real(0)));
        });
    }

    // Tiles of keys: of all parts, and those of this one.
    Stmt key_loop() const {
        Expr tiles = ceil_div(keys(), tiles_.keys);
        if (causal_) {
            const Expr last = min(row_tile_ * tiles_.rows + tiles_.rows, rows_.count()) - 1;
            const Bindings at = rows_.names(names_, last);
            const Expr& query = a_.product->axes[*a_.query].var;
            const Expr seen = substitute(query, at) + substitute(*causal_, at) + 1;
            tiles = ceil_div(max(min(keys(), seen), 0), tiles_.keys);
        }
        const Expr all = ceil_div(ceil_div(keys(), tiles_.keys), parts_), first = part_ * all;
        const Expr count = parts_ > 1 ? max(min(tiles - first, all), 0) : tiles;
        const Expr i = loop_var("tile", count), first_key = ((parts_ > 1 ? first : Expr(0)) + i) * tiles_.keys;
        std::vector<Stmt> steps{bring("k", k_tile_, k_, a_.depth, head(), first_key),
                                bring("v", v_tile_, v_, column_axis(), *column_axis().extent.as_int(), first_key),
                                clear_scores(),
                                product(q_.load.dtype(), scores_, q_tile_, k_tile_, tiles_.keys, head(), true),
                                make_scores(first_key),
                                quad(kQuadMax, next_)};
        if (tiles_.across > 1) steps.push_back(share("share", row_max_, next_));
        steps.push_back(make_weights());
        steps.push_back(product(v_.load.dtype(), out_, weights_, v_tile_, columns(), tiles_.keys, false));
        Stmt body = alloc(k_tile_, alloc(v_tile_, seq(std::move(steps))));
        if (count.is_int(1)) return substitute(body, {{i.node().name, Expr(0)}});
        return for_loop({.var = i, .extent = count, .notes = {{"ahead", tiles_.ahead}}, .body = std::move(body)});
    }

    Stmt sum_rows() const {
        if (tiles_.across == 1) return quad(kQuadSum, sums_);
        return seq({quad(kQuadSum, sums_), share("total", row_sum_, sums_)});
    }

    Stmt finish() const {
        return by_threads("end", [&](const WarpThread& t) {
            Stmt rows = own_rows("end", t, [&](const Expr& r, const Expr& in_tile, const Expr& v, const Expr& half) {
                Expr total = own(sums_, t, r);
                if (tiles_.across > 1) total = shared(row_sum_, 0, in_tile);
                for (int64_t c = 1; c < tiles_.across; ++c) total = total + shared(row_sum_, c, in_tile);
                Stmt body = seq({store(sums_, t.own(r), total), store_row(t, r, in_tile, v, half)});
                if (divides(tiles_.rows, rows_.count())) return body;
                return if_then(lt(row_tile_ * tiles_.rows + in_tile, rows_.count()), std::move(body));
            });
            return rows;
        });
    }

    Stmt store_row(const WarpThread& t, const Expr& r, const Expr& in_tile, const Expr& v, const Expr& half) const {
        const Expr row = row_tile_ * tiles_.rows + in_tile;
        const Expr& whole = column_axis().extent;
        auto guarded = [&](const Expr& column, Stmt body) {
            return divides(columns(), whole) ? body : if_then(lt(column, whole), std::move(body));
        };
        if (parts_ > 1) {
            auto one = [&](const Expr& e, const Expr& column) {
                return guarded(column, store(part_out_, {part_, outer_, other_, row, column}, own(out_, t, e)));
            };
            Stmt once = seq({store(part_most_, {part_, outer_, other_, row}, own(most_, t, r)),
                             store(part_sum_, {part_, outer_, other_, row}, own(sums_, t, r))});
            const Expr first = logical_and(eq(t.pair, 0), eq(mod(t.warp, tiles_.across), 0));
            return seq({own_elements("part", t, v, half, own_columns(), LoopKind::Vector, one),
                        if_then(first, std::move(once))});
        }
        auto one = [&](const Expr& e, const Expr& column) {
            Bindings at = rows_.names(names_, row);
            at.insert_or_assign(column_axis().var.node().name, column);
            Finished made = finished(std::move(at), own(out_, t, e) * own(scale_, t, r), own(sums_, t, r));
            return guarded(column, store(made.buffer, std::move(made.to), std::move(made.value)));
        };
        return seq({store(scale_, t.own(r), real(v_.factor) / own(sums_, t, r)),
                    own_elements("end", t, v, half, own_columns(), LoopKind::Vector, one)});
    }

    // The second launch: a thread has some neighbouring columns of a row.
    Stmt combine() {
        const int64_t width = 2, across = *column_axis().extent.as_int() / width;
        auto add_register = [&](const char* name, std::vector<int64_t> sizes) {
            const int made = add(name, DType::f32, sizes);
            kernel_.buffers[size_t(made)].scope = Scope::Register;
            return made;
        };
        const int most = add_register("all_most", {}), total = add_register("all_sum", {}),
                  base = add_register("all_base", {}), out = add_register("all_out", {width});
        const Expr element = loop_var("element", rows_.inner_blocks() * rows_.other_blocks() * rows_.count() * across);
        Expr left = floor_div(element, across);
        const Expr row = mod(left, rows_.count());
        left = floor_div(left, rows_.count());
        const Expr other = mod(left, rows_.other_blocks()), outer = floor_div(left, rows_.other_blocks());
        const Expr first = mod(element, across) * width;
        auto over_parts = [&](const char* name, const std::function<Stmt(const Expr&)>& body) {
            const Expr p = loop_var(name, parts_);
            return for_loop({.var = p, .extent = parts_, .notes = {{"unroll", kCombined}}, .body = body(p)});
        };
        auto lane = [&](const char* name, const std::function<Stmt(const Expr&)>& body) {
            const Expr in = loop_var(name, width);
            return loop_over(in, width, LoopKind::Vector, body(in));
        };
        auto read = [&](int from, std::vector<Expr> at) { return load(from, DType::f32, std::move(at)); };
        Stmt largest = over_parts("part_of_most", [&](const Expr& p) {
            return store(most, {}, read(part_most_, {p, outer, other, row}), ReduceOp::Max);
        });
        Stmt add_up = over_parts("part_of_sum", [&](const Expr& p) {
            const Expr below = read(part_most_, {p, outer, other, row}) - read(base, {});
            const Expr weight = pow(real(2), below * real(score_.scale * kLog2E));
            return seq({store(total, {}, read(part_sum_, {p, outer, other, row}) * weight, ReduceOp::Sum),
                        lane("in_sum", [&](const Expr& in) {
                            return store(out, {in}, read(part_out_, {p, outer, other, row, first + in}) * weight,
                                         ReduceOp::Sum);
                        })});
        });
        Stmt finish = lane("in_all", [&](const Expr& in) {
            Bindings at = rows_.names(rows_.outer_names(outer, other), row);
            at.insert_or_assign(column_axis().var.node().name, first + in);
            Finished made =
                finished(std::move(at), read(out, {in}) * real(v_.factor) / read(total, {}), read(total, {}));
            return store(made.buffer, std::move(made.to), std::move(made.value));
        });
        Stmt body = seq({store(most, {}, real(-INFINITY)), store(total, {}, real(0)),
                         lane("in_zero", [&](const Expr& in) { return store(out, {in}, real(0)); }), std::move(largest),
                         store(base, {}, select(eq(read(most, {}), real(-INFINITY)), real(0), read(most, {}))),
                         std::move(add_up), std::move(finish)});
        for (int own : {most, total, base, out}) body = alloc(own, std::move(body));
        return loop_over(element, rows_.inner_blocks() * rows_.other_blocks() * rows_.count() * across,
                         LoopKind::Parallel, std::move(body));
    }

    const AttentionRows rows_;
    const Machine& machine_;
    const bool few_;
    VectorSource q_, k_, v_;
    WarpTiles tiles_;
    int64_t parts_ = 1;
    std::optional<Expr> causal_;
    Bindings names_;            // of outer axes
    bool tiles_apart_ = false;  // tiles of rows are an axis of blocks of their own
    Expr block_, row_tile_, outer_, other_, part_;
    int q_tile_ = -1, k_tile_ = -1, v_tile_ = -1, weights_ = -1, row_max_ = -1, row_sum_ = -1;
    int most_ = -1, next_ = -1, sums_ = -1, scale_ = -1, scores_ = -1, out_ = -1;
    int part_out_ = -1, part_most_ = -1, part_sum_ = -1;
};

Result<std::optional<Lowered>> verified_attention(std::optional<Lowered> made) {
    if (!made) return std::optional<Lowered>();
    simplify_kernel(made->kernel);
    TRY(verify(made->kernel));
    return made;
}

}  // namespace

Result<std::optional<Lowered>> warp_attention(const Compute& compute, const Attention& attention,
                                              const Machine& machine) {
    return verified_attention(WarpAttention(compute, attention, machine, false).make());
}

Result<std::optional<Variant>> warp_attention_of_few(const Compute& compute, const Attention& attention,
                                                     const Machine& machine) {
    const AttentionRows rows(attention);
    if (!rows.ok() || rows.count().as_int()) return std::optional<Variant>();
    auto made = TRY(verified_attention(WarpAttention(compute, attention, machine, true).make()));
    if (!made) return std::optional<Variant>();
    return std::optional(Variant{le(rows.count(), most_rows_of_few(machine)), std::move(*made)});
}

}  // namespace tessera
