// Choosing among overlapping boxes: for each class the best first, then every one that overlaps none of those chosen.
#include "kernel/written/scan_rows.h"
#include "kernel/written/select_rows.h"
#include "kernel/written/sort_places.h"

namespace tessera {
namespace {

Expr f64(double x) { return constant(x, DType::f64); }
// As in C++: of NaN and a number the first.
Expr least(const Expr& a, const Expr& b) { return select(lt(b, a), b, a); }
Expr most(const Expr& a, const Expr& b) { return select(lt(a, b), b, a); }

class Suppression {
  public:
    explicit Suppression(KernelWriter& w) : w_(w) {
        const OpView& op = w.op();
        const Shape& scores = op.shape(1);
        classes_ = scores[1];
        lanes_ = scores[0] * scores[1];
        n_ = scores[2];
        room_ = op.has(2) ? n_ : Expr(0);
        if (auto known = op.has(2) ? op.constant_ints(2) : std::nullopt; known && known->size() == 1)
            room_ = min(n_, Expr(std::max<int64_t>((*known)[0], 0)));
        boxes_ = w.in(0);
        scores_ = w.in(1, {lanes_, n_});
        if (op.has(2)) most_ = w.in(2, {Expr(1)}).at({Expr(0)});
        if (op.has(3)) overlap_ = cast(w.in(3, {Expr(1)}).at({Expr(0)}), DType::f64);
        if (op.has(4)) least_ = w.in(4, {Expr(1)}).at({Expr(0)});
        found_ = w.kept(DType::i64, {Expr(1)});
        chosen_ = w.kept(DType::i64, {lanes_ * room_});
        counts_ = w.scratch(DType::i64, {lanes_});
        by_blocks_ = w.how().blocks && !room_.is_int(0) && n_.as_int().value_or(kFewBoxes + 1) > kFewBoxes;
        const int chosen = w.kept_number(1);
        w.result(0, [chosen, n = n_, classes = classes_](const Indices& o) {
            Expr place = load(chosen, DType::i64, {o[0]}), lane = floor_div(place, n);
            return select(eq(o[1], 0), floor_div(lane, classes),
                          select(eq(o[1], 1), mod(lane, classes), mod(place, n)));
        });
    }

    Stmt write() {
        if (by_blocks_) return write_by_blocks();
        Stmt choose = w_.parallel(lanes_, [&](const Expr& lane) {
            return w_.local(DType::i64, {n_}, [&](const Elements& order) {
                return w_.local(DType::i64, {n_}, [&](const Elements& spare) {
                    return w_.local(DType::i64, {}, [&](const Elements& count) {
                        return seq({candidates(lane, order, count),
                                    sort_places(w_, order, spare, count.at({}), by_score(lane)),
                                    greedy(lane, order, count.at({}))});
                    });
                });
            });
        });
        Stmt join = w_.loop(lanes_, [&](const Expr& lane) {
            return w_.loop(counts_.at({lane}), [&](const Expr& k) {
                Expr at = found_.at({Expr(0)});
                return seq({chosen_.set({at}, lane * n_ + chosen_.at({lane * room_ + k})), found_.add({Expr(0)}, 1)});
            });
        });
        return seq({choose, found_.set({Expr(0)}, Expr(0)), join});
    }

  private:
    static constexpr int64_t kFewBoxes = 32;  // that one thread chooses from
    static constexpr int64_t kThreads = 128;

