// The kernel of attention. All of it is turned: vectors run over queries, so that maxima, sums and scales of a row are
// plain vector operations, Q is turned once for each task, and keys and values are read as they lie.
//
//   parallel over heads and blocks of queries:
//     qt[tile, depth, query] = Q
//     for blocks of keys:
//       kb, vb = K, V of the block
//       for tiles of queries:
//         st[key, query] = f(kb qt), most = its maximum for each query
//         scale = exp(old most - most); st = exp(st - most); sums = sums * scale + sum of st
//         ot[column, query] = ot * scale + vb st
//     out = ot / sums
#include <algorithm>

#include "base/check.h"
#include "kernel/cpu/attention.h"
#include "kernel/cpu/contraction.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/ir/verified.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

class AttentionKernel {
  public:
    AttentionKernel(const Compute& compute, const Attention& attention, const Machine& machine, int threads,
                    std::optional<int64_t> queries)
        : a_(attention), machine_(machine), dtype_(compute.buffers[size_t(a_.product->buffer)].dtype) {
        const int bytes = int(dtype_bytes(dtype_));
        lanes_ = std::max<int64_t>(1, machine.vector_bytes / bytes);
        depth_ = *a_.depth.extent.as_int();
        columns_ = *axis(a_.column).extent.as_int();
        keys_ = a_.key.extent;
        queries_ = axis(a_.query).extent;
        Expr outer = 1;
        for (size_t i : a_.outer) outer = outer * axis(i).extent;
        t_ = choose_attention_tiles(queries_.as_int() ? queries_.as_int() : queries, keys_.as_int(), depth_, columns_,
                                    outer.as_int().value_or(16), bytes, machine, threads);
        blocks_ = ceil_div(queries_, t_.block);
        tasks_ = outer * blocks_;
        parallel_ = threads > 1 && !tasks_.is_int(1);
        padded_ = round_up(columns_, t_.rows);
        direct_ = t_.block == t_.queries && !is_blinding() && padded_ == columns_;
        kernel_.name = compute.name;
        kernel_.symbols = compute.symbols;
        kernel_.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + std::ptrdiff_t(compute.params));
        kernel_.params = compute.params;
    }

    Lowered build() {
        kernel_.body = loop("task", tasks_, parallel_ ? LoopKind::Parallel : LoopKind::Serial,
                            [&](const Expr& i) { return task(i); });
        Lowered made;
        made.kernel = std::move(kernel_);
        drop_unit_loops(made.kernel);
        simplify_kernel(made.kernel);
        drop_unit_loops(made.kernel);
        merge_dimensions(made.kernel);
        drop_unused_buffers(made.kernel);
        return made;
    }

  private:
    using Body = std::function<Stmt(const Expr&)>;

    const ReduceAxis& axis(size_t i) const { return a_.product->axes[i]; }
    Expr number(double v) const { return real_const(v, dtype_); }
    Expr lowest() const { return infinity(dtype_, true); }

    // Building.
    std::string fresh(const std::string& name) {
        int n = names_[name]++;
        return n ? fmt::format("{}.{}", name, n) : name;
    }
    Stmt loop(const std::string& name, const Expr& extent, LoopKind kind, const Body& body, int64_t unroll = 0) {
        auto high = bounds(extent).high;
        Expr var = index_var(fresh(name), high ? std::optional(std::max<int64_t>(*high, 0)) : std::nullopt);
        For made{.var = var, .extent = extent, .kind = kind, .body = body(var)};
        if (unroll) made.notes["unroll"] = unroll;
        return for_loop(std::move(made));
    }
    Stmt serial(const std::string& name, const Expr& extent, const Body& body, int64_t unroll = 0) {
        return loop(name, extent, LoopKind::Serial, body, unroll);
    }
    Stmt unrolled(const std::string& name, int64_t extent, const Body& body) {
        return loop(name, extent, LoopKind::Unrolled, body);
    }
    Stmt vector(const std::string& name, int64_t extent, const Body& body) {
        return loop(name, extent, LoopKind::Vector, body);
    }
    // Over the queries of a tile, one register at a time.
    Stmt by_registers(const std::string& name, const Body& body) {
        return unrolled(name + ".v", t_.queries / lanes_, [&](const Expr& v) {
            return vector(name, lanes_, [&](const Expr& l) { return body(v * lanes_ + l); });
        });
    }
    // All of them side by side: for long chains of instructions.
    Stmt by_tile(const std::string& name, const Body& body) { return vector(name, t_.queries, body); }
    // Along contiguous elements of a known number.
    Stmt along(const std::string& name, int64_t extent, const Body& body) {
        const int64_t whole = extent / lanes_;
        std::vector<Stmt> all;
        if (whole)
            all.push_back(serial(
                name + ".o", whole,
                [&](const Expr& o) {
                    return vector(name, lanes_, [&](const Expr& l) { return body(o * lanes_ + l); });
                },
                4));
        if (extent % lanes_)
            all.push_back(unrolled(name, extent % lanes_, [&](const Expr& l) { return body(whole * lanes_ + l); }));
        return seq(std::move(all));
    }
    int buffer(std::string name, std::vector<Expr> shape, Scope scope) {
        kernel_.buffers.push_back({.name = fresh(name), .dtype = dtype_, .shape = std::move(shape), .scope = scope});
        return int(kernel_.buffers.size()) - 1;
    }
    // exp of what is never positive: said so, it takes fewer instructions.
    Expr exp_down(const Expr& x) const { return call(Fn::Exp, {min(x, number(0))}); }
    Expr get(int slot, std::vector<Expr> at) const { return load(slot, dtype_, std::move(at)); }

    // An operand at given places: those that are not given stand for nothing.
    Expr at(const Expr& e, const Expr& query, const Expr& key, const Expr& depth, const Expr& column) const {
        Bindings names = outer_;
        names.insert_or_assign(axis(a_.query).var.node().name, query);
        names.insert_or_assign(axis(a_.column).var.node().name, column);
        names.insert_or_assign(a_.key.var.node().name, key);
        names.insert_or_assign(a_.depth.var.node().name, depth);
        return substitute(e, names);
    }

    Stmt task(const Expr& i) {
        Expr rest = floor_div(i, blocks_), first = mod(i, blocks_) * t_.block;
        for (size_t n = a_.outer.size(); n-- > 0;) {
            const ReduceAxis& one = axis(a_.outer[n]);
            Expr value = one.extent.is_int(1) ? Expr(0) : n == 0 ? rest : mod(rest, one.extent);
            outer_.insert_or_assign(one.var.node().name, value);
            rest = floor_div(rest, one.extent);
        }
        first_ = first;
        const int64_t tiles = t_.block / t_.queries;
        Expr here = min(Expr(tiles), ceil_div(queries_ - first, t_.queries));
        qt_ = buffer("qt", {tiles, depth_, t_.queries}, Scope::Local);
        ot_ = buffer("ot", {tiles, padded_, t_.queries}, Scope::Local);
        st_ = buffer("st", {t_.keys, t_.queries}, Scope::Local);
        most_ = buffer("most", {tiles, t_.queries}, Scope::Local);
        sums_ = buffer("sums", {tiles, t_.queries}, Scope::Local);
        scale_ = buffer("scale", {t_.queries}, Scope::Local);
        shift_ = buffer("shift", {t_.queries}, Scope::Local);
        std::vector<int> own{qt_, ot_, st_, most_, sums_, scale_, shift_};
        if (!direct_) {
            own.push_back(kb_ = buffer("kb", {t_.keys, depth_}, Scope::Local));
            own.push_back(vb_ = buffer("vb", {t_.keys, padded_}, Scope::Local));
        }
        if (is_blinding()) own.push_back(zeros_ = buffer("zeros", {padded_}, Scope::Local));
        find_bias();
        for (const auto& [e, slot] : bias_) own.push_back(slot);
        Stmt body =
            seq({serial("start", here, [&](const Expr& t) { return start(t); }),
                 is_blinding() ? along("zero", columns_, [&](const Expr& d) { return store(zeros_, {d}, number(0)); })
                               : nullptr,
                 serial("keys", ceil_div(keys_, t_.keys), [&](const Expr& b) { return keys(b * t_.keys, here); }),
                 serial("finish", here, [&](const Expr& t) { return finish(t); })});
        for (size_t n = own.size(); n-- > 0;) body = alloc(own[n], body);
        return body;
    }

    bool is_blinding() const { return !a_.weights.blind.is(ExprKind::Const); }

    // What f reads for each query is copied for a block of keys, turned like all else.
    void find_bias() {
        for (const Expr& e : loads_in(a_.weights.score)) {
            if (e == a_.score_load || !depends_on(e, axis(a_.query).var)) continue;
            bool nested = false;  // in the index of another load
            for (const Expr& other : loads_in(a_.weights.score))
                for (const Expr& index : other.args()) visit(index, [&](const Expr& x) { nested |= x == e; });
            if (nested || bias_of(e)) continue;
            kernel_.buffers.push_back(
                {.name = fresh("bias"), .dtype = e.dtype(), .shape = {t_.keys, t_.queries}, .scope = Scope::Local});
            bias_.emplace_back(e, int(kernel_.buffers.size()) - 1);
        }
    }

    std::optional<int> bias_of(const Expr& load) const {
        for (const auto& [e, slot] : bias_)
            if (e == load) return slot;
        return std::nullopt;
    }

    // Is every query of a tile there? Condition over its first one.
    Expr is_whole(const Expr& q) const { return le(q + t_.queries, queries_); }
    bool always_whole() const { return mod(queries_, t_.queries).is_int(0); }

    Stmt start(const Expr& t) {
        Expr q = first_ + t * t_.queries;
        Stmt turn = serial("q.d", depth_, [&](const Expr& d) {
            return by_tile("q", [&](const Expr& i) {
                Expr value = at(a_.q, q + i, 0, d, 0);
                if (!always_whole()) value = select(lt(q + i, queries_), value, number(0));
                return store(qt_, {t, d, i}, value);
            });
        });
        Stmt reset = by_registers("reset", [&](const Expr& i) {
            return seq({store(most_, {t, i}, lowest()), store(sums_, {t, i}, number(0))});
        });
        Stmt clear = serial("o.d", padded_, [&](const Expr& d) {
            return by_registers("o", [&](const Expr& i) { return store(ot_, {t, d, i}, number(0)); });
        });
        return seq({turn, reset, clear});
    }

    Stmt keys(const Expr& first, const Expr& tiles) {
        Expr count = min(Expr(t_.keys), keys_ - first);
        if (mod(keys_, t_.keys).is_int(0)) count = t_.keys;
        Stmt each = serial("tile", tiles, [&](const Expr& t) {
            return seq(
                {copy_bias(t, first, count), scores(t, first, count), add_up(t, count), values(t, first, count)});
        });
        if (direct_) return each;
        Stmt copy_k = serial("k.j", count, [&](const Expr& j) {
            return along("k", depth_, [&](const Expr& d) { return store(kb_, {j, d}, at(a_.k, 0, first + j, d, 0)); });
        });
        Stmt copy_v = serial("v.j", count, [&](const Expr& j) {
            return along("v", columns_, [&](const Expr& d) {
                Stmt copy = store(vb_, {j, d}, at(a_.v, 0, first + j, 0, d));
                if (!is_blinding()) return copy;
                return seq({copy, store(zeros_, {d}, get(vb_, {j, d}) * number(0), ReduceOp::Sum)});
            });
        });
        return seq({copy_k, copy_v, each});
    }

    Stmt copy_bias(const Expr& t, const Expr& first, const Expr& count) {
        Expr q = first_ + t * t_.queries;
        std::vector<Stmt> all;
        for (const auto& [e, slot] : bias_) {
            auto copy = [&, &e = e, slot = slot](const Expr& n, bool guarded) {
                return serial("bias.j", n, [&](const Expr& j) {
                    return by_tile("bias", [&](const Expr& i) {
                        Expr value = at(e, q + i, first + j, 0, 0);
                        if (guarded) value = select(lt(q + i, queries_), value, constant(0, e.dtype()));
                        return store(slot, {j, i}, value);
                    });
                });
            };
            // A constant number of rows can be turned in registers.
            Stmt whole = copy(t_.keys, false), part = copy(count, !always_whole());
            Expr fits = eq(count, t_.keys);
            if (!always_whole()) fits = logical_and(is_whole(q), fits);
            all.push_back(if_then(fits, whole, part));
        }
        return seq(std::move(all));
    }

    // f of a product, where the product and what f reads are in buffers.
    Expr score(const Expr& product, const Expr& q, const Expr& key, const Expr& i, const Expr& j) const {
        Expr e = map_loads(a_.weights.score, [&](const Expr& x) -> Expr {
            if (x == a_.score_load) return load(-1, dtype_, {});
            auto slot = bias_of(x);
            return slot ? load(-2 - *slot, x.dtype(), {}) : x;
        });
        e = at(e, q, key, 0, 0);
        return map_loads(e, [&](const Expr& x) -> Expr {
            if (x.node().slot == -1) return product;
            return x.node().slot < -1 ? load(-2 - x.node().slot, x.dtype(), {j, i}) : x;
        });
    }

    Stmt scores(const Expr& t, const Expr& first, const Expr& count) {
        int high = buffer("high", {t_.queries}, Scope::Register);
        const bool apart = is_costly(a_.weights.score);
        const Expr q = first_ + t * t_.queries;
        std::vector<Stmt> all{by_registers("high", [&](const Expr& i) { return store(high, {i}, lowest()); })};
        all.push_back(serial("s.j", floor_div(count, t_.rows),
                             [&](const Expr& j) { return score_tile(t, first, j * t_.rows, high, false, apart); }));
        Expr left = mod(count, t_.rows);
        if (!left.is_int(0))
            all.push_back(
                if_then(gt(left, 0), score_tile(t, first, floor_div(count, t_.rows) * t_.rows, high, true, apart)));
        if (apart)
            all.push_back(serial("f.j", count, [&](const Expr& j) {
                return by_tile("f", [&](const Expr& i) {
                    return seq({store(st_, {j, i}, score(get(st_, {j, i}), q + i, first + j, i, j)),
                                store(high, {i}, get(st_, {j, i}), ReduceOp::Max)});
                });
            }));
        // Where all keys so far are out of sight, the maximum is -inf: nothing is subtracted then.
        all.push_back(by_tile("step", [&](const Expr& i) {
            Expr now = get(high, {i});
            return seq({store(high, {i}, get(most_, {t, i}), ReduceOp::Max),
                        store(shift_, {i}, select(eq(now, lowest()), number(0), now)),
                        store(scale_, {i}, exp_down(get(most_, {t, i}) - get(shift_, {i}))),
                        store(most_, {t, i}, now)});
        }));
        return alloc(high, seq(std::move(all)));
    }

    // Products of a few keys, from number j of the block on, with the queries of a tile.
    Stmt score_tile(const Expr& t, const Expr& first, const Expr& j, int high, bool guarded, bool apart) {
        int acc = buffer("s", {t_.rows, t_.queries}, Scope::Register);
        auto each = [&](const std::string& name, const std::function<Stmt(const Expr&, const Expr&)>& body) {
            return unrolled(name + ".r", t_.rows, [&](const Expr& r) {
                return by_registers(name, [&](const Expr& i) { return body(r, i); });
            });
        };
        Stmt init = each("s.init", [&](const Expr& r, const Expr& i) { return store(acc, {r, i}, number(0)); });
        auto multiply = [&](const Expr& d, const std::function<Expr(const Expr&)>& k) {
            return each("s", [&](const Expr& r, const Expr& i) {
                return store(acc, {r, i}, k(r) * get(qt_, {t, d, i}), ReduceOp::Sum);
            });
        };
        const int64_t whole = machine_.lane_multiply && lanes_ > 1 ? depth_ / lanes_ : 0;
        std::vector<Stmt> sum{init};
        if (whole)
            sum.push_back(serial("s.d", whole, [&](const Expr& d) {
                int kr = buffer("kr", {t_.rows, lanes_}, Scope::Register);
                Stmt fetch = unrolled("kr.r", t_.rows, [&](const Expr& r) {
                    return vector("kr", lanes_, [&](const Expr& l) {
                        return store(kr, {r, l}, key_at(first, j + r, d * lanes_ + l, guarded));
                    });
                });
                Stmt add = unrolled("s.l", lanes_, [&](const Expr& l) {
                    return multiply(d * lanes_ + l, [&](const Expr& r) { return get(kr, {r, l}); });
                });
                return alloc(kr, seq({fetch, add}));
            }));
        if (whole * lanes_ < depth_)
            sum.push_back(serial(
                "s.rest", depth_ - whole * lanes_,
                [&](const Expr& d) {
                    return multiply(whole * lanes_ + d,
                                    [&](const Expr& r) { return key_at(first, j + r, whole * lanes_ + d, guarded); });
                },
                4));
        const Expr q = first_ + t * t_.queries;
        sum.push_back(each("s.out", [&](const Expr& r, const Expr& i) -> Stmt {
            Expr value = get(acc, {r, i});
            if (apart) return store(st_, {j + r, i}, value);
            value = score(value, q + i, first + j + r, i, j + r);
            if (guarded) value = select(lt(first + j + r, keys_), value, lowest());
            return seq({store(acc, {r, i}, value), store(st_, {j + r, i}, get(acc, {r, i})),
                        store(high, {i}, get(acc, {r, i}), ReduceOp::Max)});
        }));
        return alloc(acc, seq(std::move(sum)));
    }

    // Element d of K and of V, for key number j of the block.
    Expr key_at(const Expr& first, const Expr& j, const Expr& d, bool guarded) const {
        if (!direct_) return get(kb_, {j, d});
        Expr value = at(a_.k, 0, first + j, d, 0);
        return guarded ? select(lt(first + j, keys_), value, number(0)) : value;
    }
    Expr value_at(const Expr& first, const Expr& j, const Expr& d) const {
        return direct_ ? at(a_.v, 0, first + j, 0, d) : get(vb_, {j, d});
    }

    Stmt add_up(const Expr& t, const Expr& count) {
        int sum = buffer("sum", {t_.queries}, Scope::Register);
        Stmt init = by_tile("sum.init", [&](const Expr& i) {
            return store(sum, {i}, get(sums_, {t, i}) * get(scale_, {i}));
        });
        Stmt exps = serial("e.j", count, [&](const Expr& j) {
            return by_tile("e", [&](const Expr& i) {
                return seq({store(st_, {j, i}, exp_down(get(st_, {j, i}) - get(shift_, {i}))),
                            store(sum, {i}, get(st_, {j, i}), ReduceOp::Sum)});
            });
        });
        Stmt out = by_tile("sum", [&](const Expr& i) { return store(sums_, {t, i}, get(sum, {i})); });
        return alloc(sum, seq({init, exps, out}));
    }

    Stmt values(const Expr& t, const Expr& first, const Expr& count) {
        return serial("o.t", padded_ / t_.rows, [&](const Expr& c) {
            int acc = buffer("p", {t_.rows, t_.queries}, Scope::Register);
            auto each = [&](const std::string& name, const std::function<Stmt(const Expr&, const Expr&)>& body) {
                return unrolled(name + ".r", t_.rows, [&](const Expr& r) {
                    return by_registers(name, [&](const Expr& i) { return body(r, i); });
                });
            };
            const Expr column = c * t_.rows;
            Stmt init = each("p.init", [&](const Expr& r, const Expr& i) {
                return store(acc, {r, i}, get(ot_, {t, column + r, i}) * get(scale_, {i}));
            });
            Stmt add = serial(
                "p.j", count,
                [&](const Expr& j) {
                    if (!machine_.lane_multiply || lanes_ == 1)
                        return each("p", [&](const Expr& r, const Expr& i) {
                            return store(acc, {r, i}, value_at(first, j, column + r) * get(st_, {j, i}), ReduceOp::Sum);
                        });
                    int vr = buffer("vr", {t_.rows}, Scope::Register);
                    Stmt fetch = vector("vr", t_.rows,
                                        [&](const Expr& r) { return store(vr, {r}, value_at(first, j, column + r)); });
                    return alloc(vr, seq({fetch, each("p", [&](const Expr& r, const Expr& i) {
                                              return store(acc, {r, i}, get(vr, {r}) * get(st_, {j, i}), ReduceOp::Sum);
                                          })}));
                },
                4);
            Stmt out = each("p.out", [&](const Expr& r, const Expr& i) {
                return store(ot_, {t, column + r, i}, get(acc, {r, i}));
            });
            return alloc(acc, seq({init, add, out}));
        });
    }

    Stmt finish(const Expr& t) {
        const Expr q = first_ + t * t_.queries;
        // Without keys nothing was added up. With none in sight, the sum is zero, and a weight NaN.
        auto inverse = [&](const Expr& i) {
            Expr s = get(sums_, {t, i});
            if (!bounds(keys_).low.value_or(0)) s = select(eq(keys_, 0), number(1), s);
            return number(1) / s;
        };
        Stmt invert = by_tile("inverse", [&](const Expr& i) { return store(scale_, {i}, inverse(i)); });
        Stmt divide = serial("n.d", columns_, [&](const Expr& d) {
            return by_registers("n", [&](const Expr& i) {
                return store(ot_, {t, d, i}, get(ot_, {t, d, i}) * get(scale_, {i}));
            });
        });
        if (is_blinding()) {
            // Weights of zero: the sum of zero times the values.
            divide = serial("n.d", columns_, [&](const Expr& d) {
                return by_registers("n", [&](const Expr& i) {
                    return store(ot_, {t, d, i},
                                 select(ne(get(shift_, {i}), number(0)), get(zeros_, {d}),
                                        get(ot_, {t, d, i}) * get(scale_, {i})));
                });
            });
            invert = seq({invert, blind(t, q)});
        }
        auto copy = [&](const Expr& n) {
            return serial("y.i", n, [&](const Expr& i) {
                auto one = [&](const Expr& d) { return result(t, q, i, d); };
                const int64_t whole = columns_ / lanes_;
                Stmt most =
                    whole ? unrolled("y.o", whole,
                                     [&](const Expr& o) {
                                         return vector("y", lanes_, [&](const Expr& l) { return one(o * lanes_ + l); });
                                     })
                          : nullptr;
                Stmt rest = columns_ % lanes_ ? unrolled("y", columns_ % lanes_,
                                                         [&](const Expr& l) { return one(whole * lanes_ + l); })
                                              : nullptr;
                return seq({most, rest});
            });
        };
        Stmt out = copy(t_.queries);
        if (!always_whole()) out = if_then(is_whole(q), out, copy(min(Expr(t_.queries), queries_ - q)));
        return seq({invert, divide, out});
    }

    // shift = 1 where a query's weights are zero.
    Stmt blind(const Expr& t, const Expr& q) {
        return by_tile("blind", [&](const Expr& i) {
            Expr sum = get(sums_, {t, i});
            Expr c = map_loads(a_.weights.blind, [&](const Expr& x) -> Expr {
                return x == a_.weights.sum_load ? load(-1, dtype_, {}) : x;
            });
            c = map_loads(at(c, q + i, 0, 0, 0), [&](const Expr& x) -> Expr {
                return x.node().slot == -1 ? sum / sum : x;  // NaN where nothing is in sight
            });
            Expr flag = select(c, number(1), number(0));
            if (!always_whole() && !loads_in(a_.weights.blind).empty())
                flag = select(lt(q + i, queries_), flag, number(0));
            return store(shift_, {i}, flag);
        });
    }

    // One element of the result.
    Stmt result(const Expr& t, const Expr& q, const Expr& i, const Expr& d) {
        Bindings names = outer_;
        names.insert_or_assign(axis(a_.query).var.node().name, q + i);
        names.insert_or_assign(axis(a_.column).var.node().name, d);
        Expr value = get(ot_, {t, d, i});
        const Stage& product = *a_.product;
        if (!a_.epilogue) {
            std::vector<Expr> to;
            for (const Expr& e : product.store) to.push_back(substitute(e, names));
            return store(product.buffer, std::move(to), value);
        }
        const Stage& map = *a_.epilogue;
        Bindings own;
        for (const ReduceAxis& one : map.axes) own.insert_or_assign(one.var.node().name, Expr(0));
        const Expr read = loads_in(map.value, product.buffer)[0];
        for (size_t n = 0; n < product.axes.size(); ++n)
            if (!product.axes[n].extent.is_int(1))
                own.insert_or_assign(read.arg(n).node().name, substitute(product.axes[n].var, names));
        std::vector<Expr> to;
        for (const Expr& e : map.store) to.push_back(substitute(e, own));
        Expr mapped = map_loads(map.value, [&](const Expr& x) -> Expr {
            return x.node().slot == product.buffer ? load(-1, dtype_, {}) : x;
        });
        mapped =
            map_loads(substitute(mapped, own), [&](const Expr& x) -> Expr { return x.node().slot == -1 ? value : x; });
        return store(map.buffer, std::move(to), mapped);
    }

    const Attention& a_;
    const Machine& machine_;
    const DType dtype_;
    Kernel kernel_;
    AttentionTiles t_;
    int64_t lanes_ = 1, depth_ = 1, columns_ = 1, padded_ = 1;
    Expr keys_, queries_, blocks_, tasks_, first_;
    bool parallel_ = false;
    bool direct_ = false;  // K and V are read where they lie: a task has one tile
    Bindings outer_;       // axes that a task fixes
    std::map<std::string, int> names_;
    std::vector<std::pair<Expr, int>> bias_;  // loads, and the buffers that hold them for a block
    int qt_ = 0, ot_ = 0, kb_ = 0, vb_ = 0, st_ = 0, most_ = 0, sums_ = 0, scale_ = 0, shift_ = 0, zeros_ = 0;
};

}  // namespace

Lowered lower_attention(const Compute& compute, const Attention& attention, const Machine& machine, int threads,
                        std::optional<int64_t> queries) {
    Lowered lowered = AttentionKernel(compute, attention, machine, threads, queries).build();
    check_verified(lowered.kernel, "lower_attention");
    return lowered;
}

}  // namespace tessera
