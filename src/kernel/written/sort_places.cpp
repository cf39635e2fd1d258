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

}  // namespace

Stmt sort_places(KernelWriter& w, const Elements& order, const Elements& spare, const Expr& n,
                 const ComparePlaces& compare) {
    int64_t levels = kMostLevels;
    if (auto known = n.as_int())
        for (levels = 0; (int64_t{1} << levels) < *known;) ++levels;
    return w.loop(Expr(levels), [&](const Expr& level) {
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