    // All classes at once: sorted by their scores, then chosen from, a block for each class, then joined.
    Stmt write_by_blocks() {
        Elements order = w_.scratch(DType::i64, {lanes_, n_}), wanted = w_.scratch(DType::i64, {lanes_});
        Elements picked = w_.scratch(DType::i64, {lanes_, room_}), up_to = w_.scratch(DType::i64, {lanes_});
        auto score = [&](const Expr& lane, const Expr& i) { return scores_.at({lane, i}); };
        auto higher = [](const Expr& a, const Expr& b) {
            Expr only_b = logical_and(call(Fn::IsNan, {b}), logical_not(call(Fn::IsNan, {a})));
            return logical_or(gt(a, b), only_b);
        };
        auto keep = [&](const Expr& lane, const Expr& rank, const Expr&, const Expr& place) {
            return order.set({lane, rank}, place);
        };
        Stmt sorted = select_rows(w_, {lanes_, n_, n_, scores_.read_as(), score, higher, keep});
        Stmt high_enough = w_.parallel(lanes_, [&](const Expr& lane) {
            if (!least_) return wanted.set({lane}, n_);
            auto too_low = [&](const Expr& k) { return logical_not(gt(score(lane, order.at({lane, k})), *least_)); };
            return find_first(w_, n_, too_low, [&](const Expr& k) { return wanted.set({lane}, k); });
        });
        Stmt choose = w_.blocks(lanes_, 1, [&](const Expr& lane, const Expr&) {
            return greedy_by_block(lane, wanted.at({lane}), order, picked);
        });
        Stmt counted = scan_rows(
            w_, {.rows = 1,
                 .n = lanes_,
                 .dtype = DType::i64,
                 .element = [&](const Expr&, const Expr& lane) { return counts_.at({lane}); },
                 .keep = [&](const Expr&, const Expr& lane, const Expr& sum) { return up_to.set({lane}, sum); }});
        Stmt all = found_.set({Expr(0)}, select(gt(lanes_, 0), up_to.at({lanes_ - 1}), 0));
        Stmt join = w_.parallel(lanes_ * room_, [&](const Expr& p) {
            auto put = [&](const Expr& lane) {
                const Expr before = up_to.at({lane}) - counts_.at({lane});
                return chosen_.set({p}, lane * n_ + picked.at({lane, p - before}));
            };
            Stmt find = find_first(
                w_, lanes_, [&](const Expr& lane) { return gt(up_to.at({lane}), p); }, put);
            return if_then(lt(p, found_.at({Expr(0)})), std::move(find));
        });
        return seq({sorted, high_enough, choose, counted, all, join});
    }

    // One box after the other, all threads against those that are chosen.
    Stmt greedy_by_block(const Expr& lane, const Expr& count, const Elements& order, const Elements& picked) {
        return w_.shared(DType::f64, {Expr(4)}, [&](const Elements& box) {
            return w_.shared(DType::i64, {Expr(1)}, [&](const Elements& taken) {
                return w_.shared(DType::i32, {Expr(1)}, [&](const Elements& hit) {
                    const Expr so_far = taken.at({Expr(0)});
                    Stmt against = w_.threads(kThreads, [&](const Expr& t) {
                        return w_.loop(ceil_div(so_far, kThreads), [&](const Expr& k) {
                            const Expr q = k * kThreads + t;
                            Stmt look = if_then(gt(overlap(box, lane, picked.at({lane, q})), overlap_),
                                                hit.update(ReduceOp::Max, {Expr(0)}, int_const(1, DType::i32)));
                            return if_then(lt(q, so_far), std::move(look));
                        });
                    });
                    Stmt each = w_.loop(count, [&](const Expr& k) {
                        const Expr place = order.at({lane, k}), none = int_const(0, DType::i32);
                        Stmt take = seq({picked.set({lane, so_far}, place), taken.add({Expr(0)}, Expr(1))});
                        Stmt consider = seq({keep_box(box, lane, place), hit.set({Expr(0)}, none), against,
                                             if_then(eq(hit.at({Expr(0)}), none), take)});
                        return if_then(lt(so_far, min(most_, room_)), consider);
                    });
                    return seq({taken.set({Expr(0)}, Expr(0)), each, counts_.set({lane}, so_far)});
                });
            });
        });
    }

    // Boxes whose score is high enough.
    Stmt candidates(const Expr& lane, const Elements& order, const Elements& count) {
        Stmt each = w_.loop(n_, [&](const Expr& i) {
            Stmt put = seq({order.set({count.at({})}, i), count.add({}, Expr(1))});
            return least_ ? if_then(gt(scores_.at({lane, i}), *least_), put) : put;
        });
        return seq({count.set({}, Expr(0)), each});
    }

