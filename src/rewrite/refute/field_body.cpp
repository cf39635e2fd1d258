#include "rewrite/refute/field_body.h"

#include <cmath>

#include "base/hash.h"
#include "base/numeric.h"
#include "graph/evaluate/strip/loops.h"

namespace tessera {
namespace {

constexpr int64_t kSmall = int64_t{1} << 52;  // integers below it are doubles
constexpr int64_t kMaxExponent = 64;          // of a power that is multiplied out

bool is_infinite(uint64_t a) { return a >= kFieldPrime; }

void finite(uint64_t a) {
    if (is_infinite(a)) throw FieldStop{FieldRun::Outcome::Void, "arithmetic with an infinity"};
}

// A total order: of representatives nearest 0, with infinities at its ends.
int64_t rank_of(uint64_t a) {
    if (a == kFieldInfinity) return INT64_MAX;
    if (a == kFieldMinusInfinity) return INT64_MIN;
    return field_signed(a);
}

bool less(uint64_t a, uint64_t b) { return rank_of(a) < rank_of(b); }

// One lane of the strip engine's loops over integers.
template <typename Loop>
uint64_t one_lane(const Loop& loop) {
    int64_t out = 0;
    loop(&out);
    return static_cast<uint64_t>(out);
}

}  // namespace

FieldBody::FieldBody(const Expr& body, const std::vector<const FieldTensor*>& inputs, uint64_t key, int64_t& budget,
                     bool& rational)
    : inputs_(inputs), key_(key), budget_(budget), rational_(rational) {
    root_ = compile(body);
}

int FieldBody::variable(const std::string& name) {
    auto [it, fresh] = variable_numbers_.emplace(name, static_cast<int>(variables_.size()));
    if (fresh) variables_.push_back(0);
    return it->second;
}

int FieldBody::compile(const Expr& e) {
    if (auto it = step_numbers_.find(e.get()); it != step_numbers_.end()) {
        steps_[it->second].shared = true;
        return it->second;
    }
    const ExprNode& n = e.node();
    Step s{n.kind, n.dtype, n.args.empty() ? n.dtype : n.args[0].dtype(), n.fn, n.reduce_op, n.slot};
    for (DType t : {s.dtype, s.from})
        if (t == DType::string || is_complex(t))
            throw FieldStop{FieldRun::Outcome::Unsupported, fmt::format("elements of type {}", dtype_name(t))};
    if (n.kind == ExprKind::Var) s.slot = variable(n.name);
    if (n.kind == ExprKind::Const) {
        if (!is_float(n.dtype)) {
            s.value = static_cast<uint64_t>(n.integer);
        } else if (auto number = field_from_real(n.real)) {
            s.value = *number;
        } else {
            throw FieldStop{FieldRun::Outcome::Unsupported, "a NaN"};
        }
    }
    for (const ReduceAxis& axis : n.axes) {
        int var = variable(axis.var.node().name);
        s.axes.push_back({var, compile(axis.extent)});
    }
    for (const Expr& a : n.args) s.args.push_back(compile(a));
    steps_.push_back(std::move(s));
    return step_numbers_[e.get()] = static_cast<int>(steps_.size()) - 1;
}

FieldTensor FieldBody::fill(DType dtype, const Sizes& sizes) {
    FieldTensor out{dtype, sizes, {}, {}};
    std::vector<int> vars;
    for (size_t d = 0; d < sizes.size(); ++d) vars.push_back(variable(fmt::format("i{}", d)));
    int64_t count = 1;
    for (int64_t n : sizes) count *= n;
    out.elements.reserve(count);
    std::vector<int64_t> at(sizes.size(), 0);
    for (int var : vars) set_variable(var, 0);
    for (int64_t i = 0; i < count; ++i) {
        out.elements.push_back(value(root_));
        for (size_t d = sizes.size(); d-- > 0;) {
            at[d] = at[d] + 1 == sizes[d] ? 0 : at[d] + 1;
            set_variable(vars[d], at[d]);
            if (at[d]) break;
        }
    }
    return out;
}

uint64_t FieldBody::value(int number) {
    Step& s = steps_[number];
    if (s.kind == ExprKind::Const) return s.value;
    if (s.kind == ExprKind::Var) return static_cast<uint64_t>(variables_[s.slot]);
    if (s.shared && s.epoch == epoch_) return s.value;
    if (--budget_ < 0) throw FieldStop{FieldRun::Outcome::Unsupported, "more work than a trial may take"};
    uint64_t v = compute(s);
    if (s.shared) {
        s.value = v;
        s.epoch = epoch_;
    }
    return v;
}

uint64_t FieldBody::compute(const Step& s) {
    switch (s.kind) {
        case ExprKind::Load: return load(s);
        case ExprKind::Select: return value(value(s.args[0]) ? s.args[1] : s.args[2]);
        case ExprKind::Reduce: return reduce(s);
        case ExprKind::Cast:
        case ExprKind::CastSaturate: return cast(s, value(s.args[0]));
        case ExprKind::Call: return call(s);
        case ExprKind::And: return value(s.args[0]) && value(s.args[1]);
        case ExprKind::Or: return value(s.args[0]) || value(s.args[1]);
        case ExprKind::Neg:
        case ExprKind::Not:
        case ExprKind::BitNot: {
            uint64_t x = value(s.args[0]);
            if (is_float(s.from)) {
                if (is_infinite(x)) return x == kFieldInfinity ? kFieldMinusInfinity : kFieldInfinity;
                return field_sub(0, x);
            }
            auto in = static_cast<int64_t>(x);
            return one_lane([&](int64_t* out) { strip::int_unary(s.kind, s.fn, s.from, {&in, true}, 1, out); });
        }
        default: break;
    }
    uint64_t x = value(s.args[0]);
    for (size_t i = 1; i < s.args.size(); ++i) x = binary(s, x, value(s.args[i]));
    return x;
}

uint64_t FieldBody::load(const Step& s) {
    const FieldTensor& t = *inputs_[s.slot];
    int64_t offset = 0;
    for (size_t d = 0; d < s.args.size(); ++d) {
        auto at = static_cast<int64_t>(value(s.args[d]));
        if (at < 0 || at >= t.sizes[d]) throw FieldStop{FieldRun::Outcome::Void, "an index out of bounds"};
        offset = offset * t.sizes[d] + at;
    }
    return t.elements[offset];
}

uint64_t FieldBody::reduce(const Step& s) {
    const bool real = is_float(s.dtype);
    uint64_t acc = 0;
    if (!real)
        acc = static_cast<uint64_t>(strip::int_identity(s.reduce_op, s.dtype));
    else if (s.reduce_op == ReduceOp::Prod)
        acc = 1;
    else if (s.reduce_op != ReduceOp::Sum)
        acc = s.reduce_op == ReduceOp::Min ? kFieldInfinity : kFieldMinusInfinity;
    constexpr ExprKind kKinds[] = {ExprKind::Add, ExprKind::Mul, ExprKind::Min, ExprKind::Max};
    Step combine{kKinds[static_cast<int>(s.reduce_op)], s.dtype, s.dtype};

    std::vector<int64_t> extents, at(s.axes.size(), 0);
    for (const Axis& a : s.axes) extents.push_back(static_cast<int64_t>(value(a.extent)));
    for (int64_t e : extents)
        if (e <= 0) return acc;
    const int64_t outside = epoch_;  // no variable of the rest changes: what was computed holds again after it
    for (bool more = true; more;) {
        for (size_t i = 0; i < at.size(); ++i) set_variable(s.axes[i].var, at[i]);
        acc = binary(combine, acc, value(s.args[0]));
        more = false;
        for (size_t d = at.size(); d-- > 0 && !more;) {
            at[d] = at[d] + 1 == extents[d] ? 0 : at[d] + 1;
            more = at[d] != 0;
        }
    }
    epoch_ = outside;
    return acc;
}

uint64_t FieldBody::cast(const Step& s, uint64_t x) {
    const bool saturate = s.kind == ExprKind::CastSaturate;
    auto in = static_cast<int64_t>(x);
    if (is_float(s.from)) {
        if (is_float(s.dtype)) return x;
        if (s.dtype == DType::boolean) return x != 0;
        finite(x);
        double small = static_cast<double>(field_signed(x));
        if (std::fabs(small) < static_cast<double>(kSmall))
            return one_lane([&](int64_t* out) { strip::cast_real_to_int(s.dtype, saturate, {&small, true}, 1, out); });
        return static_cast<uint64_t>(int_wrap(s.dtype, static_cast<int64_t>(opaque(0x10000 + saturate, x))));
    }
    if (is_float(s.dtype)) {
        if (s.from != DType::u64) return field_from_int(in);
        return x % kFieldPrime;
    }
    return one_lane([&](int64_t* out) { strip::cast_int_to_int(s.from, s.dtype, saturate, {&in, true}, 1, out); });
}

// A function of its arguments and the key, the same on both sides of a rule.
uint64_t FieldBody::opaque(uint64_t function, uint64_t a, uint64_t b) {
    finite(a);
    finite(b);
    rational_ = false;
    return mix(mix(mix(key_, function), a), b) % kFieldPrime;
}

uint64_t FieldBody::call(const Step& s) {
    uint64_t x = value(s.args[0]), y = s.args.size() > 1 ? value(s.args[1]) : 0;
    if (!is_float(s.from)) {
        auto in = static_cast<int64_t>(x);
        return one_lane([&](int64_t* out) { strip::int_unary(s.kind, s.fn, s.from, {&in, true}, 1, out); });
    }
    switch (s.fn) {
        case Fn::IsNan: return 0;
        case Fn::IsInf: return is_infinite(x);
        case Fn::Sign: rational_ = false; return field_from_int((rank_of(x) > 0) - (rank_of(x) < 0));
        case Fn::Abs:
            rational_ = false;
            if (is_infinite(x)) return kFieldInfinity;
            return field_signed(x) < 0 ? field_sub(0, x) : x;
        default: break;
    }
    finite(x);
    finite(y);
    // Known points: floor(3), exp(0), sqrt(4).
    double a = static_cast<double>(field_signed(x)), b = static_cast<double>(field_signed(y)), known = 0;
    if (std::fabs(a) < static_cast<double>(kSmall) && std::fabs(b) < static_cast<double>(kSmall)) {
        strip::real_call(s.fn, {&a, true}, {&b, true}, 1, &known);
        if (std::fabs(known) < static_cast<double>(kSmall) && known == std::trunc(known)) {
            rational_ = false;
            return field_from_int(static_cast<int64_t>(known));
        }
    }
    return opaque(static_cast<uint64_t>(s.fn), x, y);
}

uint64_t FieldBody::power(uint64_t base, uint64_t exponent) {
    finite(base);
    finite(exponent);
    int64_t e = field_signed(exponent);
    if (e < -kMaxExponent || e > kMaxExponent) return opaque(0x20000, base, exponent);
    if (e < 0 && base == 0) throw FieldStop{FieldRun::Outcome::Void, "division by zero"};
    uint64_t p = field_power(base, static_cast<uint64_t>(std::abs(e)));
    return e < 0 ? field_inverse(p) : p;
}

uint64_t FieldBody::binary_float(ExprKind kind, uint64_t a, uint64_t b) {
    switch (kind) {
        case ExprKind::Lt: rational_ = false; return less(a, b);
        case ExprKind::Le: rational_ = false; return !less(b, a);
        case ExprKind::Eq: return a == b;
        case ExprKind::Ne: return a != b;
        case ExprKind::Min: rational_ = false; return less(b, a) ? b : a;
        case ExprKind::Max: rational_ = false; return less(a, b) ? b : a;
        case ExprKind::Pow: return power(a, b);
        default: break;
    }
    finite(a);
    finite(b);
    switch (kind) {
        case ExprKind::Add: return field_add(a, b);
        case ExprKind::Sub: return field_sub(a, b);
        case ExprKind::Mul: return field_mul(a, b);
        case ExprKind::Div:
            if (b == 0) throw FieldStop{FieldRun::Outcome::Void, "division by zero"};
            return field_mul(a, field_inverse(b));
        default: return opaque(0x30000 + static_cast<uint64_t>(kind), a, b);
    }
}

uint64_t FieldBody::binary(const Step& s, uint64_t a, uint64_t b) {
    if (is_float(s.from)) return binary_float(s.kind, a, b);
    auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
    const bool compares = s.kind >= ExprKind::Lt && s.kind <= ExprKind::Ne;
    return one_lane([&](int64_t* out) {
        if (compares)
            strip::int_compare(s.kind, s.from, {&x, true}, {&y, true}, 1, out);
        else
            strip::int_binary(s.kind, s.from, {&x, true}, {&y, true}, 1, out);
    });
}

}  // namespace tessera
