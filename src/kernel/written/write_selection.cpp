// The k largest or smallest of each row: a heap of the best so far with the worst of them on top, then taken apart in
// order. A few are kept in order instead, and where many are asked for, all are sorted. Equal elements come in the
// order of their places; NaN is larger than every number. Blocks of threads share a row.
#include "kernel/written/select_rows.h"
#include "kernel/written/sort_places.h"

namespace tessera {
namespace {

class TopK {
  public:
    TopK(KernelWriter& w, int64_t axis) : w_(w), largest_(w.op().integer("largest") != 0) {
        const Shape& x = w.op().shape(0);
        outer_ = elements_between(x, 0, axis);
        n_ = x[axis];
        inner_ = elements_between(x, axis + 1, x.rank());
        k_ = w.op().out(0).shape[axis];
        x_ = w.in(0, {outer_, n_, inner_});
        for (size_t i : {0, 1})
            if (w.wants(i)) y_[i] = w.out(i, {outer_, k_, inner_});
    }

    Stmt write() {
        if (w_.how().blocks && !k_.is_int(0) && n_.as_int().value_or(kShortRow + 1) > kShortRow) return by_blocks();
        if (sorts_all()) return sort_rows();
        if (!k_.is_int(1)) return each_row(inner_, 0);
        if (inner_.is_int(1)) return w_.parallel(outer_, [&](const Expr& o) { return best_of_row(o); });
        // Rows that lie side by side, a vector of them at a time.
        const int64_t lanes = inner_.as_int().value_or(kLanes) < kLanes ? kLanes / 4 : kLanes;
        const Expr blocks = floor_div(inner_, lanes), rest = inner_ - blocks * lanes;
        Stmt beside = w_.parallel(outer_ * blocks, [&](const Expr& block) {
            return best_of_rows(floor_div(block, blocks), mod(block, blocks) * lanes, lanes);
        });
        return rest.is_int(0) ? beside : seq({beside, each_row(rest, blocks * lanes)});
    }

  private:
    static constexpr int64_t kLanes = 16;
    static constexpr int64_t kShortRow = 32;  // that one thread selects from

    Stmt by_blocks() {
        auto give = [&](const Expr& row, const Expr& rank, const Expr& value, const Expr& place) {
            const Expr o = floor_div(row, inner_), j = mod(row, inner_);
            return seq(
                {y_[0] ? y_[0]->set({o, rank, j}, value) : nullptr, y_[1] ? y_[1]->set({o, rank, j}, place) : nullptr});
        };
        auto element = [&](const Expr& row, const Expr& i) {
            return x_.at({floor_div(row, inner_), i, mod(row, inner_)});
        };
        auto order = [&](const Expr& a, const Expr& b) { return better(a, b); };
        return select_rows(w_, {outer_ * inner_, n_, k_, x_.read_as(), element, order, give});
    }

    // A heap of many is read and written all over memory.
    bool sorts_all() const {
        constexpr int64_t kFewSorted = 64, kShare = 4;
        const auto n = n_.as_int(), k = k_.as_int();
        return n && k ? *n > kFewSorted && *k >= *n / kShare : k_ == n_;
    }

    Stmt sort_rows() {
        auto with_entries = [&](const std::function<Stmt(const Entries&)>& body) {
            return w_.local(x_.read_as(), {n_}, [&](const Elements& values) {
                return w_.local(DType::i64, {n_}, [&](const Elements& places) { return body({values, places}); });
            });
        };
        auto order = [&](const Expr& a, const Expr& b) { return better(a, b); };
        return w_.parallel(outer_ * inner_, [&](const Expr& lane) {
            const Expr o = floor_div(lane, inner_), j = mod(lane, inner_);
            return with_entries([&](const Entries& all) {
                values_ = all.values, places_ = all.places;
                return with_entries([&](const Entries& spare) {
                    Stmt bring = w_.loop(n_, [&](const Expr& i) { return all.put(i, x_.at({o, i, j}), i); });
                    return seq({bring, sort_entries(w_, all, spare, n_, order),
                                w_.loop(k_, [&](const Expr& i) { return give(i, i, o, j); })});
                });
            });
        });
    }

