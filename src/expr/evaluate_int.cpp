#include <unordered_map>

#include "expr/expr.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

using Value = std::optional<int64_t>;

std::optional<int64_t> power(int64_t base, int64_t exponent) {
    if (exponent < 0) return std::nullopt;
    int64_t result = 1;
    while (exponent > 0) {
        if (exponent & 1) {
            Value p = checked_mul(result, base);
            if (!p) return p;
            result = *p;
        }
        exponent >>= 1;
        if (exponent == 0) break;
        Value square = checked_mul(base, base);
        if (!square) return square;
        base = *square;
    }
    return result;
}

// One node from the values of its arguments. A missing value spoils the result, except that of a branch not taken.
template <typename ArgValue>
Value evaluate_node(const ExprNode& node, const SymbolValues& symbols, const ArgValue& arg) {
    switch (node.kind) {
        case ExprKind::Const: return is_float(node.dtype) ? std::nullopt : Value(node.integer);
        case ExprKind::Var: {
            auto found = symbols.find(node.name);
            return found == symbols.end() ? std::nullopt : Value(found->second);
        }
        case ExprKind::Select: {
            Value condition = arg(0);
            if (!condition) return condition;
            return arg(*condition ? 1 : 2);
        }
        case ExprKind::And:
        case ExprKind::Or: {
            Value a = arg(0), b = arg(1);
            if (!a || !b) return std::nullopt;
            return node.kind == ExprKind::And ? (*a && *b) : (*a || *b);
        }
        default: break;
    }
    if (node.args.empty() || node.kind == ExprKind::Load || node.kind == ExprKind::Reduce) return std::nullopt;
    Value a = arg(0);
    if (!a) return a;
    switch (node.kind) {
        case ExprKind::Not: return *a == 0;
        case ExprKind::BitNot: return wrap_to(node.dtype, ~*a);
        case ExprKind::Cast:
            if (!is_int(node.dtype) && node.dtype != DType::boolean) return std::nullopt;
            return wrap_to(node.dtype, *a);
        case ExprKind::Neg: return node.dtype == DType::i64 ? fold_int(ExprKind::Sub, 0, *a) : std::nullopt;
        case ExprKind::Call:
            if (node.dtype != DType::i64) return std::nullopt;
            if (node.fn == Fn::Sign) return (*a > 0) - (*a < 0);
            if (node.fn == Fn::Abs) return *a < 0 ? fold_int(ExprKind::Sub, 0, *a) : a;
            return std::nullopt;
        default: break;
    }
    bool compares = node.kind >= ExprKind::Lt && node.kind <= ExprKind::Ne;
    DType computed = compares ? node.args[0].dtype() : node.dtype;
    if (computed != DType::i64 && !(compares && computed != DType::u64 && !is_float(computed))) return std::nullopt;
    for (size_t i = 1; i < node.args.size(); ++i) {
        Value b = arg(i);
        if (!b) return b;
        a = fold_int(node.kind, *a, *b);
        if (!a) return a;
    }
    return a;
}

Value evaluate_shallow(const Expr& e, const SymbolValues& symbols) {
    return evaluate_node(e.node(), symbols, [&](size_t i) { return evaluate_shallow(e.arg(i), symbols); });
}

}  // namespace

std::optional<int64_t> checked_add(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
    return r;
}

std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
    return r;
}

int64_t floor_quotient(int64_t a, int64_t positive) {
    int64_t q = a / positive;
    return a % positive < 0 ? q - 1 : q;
}

int64_t floor_remainder(int64_t a, int64_t positive) {
    int64_t r = a % positive;
    return r < 0 ? r + positive : r;
}

int64_t wrap_to(DType dtype, int64_t value) {
    if (dtype == DType::boolean) return value != 0;
    int bits = dtype_bits(dtype);
    if (bits >= 64) return value;
    uint64_t low = static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1);
    if (is_signed_int(dtype) && low >> (bits - 1)) low |= ~uint64_t{0} << bits;
    return static_cast<int64_t>(low);
}

std::optional<int64_t> fold_int(ExprKind kind, int64_t a, int64_t b) {
    bool division =
        kind == ExprKind::Div || kind == ExprKind::FloorDiv || kind == ExprKind::Mod || kind == ExprKind::Rem;
    if (division && b == 0) return 0;
    if (division && b == -1) {
        if (kind == ExprKind::Mod || kind == ExprKind::Rem) return 0;
        return a == INT64_MIN ? std::nullopt : std::optional(-a);
    }
    int64_t r;
    switch (kind) {
        case ExprKind::Add: return checked_add(a, b);
        case ExprKind::Sub: return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
        case ExprKind::Mul: return checked_mul(a, b);
        case ExprKind::Div: return a / b;
        case ExprKind::FloorDiv: return a / b - (a % b != 0 && (a < 0) != (b < 0));
        case ExprKind::Mod: return a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
        case ExprKind::Rem: return a % b;
        case ExprKind::Min: return a < b ? a : b;
        case ExprKind::Max: return a > b ? a : b;
        case ExprKind::Pow: return power(a, b);
        case ExprKind::BitAnd: return a & b;
        case ExprKind::BitOr: return a | b;
        case ExprKind::BitXor: return a ^ b;
        case ExprKind::Shl: return b < 0 || b >= 64 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
        case ExprKind::Shr: return b < 0 || b >= 64 ? 0 : a >> b;
        case ExprKind::Lt: return a < b;
        case ExprKind::Le: return a <= b;
        case ExprKind::Eq: return a == b;
        case ExprKind::Ne: return a != b;
        default: return std::nullopt;
    }
}

std::optional<int64_t> evaluate_int(const Expr& e, const SymbolValues& symbols) {
    constexpr uint32_t kShallow = 8;
    if (e.node().depth <= kShallow) return evaluate_shallow(e, symbols);
    std::unordered_map<const ExprNode*, Value> values;
    visit(e, [&](const Expr& x) {
        values[x.get()] = evaluate_node(x.node(), symbols, [&](size_t i) { return values.at(x.arg(i).get()); });
    });
    return values.at(e.get());
}

}  // namespace tessera
