// Ops that find elements: the places of those that are not zero, where a condition holds, or of one of each kind.
#include "kernel/written/scan_rows.h"
#include "kernel/written/sort_places.h"

namespace tessera {
namespace {

constexpr int64_t kCounted = 4096;

// The same by blocks of threads: how many are wanted up to each element, and for each of those found the first element
// up to which there are as many.
Stmt find_by_blocks(KernelWriter& w, const Expr& count, const std::function<Expr(const Expr&)>& wanted) {
    const auto known = count.as_int();
    const DType counted = known && *known < INT32_MAX ? DType::i32 : DType::i64;
    Elements found = w.kept(DType::i64, {Expr(1)}), places = w.kept(DType::i64, {count});
    Elements up_to = w.scratch(counted, {count});
    auto number = [&](const Expr& i) { return cast(up_to.at({i}), DType::i64); };
    Stmt tally =
        scan_rows(w, {.rows = 1,
                      .n = count,
                      .dtype = counted,
                      .element = [&](const Expr&, const Expr& i) { return cast(wanted(i), counted); },
                      .keep = [&](const Expr&, const Expr& i, const Expr& total) { return up_to.set({i}, total); }});
    Stmt all = found.set({Expr(0)}, select(gt(count, 0), number(count - 1), 0));
    Stmt search = w.parallel(count, [&](const Expr& p) {
        Stmt find = find_first(
            w, count, [&](const Expr& i) { return gt(number(i), p); },
            [&](const Expr& i) { return places.set({p}, i); });
        return if_then(lt(p, found.at({Expr(0)})), std::move(find));
    });
    return seq({tally, all, search});
}

// Keeps how many of `count` elements are wanted, and their places in order. Blocks are counted at once, then each
// writes its places from where the blocks before it end.
Stmt find_places(KernelWriter& w, const Expr& count, const std::function<Expr(const Expr&)>& wanted) {
    if (w.how().blocks) return find_by_blocks(w, count, wanted);
    const Expr blocks = ceil_div(count, kCounted);
    Elements found = w.kept(DType::i64, {Expr(1)}), places = w.kept(DType::i64, {count});
    Elements from = w.scratch(DType::i64, {blocks});
    auto in_block = [&](const Expr& b, const std::function<Stmt(const Expr&)>& body) {
        return w.loop(min(Expr(kCounted), count - b * kCounted), [&](const Expr& i) { return body(b * kCounted + i); });
    };
    Stmt tally = w.parallel(blocks, [&](const Expr& b) {
        Stmt add = in_block(b, [&](const Expr& i) { return from.add({b}, cast(wanted(i), DType::i64)); });
        return seq({from.set({b}, Expr(0)), add});
    });
    Stmt starts = w.local(DType::i64, {}, [&](const Elements& here) {
        Stmt each = w.loop(blocks, [&](const Expr& b) {
            return seq(
                {here.set({}, from.at({b})), from.set({b}, found.at({Expr(0)})), found.add({Expr(0)}, here.at({}))});
        });
        return seq({found.set({Expr(0)}, Expr(0)), each});
    });
    Stmt write = w.parallel(blocks, [&](const Expr& b) {
        return w.local(DType::i64, {}, [&](const Elements& next) {
            Stmt each = in_block(b, [&](const Expr& i) {
                Stmt put = seq({places.set({next.at({})}, i), next.add({}, Expr(1))});
                return if_then(wanted(i), put);
            });
            return seq({next.set({}, from.at({b})), each});
        });
    });
    return seq({tally, starts, write});
}

Stmt write_non_zero(KernelWriter& w) {
    const Shape& x = w.op().shape(0);
    const int places = w.kept_number(1);
    w.result(0, [=](const Indices& o) {
        Expr rest = load(places, DType::i64, {o[1]}), at = 0;
        for (int64_t d = x.rank() - 1; d >= 0; --d) {
            at = select(eq(o[0], d), d == 0 ? rest : mod(rest, x[d]), at);
            rest = floor_div(rest, x[d]);
        }
        return at;
    });
    Elements from = w.in(0, {x.elements()});
    return find_places(w, x.elements(), [&](const Expr& i) {
        Expr e = from.at({i});
        return e.dtype() == DType::boolean ? e : ne(e, constant(0, e.dtype()));
    });
}

// The axis along which slices are taken; without one it is all elements in a row.
int64_t taken_axis(const OpView& op) {
    if (!op.has_attr("axis")) return 0;
    return op.integer("axis") < 0 ? op.integer("axis") + op.rank(0) : op.integer("axis");
}

// The first output: slices of the input at the places that are kept.
void take_places(KernelWriter& w) {
    const Shape x = w.op().shape(0);
    const DType dtype = w.op().dtype(0);
    const int64_t axis = taken_axis(w.op());
    const int places = w.kept_number(1);
    const bool flat = !w.op().has_attr("axis");
    w.result(0, [=](const Indices& o) {
        Expr place = load(places, DType::i64, {o[axis]});
        if (!flat) return load(0, dtype, o.with(axis, place).list());
        std::vector<Expr> at(size_t(x.rank()));
        for (int64_t d = x.rank() - 1; d >= 0; --d) {
            at[size_t(d)] = d == 0 ? place : mod(place, x[d]);
            place = floor_div(place, x[d]);
        }
        return load(0, dtype, at);
    });
}

Stmt write_compress(KernelWriter& w) {
    take_places(w);
    // The op's check has seen that the condition holds nowhere beyond the end.
    Elements condition = w.in(1);
    return find_places(w, w.op().shape(1)[0], [&](const Expr& i) { return condition.at({i}); });
}

class Unique {
  public:
    explicit Unique(KernelWriter& w) : w_(w) {
        const Shape& x = w.op().shape(0);
        const bool flat = !w.op().has_attr("axis");
        const int64_t axis = taken_axis(w.op());
        outer_ = flat ? Expr(1) : elements_between(x, 0, axis);
        n_ = flat ? x.elements() : x[axis];
        inner_ = flat ? Expr(1) : elements_between(x, axis + 1, x.rank());
        x_ = w.in(0, {outer_, n_, inner_});
        found_ = w.kept(DType::i64, {Expr(1)});
        first_ = w.kept(DType::i64, {n_});
        counts_ = w.kept(DType::i64, {n_});
        group_ = w.wants(2) ? w.out(2) : w.scratch(DType::i64, {n_});
        order_ = w.scratch(DType::i64, {n_});
        spare_ = w.scratch(DType::i64, {n_});
        take_places(w);
        auto read = [](int kept) { return [kept](const Indices& o) { return load(kept, DType::i64, {o[0]}); }; };
        w.result(1, read(w.kept_number(1)));
        w.result(3, read(w.kept_number(2)));
    }