    // One row after the other: of each group of inner rows, `count` from `first` on.
    Stmt each_row(const Expr& count, const Expr& first) {
        return w_.parallel(outer_ * count, [&](const Expr& lane) {
            Expr o = floor_div(lane, count), j = first + mod(lane, count);
            return with_state([&] {
                auto element = [&](const Expr& i) { return x_.at({o, i, j}); };
                if (is_few()) {
                    return seq({
                        put(0, element(0), 0),
                        each_of_few([&](int64_t i) { return i ? insert(element(i), i, i) : Stmt(); }),
                        offer_rest(element),
                        each_of_few([&](int64_t i) { return give(i, i, o, j); }),
                    });
                }
                return seq({
                    levels_of_heap(),
                    w_.loop(k_, [&](const Expr& i) { return put(i, element(i), i); }),
                    w_.loop(floor_div(k_, 2), [&](const Expr& i) { return sink(floor_div(k_, 2) - 1 - i, k_); }),
                    if_then(gt(k_, 0), offer_rest(element)),
                    w_.loop(k_, [&](const Expr& i) { return take_worst(k_ - 1 - i, o, j); }),
                });
            });
        });
    }

    // The best of a row: for each lane of it by itself, and then of those.
    Stmt best_of_row(const Expr& o) {
        const Expr blocks = floor_div(n_, kLanes);
        auto element = [&](const Expr& i) { return x_.at({o, i, 0}); };
        return with_state([&] {
            auto keep = [&](const Expr& value, const Expr& place) {
                return if_then(better(value, values_.at({0})), put(0, value, place));
            };
            Stmt lanes = with_lanes(kLanes, DType::i32, [&](const Elements& best, const Elements& block) {
                return seq({
                    w_.loop(
                        kLanes,
                        [&](const Expr& l) {
                            return seq({best.set({l}, element(l)), at_start(block, l)});
                        },
                        LoopKind::Vector),
                    w_.loop(blocks - 1,
                            [&](const Expr& b) {
                                return w_.loop(
                                    kLanes,
                                    [&](const Expr& l) {
                                        return replace(best, block, l, element((b + 1) * kLanes + l), b + 1);
                                    },
                                    LoopKind::Vector);
                            }),
                    w_.loop(kLanes,
                            [&](const Expr& l) {
                                const Expr place = cast(block.at({l}), DType::i64) * kLanes + l;
                                const Expr as_good = logical_not(better(values_.at({0}), best.at({l})));
                                const Expr earlier = logical_and(as_good, lt(place, places_.at({0})));
                                return if_then(logical_or(better(best.at({l}), values_.at({0})), earlier),
                                               put(0, best.at({l}), place));
                            }),
                });
            });
            return seq({
                put(0, element(0), 0),
                if_then(gt(blocks, 0), lanes),
                w_.loop(n_ - blocks * kLanes,
                        [&](const Expr& i) { return keep(element(blocks * kLanes + i), blocks * kLanes + i); }),
                give(0, 0, o, 0),
            });
        });
    }

    // The best of each of `lanes` rows that lie side by side.
    Stmt best_of_rows(const Expr& o, const Expr& first, int64_t lanes) {
        const DType counts = n_.as_int().value_or(INT64_MAX) <= INT32_MAX ? DType::i32 : DType::i64;
        return with_lanes(lanes, counts, [&](const Elements& best, const Elements& place) {
            auto each = [&](const std::function<Stmt(const Expr&)>& body) {
                return w_.loop(lanes, body, LoopKind::Vector);
            };
            return seq({
                each([&](const Expr& l) {
                    return seq({best.set({l}, x_.at({o, 0, first + l})), at_start(place, l)});
                }),
                w_.loop(n_ - 1,
                        [&](const Expr& i) {
                            return each([&](const Expr& l) {
                                return replace(best, place, l, x_.at({o, i + 1, first + l}), i + 1);
                            });
                        }),
                each([&](const Expr& l) {
                    std::vector<Stmt> out;
                    if (y_[0]) out.push_back(y_[0]->set({o, 0, first + l}, best.at({l})));
                    if (y_[1]) out.push_back(y_[1]->set({o, 0, first + l}, cast(place.at({l}), DType::i64)));
                    return seq(std::move(out));
                }),
            });
        });
    }

    template <typename Body>
    Stmt with_lanes(int64_t lanes, DType counts, const Body& body) {
        return w_.local(x_.read_as(), {lanes}, [&](const Elements& best) {
            return w_.local(counts, {lanes}, [&](const Elements& place) { return body(best, place); });
        });
    }

