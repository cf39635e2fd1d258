#include "kernel/ir/regions.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/gcd.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kMaxScale = 1 << 20;
constexpr int kMaxArms = 6;  // choices of a min's arm that a proof tries, one below the other

bool at_least(const Expr& e, int64_t value) {
    Bounds b = bounds(e);
    return b.low && *b.low >= value;
}
bool at_most(const Expr& e, int64_t value) {
    Bounds b = bounds(e);
    return b.high && *b.high <= value;
}

std::optional<Interval> scaled(const Interval& i, const Expr& factor) {
    if (at_least(factor, 0)) return Interval{i.begin * factor, i.span * factor};
    if (at_most(factor, 0)) return Interval{i.last() * factor, -(i.span * factor)};
    return std::nullopt;
}

std::optional<Interval> product(const Expr& e, const Extents& running) {
    Expr fixed = 1;
    std::optional<Interval> moving;
    for (const Expr& factor : e.args()) {
        if (!mentions_any(factor, running)) {
            fixed = fixed * factor;
            continue;
        }
        std::optional<Interval> i = interval_of(factor, running);
        if (!i) return std::nullopt;
        if (!moving) {
            moving = i;
        } else if (at_least(moving->begin, 0) && at_least(i->begin, 0)) {
            Expr begin = moving->begin * i->begin;
            moving = Interval{begin, moving->last() * i->last() - begin};
        } else {
            return std::nullopt;
        }
    }
    return scaled(*moving, fixed);
}

// One product over another, whose factors are among its own.
std::optional<Expr> product_over(const Expr& e, const Expr& divisor) {
    Monomial all = as_monomial(e), part = as_monomial(divisor);
    if (part.coefficient == 0 || all.coefficient % part.coefficient != 0) return std::nullopt;
    std::vector<Expr> left(all.atoms, all.atoms + all.count);
    for (size_t i = 0; i < part.count; ++i) {
        auto found = std::find_if(left.begin(), left.end(), [&](const Expr& x) { return x.same(part.atoms[i]); });
        if (found == left.end()) return std::nullopt;
        left.erase(found);
    }
    return make_term(all.coefficient / part.coefficient, left.data(), left.size());
}

// e / divisor, where that leaves no rest: term by term, as polynomials are divided.
std::optional<Expr> exact_quotient(const Expr& e, const Expr& divisor) {
    constexpr int kMostTerms = 8;
    Expr quotient = 0, rest = e;
    for (int i = 0; i < kMostTerms && !rest.is_int(0); ++i) {
        std::optional<Expr> next;
        size_t fewest = SIZE_MAX;
        for (const Expr& by : terms_of(divisor)) {
            const auto term = product_over(*terms_of(rest).begin(), by);
            if (!term) continue;
            const Expr left = rest - *term * divisor;
            if (const size_t count = left.is_int(0) ? 0 : terms_of(left).size(); count < fewest)
                fewest = count, next = term;
        }
        if (!next) return std::nullopt;
        rest = rest - *next * divisor;
        quotient = quotient + *next;
    }
    return rest.is_int(0) ? std::optional(quotient) : std::nullopt;
}

// How many multiples of a divisor lie in an interval that begins at 0 and ends before another one: what loops that were
// fused run over. They run only where the divisor is more than 0: it is not less where the quotient is not, nor both.
std::optional<Expr> whole_parts(const Interval& i, const Expr& divisor) {
    if (!i.begin.is_int(0) || divisor.as_int()) return std::nullopt;
    auto parts = exact_quotient(i.span + 1, divisor);
    return parts && (at_least(divisor, 0) || at_least(*parts, 0)) ? parts : std::nullopt;
}

// How far apart quotients of an interval's ends can be.
Expr quotient_span(const Interval& i, const Expr& divisor) {
    Expr exact = floor_div(i.last(), divisor) - floor_div(i.begin, divisor);
    if (exact.as_int()) return exact;
    if (mod(i.begin, divisor).is_int(0)) return floor_div(i.span, divisor);
    Expr most = floor_div(i.span + divisor - 1, divisor);
    return most.as_int() ? most : exact;
}

std::optional<Interval> divided(const Expr& e, const Extents& running) {
    const Expr& divisor = e.arg(1);
    if (mentions_any(divisor, running)) return std::nullopt;
    std::optional<Interval> i = interval_of(e.arg(0), running);
    if (!i) return std::nullopt;
    if (auto parts = whole_parts(*i, divisor)) return Interval{0, *parts - 1};
    if (!at_least(divisor, 0)) return std::nullopt;
    return Interval{floor_div(i->begin, divisor), quotient_span(*i, divisor)};
}

