#include "discover/check/check_definedness.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "discover/check/check_statement.h"
#include "discover/check/check_unify.h"

namespace tessera {
namespace checker {
namespace {

constexpr int kDepth = 6;           // of cases
constexpr int kSearch = 4000;       // steps
constexpr double kDrowning = 2048;  // a number of 16 bits has 11 digits at most

// What is certain of a number's sign.
struct Sign {
    bool at_least_zero = false, above_zero = false, at_most_zero = false, below_zero = false;
    static Sign of(double x) { return {x >= 0, x > 0, x <= 0, x < 0}; }
    Sign opposite() const { return {at_most_zero, below_zero, at_least_zero, above_zero}; }
};

Sign either(const Sign& a, const Sign& b) {
    return {a.at_least_zero && b.at_least_zero, a.above_zero && b.above_zero, a.at_most_zero && b.at_most_zero,
            a.below_zero && b.below_zero};
}

Sign sum_of(const Sign& a, const Sign& b) {
    Sign s;
    s.at_least_zero = a.at_least_zero && b.at_least_zero;
    s.above_zero = s.at_least_zero && (a.above_zero || b.above_zero);
    s.at_most_zero = a.at_most_zero && b.at_most_zero;
    s.below_zero = s.at_most_zero && (a.below_zero || b.below_zero);
    return s;
}

Sign product_of(const Sign& a, const Sign& b) {
    Sign s;
    s.at_least_zero = (a.at_least_zero && b.at_least_zero) || (a.at_most_zero && b.at_most_zero);
    s.above_zero = (a.above_zero && b.above_zero) || (a.below_zero && b.below_zero);
    s.at_most_zero = (a.at_least_zero && b.at_most_zero) || (a.at_most_zero && b.at_least_zero);
    s.below_zero = (a.above_zero && b.below_zero) || (a.below_zero && b.above_zero);
    return s;
}

class Definedness {
  public:
    Definedness(Names& names, Conjunction base, std::vector<Demand> evidence)
        : names_(names), base_(std::move(base)), evidence_(std::move(evidence)) {}

    // What the left side asks for holds wherever it is a number, unless something lenient stands around it.
    void learn(const Expr& left) {
        std::vector<Demand> all = demands_of(names_, left);
        on_the_left_ = all;
        for (bool again = true; std::exchange(again, false);)
            for (const Demand& d : all) again = (d.inside.empty() && learn_size(d)) || again;
        for (Demand& d : all) {
            for (const Lenient& l : d.inside) lenient_.push_back({l, &l != &d.inside[0]});
            if (d.inside.empty()) learn(std::move(d));
        }
    }

    // Empty, or what may not be a number.
    std::string missing(const Expr& right) {
        const std::vector<Demand> demands = demands_of(names_, right);
        if (const Demand* lost = decision_lost(demands))
            return "the left side decides by what may be no number: " + text_of(*lost);
        for (const Demand& d : demands) {
            Conjunction facts = base_;
            facts.insert(facts.end(), d.scope.where.begin(), d.scope.where.end());
            if (holds(d.need, d.what, d.function, d.scope, facts, kDepth)) continue;
            if (!d.inside.empty() && stands_on_the_left(d.inside[0])) continue;
            return text_of(d);
        }
        return {};
    }

  private:
    Names& names_;
    Conjunction base_;
    std::vector<Demand> evidence_;
    std::vector<std::pair<Lenient, bool>> lenient_;  // on the left; whether another stands around it
    std::vector<Demand> on_the_left_;
    int steps_ = 0;

    static bool decides(const Lenient& l) {
        return l.kind == "choice" || l.kind == fn_name(Fn::IsNan) || l.kind == fn_name(Fn::IsInf);
    }

