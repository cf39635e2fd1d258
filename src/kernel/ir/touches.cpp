#include "kernel/ir/touches.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "expr/simplify.h"
#include "kernel/ir/enumerate_touches.h"
#include "kernel/ir/linear_system.h"
#include "kernel/ir/regions.h"

namespace tessera {
namespace {

enum Side { kFirst, kSecond, kBoth };

bool lists(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// What is true where both touches happen in different iterations, as a system of linear constraints. A variable that
// both sides run over has one value on the first side, and one that is further by a difference on the second.
class Meeting {
  public:
    Meeting(const Touch& a, const Touch& b, const AtOnce& at_once, const Kernel& kernel)
        : sides_{&a, &b}, at_once_(at_once), kernel_(kernel) {
        for (const Expr& v : at_once.vars) differences_.push_back(differing(v));
        for (Side side : {kFirst, kSecond})
            for (const Expr& c : sides_[side]->conditions) require(c, side);
        if (!a.anywhere && !b.anywhere) require_same_element();
    }

    bool possible() const {
        for (const LinearSum& difference : differences_)
            for (int64_t sign : {1, -1}) {
                LinearSystem one_way = system_;
                LinearSum least{{}, -1};
                least.add(difference, sign);
                one_way.require_not_negative(least);
                if (!one_way.impossible()) return true;
            }
        return false;
    }

  private:
    // Rounded down.
    struct Division {
        LinearSum quotient, rest;
    };

    const Touch* sides_[2];
    const AtOnce& at_once_;
    const Kernel& kernel_;
    LinearSystem system_;
    std::vector<LinearSum> differences_;
    std::map<std::string, LinearSum> variables_[3];           // by side, or of both
    std::unordered_map<Expr, LinearSum, ExprHash> atoms_[3];  // the same
    std::map<std::tuple<std::map<int, int64_t>, int64_t, int64_t>, Division>
        divisions_;  // of terms, constant, by divisor
    std::set<int64_t> divisors_;

    // A variable with a value for each side; gives how far apart they are.
    LinearSum differing(const Expr& v) {
        const ExprNode& n = v.node();
        std::optional<int64_t> most, least;
        if (n.low && n.high) most = *n.high - *n.low, least = -*most;
        LinearSum first = system_.unknown(n.low, n.high), difference = system_.unknown(least, most);
        LinearSum second = first + difference;
        if (n.low) system_.require_not_negative(second - LinearSum{{}, *n.low});
        if (n.high) system_.require_not_negative(LinearSum{{}, *n.high} - second);
        variables_[kFirst][n.name] = first;
        variables_[kSecond][n.name] = second;
        return difference;
    }

    bool is_own(const std::string& name, Side side) const { return lists(sides_[side]->own, name); }

    LinearSum variable(const Expr& v, Side side) {
        const std::string& name = v.node().name;
        if (auto known = variables_[side].find(name); known != variables_[side].end()) return known->second;
        if (is_own(name, kFirst) && is_own(name, kSecond)) {
            differing(v);
            return variables_[side].at(name);
        }
        auto [at, fresh] = variables_[is_own(name, side) ? side : kBoth].try_emplace(name);
        if (fresh) at->second = system_.unknown(v.node().low, v.node().high);
        return at->second;
    }

    // Whose value this is: one of the sides', or the same on both.
    Side side_of(const Expr& e, Side side) const {
        bool own = !same_for_all(e, at_once_, kernel_.params);
        visit(e, [&](const Expr& x) { own |= x.is(ExprKind::Var) && is_own(x.node().name, side); });
        return own ? side : kBoth;
    }

    LinearSum linear(const Expr& e, Side side) {
        if (e.node().reads) return atom(e, side);
        LinearSum sum;
        for (const Expr& term : terms_of(e)) {
            Monomial m = as_monomial(term);
            if (m.count == 0)
                sum.add(LinearSum{{}, m.coefficient});
            else if (m.count == 1)
                sum.add(atom(m.atoms[0], side), m.coefficient);
            else
                sum.add(atom(make_term(1, m.atoms, m.count), side), m.coefficient);
        }
        return sum;
    }

    // Multiples of the divisor in x, which gives up what it has more than them.
    static LinearSum take_multiples(LinearSum& x, int64_t divisor) {
        LinearSum whole;
        auto split = [&](int64_t& value, int64_t& to) {
            to = floor_quotient(value, divisor);
            value = floor_remainder(value, divisor);
        };
        split(x.constant, whole.constant);
        for (auto& [name, coefficient] : x.terms) split(coefficient, whole.terms[name]);
        for (auto* terms : {&x.terms, &whole.terms})
            std::erase_if(*terms, [](const auto& term) { return term.second == 0; });
        return whole;
    }

    // By which part of the divisor x was divided before; 1: by none.
    int64_t divided_by_part(const LinearSum& x, int64_t divisor) const {
        for (auto part = divisors_.rbegin(); part != divisors_.rend(); ++part) {
            if (*part >= divisor || divisor % *part != 0) continue;
            LinearSum left = x;
            take_multiples(left, *part);
            if (divisions_.contains({left.terms, left.constant, *part})) return *part;
        }
        return 1;
    }

    // Multiples of the divisor in x are divided apart, so that what is left is found again. So are parts of the divisor
    // that it was divided by before: the indices of one place in several dimensions are such divisions.
    Division divide(LinearSum x, int64_t divisor) {
        if (const int64_t part = x.known ? divided_by_part(x, divisor) : 1; part > 1) {
            const Division inner = divide(x, part), outer = divide(inner.quotient, divisor / part);
            LinearSum rest = inner.rest;
            rest.add(outer.rest, part);
            return {outer.quotient, rest};
        }
        const LinearSum whole = take_multiples(x, divisor);
        if (!x.known) return {system_.unknown({}, {}), system_.unknown(0, divisor - 1)};
        auto [at, fresh] = divisions_.try_emplace({x.terms, x.constant, divisor});
        Division& known = at->second;
        divisors_.insert(divisor);
        if (fresh) {
            known = {system_.unknown({}, {}), system_.unknown(0, divisor - 1)};
            x.add(known.quotient, -divisor);
            system_.require_zero(x - known.rest);
        }
        return {whole + known.quotient, known.rest};
    }

    LinearSum atom(const Expr& e, Side side) {
        if (e.is(ExprKind::Var)) return variable(e, side);
        const bool divides = e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod);
        const std::optional<int64_t> divisor = divides ? e.arg(1).as_int() : std::nullopt;
        if (divisor && *divisor > 0 && !e.node().reads) {
            Division made = divide(linear(e.arg(0), side), *divisor);
            if (e.is(ExprKind::Mod)) return made.rest;
            const Bounds b = bounds(e);
            if (b.low) system_.require_not_negative(made.quotient - LinearSum{{}, *b.low});
            if (b.high) system_.require_not_negative(LinearSum{{}, *b.high} - made.quotient);
            return made.quotient;
        }
        const Side whose = side_of(e, side);
        const Bounds b = bounds(e);
        if (whose != kBoth && e.node().reads) return system_.unknown(b.low, b.high);  // another each time
        if (auto known = atoms_[whose].find(e); known != atoms_[whose].end()) return known->second;
        const LinearSum value = system_.unknown(b.low, b.high);
        atoms_[whose].emplace(e, value);
        if (!e.node().reads && (e.is(ExprKind::Min) || e.is(ExprKind::Max)))
            for (const Expr& arm : e.args()) {
                LinearSum end = linear(arm, side);
                system_.require_not_negative(e.is(ExprKind::Min) ? end - value : value - end);
            }
        return value;
    }

    void require(const Expr& condition, Side side) {
        for (const Expr& c : conjuncts(condition)) {
            if (c.is(ExprKind::Const) && c.node().integer == 0) system_.require_zero(LinearSum{{}, 1});
            if (c.args().size() != 2 || c.arg(0).dtype() != DType::i64) continue;
            const bool less = c.is(ExprKind::Lt);
            if (!less && !c.is(ExprKind::Le) && !c.is(ExprKind::Eq)) continue;
            LinearSum difference = linear(c.arg(1), side) - linear(c.arg(0), side);
            if (c.is(ExprKind::Eq)) {
                system_.require_zero(difference);
            } else {
                difference.add(LinearSum{{}, less ? -1 : 0});
                system_.require_not_negative(difference);
            }
        }
    }

    // Indices are inside the buffer, so that those of one element are the same, unless strides let them meet.
    void require_same_element() {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(sides_[0]->buffer)];
        // Rows with room behind them are as good as dense ones.
        bool one_place = true;
        for (size_t d = 0; d < b.strides.size(); ++d) {
            const bool last = d + 1 == b.strides.size();
            const auto stride = b.strides[d].as_int();
            const auto inner = last ? std::optional<int64_t>(1) : (b.strides[d + 1] * b.shape[d + 1]).as_int();
            one_place &= stride && inner && *stride >= *inner;
        }
        LinearSum apart;
        for (size_t d = b.shape.size(); d-- > 0;) {  // small divisors first
            LinearSum at[2];
            for (Side side : {kFirst, kSecond}) {
                at[side] = linear(sides_[side]->indices[d], side);
                system_.require_not_negative(at[side]);
                system_.require_not_negative(linear(b.shape[d], side) - at[side] - LinearSum{{}, 1});
            }
            const LinearSum difference = at[kFirst] - at[kSecond];
            if (one_place)
                system_.require_zero(difference);
            else if (std::optional<int64_t> stride = b.strides[d].as_int())
                apart.add(difference, *stride);
            else
                apart.known = false;
        }
        if (!one_place) system_.require_zero(apart);
    }
};

}  // namespace

bool same_for_all(const Expr& e, const AtOnce& at_once, size_t params) {
    bool same = true;
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Var))
            same &= std::none_of(at_once.vars.begin(), at_once.vars.end(),
                                 [&](const Expr& v) { return v.node().name == x.node().name; });
        if (x.is(ExprKind::Load))
            same &= static_cast<size_t>(x.node().slot) < params && !at_once.written.contains(x.node().slot);
    });
    return same;
}

bool may_meet(const Touch& a, const Touch& b, const AtOnce& at_once, const Kernel& kernel) {
    return Meeting(a, b, at_once, kernel).possible() && !apart_point_by_point(a, b, at_once, kernel);
}

}  // namespace tessera
