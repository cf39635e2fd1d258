#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "expr/expr.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

bool both_i64(const Expr& a, const Expr& b) { return a.dtype() == DType::i64 && b.dtype() == DType::i64; }
bool is_bool_const(const Expr& e, bool value) {
    return e.is(ExprKind::Const) && e.dtype() == DType::boolean && (e.node().integer != 0) == value;
}

// An i64 constant beside another dtype becomes a constant of that dtype.
Expr adapt(const Expr& e, DType dtype) {
    std::optional<int64_t> value = e.as_int();
    if (!value || dtype == DType::i64) return e;
    if (is_float(dtype)) return real_const(static_cast<double>(*value), dtype);
    return int_const(*value, dtype);
}

struct Operands {
    Expr a, b;
    DType dtype;
};
Operands operands(const Expr& a, const Expr& b) {
    Operands o{adapt(a, b.dtype()), adapt(b, a.dtype()), DType::i64};
    o.dtype = o.a.dtype();
    CHECK(o.a.dtype() == o.b.dtype(), "operands of dtypes {} and {}: {} and {}", dtype_name(a.dtype()),
          dtype_name(b.dtype()), to_string(a), to_string(b));
    return o;
}

Expr binary(ExprKind kind, const Expr& a, const Expr& b) {
    Operands o = operands(a, b);
    return make_node(kind, o.dtype, {std::move(o.a), std::move(o.b)});
}

// For i64 operations without algebra of their own: constants fold, unless they overflow.
Expr folding_binary(ExprKind kind, const Expr& a, const Expr& b) {
    if (both_i64(a, b)) {
        std::optional<int64_t> x = a.as_int(), y = b.as_int();
        if (x && y)
            if (std::optional<int64_t> value = fold_int(kind, *x, *y)) return *value;
    }
    return binary(kind, a, b);
}

Expr comparison(ExprKind kind, const Expr& a, const Expr& b) {
    if (both_i64(a, b)) return simplify_compare(kind, a, b);
    Operands o = operands(a, b);
    if (o.dtype == DType::boolean && o.a.is(ExprKind::Const) && o.b.is(ExprKind::Const))
        return make_bool(*fold_int(kind, o.a.node().integer, o.b.node().integer) != 0);
    return make_node(kind, DType::boolean, {std::move(o.a), std::move(o.b)});
}

// Whether a float dtype holds an integer exactly, for the small ones that constants are made of.
bool holds_exactly(DType dtype, int64_t value) {
    auto within = [&](int64_t limit) { return value >= -limit && value <= limit; };
    switch (dtype) {
        case DType::f64: return within(int64_t{1} << 53);
        case DType::f32: return within(int64_t{1} << 24);
        case DType::f16: return within(2048);
        case DType::bf16: return within(256);
        case DType::f8e4m3fn:
        case DType::f8e4m3fnuz: return within(16);
        case DType::f8e5m2:
        case DType::f8e5m2fnuz: return within(8);
        case DType::f4e2m1: return within(4);
        default: return value == 1 || value == 2 || value == 4;
    }
}

constexpr std::array<std::string_view, 29> kFnNames{
    "abs",   "sign",  "floor", "ceil", "round", "trunc", "sqrt",  "exp",    "log",     "log1p",
    "expm1", "sin",   "cos",   "tan",  "asin",  "acos",  "atan",  "sinh",   "cosh",    "tanh",
    "asinh", "acosh", "atanh", "erf",  "isnan", "isinf", "atan2", "dot_i8", "dot_u8i8"};

}  // namespace

std::string_view fn_name(Fn fn) { return kFnNames[static_cast<size_t>(fn)]; }

std::optional<Fn> fn_from_name(std::string_view name) {
    auto found = std::find(kFnNames.begin(), kFnNames.end(), name);
    if (found == kFnNames.end()) return std::nullopt;
    return static_cast<Fn>(found - kFnNames.begin());
}

Expr operator+(const Expr& a, const Expr& b) {
    return both_i64(a, b) ? simplify_add(a, b) : binary(ExprKind::Add, a, b);
}

Expr operator-(const Expr& a, const Expr& b) {
    if (!both_i64(a, b)) return binary(ExprKind::Sub, a, b);
    if (b.is_int(0)) return a;
    if (a.same(b)) return 0;
    return simplify_add(a, simplify_mul(-1, b));
}

Expr operator*(const Expr& a, const Expr& b) {
    return both_i64(a, b) ? simplify_mul(a, b) : binary(ExprKind::Mul, a, b);
}

Expr operator/(const Expr& a, const Expr& b) {
    if (both_i64(a, b) && (b.is_int(1) || b.is_int(0))) return b.is_int(1) ? a : b;
    return folding_binary(ExprKind::Div, a, b);
}