std::optional<Interval> remainder(const Expr& e, const Extents& running) {
    const Expr& divisor = e.arg(1);
    if (mentions_any(divisor, running)) return std::nullopt;
    std::optional<Interval> i = interval_of(e.arg(0), running);
    const bool whole = i && whole_parts(*i, divisor);
    if (!whole && !at_least(divisor, 0)) return std::nullopt;
    if (i && quotient_span(*i, divisor).is_int(0)) return Interval{mod(i->begin, divisor), i->span};
    if (whole) return Interval{0, divisor - 1};
    return Interval{0, max(divisor - 1, 0)};
}

std::optional<Interval> smallest_or_largest(const Expr& e, const Extents& running) {
    std::optional<Interval> all;
    bool smallest = e.is(ExprKind::Min);
    for (const Expr& arg : e.args()) {
        std::optional<Interval> i = interval_of(arg, running);
        if (!i) return std::nullopt;
        if (!all) {
            all = i;
            continue;
        }
        Expr begin = smallest ? min(all->begin, i->begin) : max(all->begin, i->begin);
        Expr last = smallest ? min(all->last(), i->last()) : max(all->last(), i->last());
        Expr span = last - begin;
        if (!span.as_int()) {
            Expr most = max(all->span, i->span);
            if (most.as_int()) span = most;
        }
        all = Interval{begin, span};
    }
    return all;
}

// Atoms of one kind that stand in a sum with a coefficient of that sign.
const Expr* find_atom(const Expr& sum, ExprKind kind, bool positive) {
    for (const Expr& term : terms_of(sum)) {
        Monomial m = as_monomial(term);
        if (m.count == 1 && m.atoms[0].is(kind) && (m.coefficient > 0) == positive) return &m.atoms[0];
    }
    return nullptr;
}

Expr replace(const Expr& sum, const Expr& atom, const Expr& by) {
    return rewrite(sum, [&](const Expr& e) { return e.same(atom) ? by : e; });
}

// The innermost variable that e mentions: none that is mentioned too has an extent in which it stands.
std::optional<std::string> innermost(const Expr& e, const Extents& running) {
    std::vector<std::string> names;
    for (std::string& name : free_symbols(e))
        if (running.contains(name)) names.push_back(std::move(name));
    for (const std::string& name : names)
        if (std::none_of(names.begin(), names.end(),
                         [&](const std::string& other) { return other != name && mentions(running.at(other), name); }))
            return name;
    return std::nullopt;
}

// Whether the atom is a term of e, but for its coefficient, and in no other.
bool stands_alone(const Expr& atom, const Expr& e) {
    bool elsewhere = false;
    for (const Expr& term : terms_of(e)) {
        Monomial m = as_monomial(term);
        if (m.count == 1 && m.atoms[0].same(atom)) continue;
        visit(term, [&](const Expr& x) { elsewhere |= x.same(atom); });
    }
    return !elsewhere;
}

// Whether e <= limit for all values of the running variables. An arm of a min is chosen before the variables in it get
// their ends, since those are what makes one arm the smaller.
class UpperBounds {
  public:
    explicit UpperBounds(const Extents& running) : running_(running) {}

    bool stays_below(const Expr& e, int64_t limit, int arms) {
        if (at_most(e, limit)) return true;
        // What could not be shown with as many arms is not tried again: many ways lead to the same sum.
        const auto tried = failed_.find(e);
        if (tried != failed_.end() && limit <= tried->second.first && arms <= tried->second.second) return false;
        if (shown(e, limit, arms)) return true;
        failed_.insert_or_assign(e, std::pair{limit, arms});
        return false;
    }

