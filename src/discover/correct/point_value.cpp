#include "discover/correct/point_value.h"

#include "base/hash.h"
#include "expr/simplify.h"
#include "rewrite/refute/field.h"

namespace tessera {

PointValue::PointValue(const Expr& element, uint64_t seed) : seed_(seed), root_(compile(element)) {}

int PointValue::variable(const std::string& name) {
    auto [it, fresh] = numbers_.try_emplace(name, static_cast<int>(variables_.size()));
    if (fresh) variables_.push_back(0);
    return it->second;
}

int PointValue::compile(const Expr& e) {
    if (auto found = known_.find(e.get()); found != known_.end()) return found->second;
    Step s{.kind = e.kind(), .real = is_float(e.dtype()), .slot = e.node().slot, .value = 0, .args = {}, .axes = {}};
    if (e.is(ExprKind::Const)) {
        s.value = static_cast<uint64_t>(e.node().integer);
        if (s.real) {
            const auto exact = field_from_real(e.node().real);
            if (!exact || *exact >= kFieldPrime) throw Stop{"a constant that is no number"};
            s.value = *exact;
        }
    }
    if (e.is(ExprKind::Var)) s.slot = variable(e.node().name);
    if (e.is(ExprKind::Reduce)) {
        if (e.node().reduce_op != ReduceOp::Sum || !s.real) throw Stop{"a reduction that is no sum"};
        for (const ReduceAxis& a : e.node().axes) s.axes.emplace_back(variable(a.var.node().name), compile(a.extent));
    }
    for (const Expr& a : e.args()) s.args.push_back(compile(a));
    steps_.push_back(std::move(s));
    return known_[e.get()] = static_cast<int>(steps_.size()) - 1;
}

uint64_t PointValue::at(const std::vector<int64_t>& index, int64_t& steps) {
    for (size_t d = 0; d < index.size(); ++d)
        variables_[static_cast<size_t>(variable("_o" + std::to_string(d)))] = index[d];
    return real(root_, steps);
}

// Of integers and conditions.
int64_t PointValue::integer(int step, int64_t& left) const {
    if (--left < 0) throw Stop{"the limit of steps was met"};
    const Step& s = steps_[static_cast<size_t>(step)];
    auto arg = [&](size_t i) { return integer(s.args[i], left); };
    auto folded = [&](auto f) {
        int64_t value = arg(0);
        for (size_t i = 1; i < s.args.size(); ++i) value = f(value, arg(i));
        return value;
    };
    switch (s.kind) {
        case ExprKind::Const: return static_cast<int64_t>(s.value);
        case ExprKind::Var: return variables_[static_cast<size_t>(s.slot)];
        case ExprKind::Add: return folded([](int64_t a, int64_t b) { return a + b; });
        case ExprKind::Sub: return arg(0) - arg(1);
        case ExprKind::Mul: return folded([](int64_t a, int64_t b) { return a * b; });
        case ExprKind::Neg: return -arg(0);
        case ExprKind::Min: return folded([](int64_t a, int64_t b) { return std::min(a, b); });
        case ExprKind::Max: return folded([](int64_t a, int64_t b) { return std::max(a, b); });
        case ExprKind::FloorDiv: {
            const int64_t by = arg(1);
            if (by < 1) throw Stop{"a quotient by what is not positive"};
            return floor_quotient(arg(0), by);
        }
        case ExprKind::Mod: {
            const int64_t by = arg(1);
            if (by < 1) throw Stop{"a remainder by what is not positive"};
            return floor_remainder(arg(0), by);
        }
        case ExprKind::Lt: return arg(0) < arg(1);
        case ExprKind::Le: return arg(0) <= arg(1);
        case ExprKind::Eq: return arg(0) == arg(1);
        case ExprKind::Ne: return arg(0) != arg(1);
        case ExprKind::And: return arg(0) && arg(1);
        case ExprKind::Or: return arg(0) || arg(1);
        case ExprKind::Not: return !arg(0);
        case ExprKind::Select: return arg(0) ? arg(1) : arg(2);
        case ExprKind::Cast: return arg(0);
        default: throw Stop{"an index that is computed"};
    }
}

uint64_t PointValue::real(int step, int64_t& left) {
    if (--left < 0) throw Stop{"the limit of steps was met"};
    const Step& s = steps_[static_cast<size_t>(step)];
    if (!s.real) return field_from_int(integer(step, left));
    switch (s.kind) {
        case ExprKind::Const: return s.value;
        case ExprKind::Load: {
            uint64_t h = mix(seed_ + 0x9e3779b97f4a7c15ull, static_cast<uint64_t>(s.slot));
            for (int a : s.args) h = mix(h, static_cast<uint64_t>(integer(a, left)));
            return h % kFieldPrime;
        }
        case ExprKind::Add:
        case ExprKind::Mul: {
            uint64_t value = real(s.args[0], left);
            for (size_t i = 1; i < s.args.size(); ++i) {
                const uint64_t next = real(s.args[i], left);
                value = s.kind == ExprKind::Add ? field_add(value, next) : field_mul(value, next);
            }
            return value;
        }
        case ExprKind::Sub: return field_sub(real(s.args[0], left), real(s.args[1], left));
        case ExprKind::Neg: return field_sub(0, real(s.args[0], left));
        case ExprKind::Select: return real(s.args[integer(s.args[0], left) ? 1 : 2], left);
        case ExprKind::Cast: return real(s.args[0], left);
        case ExprKind::Reduce: return sum(s, 0, left);
        default: throw Stop{"it is not multi-linear"};
    }
}

uint64_t PointValue::sum(const Step& s, size_t axis, int64_t& left) {
    if (axis == s.axes.size()) return real(s.args[0], left);
    const auto [variable, extent] = s.axes[axis];
    const int64_t end = integer(extent, left);
    uint64_t total = 0;
    for (int64_t i = 0; i < end; ++i) {
        variables_[static_cast<size_t>(variable)] = i;
        total = field_add(total, sum(s, axis + 1, left));
    }
    return total;
}

}  // namespace tessera