Expr operator-(const Expr& a) {
    if (a.dtype() == DType::i64) return simplify_mul(-1, a);
    if (a.is(ExprKind::Const) && is_float(a.dtype())) return real_const(-a.node().real, a.dtype());
    return make_node(ExprKind::Neg, a.dtype(), {a});
}

Expr floor_div(const Expr& a, const Expr& b) {
    CHECK(both_i64(a, b), "floor_div of {} and {}", to_string(a), to_string(b));
    return simplify_floor_div(a, b);
}

Expr ceil_div(const Expr& a, const Expr& b) {
    if (std::optional<int64_t> c = b.as_int(); c && *c > 0) return floor_div(a + (*c - 1), b);
    return -floor_div(-a, b);
}

Expr mod(const Expr& a, const Expr& b) { return both_i64(a, b) ? simplify_mod(a, b) : binary(ExprKind::Mod, a, b); }

Expr rem(const Expr& a, const Expr& b) {
    if (both_i64(a, b) && (b.is_int(1) || b.is_int(-1) || b.is_int(0))) return 0;
    return folding_binary(ExprKind::Rem, a, b);
}

Expr min(const Expr& a, const Expr& b) {
    return both_i64(a, b) ? simplify_min_max(ExprKind::Min, a, b) : binary(ExprKind::Min, a, b);
}

Expr max(const Expr& a, const Expr& b) {
    return both_i64(a, b) ? simplify_min_max(ExprKind::Max, a, b) : binary(ExprKind::Max, a, b);
}

Expr clamp(const Expr& x, const Expr& low, const Expr& high) { return min(max(x, low), high); }

Expr pow(const Expr& a, const Expr& b) { return folding_binary(ExprKind::Pow, a, b); }

Expr bit(ExprKind kind, const Expr& a, const Expr& b) {
    CHECK(kind >= ExprKind::BitAnd && kind <= ExprKind::Shr, "bit() of kind {}", static_cast<int>(kind));
    return folding_binary(kind, a, b);
}

Expr bit_not(const Expr& a) {
    if (std::optional<int64_t> value = a.as_int()) return ~*value;
    return make_node(ExprKind::BitNot, a.dtype(), {a});
}

Expr lt(const Expr& a, const Expr& b) { return comparison(ExprKind::Lt, a, b); }
Expr le(const Expr& a, const Expr& b) { return comparison(ExprKind::Le, a, b); }
Expr gt(const Expr& a, const Expr& b) { return comparison(ExprKind::Lt, b, a); }
Expr ge(const Expr& a, const Expr& b) { return comparison(ExprKind::Le, b, a); }
Expr eq(const Expr& a, const Expr& b) { return comparison(ExprKind::Eq, a, b); }
Expr ne(const Expr& a, const Expr& b) { return comparison(ExprKind::Ne, a, b); }

Expr logical_and(const Expr& a, const Expr& b) {
    CHECK(a.dtype() == DType::boolean && b.dtype() == DType::boolean, "&& of {} and {}", to_string(a), to_string(b));
    if (is_bool_const(a, false) || is_bool_const(b, true) || a.same(b)) return a;
    if (is_bool_const(a, true) || is_bool_const(b, false)) return b;
    return make_node(ExprKind::And, DType::boolean, {a, b});
}

Expr logical_or(const Expr& a, const Expr& b) {
    CHECK(a.dtype() == DType::boolean && b.dtype() == DType::boolean, "|| of {} and {}", to_string(a), to_string(b));
    if (is_bool_const(a, true) || is_bool_const(b, false) || a.same(b)) return a;
    if (is_bool_const(a, false) || is_bool_const(b, true)) return b;
    return make_node(ExprKind::Or, DType::boolean, {a, b});
}

Expr logical_not(const Expr& a) {
    CHECK(a.dtype() == DType::boolean, "! of {}", to_string(a));
    bool of_ints = !a.args().empty() && is_int(a.arg(0).dtype());
    switch (a.kind()) {
        case ExprKind::Const: return make_bool(a.node().integer == 0);
        case ExprKind::Not: return a.arg(0);
        case ExprKind::Eq: return ne(a.arg(0), a.arg(1));
        case ExprKind::Ne: return eq(a.arg(0), a.arg(1));
        case ExprKind::Lt:  // not so of floats, for NaN
            if (of_ints) return le(a.arg(1), a.arg(0));
            break;
        case ExprKind::Le:
            if (of_ints) return lt(a.arg(1), a.arg(0));
            break;
        default: break;
    }
    return make_node(ExprKind::Not, DType::boolean, {a});
}