    static Stmt at_start(const Elements& place, const Expr& lane) {
        return place.set({lane}, int_const(0, place.read_as()));
    }

    Stmt replace(const Elements& best, const Elements& place, const Expr& lane, const Expr& value, const Expr& at) {
        const Expr taken = better(value, best.at({lane}));
        return seq({place.set({lane}, select(taken, cast(at, place.read_as()), place.at({lane}))),
                    best.set({lane}, select(taken, value, best.at({lane})))});
    }

    template <typename Body>
    Stmt with_state(const Body& body) {
        return w_.local(x_.read_as(), {k_}, [&](const Elements& values) {
            values_ = values;
            return w_.local(DType::i64, {k_}, [&](const Elements& places) {
                places_ = places;
                return w_.local(DType::i64, {}, [&](const Elements& at) {
                    at_ = at;
                    return w_.local(DType::i64, {}, [&](const Elements& levels) {
                        levels_ = levels;
                        return w_.local(x_.read_as(), {}, [&](const Elements& spare) {
                            spare_ = spare;
                            return w_.local(DType::i64, {}, [&](const Elements& place) {
                                spare_place_ = place;
                                return body();
                            });
                        });
                    });
                });
            });
        });
    }

    // How deep a heap of k is: the smallest d with 2^d > k.
    Stmt levels_of_heap() {
        if (auto k = k_.as_int()) {
            int64_t depth = 0;
            while ((int64_t{1} << depth) <= *k) ++depth;
            return levels_.set({}, Expr(depth));
        }
        return seq({levels_.set({}, Expr(0)), w_.loop(40, [&](const Expr& d) {
                        Expr size = bit(ExprKind::Shl, Expr(1), d);
                        return if_then(le(size, k_), levels_.set({}, d + 1));
                    })});
    }

    // Few enough to be kept in order in registers.
    bool is_few() const {
        constexpr int64_t kFew = 16;
        return k_.as_int() && *k_.as_int() >= 1 && *k_.as_int() <= kFew;
    }

    template <typename Body>
    Stmt each_of_few(const Body& body) {
        std::vector<Stmt> all;
        for (int64_t i = 0; i < *k_.as_int(); ++i)
            if (Stmt s = body(i)) all.push_back(std::move(s));
        return seq(std::move(all));
    }

    // Among the first `count`, which are in order: what it is better than moves on by one, and the last leaves.
    Stmt insert(const Expr& value, const Expr& place, int64_t count) {
        const int64_t last = std::min(count, *k_.as_int() - 1);
        std::vector<Stmt> moves;
        return w_.local(x_.read_as(), {}, [&](const Elements& kept) {
            moves.push_back(kept.set({}, value));
            const Expr v = kept.at({});
            for (int64_t i = last; i >= 0; --i) {
                const Expr here = i == count ? int_const(1, DType::boolean) : better(v, values_.at({i}));
                Expr next = select(here, v, values_.at({i})), at = select(here, place, places_.at({i}));
                if (i > 0) {
                    const Expr before = better(v, values_.at({i - 1}));
                    next = select(before, values_.at({i - 1}), next);
                    at = select(before, places_.at({i - 1}), at);
                }
                moves.push_back(w_.local(x_.read_as(), {}, [&](const Elements& moved) {
                    return seq({moved.set({}, next), places_.set({i}, at), values_.set({i}, moved.at({}))});
                }));
            }
            return seq(std::move(moves));
        });
    }

    // Whether a comes before b, by their values alone: NaN is no number's equal or less.
    Expr better(const Expr& a, const Expr& b) const {
        if (!is_float(a.dtype())) return largest_ ? gt(a, b) : lt(a, b);
        const Expr& number = largest_ ? b : a;
        return logical_and(logical_not(largest_ ? le(a, b) : ge(a, b)), eq(number, number));
    }

    // Whether entry a of the heap comes after entry b.
    Expr worse(const Expr& a, const Expr& b) const {
        Expr va = values_.at({a}), vb = values_.at({b});
        Expr later = gt(places_.at({a}), places_.at({b}));
        return logical_or(better(vb, va), logical_and(logical_not(better(va, vb)), later));
    }

