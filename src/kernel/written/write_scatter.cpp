// Scatters: a copy of the data, then the updates in their order. Slices that updates cannot leave are written at once.
// Blocks of threads take all updates at once: they are combined by atomic steps or, where the last one stays, each
// element first learns which that is.
#include "kernel/written/write_kernel.h"

namespace tessera {
namespace {

// How updates are combined with what is there; nothing: the last one stays.
std::optional<ReduceOp> reduction(const OpView& op) {
    const std::string& name = op.string("reduction");
    const bool logical = op.dtype(0) == DType::boolean;
    if (name == "add") return logical ? ReduceOp::Max : ReduceOp::Sum;
    if (name == "mul") return logical ? ReduceOp::Min : ReduceOp::Prod;
    if (name == "max") return ReduceOp::Max;
    if (name == "min") return ReduceOp::Min;
    return std::nullopt;
}

// A position that may count from the end. The op's check has seen that it is inside; a kernel stays inside anyway.
Expr position(const Expr& index, const Expr& extent) {
    Expr i = cast(index, DType::i64);
    return clamp(select(lt(i, 0), i + extent, i), 0, extent - 1);
}

constexpr size_t kAtomicBytes = 4;  // the least that one step changes

// Which of the updates of a place is the last, -1 where there is none.
class LastUpdate {
  public:
    LastUpdate(KernelWriter& w, const Expr& places, const Expr& updates) : places_(places) {
        const bool few = updates.as_int().value_or(INT64_MAX) <= INT32_MAX;
        last_ = w.scratch(few ? DType::i32 : DType::i64, {places});
    }
    Stmt none(KernelWriter& w) const {
        return w.parallel(places_, [&](const Expr& p) { return last_.set({p}, Expr(-1)); });
    }
    Stmt offer(const Expr& place, const Expr& update) const { return last_.update(ReduceOp::Max, {place}, update); }
    Expr of(const Expr& place) const { return cast(last_.at({place}), DType::i64); }

  private:
    Expr places_;
    Elements last_;
};

// Where updates go: places of the tensor under the shape that is given, all of it one row in memory. Floats narrower
// than f32 are combined in f32 and rounded once.
struct Target {
    Elements y, x, total;
    std::vector<Expr> shape;
    Expr count;
    std::optional<ReduceOp> combine;
    bool wide;
    bool at_once;  // updates are, in any order

    Target(KernelWriter& w, std::vector<Expr> dims)
        : shape(std::move(dims)), count(Shape(shape).elements()), combine(reduction(w.op())) {
        x = w.in(0, {count});
        y = w.out(0, {count});
        const bool rounds = is_float(x.dtype) && combine && *combine != ReduceOp::Max && *combine != ReduceOp::Min;
        at_once = w.how().blocks && !(rounds && w.how().strict);
        DType sum = x.read_as();
        if (at_once && !is_float(sum) && dtype_bytes(sum) < kAtomicBytes)
            sum = is_unsigned_int(sum) ? DType::u32 : DType::i32;
        wide = combine && sum != x.dtype;
        total = wide ? w.scratch(sum, {count}) : y;
    }

    Stmt write(const std::vector<Expr>& at, const Expr& value) const {
        const Expr place = place_of(at);
        return combine ? total.combine(*combine, {place}, value) : total.set({place}, value);
    }

    Expr place_of(const std::vector<Expr>& at) const {
        Expr place = 0;
        for (size_t d = 0; d < shape.size(); ++d) place = place * shape[d] + at[d];
        return place;
    }