    // A comparison has an answer also where what it compares is no number, and equality of numbers says nothing of that
    // answer: the right side must ask the same.
    const Demand* decision_lost(const std::vector<Demand>& right) {
        for (const Demand& d : on_the_left_) {
            auto unit = std::find_if(d.inside.begin(), d.inside.end(), decides);
            if (unit == d.inside.end()) continue;
            Conjunction facts = base_;
            facts.insert(facts.end(), d.scope.where.begin(), d.scope.where.end());
            if (holds(d.need, d.what, d.function, d.scope, facts, kDepth)) continue;
            const bool kept = std::any_of(right.begin(), right.end(), [&](const Demand& other) {
                return std::any_of(other.inside.begin(), other.inside.end(), [&](const Lenient& theirs) {
                    if (theirs.kind != unit->kind) return false;
                    Unifier unifier(names_, facts, theirs.scope);
                    if (!unifier.same(theirs.argument, unit->argument)) return false;
                    return std::all_of(theirs.scope.where.begin(), theirs.scope.where.end(), [&](const Whole& g) {
                        std::optional<Whole> here = unifier.chosen(g);
                        return here && follows(facts, *here);
                    });
                });
            });
            if (!kept) return &d;
        }
        return nullptr;
    }

    static std::string text_of(const Demand& d) {
        std::string what = to_string(d.what);
        if (what.size() > 60) what = what.substr(0, 57) + "...";
        switch (d.need) {
            case Need::NotZero:
                return fmt::format("it divides by {}, which may be 0 where the left side is a number", what);
            case Need::NotNegative: return fmt::format("it takes a root of {}, which may be negative", what);
            case Need::Positive:
                return fmt::format("it takes a logarithm or power of {}, which may not be positive", what);
            case Need::NotEmpty: return fmt::format("{} may be of nothing", what);
            case Need::Domain: return fmt::format("{} may not be defined", what);
        }
        return what;
    }

    // A size that the left side divides by, somewhere, is at least 1. True where that is new.
    bool learn_size(const Demand& d) {
        if (d.need != Need::NotZero || !d.what.is(ExprKind::Cast)) return false;
        if (d.what.arg(0).dtype() != DType::i64 || d.what.arg(0).node().reads) return false;
        std::map<int, Whole> first;
        for (const std::string& v : d.scope.variables) first.emplace(names_.find(v), Whole{});
        for (const Whole& g : d.scope.where)
            if (!follows(base_, names_.replace(g, first))) return false;
        const Whole size = names_.replace(names_.read(d.what.arg(0)), first);
        const Whole more = plus(size, constant_whole(-1));
        if (!follows(base_, size) || follows(base_, more)) return false;
        base_.push_back(more);
        return true;
    }

    // A demand that is met says the same of its parts.
    void learn(Demand d) {
        if (evidence_.size() > 500) return;
        if (d.need == Need::NotZero) {
            const Factors f = factors_of(d.what);
            if (f.above.size() + f.below.size() != 1 || !f.below.empty() || !(f.above[0] == d.what)) {
                for (const Expr& e : f.above) learn({Need::NotZero, e, {}, d.scope, {}});
                return;
            }
            if (d.what.is(ExprKind::Call) && d.what.node().fn == Fn::Sqrt)
                learn({Need::Positive, d.what.arg(0), {}, d.scope, {}});
            if (d.what.is(ExprKind::Call) && d.what.node().fn == Fn::Abs)
                learn({Need::NotZero, d.what.arg(0), {}, d.scope, {}});
        }
        if (d.what.is(ExprKind::Select) && is_of_indices(d.what.arg(0))) {
            for (bool holds : {true, false})
                for (const Conjunction& c : names_.read(d.what.arg(0), holds)) {
                    Scope scope = d.scope;
                    scope.where.insert(scope.where.end(), c.begin(), c.end());
                    learn({d.need, d.what.arg(holds ? 1 : 2), d.function, scope, {}});
                }
            return;
        }
        evidence_.push_back(std::move(d));
    }

    static bool gives(Need known, Need wanted) {
        return known == wanted || (known == Need::Positive && (wanted == Need::NotZero || wanted == Need::NotNegative));
    }