    Stmt put(const Expr& at, const Expr& value, const Expr& place) {
        return seq({values_.set({at}, value), places_.set({at}, place)});
    }

    // The entry at `from` moves down in a heap of `size` until none below it is worse.
    Stmt sink(const Expr& from, const Expr& size) {
        Expr at = at_.at({}), left = at * 2 + 1;
        return seq({at_.set({}, from),
                    w_.loop(levels_.at({}), [&](const Expr&) { return if_then(lt(left, size), descend(size)); })});
    }

    Stmt descend(const Expr& size) {
        return w_.local(DType::i64, {}, [&](const Elements& child) {
            Expr at = at_.at({}), c = child.at({});
            return seq({
                child.set({}, at * 2 + 1),
                if_then(lt(at * 2 + 2, size), if_then(worse(at * 2 + 2, at * 2 + 1), child.set({}, at * 2 + 2))),
                if_then(worse(c, at),
                        seq({
                            spare_.set({}, values_.at({c})),
                            spare_place_.set({}, places_.at({c})),
                            put(c, values_.at({at}), places_.at({at})),
                            put(at, spare_.at({}), spare_place_.at({})),
                            at_.set({}, c),
                        }),
                        at_.set({}, size)),
            });
        });
    }

    // A later element replaces the worst where it is better; where they are equal, it is not.
    Stmt offer(const Expr& place, const Expr& value) {
        return if_then(better(value, worst()),
                       is_few() ? insert(value, place, *k_.as_int()) : seq({put(0, value, place), sink(0, k_)}));
    }

    Expr worst() const { return values_.at({is_few() ? k_ - 1 : Expr(0)}); }

    // Elements that lie side by side are looked at several at a time: mostly, none of them is better.
    template <typename Element>
    Stmt offer_rest(const Element& element) {
        constexpr int64_t kLongRow = 256;
        const int64_t at_once = n_.as_int().value_or(kLongRow) < kLongRow ? 8 : 32;
        const Expr rest = n_ - k_, blocks = inner_.is_int(1) ? floor_div(rest, at_once) : Expr(0);
        auto one = [&](const Expr& i) { return offer(i, element(i)); };
        Stmt last = w_.loop(rest - blocks * at_once, [&](const Expr& i) { return one(k_ + blocks * at_once + i); });
        if (blocks.is_int(0)) return last;
        Stmt first = w_.local(DType::i32, {}, [&](const Elements& found) {
            return w_.loop(blocks, [&](const Expr& block) {
                const Expr from = k_ + block * at_once;
                auto count = [&](const Expr& i) {
                    Expr better_than_worst = better(element(from + i), worst());
                    return found.add({}, cast(better_than_worst, DType::i32));
                };
                return seq({found.set({}, int_const(0, DType::i32)), w_.loop(at_once, count, LoopKind::Vector),
                            if_then(gt(found.at({}), int_const(0, DType::i32)),
                                    w_.loop(at_once, [&](const Expr& i) { return one(from + i); }))});
            });
        });
        return seq({first, last});
    }

    // Entry `from` as element `to` of the results.
    Stmt give(const Expr& from, const Expr& to, const Expr& o, const Expr& j) {
        std::vector<Stmt> out;
        if (y_[0]) out.push_back(y_[0]->set({o, to, j}, values_.at({from})));
        if (y_[1]) out.push_back(y_[1]->set({o, to, j}, places_.at({from})));
        return seq(std::move(out));
    }

    // The worst of what is left goes to place `last`, and the one from there to the top.
    Stmt take_worst(const Expr& last, const Expr& o, const Expr& j) {
        return seq({give(0, last, o, j), put(0, values_.at({last}), places_.at({last})), sink(0, last)});
    }

    KernelWriter& w_;
    const bool largest_;
    Expr outer_, n_, inner_, k_;
    Elements x_, values_, places_, at_, levels_, spare_, spare_place_;
    std::optional<Elements> y_[2];
};

Stmt write_top_k(KernelWriter& w) {
    const OpView& op = w.op();
    const int64_t rank = op.rank(0), axis = op.integer("axis");
    if (rank == 0) return w.refuse("there is one element");
    return TopK(w, axis < 0 ? axis + rank : axis).write();
}

}  // namespace

std::vector<KernelWriting> selection_kernels() { return {{"top_k", write_top_k}}; }

}  // namespace tessera
