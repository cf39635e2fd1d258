#include "discover/check/check_unify.h"

namespace tessera::checker {
namespace {

void multiply(const Expr& e, bool above, Factors& out) {
    if (e.is(ExprKind::Mul) || e.is(ExprKind::Div)) {
        multiply(e.arg(0), above, out);
        multiply(e.arg(1), e.is(ExprKind::Mul) == above, out);
    } else if (e.is(ExprKind::Neg)) {
        out.number = -out.number;
        multiply(e.arg(0), above, out);
    } else if (e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real != 0) {
        out.number = above ? out.number * e.node().real : out.number / e.node().real;
    } else {
        (above ? out.above : out.below).push_back(e);
    }
}

}  // namespace

Factors factors_of(const Expr& e) {
    Factors out;
    multiply(e, true, out);
    return out;
}

std::optional<Whole> Unifier::chosen(const Whole& p) {
    Whole out = names_.replace(p, by_);
    for (int v : open_)
        if (!by_.contains(v) && names_.occurs(v, out)) return {};
    return out;
}

// Solves for a variable that is open and stands alone, or compares.
bool Unifier::same_index(const Whole& left, const Whole& right) {
    const Whole l = names_.replace(left, by_);
    int open = 0, solved = -1;
    for (int v : open_)
        if (!by_.contains(v) && names_.occurs(v, l)) ++open, solved = v;
    if (open == 0) return names_.equal(facts_, l, right);
    if (open > 1) return false;
    auto c = l.find({solved});
    if (c == l.end() || (c->second != 1 && c->second != -1)) return false;
    const int64_t sign = c->second;
    Whole rest = l;
    rest.erase({solved});
    if (names_.occurs(solved, rest)) return false;
    by_.emplace(solved, times(constant_whole(sign), plus(right, rest, -1)));
    return true;
}

bool Unifier::same_list(const Expr& left, const Expr& right) {
    if (left.args().size() != right.args().size()) return false;
    for (size_t i = 0; i < left.args().size(); ++i)
        if (!same(left.arg(i), right.arg(i))) return false;
    return true;
}

bool Unifier::in_any_order(std::vector<Expr> left, std::vector<Expr> right) {
    if (left.size() != right.size()) return false;
    if (left.empty()) return true;
    const Expr first = left.back();
    left.pop_back();
    for (size_t i = 0; i < right.size(); ++i) {
        const auto before = by_;
        std::vector<Expr> others = right;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
        if (same(first, right[i]) && in_any_order(left, others)) return true;
        by_ = before;
    }
    return false;
}

bool Unifier::same_product(const Expr& left, const Expr& right) {
    const Factors l = factors_of(left), r = factors_of(right);
    return l.number == r.number && in_any_order(l.above, r.above) && in_any_order(l.below, r.below);
}

bool Unifier::same_reduction(const Expr& left, const Expr& right) {
    const auto &l = left.node().axes, &r = right.node().axes;
    if (left.node().reduce_op != right.node().reduce_op || l.size() != r.size()) return false;
    const Conjunction outer = facts_;
    for (size_t i = 0; i < l.size(); ++i) {
        if (!same_index(names_.read(l[i].extent), names_.read(r[i].extent))) return false;
        const int mine = names_.declare(l[i].var.node().name, Names::Kind::Variable);
        const Whole theirs{{{names_.declare(r[i].var.node().name, Names::Kind::Variable)}, 1}};
        by_.insert_or_assign(mine, theirs);
    }
    return same(left.arg(0), right.arg(0));
}

bool Unifier::same(const Expr& left, const Expr& right) {
    if (++steps_ > 3000) return false;
    const bool index = left.dtype() == DType::i64 && !left.node().reads;
    if (index != (right.dtype() == DType::i64 && !right.node().reads)) return false;
    if (index) return same_index(names_.read(left), names_.read(right));
    auto is_product = [](const Expr& e) {
        return is_float(e.dtype()) && (e.is(ExprKind::Mul) || e.is(ExprKind::Div) || e.is(ExprKind::Neg));
    };
    if (is_product(left) || is_product(right)) return same_product(left, right);
    if (left.kind() != right.kind() || left.dtype() != right.dtype()) return false;
    switch (left.kind()) {
        case ExprKind::Const: return left == right;
        case ExprKind::Load: return left.node().slot == right.node().slot && same_list(left, right);
        case ExprKind::Call: return left.node().fn == right.node().fn && same_list(left, right);
        case ExprKind::Reduce: return same_reduction(left, right);
        case ExprKind::Add:
        case ExprKind::Max:
        case ExprKind::Min:
            if (left.args().size() != 2 || right.args().size() != 2) return same_list(left, right);
            return in_any_order(left.args(), right.args());
        case ExprKind::Var: return false;
        default: return same_list(left, right);
    }
}

}  // namespace tessera::checker