    bool follows(const Conjunction& facts, const Whole& p) {
        if (++steps_ > kSearch) throw Refused{"whether the right side is defined takes too many steps"};
        return names_.follows(facts, p);
    }

    // Whether something that was learnt says so, in all cases that the facts leave.
    template <typename Try>
    bool in_all_cases(const Conjunction& facts, int depth, const std::vector<Whole>& guards, size_t from,
                      const Try& again) {
        for (size_t i = from; i < guards.size(); ++i) {
            if (follows(facts, guards[i])) continue;
            if (depth == 0) return false;
            Conjunction yes = facts, no = facts;
            yes.push_back(guards[i]);
            no.push_back(plus(constant_whole(-1), guards[i], -1));
            if (names_.impossible(yes)) return false;
            return in_all_cases(yes, depth - 1, guards, i + 1, again) &&
                   (names_.impossible(no) || again(no, depth - 1));
        }
        return true;
    }

    bool is_learnt(Need need, const Expr& what, const std::string& function, const Conjunction& facts, int depth) {
        for (const Demand& known : evidence_) {
            if (!gives(known.need, need) || known.function != function) continue;
            Unifier unifier(names_, facts, known.scope);
            if (!unifier.same(known.what, what)) continue;
            std::vector<Whole> guards;
            bool all = true;
            for (const Whole& g : known.scope.where) {
                std::optional<Whole> here = unifier.chosen(g);
                if (!here) all = false;
                if (here) guards.push_back(*here);
            }
            if (all && in_all_cases(facts, depth, guards, 0, [&](const Conjunction& rest, int left) {
                    return is_learnt(need, what, function, rest, left);
                }))
                return true;
        }
        return false;
    }

    bool holds(Need need, const Expr& what, const std::string& function, const Scope& scope, const Conjunction& facts,
               int depth) {
        if (++steps_ > kSearch) throw Refused{"whether the right side is defined takes too many steps"};
        if (names_.impossible(facts)) return true;
        if (what.is(ExprKind::Select) && is_of_indices(what.arg(0)) && need != Need::NotEmpty) {
            for (bool yes : {true, false})
                for (const Conjunction& c : names_.read(what.arg(0), yes)) {
                    Conjunction here = facts;
                    here.insert(here.end(), c.begin(), c.end());
                    if (!holds(need, what.arg(yes ? 1 : 2), function, scope, here, depth)) return false;
                }
            return true;
        }
        if (is_learnt(need, what, function, facts, depth)) return true;
        if (need == Need::NotZero && what.is(ExprKind::Sub) &&  // a - b and b - a
            is_learnt(need, what.arg(1) - what.arg(0), function, facts, depth))
            return true;
        if (need == Need::Domain) return false;
        if (need == Need::NotEmpty) return has_a_point(what, scope, facts, depth);
        const Sign s = sign(what, facts);
        if (need == Need::Positive) return s.above_zero;
        if (need == Need::NotNegative) return s.at_least_zero;
        if (s.above_zero || s.below_zero) return true;
        const Factors f = factors_of(what);
        if (f.above.size() != 1 || !(f.above[0] == what))
            return !is_zero(what) && std::all_of(f.above.begin(), f.above.end(), [&](const Expr& e) {
                return holds(Need::NotZero, e, {}, scope, facts, depth);
            });
        if (what.is(ExprKind::Pow)) return holds(Need::NotZero, what.arg(0), {}, scope, facts, depth);
        if (!what.is(ExprKind::Call)) return false;
        if (what.node().fn == Fn::Sqrt) return holds(Need::Positive, what.arg(0), {}, scope, facts, depth);
        return what.node().fn == Fn::Abs && holds(Need::NotZero, what.arg(0), {}, scope, facts, depth);
    }

    static bool is_zero(const Expr& e) { return e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real == 0; }

    Sign learnt_sign(const Expr& e, const Conjunction& facts) {
        Sign s;
        s.above_zero = is_learnt(Need::Positive, e, {}, facts, 0);
        s.at_least_zero = s.above_zero || is_learnt(Need::NotNegative, e, {}, facts, 0);
        return s;
    }