Expr call(Fn fn, std::vector<Expr> args) {
    CHECK(args.size() == arity(fn), "{} of {} arguments", fn_name(fn), args.size());
    if (args.size() == 2) {
        Operands o = operands(args[0], args[1]);
        args = {std::move(o.a), std::move(o.b)};
    }
    const Expr& x = args[0];
    if (x.dtype() == DType::i64) {
        std::optional<int64_t> value = x.as_int();
        switch (fn) {
            case Fn::Floor:
            case Fn::Ceil:
            case Fn::Round:
            case Fn::Trunc: return x;
            case Fn::Abs:
                if (x.node().low && *x.node().low >= 0) return x;
                if (value && *value != INT64_MIN) return *value < 0 ? -*value : *value;
                break;
            case Fn::Sign:
                if (value) return (*value > 0) - (*value < 0);
                break;
            default: break;
        }
    }
    ExprNode node{};
    node.kind = ExprKind::Call;
    node.dtype = fn == Fn::IsNan || fn == Fn::IsInf ? DType::boolean : x.dtype();
    node.fn = fn;
    node.args = std::move(args);
    return make_expr(std::move(node));
}

Expr cast(const Expr& x, DType dtype) {
    if (x.dtype() == dtype) return x;
    if (x.is(ExprKind::Const) && !is_float(x.dtype())) {
        int64_t value = x.node().integer;
        if (is_int(dtype) || dtype == DType::boolean) return int_const(value, dtype);
        if (is_float(dtype) && !(x.dtype() == DType::u64 && value < 0) && holds_exactly(dtype, value))
            return real_const(static_cast<double>(value), dtype);
    }
    // What is read, to a wider float and back: as it was. Of what is computed, the cast is where it is rounded.
    const bool widened = x.is(ExprKind::Cast) && x.arg(0).is(ExprKind::Load) && x.arg(0).dtype() == dtype &&
                         is_float(dtype) && is_float(x.dtype());
    if (widened && dtype_bytes(dtype) <= 4 && dtype_bytes(dtype) < dtype_bytes(x.dtype()) &&
        (x.dtype() == DType::f32 || x.dtype() == DType::f64))
        return x.arg(0);
    return make_node(ExprKind::Cast, dtype, {x});
}

Expr cast_saturate(const Expr& x, DType dtype) {
    if (x.dtype() == dtype) return x;
    return make_node(ExprKind::CastSaturate, dtype, {x});
}

Expr select(const Expr& condition, const Expr& then, const Expr& otherwise) {
    CHECK(condition.dtype() == DType::boolean, "select on {}", to_string(condition));
    Operands o = operands(then, otherwise);
    if (condition.is(ExprKind::Const)) return condition.node().integer ? o.a : o.b;
    if (o.a.same(o.b)) return o.a;
    if (condition.is(ExprKind::Not)) return select(condition.arg(0), o.b, o.a);
    if (condition.is(ExprKind::Ne)) return select(eq(condition.arg(0), condition.arg(1)), o.b, o.a);
    if (condition.is(ExprKind::Eq) && o.dtype == DType::i64) {
        const Expr &x = condition.arg(0), &y = condition.arg(1);
        if ((x.same(o.a) && y.same(o.b)) || (y.same(o.a) && x.same(o.b))) return o.b;
    }
    return make_node(ExprKind::Select, o.dtype, {condition, std::move(o.a), std::move(o.b)});
}

Expr reduce(ReduceOp op, std::vector<ReduceAxis> axes, const Expr& value) {
    if (axes.empty()) return value;
    for (const ReduceAxis& axis : axes)
        CHECK(axis.var.is(ExprKind::Var) && axis.extent.dtype() == DType::i64, "a reduction of {} over {} < {}",
              to_string(value), to_string(axis.var), to_string(axis.extent));
    ExprNode node{};
    node.kind = ExprKind::Reduce;
    node.dtype = value.dtype();
    node.reduce_op = op;
    node.axes = std::move(axes);
    node.args = {value};
    return make_expr(std::move(node));
}

Expr broadcast_dim(const Expr& a, const Expr& b) {
    if (a.same(b) || b.is_int(1)) return a;
    if (a.is_int(1)) return b;
    // A size that is not 1 is the result: the other is 1 or the same, which is for run time to check.
    Expr a_is_one = eq(a, 1), b_is_one = eq(b, 1);
    if (is_bool_const(a_is_one, false)) return a;
    if (is_bool_const(b_is_one, false)) return b;
    auto made_of = [](const Expr& both, const Expr& one) {
        return both.is(ExprKind::Select) && (both.arg(1).same(one) || both.arg(2).same(one)) &&
               both.arg(0).same(eq(both.arg(2), 1));
    };
    if (made_of(a, b)) return a;
    if (made_of(b, a)) return b;
    // N and min(N, 512): where N is 1 the other is 1 too, and where it is not, both are the same.
    auto makes_one = [](const Expr& size, const Expr& other) {
        return size.is(ExprKind::Var) && substitute(other, {{size.node().name, Expr(1)}}).is_int(1);
    };
    if (makes_one(a, b)) return a;
    if (makes_one(b, a)) return b;
    return compare_structure(a, b) < 0 ? select(a_is_one, b, a) : select(b_is_one, a, b);
}

}  // namespace tessera
