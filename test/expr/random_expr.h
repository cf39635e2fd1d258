// Random i64 expressions, each built twice: node by node as it comes, and through the simplifying constructors.
#pragma once

#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "expr/expr.h"
#include "expr/simplify.h"

namespace tessera {

inline void PrintTo(const Expr& e, std::ostream* out) { *out << to_string(e); }

struct Twins {
    Expr plain, canonical;
};

struct RandomOptions {
    bool symbols_only = false;  // no variables that may be negative and no index variables
    bool loads = false;         // run-time values among the leaves
    bool large_constants = false;
};

class RandomExpr {
  public:
    RandomExpr(uint64_t seed, RandomOptions options) : random_(seed), options_(options) {}

    Twins integer(int depth) {
        if (depth == 0 || pick(8) == 0) return leaf();
        switch (pick(14)) {
            case 0:
            case 1:
            case 2: {
                Twins a = integer(depth - 1), b = integer(depth - 1);
                return {node(ExprKind::Add, {a.plain, b.plain}), a.canonical + b.canonical};
            }
            case 3: {
                Twins a = integer(depth - 1), b = integer(depth - 1);
                return {node(ExprKind::Sub, {a.plain, b.plain}), a.canonical - b.canonical};
            }
            case 4:
            case 5: {
                Twins a = integer(depth - 1), b = integer(depth - 1);
                return {node(ExprKind::Mul, {a.plain, b.plain}), a.canonical * b.canonical};
            }
            case 6:
            case 7: {
                Twins a = integer(depth - 1), b = pick(3) ? small() : integer(depth - 1);
                return {node(ExprKind::FloorDiv, {a.plain, b.plain}), floor_div(a.canonical, b.canonical)};
            }
            case 8:
            case 9: {
                Twins a = integer(depth - 1), b = pick(3) ? small() : integer(depth - 1);
                return {node(ExprKind::Mod, {a.plain, b.plain}), mod(a.canonical, b.canonical)};
            }
            case 10: {
                Twins a = integer(depth - 1), b = integer(depth - 1);
                return {node(ExprKind::Min, {a.plain, b.plain}), min(a.canonical, b.canonical)};
            }
            case 11: {
                Twins a = integer(depth - 1), b = integer(depth - 1);
                return {node(ExprKind::Max, {a.plain, b.plain}), max(a.canonical, b.canonical)};
            }
            case 12: {
                Twins c = boolean(depth - 1), a = integer(depth - 1), b = integer(depth - 1);
                return {node(ExprKind::Select, {c.plain, a.plain, b.plain}),
                        select(c.canonical, a.canonical, b.canonical)};
            }
            default: return rare(depth);
        }
    }

    Twins boolean(int depth) {
        if (depth > 0 && pick(4) == 0) {
            Twins a = boolean(depth - 1), b = boolean(depth - 1);
            switch (pick(3)) {
                case 0:
                    return {node(ExprKind::And, {a.plain, b.plain}, DType::boolean),
                            logical_and(a.canonical, b.canonical)};
                case 1:
                    return {node(ExprKind::Or, {a.plain, b.plain}, DType::boolean),
                            logical_or(a.canonical, b.canonical)};
                default: return {node(ExprKind::Not, {a.plain}, DType::boolean), logical_not(a.canonical)};
            }
        }
        Twins a = integer(std::max(depth - 1, 0)), b = integer(std::max(depth - 1, 0));
        switch (pick(4)) {
            case 0: return {node(ExprKind::Lt, {a.plain, b.plain}, DType::boolean), lt(a.canonical, b.canonical)};
            case 1: return {node(ExprKind::Le, {a.plain, b.plain}, DType::boolean), le(a.canonical, b.canonical)};
            case 2: return {node(ExprKind::Eq, {a.plain, b.plain}, DType::boolean), eq(a.canonical, b.canonical)};
            default: return {node(ExprKind::Ne, {a.plain, b.plain}, DType::boolean), ne(a.canonical, b.canonical)};
        }
    }

    SymbolValues values() {
        SymbolValues v;
        for (const char* name : {"N", "M", "K"}) v[name] = pick(3) ? static_cast<int64_t>(pick(5)) : pick(40);
        v["p"] = static_cast<int64_t>(pick(25)) - 12;
        v["q"] = static_cast<int64_t>(pick(7)) - 3;
        v["i"] = pick(4);
        v["j"] = pick(7);
        return v;
    }

    uint64_t pick(uint64_t n) { return random_() % n; }

  private:
    std::mt19937_64 random_;
    RandomOptions options_;

    static Expr node(ExprKind kind, std::vector<Expr> args, DType dtype = DType::i64) {
        return make_node(kind, dtype, std::move(args));
    }
    static Expr plain_var(const char* name) {
        ExprNode n{};
        n.kind = ExprKind::Var;
        n.dtype = DType::i64;
        n.name = name;
        return make_expr(std::move(n));
    }

    Twins small() {
        Expr c(static_cast<int64_t>(pick(15)) - 3);
        return {c, c};
    }

    Twins leaf() {
        Expr e;
        switch (pick(options_.loads ? 10 : 8)) {
            case 0:
            case 1: return small();
            case 2: e = symbol("N"); break;
            case 3: e = symbol("M"); break;
            case 4: e = symbol("K"); break;
            case 5: e = options_.symbols_only ? symbol("N") : plain_var(pick(2) ? "p" : "q"); break;
            case 6: e = options_.symbols_only ? symbol("a b`\\\n") : index_var("i", 4); break;
            case 7:
                e = options_.large_constants ? large() : options_.symbols_only ? symbol("x.y_1") : index_var("j", 7);
                break;
            default: e = load(static_cast<int>(pick(2)), DType::i64, {}); break;
        }
        return {e, e};
    }

    Expr large() {
        constexpr int64_t kLarge[] = {INT64_MAX,        INT64_MIN,           INT64_MAX - 1,    INT64_MIN + 1,
                                      int64_t{1} << 62, -(int64_t{1} << 62), int64_t{1} << 32, -(int64_t{1} << 31)};
        return kLarge[pick(8)];
    }

    Twins rare(int depth) {
        Twins a = integer(depth - 1), b = integer(depth - 1), c = boolean(depth - 1);
        switch (pick(6)) {
            case 0: return {node(ExprKind::Div, {a.plain, b.plain}), a.canonical / b.canonical};
            case 1: return {node(ExprKind::Rem, {a.plain, b.plain}), rem(a.canonical, b.canonical)};
            case 2: return {node(ExprKind::Cast, {c.plain}), cast(c.canonical, DType::i64)};
            case 3:
                return {node(ExprKind::BitAnd, {a.plain, b.plain}), bit(ExprKind::BitAnd, a.canonical, b.canonical)};
            case 4: return {node(ExprKind::BitNot, {a.plain}), bit_not(a.canonical)};
            default: {
                ExprNode n{};
                n.kind = ExprKind::Call;
                n.dtype = DType::i64;
                n.fn = pick(2) ? Fn::Abs : Fn::Sign;
                n.args = {a.plain};
                return {make_expr(n), call(n.fn, {a.canonical})};
            }
        }
    }
};

}  // namespace tessera