    Sign sign(const Expr& e, const Conjunction& facts) {
        if (++steps_ > kSearch) throw Refused{"whether the right side is defined takes too many steps"};
        const Sign learnt = learnt_sign(e, facts);
        if (learnt.at_least_zero) return learnt;
        switch (e.kind()) {
            case ExprKind::Const: return Sign::of(is_float(e.dtype()) ? e.node().real : double(e.node().integer));
            case ExprKind::Cast: {
                if (e.arg(0).dtype() != DType::i64 || e.arg(0).node().reads)
                    return is_float(e.arg(0).dtype()) ? sign(e.arg(0), facts) : Sign();
                const Whole p = names_.read(e.arg(0));
                Sign s;
                s.above_zero = follows(facts, plus(p, constant_whole(-1)));
                s.at_least_zero = s.above_zero || follows(facts, p);
                return s;
            }
            case ExprKind::Add: return sum_of(sign(e.arg(0), facts), sign(e.arg(1), facts));
            case ExprKind::Sub: return sum_of(sign(e.arg(0), facts), sign(e.arg(1), facts).opposite());
            case ExprKind::Neg: return sign(e.arg(0), facts).opposite();
            case ExprKind::Mul:
                if (e.arg(0) == e.arg(1)) return {true, is_learnt(Need::NotZero, e.arg(0), {}, facts, 0), false, false};
                [[fallthrough]];
            case ExprKind::Div: return product_of(sign(e.arg(0), facts), sign(e.arg(1), facts));
            case ExprKind::Pow: {
                const Expr& n = e.arg(1);
                if (sign(e.arg(0), facts).above_zero) return {true, true, false, false};
                const bool even = n.is(ExprKind::Const) && is_float(n.dtype()) && std::fmod(n.node().real, 2) == 0;
                return {even && n.node().real > 0, false, false, false};
            }
            case ExprKind::Call: return sign_of_function(e, facts);
            case ExprKind::Max:
            case ExprKind::Min: {
                const bool flip = e.is(ExprKind::Min);
                Sign a = sign(e.arg(0), facts), b = sign(e.arg(1), facts);
                if (flip) a = a.opposite(), b = b.opposite();
                const Sign s{a.at_least_zero || b.at_least_zero, a.above_zero || b.above_zero,
                             a.at_most_zero && b.at_most_zero, a.below_zero && b.below_zero};
                return flip ? s.opposite() : s;
            }
            case ExprKind::Select: return sign_of_choice(e, facts);
            case ExprKind::Reduce: return sign_of_reduction(e, facts);
            default: return {};
        }
    }

    Sign sign_of_function(const Expr& e, const Conjunction& facts) {
        switch (e.node().fn) {
            case Fn::Exp:
            case Fn::Cosh: return {true, true, false, false};
            case Fn::Sqrt:
            case Fn::Abs: {
                const Sign inner = sign(e.arg(0), facts);
                return {true, inner.above_zero || (e.node().fn == Fn::Abs && inner.below_zero), false, false};
            }
            case Fn::Tanh:
            case Fn::Erf:
            case Fn::Atan:
            case Fn::Sinh:
            case Fn::Asinh:
            case Fn::Expm1:
            case Fn::Sign: return sign(e.arg(0), facts);
            default: return {};
        }
    }

    Sign sign_of_choice(const Expr& e, const Conjunction& facts) {
        if (!is_of_indices(e.arg(0))) return either(sign(e.arg(1), facts), sign(e.arg(2), facts));
        std::optional<Sign> all;
        for (bool yes : {true, false})
            for (const Conjunction& c : names_.read(e.arg(0), yes)) {
                Conjunction here = facts;
                here.insert(here.end(), c.begin(), c.end());
                if (names_.impossible(here)) continue;
                const Sign s = sign(e.arg(yes ? 1 : 2), here);
                all = all ? either(*all, s) : s;
            }
        return all.value_or(Sign());
    }