    Stmt write() {
        ComparePlaces places = [&](const Expr& a, const Expr& b, const Elements& c) { return compare(a, b, c); };
        Stmt from_front = w_.loop(n_, [&](const Expr& i) { return order_.set({i}, i); });
        Stmt sorted = sort_places(w_, order_, spare_, n_, places);
        return seq({from_front, sorted, find_groups(), w_.op().integer("sorted") ? nullptr : order_by_first()});
    }

  private:
    // c = -1, 0 or 1 as slice a is less than, equal to or greater than slice b.
    Stmt compare(const Expr& a, const Expr& b, const Elements& c) {
        Stmt each = w_.loop(outer_, [&](const Expr& o) {
            return w_.loop(inner_, [&](const Expr& j) {
                auto read = [&](const Expr& i) {
                    Expr e = x_.at({o, i, j});
                    return e.dtype() == DType::boolean ? cast(e, DType::i64) : e;
                };
                Expr p = read(a), q = read(b);
                Expr sign = select(less_or_nan(p, q), Expr(-1), select(less_or_nan(q, p), Expr(1), Expr(0)));
                return if_then(eq(c.at({}), 0), c.set({}, sign));
            });
        });
        return seq({c.set({}, Expr(0)), each});
    }

    // Each run of equal slices is a group; the first of it is the one that comes first.
    Stmt find_groups() {
        return w_.local(DType::i64, {}, [&](const Elements& c) {
            Expr found = found_.at({Expr(0)});
            Stmt each = w_.loop(n_, [&](const Expr& i) {
                Stmt begin = seq({first_.set({found}, order_.at({i})), counts_.set({found}, Expr(0)),
                                  found_.add({Expr(0)}, Expr(1))});
                return seq({c.set({}, Expr(1)), if_then(gt(i, 0), compare(order_.at({i - 1}), order_.at({i}), c)),
                            if_then(ne(c.at({}), 0), begin), group_.set({order_.at({i})}, found - 1),
                            counts_.add({found - 1}, Expr(1))});
            });
            return seq({found_.set({Expr(0)}, Expr(0)), each});
        });
    }

    // Groups in the order of their first slices: `spare` is where each goes, `order` how many slices it has.
    Stmt order_by_first() {
        return w_.local(DType::i64, {}, [&](const Elements& next) {
            Stmt keep = w_.loop(found_.at({Expr(0)}), [&](const Expr& g) { return order_.set({g}, counts_.at({g})); });
            Stmt heads = w_.loop(n_, [&](const Expr& i) { return spare_.set({i}, Expr(-1)); });
            Stmt each = w_.loop(n_, [&](const Expr& i) {
                Expr g = group_.at({i}), at = next.at({});
                Stmt head = seq({spare_.set({g}, at), first_.set({at}, i), counts_.set({at}, order_.at({g})),
                                 next.add({}, Expr(1))});
                return seq({if_then(lt(spare_.at({g}), 0), head), group_.set({i}, spare_.at({g}))});
            });
            return seq({next.set({}, Expr(0)), keep, heads, each});
        });
    }

    KernelWriter& w_;
    Expr outer_, n_, inner_;
    Elements x_, found_, first_, counts_, group_, order_, spare_;
};

Stmt write_unique(KernelWriter& w) { return Unique(w).write(); }

}  // namespace

std::vector<KernelWriting> found_kernels() {
    auto in_columns = [](const OpView&) { return std::vector<int64_t>{1}; };
    auto along_axis = [](const OpView& op) { return std::vector<int64_t>{taken_axis(op)}; };
    auto of_groups = [](const OpView& op) { return std::vector<int64_t>{taken_axis(op), 0, -1, 0}; };
    return {{"non_zero", write_non_zero, {}, in_columns},
            {"compress", write_compress, {1}, along_axis},
            {"unique", write_unique, {}, of_groups}};
}

}  // namespace tessera
