#include <gtest/gtest.h>

#include "random_expr.h"

namespace tessera::random_test {
namespace {

constexpr uint64_t kSeed = 20240611;

// The i64 arithmetic of a running program: it wraps. Loads read `slots`.
int64_t wrapping_value(const Expr& e, const SymbolValues& symbols, const std::vector<int64_t>& slots) {
    auto arg = [&](size_t i) { return wrapping_value(e.arg(i), symbols, slots); };
    auto wrapped = [](uint64_t v) { return static_cast<int64_t>(v); };
    auto u = [](int64_t v) { return static_cast<uint64_t>(v); };
    switch (e.kind()) {
        case ExprKind::Const: return e.node().integer;
        case ExprKind::Var: return symbols.at(e.node().name);
        case ExprKind::Load: return slots[static_cast<size_t>(e.node().slot)];
        case ExprKind::Select: return arg(0) ? arg(1) : arg(2);
        case ExprKind::And: return arg(0) && arg(1);
        case ExprKind::Or: return arg(0) || arg(1);
        case ExprKind::Not: return !arg(0);
        case ExprKind::BitNot: return ~arg(0);
        case ExprKind::Cast: return arg(0);
        case ExprKind::Call: {
            int64_t x = arg(0);
            if (e.node().fn == Fn::Sign) return (x > 0) - (x < 0);
            return x < 0 ? wrapped(-u(x)) : x;
        }
        default: break;
    }
    int64_t a = arg(0);
    for (size_t i = 1; i < e.args().size(); ++i) {
        int64_t b = arg(i);
        switch (e.kind()) {
            case ExprKind::Add: a = wrapped(u(a) + u(b)); break;
            case ExprKind::Sub: a = wrapped(u(a) - u(b)); break;
            case ExprKind::Mul: a = wrapped(u(a) * u(b)); break;
            default: {
                std::optional<int64_t> r = fold_int(e.kind(), a, b);
                a = r ? *r : INT64_MIN;  // only MIN / -1 overflows
            }
        }
    }
    return a;
}

TEST(RandomExpr, CanonicalFormKeepsTheValue) {
    for (uint64_t seed = kSeed; seed < kSeed + 10000; ++seed) {
        RandomExpr random(seed, {});
        Twins e = random.integer(1 + static_cast<int>(random.pick(5)));
        for (int trial = 0; trial < 12; ++trial) {
            SymbolValues values = random.values();
            std::optional<int64_t> plain = evaluate_int(e.plain, values), canonical = evaluate_int(e.canonical, values);
            if (!plain || !canonical) continue;
            ASSERT_EQ(*plain, *canonical)
                << "seed " << seed << "\n"
                << to_string(e.plain) << "\n"
                << to_string(e.canonical) << "\nN " << values["N"] << " M " << values["M"] << " K " << values["K"]
                << " p " << values["p"] << " q " << values["q"] << " i " << values["i"] << " j " << values["j"];
            Bounds b = bounds(e.canonical), of_plain = bounds(e.plain);
            ASSERT_TRUE((!b.low || *b.low <= *plain) && (!b.high || *b.high >= *plain)) << "seed " << seed;
            ASSERT_TRUE((!of_plain.low || *of_plain.low <= *plain) && (!of_plain.high || *of_plain.high >= *plain))
                << "seed " << seed;
        }
    }
}

TEST(RandomExpr, LargeConstantsNeverWrap) {
    for (uint64_t seed = kSeed; seed < kSeed + 10000; ++seed) {
        RandomExpr random(seed, {.large_constants = true});
        Twins e = random.integer(1 + static_cast<int>(random.pick(4)));
        for (int trial = 0; trial < 6; ++trial) {
            SymbolValues values = random.values();
            std::optional<int64_t> plain = evaluate_int(e.plain, values), canonical = evaluate_int(e.canonical, values);
            if (!plain || !canonical) continue;
            ASSERT_EQ(*plain, *canonical) << "seed " << seed << "\n"
                                          << to_string(e.plain) << "\n"
                                          << to_string(e.canonical);
        }
    }
}

TEST(RandomExpr, RunTimeValuesMayWrap) {
    constexpr int64_t kValues[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2, 5, INT64_MAX - 1, INT64_MAX};
    for (uint64_t seed = kSeed; seed < kSeed + 10000; ++seed) {
        RandomExpr random(seed, {.loads = true});
        Twins e = random.integer(1 + static_cast<int>(random.pick(4)));
        for (int trial = 0; trial < 12; ++trial) {
            SymbolValues values = random.values();
            std::vector<int64_t> slots{kValues[random.pick(9)], kValues[random.pick(9)]};
            ASSERT_EQ(wrapping_value(e.plain, values, slots), wrapping_value(e.canonical, values, slots))
                << "seed " << seed << "\n"
                << to_string(e.plain) << "\n"
                << to_string(e.canonical) << "\n"
                << slots[0] << " " << slots[1];
        }
    }
}

TEST(RandomExpr, TextParsesBack) {
    for (bool large : {false, true})
        for (uint64_t seed = kSeed; seed < kSeed + 10000; ++seed) {
            RandomExpr random(seed, {.symbols_only = true, .large_constants = large});
            Expr e = random.integer(1 + static_cast<int>(random.pick(5))).canonical;
            std::optional<Expr> parsed = parse_dim(to_string(e));
            ASSERT_TRUE(parsed) << "seed " << seed << " " << to_string(e);
            ASSERT_EQ(*parsed, e) << "seed " << seed << "\n" << to_string(e) << "\n" << to_string(*parsed);
        }
}

TEST(RandomExpr, SimplifyingAgainChangesNothing) {
    for (uint64_t seed = kSeed; seed < kSeed + 10000; ++seed) {
        RandomExpr random(seed, {});
        Expr e = random.integer(1 + static_cast<int>(random.pick(5))).canonical;
        ASSERT_EQ(simplify(e), e) << "seed " << seed << "\n" << to_string(e) << "\n" << to_string(simplify(e));
    }
}

TEST(RandomExpr, SubstitutionKeepsTheValue) {
    for (uint64_t seed = kSeed; seed < kSeed + 5000; ++seed) {
        RandomExpr random(seed, {});
        Twins e = random.integer(4);
        SymbolValues values = random.values();
        Bindings all;
        for (const auto& [name, value] : values) all.emplace(name, value);
        std::optional<int64_t> expected = evaluate_int(e.plain, values);
        if (!expected) continue;
        Expr bound = substitute(e.canonical, all);
        if (std::optional<int64_t> value = bound.as_int()) {
            ASSERT_EQ(*value, *expected) << "seed " << seed << " " << to_string(e.canonical);
        }
        ASSERT_EQ(evaluate_int(bound, {}), evaluate_int(e.canonical, values)) << "seed " << seed;
    }
}

}  // namespace
}  // namespace tessera::random_test