    // `updates` rows of `inner` neighbours, row i to row `at(i)` of `rows`.
    using OfUpdate = std::function<Expr(const Expr& i)>;
    using Value = std::function<Expr(const Expr& i, const Expr& column)>;
    Stmt update_at_once(KernelWriter& w, const Expr& rows, const Expr& inner, const Expr& updates, const OfUpdate& at,
                        const Value& value) const {
        if (!combine) {
            const LastUpdate last(w, rows, updates);
            Stmt find = w.parallel(updates, [&](const Expr& i) { return last.offer(at(i), i); });
            Stmt give = w.parallel(count, [&](const Expr& p) {
                const Expr i = last.of(floor_div(p, inner));
                return y.set({p}, select(ge(i, 0), value(i, mod(p, inner)), x.at({p})));
            });
            return seq({last.none(w), find, give});
        }
        return around(w, w.parallel(updates * inner, [&](const Expr& p) {
            const Expr i = floor_div(p, inner), column = mod(p, inner);
            return total.update(*combine, {at(i) * inner + column}, value(i, column));
        }));
    }

    Stmt around(KernelWriter& w, Stmt updates) const {
        return seq({copied(w, x, total), std::move(updates), wide ? copied(w, total, y) : nullptr});
    }

  private:
    Stmt copied(KernelWriter& w, const Elements& from, const Elements& to) const {
        return w.everywhere(count, [&](const Expr& i) { return to.set({i}, from.at({i})); });
    }
};

// Dimensions are outer, the axis, inner: [a, n, b] of the data. Updates never leave their place in the others, so that
// one of them can be written by all threads.
Stmt write_scatter_elements(KernelWriter& w) {
    const OpView& op = w.op();
    const Shape &x = op.shape(0), &indices = op.shape(1);
    const int64_t rank = x.rank();
    if (rank == 0) return w.refuse("there is one element");
    const int64_t axis = op.integer("axis") < 0 ? op.integer("axis") + rank : op.integer("axis");
    Target target(w, x.dims());
    if (target.at_once) {
        const Expr count = indices.elements();
        Elements at = w.in(1, {count}), updates = w.in(2, {count});
        auto place = [&](const Expr& i) {
            std::vector<Expr> to(static_cast<size_t>(rank));
            Expr rest = i;
            for (int64_t d = rank; d-- > 0;) {
                to[size_t(d)] = d == axis ? position(at.at({i}), x[axis]) : d == 0 ? rest : mod(rest, indices[d]);
                rest = floor_div(rest, indices[d]);
            }
            return target.place_of(to);
        };
        return target.update_at_once(w, target.count, 1, count, place,
                                     [&](const Expr& i, const Expr&) { return updates.at({i}); });
    }
    Elements at = w.in(1), updates = w.in(2);
    const int64_t apart = rank == 1 ? -1 : axis == 0 ? 1 : 0;
    std::vector<Expr> o(size_t(rank), Expr(0));
    std::function<Stmt(int64_t)> nest = [&](int64_t d) -> Stmt {
        if (d == apart) return nest(d + 1);
        if (d == rank) {
            std::vector<Expr> to = o;
            to[size_t(axis)] = position(at.at(o), x[axis]);
            return target.write(to, updates.at(o));
        }
        return w.loop(indices[d], [&](const Expr& i) {
            o[size_t(d)] = i;
            return nest(d + 1);
        });
    };
    if (apart < 0) return target.around(w, nest(0));
    return target.around(w, w.parallel(indices[apart], [&](const Expr& i) {
        o[size_t(apart)] = i;
        return nest(0);
    }));
}

// Rows of `inner` elements; blocks of columns are apart from each other.
Stmt write_scatter_nd(KernelWriter& w) {
    const OpView& op = w.op();
    const Shape &x = op.shape(0), &indices = op.shape(1);
    auto depth = indices[-1].as_int();
    if (!depth) return w.refuse("how many positions an index has is known only when it is computed");
    const Expr count = elements_between(indices, 0, indices.rank() - 1);
    const Expr rows = elements_between(x, 0, *depth), inner = elements_between(x, *depth, x.rank());
    Target target(w, {rows, inner});
    Elements at = w.in(1, {count, Expr(*depth)}), updates = w.in(2, {count, inner});
    auto row_of = [&](const Expr& i) {
        Expr row = 0;
        for (int64_t k = 0; k < *depth; ++k) row = row * x[k] + position(at.at({i, Expr(k)}), x[k]);
        return row;
    };
    if (target.at_once)
        return target.update_at_once(w, rows, inner, count, row_of, [&](const Expr& i, const Expr& column) {
            return updates.at({i, column});
        });
    // Rows are read as they lie for as long as tasks are enough for some threads.
    constexpr int64_t kFewTasks = 32, kFewest = 256, kMost = 4096;
    const int64_t columns = std::clamp(inner.as_int().value_or(0) / kFewTasks, kFewest, kMost);
    return target.around(w, w.parallel(ceil_div(inner, columns), [&](const Expr& block) {
        return w.local(DType::i64, {}, [&](const Elements& row) {
            return w.loop(count, [&](const Expr& i) {
                Expr here = min(Expr(columns), inner - block * columns);
                return seq({row.set({}, row_of(i)), w.lanes(here, [&](const Expr& c) {
                                Expr column = block * columns + c;
                                return target.write({row.at({}), column}, updates.at({i, column}));
                            })});
            });
        });
    }));
}

// Elements back to where a pool took them from, as places in the whole of the unpooled tensor; zeros between them.
Stmt write_max_unpool(KernelWriter& w) {
    const OpView& op = w.op();
    const Shape& x = op.shape(0);
    const size_t rank = size_t(x.rank()), spatial = rank - 2;
    const auto& kernel = op.ints("kernel_shape");
    const auto strides = op.ints_or("strides", std::vector<int64_t>(spatial, 1));
    const auto pads = op.ints_or("pads", std::vector<int64_t>(2 * spatial, 0));
    std::vector<Expr> from = {x[0], x[1]};
    for (size_t i = 0; i < spatial; ++i)
        from.push_back(max((x[int64_t(i) + 2] - 1) * strides[i] - pads[i] - pads[spatial + i] + kernel[i], 0));
    const Expr count = x.elements();
    Elements value = w.in(0, {count}), index = w.in(1, {count});
    const std::vector<Expr>& sizes = op.out().shape.dims();
    const Expr places = op.out().shape.elements();
    Elements y = w.out(0, {places});
    using Put = std::function<Stmt(const Expr& to, const Expr& i)>;
    auto put_inside = [&](const Expr& i, const Put& put) {
        Expr rest = index.at({i}), to = 0, stride = 1, inside = int_const(1, DType::boolean);
        for (size_t d = rank; d-- > 0;) {
            Expr at = d == 0 ? rest : mod(rest, from[d]);
            if (d > 0) rest = floor_div(rest, from[d]);
            inside = logical_and(inside, logical_and(ge(at, 0), lt(at, sizes[d])));
            to = to + at * stride;
            stride = stride * sizes[d];
        }
        return if_then(inside, put(to, i));
    };
    if (w.how().blocks) {
        const LastUpdate last(w, places, count);
        Stmt find = w.parallel(count, [&](const Expr& i) {
            return put_inside(i, [&](const Expr& to, const Expr& from) { return last.offer(to, from); });
        });
        Stmt give = w.parallel(places, [&](const Expr& p) {
            const Expr i = last.of(p);
            return y.set({p}, select(ge(i, 0), value.at({i}), constant(0, value.read_as())));
        });
        return seq({last.none(w), find, give});
    }
    Stmt clear = w.everywhere(places, [&](const Expr& i) { return y.set({i}, real_const(0)); });
    Stmt fill = w.loop(count, [&](const Expr& i) {
        return put_inside(i, [&](const Expr& to, const Expr& from) { return y.set({to}, value.at({from})); });
    });
    return seq({clear, fill});
}

}  // namespace

std::vector<KernelWriting> scatter_kernels() {
    return {{"scatter_elements", write_scatter_elements, {1}},
            {"scatter_nd", write_scatter_nd, {1}},
            {"max_unpool", write_max_unpool, {1}}};
}

}  // namespace tessera