    // The highest score first; NaN last.
    ComparePlaces by_score(const Expr& lane) {
        return [&, lane](const Expr& a, const Expr& b, const Elements& c) {
            Expr x = scores_.at({lane, a}), y = scores_.at({lane, b});
            Expr only_x = logical_and(call(Fn::IsNan, {x}), logical_not(call(Fn::IsNan, {y})));
            return c.set({}, select(logical_or(gt(y, x), only_x), Expr(1), Expr(0)));
        };
    }

    Stmt greedy(const Expr& lane, const Elements& order, const Expr& count) {
        return w_.local(DType::f64, {Expr(4)}, [&](const Elements& box) {
            return w_.local(DType::i64, {}, [&](const Elements& hit) {
                Expr taken = counts_.at({lane}), first = lane * room_;
                Stmt each = w_.loop(count, [&](const Expr& k) {
                    Expr place = order.at({k});
                    Stmt against = w_.loop(taken, [&](const Expr& q) {
                        Expr shared = overlap(box, lane, chosen_.at({first + q}));
                        return if_then(gt(shared, overlap_), hit.set({}, Expr(1)));
                    });
                    Stmt take = seq({chosen_.set({first + taken}, place), counts_.add({lane}, Expr(1))});
                    Stmt consider = seq(
                        {keep_box(box, lane, place), hit.set({}, Expr(0)), against, if_then(eq(hit.at({}), 0), take)});
                    return if_then(lt(taken, min(most_, room_)), consider);
                });
                return seq({counts_.set({lane}, Expr(0)), each});
            });
        });
    }

    // Where a box begins and ends along dimension d.
    std::pair<Expr, Expr> span(const Expr& lane, const Expr& place, int64_t d) {
        auto read = [&](int64_t k) { return cast(boxes_.at({floor_div(lane, classes_), place, Expr(k)}), DType::f64); };
        Expr p = read(d), q = read(d + 2);
        if (w_.op().integer("center_point_box") == 1) return {p - q / f64(2), p + q / f64(2)};
        return {least(p, q), most(p, q)};
    }

    Stmt keep_box(const Elements& box, const Expr& lane, const Expr& place) {
        std::vector<Stmt> out;
        for (int64_t d : {0, 1}) {
            auto [low, high] = span(lane, place, d);
            out.push_back(box.set({Expr(d)}, low));
            out.push_back(box.set({Expr(d + 2)}, high));
        }
        return seq(std::move(out));
    }

    // The intersection's share of the union, of a box that was chosen and the one in `box`.
    Expr overlap(const Elements& box, const Expr& lane, const Expr& chosen) {
        Expr common = f64(1), own = f64(1), other = f64(1);
        for (int64_t d : {0, 1}) {
            auto [low, high] = span(lane, chosen, d);
            Expr from = box.at({Expr(d)}), to = box.at({Expr(d + 2)});
            common = common * most(f64(0), least(high, to) - most(low, from));
            own = own * (to - from);
            other = other * (high - low);
        }
        Expr some = logical_and(gt(common, f64(0)), logical_and(gt(own, f64(0)), gt(other, f64(0))));
        return select(some, common / (other + own - common), f64(0));
    }

    KernelWriter& w_;
    Expr lanes_, classes_, n_, room_, most_ = 0, overlap_ = f64(0);
    std::optional<Expr> least_;
    bool by_blocks_ = false;
    Elements boxes_, scores_, found_, chosen_, counts_;
};

Stmt write_suppression(KernelWriter& w) { return Suppression(w).write(); }

}  // namespace

std::vector<KernelWriting> suppression_kernels() {
    auto in_rows = [](const OpView&) { return std::vector<int64_t>{0}; };
    return {{"non_max_suppression", write_suppression, {}, in_rows}};
}

}  // namespace tessera