  private:
    bool shown(const Expr& e, int64_t limit, int arms) {
        if (arms > 0) {
            for (auto [kind, positive] : {std::pair{ExprKind::Min, true}, std::pair{ExprKind::Max, false}})
                if (const Expr* atom = find_atom(e, kind, positive)) {
                    auto with = [&](const Expr& arm) { return stays_below(replace(e, *atom, arm), limit, arms - 1); };
                    // Any arm is a bound, but of this term alone: elsewhere the atom may count the other way.
                    return stands_alone(*atom, e) ? std::any_of(atom->args().begin(), atom->args().end(), with)
                                                  : std::all_of(atom->args().begin(), atom->args().end(), with);
                }
            for (auto [kind, positive] : {std::pair{ExprKind::Max, true}, std::pair{ExprKind::Min, false}})
                if (const Expr* atom = find_atom(e, kind, positive))
                    return std::all_of(atom->args().begin(), atom->args().end(), [&](const Expr& arm) {
                        return stays_below(replace(e, *atom, arm), limit, arms - 1);
                    });
        }
        if (std::optional<std::string> name = innermost(e, running_)) {
            std::optional<Interval> i = interval_of(e, {{*name, running_.at(*name)}});
            if (i && !mentions(i->last(), *name) && stays_below(i->last(), limit, arms)) return true;
        }
        if (arms == 0) return false;
        // x - d + 1 <= d * floordiv(x, d) <= x.
        for (const Expr& term : terms_of(e)) {
            Monomial m = as_monomial(term);
            if (m.count != 1 || !m.atoms[0].is(ExprKind::FloorDiv)) continue;
            std::optional<int64_t> d = m.atoms[0].arg(1).as_int();
            if (!d || *d <= 0 || *d > kMaxScale) continue;
            if (m.coefficient % *d != 0) {  // e <= limit where c*e <= c*limit + c - 1
                int64_t c = *d / gcd_of(*d, m.coefficient);
                if (limit > -kMaxScale && limit < kMaxScale && stays_below(e * c, limit * c + c - 1, arms - 1))
                    return true;
                continue;
            }
            Expr x = m.atoms[0].arg(0);
            Expr bound = m.coefficient > 0 ? x : x - (*d - 1);
            if (stays_below(e - term + (m.coefficient / *d) * bound, limit, arms - 1)) return true;
        }
        return false;
    }

    const Extents& running_;
    std::unordered_map<Expr, std::pair<int64_t, int>, ExprHash> failed_;  // below what, and with how many arms
};

// The condition as difference > 0 (or >= 1).
std::optional<Expr> as_positive(const Expr& condition) {
    if (!condition.is(ExprKind::Lt) && !condition.is(ExprKind::Le)) return std::nullopt;
    if (condition.arg(0).dtype() != DType::i64) return std::nullopt;
    Expr difference = condition.arg(1) - condition.arg(0);
    return condition.is(ExprKind::Lt) ? difference : difference + 1;
}

std::optional<Expr> holds(const Expr& condition, const Extents& running, bool for_all) {
    if (!mentions_any(condition, running)) return condition;
    if (condition.is(ExprKind::And) || (condition.is(ExprKind::Or) && !for_all)) {
        std::optional<Expr> a = holds(condition.arg(0), running, for_all);
        std::optional<Expr> b = holds(condition.arg(1), running, for_all);
        if (!a || !b) return std::nullopt;
        return condition.is(ExprKind::And) ? logical_and(*a, *b) : logical_or(*a, *b);
    }
    std::optional<Expr> difference = as_positive(condition);
    if (!difference) return std::nullopt;
    // Innermost first: extents mention outer variables.
    Expr end = *difference;
    while (mentions_any(end, running)) {
        std::optional<std::string> name = innermost(end, running);
        if (!name) return std::nullopt;
        std::optional<Interval> i = interval_of(end, {{*name, running.at(*name)}});
        if (!i) return std::nullopt;
        end = for_all ? i->begin : i->last();
        if (mentions(end, *name)) return std::nullopt;
    }
    return lt(0, end);
}

// var's coefficient in a sum, and the rest; empty where var stands anywhere else.
struct Linear {
    int64_t coefficient;
    Expr rest;
};
std::optional<Linear> linear_in(const Expr& e, const Expr& var) {
    for (const Expr& term : terms_of(e)) {
        Monomial m = as_monomial(term);
        if (m.count != 1 || !m.atoms[0].same(var)) continue;
        Expr rest = e - term;
        if (mentions(rest, var.node().name)) return std::nullopt;
        return Linear{m.coefficient, rest};
    }
    return std::nullopt;
}

}  // namespace

bool mentions(const Expr& e, const std::string& name) {
    bool found = false;
    visit(e, [&](const Expr& x) { found |= x.is(ExprKind::Var) && x.node().name == name; });
    return found;
}

bool mentions_any(const Expr& e, const Extents& names) {
    bool found = false;
    visit(e, [&](const Expr& x) { found |= x.is(ExprKind::Var) && names.contains(x.node().name); });
    return found;
}

