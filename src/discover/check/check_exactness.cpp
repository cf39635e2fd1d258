#include "discover/check/check_exactness.h"

#include <bit>

#include "discover/check/check_arithmetic.h"
#include "discover/check/check_statement.h"

namespace tessera {
namespace checker {
namespace {

constexpr int kSteps = 2000;

class Comparison {
  public:
    Comparison(Names& names) : names_(names) {}

    // The same bits wherever the facts hold. False where that does not show.
    bool same(const Expr& left, const Expr& right, const Conjunction& facts) {
        if (++steps_ > kSteps) return false;
        const Expr l = plain(left), r = plain(right);
        if (chooses(l)) return in_each_case(l, facts, [&](const Expr& e, const auto& f) { return same(e, r, f); });
        if (chooses(r)) return in_each_case(r, facts, [&](const Expr& e, const auto& f) { return same(l, e, f); });
        if (l.kind() != r.kind() || l.dtype() != r.dtype() || l.args().size() != r.args().size()) return false;
        switch (l.kind()) {
            case ExprKind::Const:
                return std::bit_cast<uint64_t>(l.node().real) == std::bit_cast<uint64_t>(r.node().real) &&
                       l.node().integer == r.node().integer;
            case ExprKind::Load: {
                if (l.node().slot != r.node().slot) return false;
                for (size_t d = 0; d < l.args().size(); ++d)
                    if (!names_.equal(facts, names_.read(l.arg(d)), names_.read(r.arg(d)))) return false;
                return true;
            }
            case ExprKind::Add:
            case ExprKind::Mul:
                return arguments(l, r, facts) || (same(l.arg(0), r.arg(1), facts) && same(l.arg(1), r.arg(0), facts));
            case ExprKind::Call: return l.node().fn == r.node().fn && arguments(l, r, facts);
            case ExprKind::Cast:
                if (l.arg(0).dtype() == DType::i64 && !l.arg(0).node().reads && r.arg(0).dtype() == DType::i64)
                    return names_.equal(facts, names_.read(l.arg(0)), names_.read(r.arg(0)));
                return arguments(l, r, facts);
            case ExprKind::Neg:
            case ExprKind::Sub:
            case ExprKind::Div:
            case ExprKind::Pow:
            case ExprKind::Max:
            case ExprKind::Min:
            case ExprKind::Select:
            case ExprKind::Lt:
            case ExprKind::Le:
            case ExprKind::Eq:
            case ExprKind::Not:
            case ExprKind::And:
            case ExprKind::Or: return arguments(l, r, facts);
            default: return false;
        }
    }

  private:
    Names& names_;
    int steps_ = 0;

    // A choice by indices alone, of numbers.
    static bool chooses(const Expr& e) {
        if (!e.is(ExprKind::Select) || !is_float(e.dtype()) || e.arg(0).node().reads) return false;
        bool floats = false;
        visit(e.arg(0), [&](const Expr& part) { floats = floats || is_float(part.dtype()); });
        return !floats;
    }

    template <typename Same>
    bool in_each_case(const Expr& choice, const Conjunction& facts, const Same& same) {
        for (bool holds : {true, false})
            for (const Conjunction& c : names_.read(choice.arg(0), holds)) {
                Conjunction here = facts;
                here.insert(here.end(), c.begin(), c.end());
                if (!names_.impossible(here) && !same(choice.arg(holds ? 1 : 2), here)) return false;
            }
        return true;
    }

    bool arguments(const Expr& l, const Expr& r, const Conjunction& facts) {
        for (size_t i = 0; i < l.args().size(); ++i)
            if (!same(l.arg(i), r.arg(i), facts)) return false;
        return true;
    }

    static bool is_number(const Expr& e, double value) {
        return e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real == value;
    }

    // x * 1, -(-x), max(max(x, c), c) and min alike have the bits of what is inside.
    static Expr plain(Expr e) {
        for (;;) {
            if (e.is(ExprKind::Mul) && is_number(e.arg(1), 1))
                e = Expr(e.arg(0));
            else if (e.is(ExprKind::Mul) && is_number(e.arg(0), 1))
                e = Expr(e.arg(1));
            else if (e.is(ExprKind::Neg) && e.arg(0).is(ExprKind::Neg))
                e = Expr(e.arg(0).arg(0));
            else if ((e.is(ExprKind::Max) || e.is(ExprKind::Min)) && e.arg(0).kind() == e.kind() &&
                     e.arg(1).is(ExprKind::Const) && e.arg(0).arg(1) == e.arg(1))
                e = Expr(e.arg(0));
            else
                return e;
        }
    }
};

bool is_exact(const Statement& s) {
    bool reduces = false;
    for (const Expr& side : {s.left, s.right})
        visit(side, [&](const Expr& e) { reduces = reduces || e.is(ExprKind::Reduce); });
    if (reduces) return false;
    Names names;
    Conjunction facts;
    for (int64_t d = 0; d < s.shape.rank(); ++d) {
        const Whole index{{{names.declare("_o" + std::to_string(d), Names::Kind::Variable)}, 1}};
        facts.push_back(index);
        facts.push_back(plus(plus(names.read(s.shape[d]), constant_whole(-1)), index, -1));
    }
    return Comparison(names).same(s.left, s.right, facts);
}

}  // namespace
}  // namespace checker

Exactness exactness_of(const Claim& claim) {
    Result<std::vector<checker::Statement>> statements = checker::statements_of(claim);
    if (!statements.ok()) return Exactness::Reassociates;
    try {
        for (const checker::Statement& s : *statements)
            if (!checker::is_exact(s)) return Exactness::Reassociates;
    } catch (const checker::Refused&) {
        return Exactness::Reassociates;
    }
    return Exactness::Exact;
}

}  // namespace tessera
