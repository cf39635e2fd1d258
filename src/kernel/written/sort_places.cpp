#include "kernel/written/sort_places.h"

namespace tessera {
namespace {

constexpr int64_t kMostLevels = 40;

// One run out of two that follow each other: [low, middle) and [middle, high).
Stmt merge(KernelWriter& w, const Elements& order, const Elements& spare, const Expr& low, const Expr& middle,
           const Expr& high, const ComparePlaces& compare) {
    return w.local(DType::i64, {}, [&](const Elements& left) {
        return w.local(DType::i64, {}, [&](const Elements& right) {
            return w.local(DType::i64, {}, [&](const Elements& c) {
                Expr i = left.at({}), j = right.at({});
                Stmt each = w.loop(high - low, [&](const Expr& k) {
                    Stmt both = if_then(lt(j, high), compare(order.at({i}), order.at({j}), c), c.set({}, Expr(0)));
                    auto take = [&](const Elements& from) {
                        return seq({spare.set({low + k}, order.at({from.at({})})), from.add({}, Expr(1))});
                    };
                    return seq({c.set({}, Expr(1)), if_then(lt(i, middle), both),
                                if_then(le(c.at({}), 0), take(left), take(right))});
                });
                return seq({left.set({}, low), right.set({}, middle), each});
            });
        });
    });
}

// How often something doubles, from 1 on, until it is n or more.
int64_t doublings(const Expr& n) {
    int64_t levels = kMostLevels;
    if (auto known = n.as_int())
        for (levels = 0; (int64_t{1} << levels) < *known;) ++levels;
    return levels;
}

// Each run of 2 * `width` out of two. What comes next is chosen and not branched to: either is as likely.
Stmt merge_runs(KernelWriter& w, const Entries& from, const Entries& to, const Expr& n, const Expr& width,
                const std::function<Expr(const Expr& a, const Expr& b)>& better) {
    return w.loop(ceil_div(n, width * 2), [&](const Expr& pair) {
        const Expr low = pair * width * 2, middle = min(low + width, n), high = min(low + width * 2, n);
        return w.local(DType::i64, {}, [&](const Elements& left) {
            return w.local(DType::i64, {}, [&](const Elements& right) {
                return w.local(DType::i64, {}, [&](const Elements& taken) {
                    const Expr i = left.at({}), j = right.at({}), t = taken.at({});
                    const Expr a = min(i, middle - 1), b = min(j, high - 1);
                    const Expr in_order = logical_not(better(from.values.at({b}), from.values.at({a})));
                    const Expr from_left = logical_and(lt(i, middle), logical_or(ge(j, high), in_order));
                    auto either = [&](const Elements& e) { return select(ne(t, 0), e.at({a}), e.at({b})); };
                    Stmt each = w.loop(high - low, [&](const Expr& k) {
                        return seq({taken.set({}, select(from_left, Expr(1), Expr(0))),
                                    to.put(low + k, either(from.values), either(from.places)), left.add({}, t),
                                    right.add({}, 1 - t)});
                    });
                    return seq({left.set({}, low), right.set({}, middle), each});
                });
            });
        });
    });
}

}  // namespace

Stmt sort_entries(KernelWriter& w, const Entries& all, const Entries& spare, const Expr& n,
                  const std::function<Expr(const Expr& a, const Expr& b)>& better) {
    return w.loop(Expr((doublings(n) + 1) / 2), [&](const Expr& twice) {
        const Expr width = bit(ExprKind::Shl, Expr(1), twice * 2);
        return if_then(lt(width, n), seq({merge_runs(w, all, spare, n, width, better),
                                          merge_runs(w, spare, all, n, width * 2, better)}));
    });
}

Stmt sort_places(KernelWriter& w, const Elements& order, const Elements& spare, const Expr& n,
                 const ComparePlaces& compare) {
    return w.loop(Expr(doublings(n)), [&](const Expr& level) {
        Expr width = bit(ExprKind::Shl, Expr(1), level);
        Stmt merged = w.loop(ceil_div(n, width * 2), [&](const Expr& pair) {
            Expr low = pair * width * 2;
            return merge(w, order, spare, low, min(low + width, n), min(low + width * 2, n), compare);
        });
        Stmt back = w.loop(n, [&](const Expr& k) { return order.set({k}, spare.at({k})); });
        return if_then(lt(width, n), seq({merged, back}));
    });
}

Stmt find_first(KernelWriter& w, const Expr& n, const std::function<Expr(const Expr&)>& holds,
                const std::function<Stmt(const Expr& place)>& then) {
    const auto known = n.as_int();
    const int64_t rounds = known ? int64_t(std::bit_width(uint64_t(*known))) : kMostLevels;
    return w.local(DType::i64, {}, [&](const Elements& low) {
        return w.local(DType::i64, {}, [&](const Elements& high) {
            const Expr middle = floor_div(low.at({}) + high.at({}), 2);
            Stmt halve = if_then(holds(middle), high.set({}, middle), low.set({}, middle + 1));
            Stmt narrow = w.loop(rounds, [&](const Expr&) { return if_then(lt(low.at({}), high.at({})), halve); });
            return seq({low.set({}, Expr(0)), high.set({}, n), narrow, then(low.at({}))});
        });
    });
}

Expr less_or_nan(const Expr& a, const Expr& b) {
    if (!is_float(a.dtype())) return lt(a, b);
    Expr only_b = logical_and(logical_not(call(Fn::IsNan, {a})), call(Fn::IsNan, {b}));
    return logical_or(lt(a, b), only_b);
}

}  // namespace tessera