    Sign sign_of_reduction(const Expr& e, const Conjunction& facts) {
        Conjunction here = facts;
        bool some = true;
        for (const ReduceAxis& axis : e.node().axes) {
            const Whole v{{{names_.declare(axis.var.node().name, Names::Kind::Variable)}, 1}};
            const Whole last = plus(names_.read(axis.extent), constant_whole(-1));
            some = some && follows(facts, last);
            here.push_back(v);
            here.push_back(plus(last, v, -1));
        }
        const Sign s = sign(e.arg(0), here);
        switch (e.node().reduce_op) {
            case ReduceOp::Sum: return {s.at_least_zero, s.above_zero && some, s.at_most_zero, s.below_zero && some};
            case ReduceOp::Prod: return {s.at_least_zero, s.above_zero, false, false};
            default: return some ? s : Sign();
        }
    }

    // A point that is certain to be there, or one for each that the left side's extremum may have.
    bool has_a_point(const Expr& extreme, const Scope& scope, const Conjunction& facts, int depth) {
        if (names_.impossible(facts)) return true;
        const std::vector<Point> points = points_of(names_, extreme, scope);
        for (const Point& p : points)
            if (is_at_a_number(p, extreme, scope, facts, depth) || is_there(p, scope, facts)) return true;
        for (const Demand& known : evidence_) {
            if (known.need != Need::NotEmpty || is_largest(known.what) != is_largest(extreme)) continue;
            if (known.scope.variables.size() > scope.variables.size()) continue;
            std::map<int, Whole> by;  // its variables as ours, in order
            for (size_t i = 0; i < known.scope.variables.size(); ++i)
                by.emplace(names_.declare(known.scope.variables[i], Names::Kind::Variable),
                           Whole{{{names_.declare(scope.variables[i], Names::Kind::Variable)}, 1}});
            std::vector<Whole> guards;
            Conjunction where = facts;
            for (const Whole& g : known.scope.where) {
                guards.push_back(names_.replace(g, by));
                where.push_back(guards.back());
            }
            bool all = !names_.impossible(where);
            for (const Point& theirs : points_of(names_, known.what, known.scope)) {
                if (!all) break;
                Conjunction here = where;
                for (const Whole& g : theirs.scope.where) here.push_back(names_.replace(g, by));
                all = names_.impossible(here) || std::any_of(points.begin(), points.end(), [&](const Point& mine) {
                          return is_at(mine, scope, theirs, known.scope, by, here);
                      });
            }
            if (all && in_all_cases(facts, depth, guards, 0, [&](const Conjunction& rest, int left) {
                    return has_a_point(extreme, scope, rest, left);
                }))
                return true;
        }
        return false;
    }

    // With small numbers for its variables; what then depends on none of them, case by case.
    bool is_at_a_number(const Point& point, const Expr& extreme, const Scope& outer, const Conjunction& facts,
                        int depth) {
        const size_t first = outer.variables.size(), count = point.scope.variables.size() - first;
        constexpr size_t kMost = 2;  // variables with numbers of their own; more have one number
        const int codes = count <= kMost ? 1 << (2 * count) : 4;
        for (int code = 0; code < codes; ++code) {
            std::map<int, Whole> by;
            for (size_t i = 0; i < count; ++i)
                by.emplace(names_.declare(point.scope.variables[first + i], Names::Kind::Variable),
                           constant_whole(count <= kMost ? (code >> (2 * i)) % 4 : code));
            std::vector<Whole> cases;
            bool possible = true;
            for (size_t i = outer.where.size(); possible && i < point.scope.where.size(); ++i) {
                const Whole& g = point.scope.where[i];
                const Whole now = names_.replace(g, by);
                if (follows(facts, now)) continue;
                possible = now == g && depth > 0;
                cases.push_back(now);
            }
            if (possible && in_all_cases(facts, depth, cases, 0, [&](const Conjunction& rest, int left) {
                    return has_a_point(extreme, outer, rest, left);
                }))
                return true;
        }
        return false;
    }