std::optional<Interval> interval_of(const Expr& e, const Extents& running) {
    if (e.dtype() != DType::i64) return std::nullopt;
    if (!mentions_any(e, running)) {
        if (e.node().reads) return std::nullopt;
        return Interval{e, 0};
    }
    switch (e.kind()) {
        case ExprKind::Var: return Interval{0, running.at(e.node().name) - 1};
        case ExprKind::Add: {
            Interval sum{0, 0};
            for (const Expr& term : e.args()) {
                std::optional<Interval> i = interval_of(term, running);
                if (!i) return std::nullopt;
                sum = {sum.begin + i->begin, sum.span + i->span};
            }
            return sum;
        }
        case ExprKind::Mul: return product(e, running);
        case ExprKind::FloorDiv: return divided(e, running);
        case ExprKind::Mod: return remainder(e, running);
        case ExprKind::Min:
        case ExprKind::Max: return smallest_or_largest(e, running);
        case ExprKind::Select: {
            std::optional<Interval> a = interval_of(e.arg(1), running), b = interval_of(e.arg(2), running);
            if (!a || !b) return std::nullopt;
            return unite(*a, *b);
        }
        default: break;
    }
    Bounds b = bounds(e);
    if (!b.low || !b.high) return std::nullopt;
    return Interval{*b.low, *b.high - *b.low};
}

Interval unite(const Interval& a, const Interval& b) {
    if (a.begin.same(b.begin)) return {a.begin, max(a.span, b.span)};
    Expr begin = min(a.begin, b.begin);
    return {begin, max(a.last(), b.last()) - begin};
}

bool always(const Expr& condition, const Extents& running) {
    if (condition.is(ExprKind::Const)) return condition.node().integer != 0;
    if (condition.is(ExprKind::And)) return always(condition.arg(0), running) && always(condition.arg(1), running);
    if (condition.is(ExprKind::Or)) return always(condition.arg(0), running) || always(condition.arg(1), running);
    std::optional<Expr> difference = as_positive(condition);
    if (!difference) return false;
    return UpperBounds(running).stays_below(-*difference, -1, kMaxArms);
}

bool never(const Expr& condition, const Extents& running) {
    if (condition.is(ExprKind::Const)) return condition.node().integer == 0;
    if (condition.is(ExprKind::And)) return never(condition.arg(0), running) || never(condition.arg(1), running);
    if (condition.is(ExprKind::Or)) return never(condition.arg(0), running) && never(condition.arg(1), running);
    if (!as_positive(condition)) return false;
    return always(logical_not(condition), running);
}

std::optional<Expr> holds_for_any(const Expr& condition, const Extents& running) {
    return holds(condition, running, false);
}

std::optional<Expr> holds_for_all(const Expr& condition, const Extents& running) {
    return holds(condition, running, true);
}

std::optional<Expr> solve_upper(const Expr& condition, const Expr& var) {
    std::optional<Expr> difference = as_positive(condition);
    if (!difference) return std::nullopt;
    std::optional<Linear> l = linear_in(*difference, var);
    if (!l || l->coefficient >= 0 || l->coefficient == INT64_MIN) return std::nullopt;
    return ceil_div(l->rest, -l->coefficient);  // rest - c*var > 0
}

std::optional<Expr> solve_lower(const Expr& condition, const Expr& var) {
    std::optional<Expr> difference = as_positive(condition);
    if (!difference) return std::nullopt;
    std::optional<Linear> l = linear_in(*difference, var);
    if (!l || l->coefficient <= 0) return std::nullopt;
    return floor_div(-l->rest, l->coefficient) + 1;  // c*var + rest > 0
}

std::vector<Expr> conjuncts(const Expr& condition) {
    if (!condition.is(ExprKind::And)) return {condition};
    std::vector<Expr> all;
    for (const Expr& side : condition.args())
        for (Expr& e : conjuncts(side)) all.push_back(std::move(e));
    return all;
}

bool chooses_inside(const Expr& value, const Expr& load, size_t d, const Expr& extent) {
    std::vector<Expr> known;
    // `room` is at least 0: by itself, or since that of a known bound is no more.
    auto holds = [&](const Expr& room) {
        auto implies = [&](const Expr& k) {
            if (!k.is(ExprKind::Lt) && !k.is(ExprKind::Le)) return false;
            return always(le(k.arg(1) - k.arg(0) - (k.is(ExprKind::Lt) ? 1 : 0), room), {});
        };
        return always(le(0, room), {}) || std::any_of(known.begin(), known.end(), implies);
    };
    std::function<bool(const Expr&)> look = [&](const Expr& e) {
        if (e == load) return holds(load.arg(d)) && holds(extent - 1 - load.arg(d));
        if (!e.node().reads) return true;
        if (!e.is(ExprKind::Select)) return std::all_of(e.args().begin(), e.args().end(), look);
        const size_t before = known.size();
        for (const Expr& c : conjuncts(e.arg(0))) known.push_back(c);
        const bool chosen = look(e.arg(1));
        known.resize(before);
        return chosen && look(e.arg(0)) && look(e.arg(2));
    };
    return look(value);
}

}  // namespace tessera