    // With 0, or what its conditions say is least, for its variables.
    bool is_there(const Point& point, const Scope& outer, const Conjunction& facts) {
        std::map<int, Whole> by;
        for (size_t i = outer.variables.size(); i < point.scope.variables.size(); ++i) {
            const int v = names_.declare(point.scope.variables[i], Names::Kind::Variable);
            by.emplace(v, Whole{});
        }
        for (int round = 0; round < 8; ++round) {
            bool all = true;
            for (size_t i = outer.where.size(); i < point.scope.where.size(); ++i) {
                const Whole g = names_.replace(point.scope.where[i], by);
                if (follows(facts, g)) continue;
                all = false;
                // g + v >= 0 for one of the variables: take the least v.
                bool moved = false;
                for (auto& [v, value] : by) {
                    auto c = point.scope.where[i].find({v});
                    if (c == point.scope.where[i].end() || c->second != 1) continue;
                    value = plus(value, g, -1);
                    moved = true;
                    break;
                }
                if (!moved) return false;
                break;
            }
            if (all) return true;
        }
        return false;
    }

    bool is_at(const Point& mine, const Scope& outer, const Point& theirs, const Scope& around,
               const std::map<int, Whole>& by, const Conjunction& facts) {
        Scope open;
        open.variables.assign(mine.scope.variables.begin() + static_cast<std::ptrdiff_t>(outer.variables.size()),
                              mine.scope.variables.end());
        Bindings renamed;
        for (size_t i = 0; i < around.variables.size(); ++i)
            renamed.emplace(
                around.variables[i],
                index_var(names_.at(by.at(names_.find(around.variables[i])).begin()->first[0]).name, std::nullopt));
        const Expr there = substitute(theirs.value, renamed);
        const size_t inner = theirs.scope.variables.size() - around.variables.size();
        for (bool in_order : {false, true}) {
            if (in_order && inner != open.variables.size()) break;
            Unifier unifier(names_, facts, open);
            for (size_t i = 0; in_order && i < inner; ++i) {
                const std::string& name = theirs.scope.variables[around.variables.size() + i];
                unifier.choose(open.variables[i], {{{names_.declare(name, Names::Kind::Variable)}, 1}});
            }
            if (!unifier.same(mine.value, there)) continue;
            bool all = true;
            for (size_t i = outer.where.size(); all && i < mine.scope.where.size(); ++i) {
                std::optional<Whole> g = unifier.chosen(mine.scope.where[i]);
                all = g && follows(facts, *g);
            }
            if (all) return true;
        }
        return false;
    }

    // The same function of the same argument, with nothing lenient around it.
    bool stands_on_the_left(const Lenient& mine) {
        Conjunction facts = base_;
        facts.insert(facts.end(), mine.scope.where.begin(), mine.scope.where.end());
        std::function<bool(const Conjunction&, int)> found = [&](const Conjunction& here, int depth) {
            for (const auto& [theirs, nested] : lenient_) {
                if (nested || theirs.kind != mine.kind) continue;
                Unifier unifier(names_, here, theirs.scope);
                if (!unifier.same(theirs.argument, mine.argument)) continue;
                std::vector<Whole> guards;
                bool all = true;
                for (const Whole& g : theirs.scope.where) {
                    std::optional<Whole> now = unifier.chosen(g);
                    if (!now) all = false;
                    if (now) guards.push_back(*now);
                }
                if (all && in_all_cases(here, depth, guards, 0, found)) return true;
            }
            return false;
        };
        return found(facts, kDepth);
    }
};

// The largest number that a side adds or multiplies with, and 1.
double largest_number(const Rule& rule, bool right) {
    double largest = 1;
    std::function<void(const Term&)> walk = [&](const Term& t) {
        if (t.form == Term::Form::Number && std::isfinite(t.number)) largest = std::max(largest, std::fabs(t.number));
        if (t.form != Term::Form::Op) return;
        for (const Term& a : t.args) walk(a);
    };
    for (const Term& t : right ? rule.replacement : rule.pattern) walk(t);
    if (right)
        for (const auto& [slot, t] : rule.lets) walk(t);
    return largest;
}

// What the rule's own conditions say of elements.
std::vector<Demand> said_of_elements(const Claim& claim, Names& names) {
    std::vector<Demand> out;
    int slot = 0;
    std::map<std::string, int> slots;
    for (const RuleVariable& v : claim.rule.variables)
        if (claim.shapes.contains(v.name)) slots.emplace(v.name, slot++);
    auto say = [&](Need need, const Term& variable) {
        auto found = slots.find(variable.name);
        if (variable.form != Term::Form::Variable || found == slots.end()) return;
        Demand d{need, {}, {}, {}, {}};
        std::vector<Expr> at;
        for (int64_t i = 0; i < claim.shapes.at(variable.name).rank(); ++i) {
            d.scope.variables.push_back(fmt::format("_s{}", i));
            names.declare(d.scope.variables.back(), Names::Kind::Variable);
            at.push_back(index_var(d.scope.variables.back(), std::nullopt));
        }
        auto variable_of = std::find_if(claim.rule.variables.begin(), claim.rule.variables.end(),
                                        [&](const RuleVariable& v) { return v.name == variable.name; });
        d.what = load(found->second, element_type(claim.rule, *variable_of).value_or(DType::f32), at);
        out.push_back(std::move(d));
    };
    std::function<void(const Term&)> read = [&](const Term& c) {
        if (c.form != Term::Form::Call || c.args.empty()) return;
        if (c.name == "and")
            for (const Term& a : c.args) read(a);
        if (c.name == "invertible" || c.name == "power_of_two") say(Need::NotZero, c.args[0]);
        if (c.name == "non_negative") say(Need::NotNegative, c.args[0]);
        if (c.args.size() == 2 && c.args[0].form == Term::Form::Call && c.args[0].name == "number" &&
            c.args[1].form == Term::Form::Number) {
            const double n = c.args[1].number;
            if ((c.name == ">" && n >= 0) || ((c.name == ">=" || c.name == "==") && n > 0))
                say(Need::Positive, c.args[0].args[0]);
            else if ((c.name == ">=" || c.name == "==") && n == 0)
                say(Need::NotNegative, c.args[0].args[0]);
            else if ((c.name == "==" || c.name == "<=") && n < 0)
                say(Need::NotZero, c.args[0].args[0]);
        }
    };
    for (const Term& c : claim.rule.conditions) read(c);
    return out;
}

}  // namespace
}  // namespace checker

Status check_definedness(const Claim& claim, const std::vector<checker::Statement>& roots) {
    auto refused = [&](const std::string& why) { return Error(Code::E0305, "{}: {}", claim.rule.name, why); };
    if (checker::largest_number(claim.rule, true) > checker::kDrowning * checker::largest_number(claim.rule, false))
        return refused("the right side has a number so large that it drowns what it is added to");
    try {
        for (const checker::Statement& s : roots) {
            checker::Names names;
            checker::Conjunction base;
            for (int64_t d = 0; d < s.shape.rank(); ++d) {
                const int o = names.declare("_o" + std::to_string(d), checker::Names::Kind::Variable);
                base.push_back({{{o}, 1}});
                base.push_back(
                    checker::plus(checker::plus(names.read(s.shape[d]), checker::constant_whole(-1)), {{{o}, 1}}, -1));
            }
            std::vector<checker::Demand> said = checker::said_of_elements(claim, names);
            checker::Definedness definedness(names, std::move(base), std::move(said));
            definedness.learn(s.left);
            if (std::string missing = definedness.missing(s.right); !missing.empty())
                return refused("the right side may be undefined: " + missing);
        }
    } catch (const checker::Refused& found) {
        return refused("the right side may be undefined: " + found.why);
    }
    return {};
}

Status check_definedness(const Claim& claim) {
    const std::vector<checker::Statement> roots = TRY(checker::statements_of(claim));
    return check_definedness(claim, roots);
}

}  // namespace tessera
