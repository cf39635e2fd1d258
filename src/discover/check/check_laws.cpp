#include "discover/check/check_laws.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "discover/check/check_types.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

// Each is tried by the refuter in the tests. Exact ones hold for the bits of every type that is not excluded.
constexpr std::string_view kTotal = R"(
idempotent for f in (relu, abs, ceil, floor, round, sign): f(f(x)) => f(x)
even for f in (abs): f(neg(x:float)) => f(x)
abs-relu [reassociates]: abs(relu(x)) => relu(x)
twice-negative: neg(neg(x)) => x
twice-not: not(not(x)) => x
twice-bitwise-not: bitwise_not(bitwise_not(x)) => x
plus-integer-zero: add(x:int, 0) => x
minus-integer-zero: sub(x:int, 0) => x
plus-negative-zero: add(x:float, -0.0) => x
minus-zero: sub(x:float, 0.0) => x
plus-zero [reassociates]: add(x:float, 0.0) => x
minus-negative-zero [reassociates]: sub(x:float, -0.0) => x
times-one: mul(x, 1) => x
divided-by-one: div(x, 1) => x
to-the-first: pow(x:float, 1) => x
plus-opposite: add(x, neg(y)) => sub(x, y)
minus-opposite: sub(x, neg(y)) => add(x, y)
times-opposite: mul(x:float, neg(y)) => neg(mul(x, y))
times-minus-one: mul(x:float, -1) => neg(x)
divided-by-minus-one: div(x:float, -1) => neg(x)
from-negative-zero: sub(-0.0, x:float) => neg(x)
above-all: max(x:float, -inf) => x
below-all: min(x:float, inf) => x
double: add(x:float, x) => mul(x, 2)
one-over: div(1, x:float) => reciprocal(x)
by-power-of-two: div(x:float, c) => mul(x, reciprocal(c)) if power_of_two(c)
root [reassociates]: pow(x:float, 0.5) => sqrt(x)
inverse [reassociates]: pow(x:float, -1) => reciprocal(x)
root-of-square [reassociates]: sqrt(mul(x:float, x)) => abs(x)
exp-of-sum [reassociates]: exp(add(x:float, y)) => mul(exp(x), exp(y))
exp-of-difference [reassociates]: exp(sub(x:float, y)) => div(exp(x), exp(y))
log-by-exp [reassociates]: log(div(x:float, exp(y))) => sub(log(x), y)
by-root-of-two [reassociates]: erf(div(x:float, 1.4142135623730951)) => erf(mul(x, 0.7071067811865476))
sixth-within [reassociates]:
    min(max(add(mul(x:float, 0.16666666666666666), 0.5), 0), 1) => min(max(add(div(x, 6), 0.5), 0), 1)
by-sixth [reassociates]:
    mul(min(max(add(x:float, 3), 0), 6), 0.16666666666666666) => min(max(add(div(x, 6), 0.5), 0), 1)
product-by-sixth [reassociates]:
    mul(mul(x:float, min(max(add(x, 3), 0), 6)), 0.16666666666666666) => mul(x, min(max(add(div(x, 6), 0.5), 0), 1))
sixth-of-clipped [reassociates]:
    div(min(max(add(x:float, 3), 0), 6), 6) => min(max(add(div(x, 6), 0.5), 0), 1)
sixth-of-product [reassociates]:
    div(mul(x:float, min(max(add(x, 3), 0), 6)), 6) => mul(x, min(max(add(div(x, 6), 0.5), 0), 1))
cube [reassociates]: pow(x:float, 3) => mul(mul(x, x), x)
square [reassociates]: pow(x:float, 2) => mul(x, x)
or-false: or(x, 0) => x
and-true: and(x, 1) => x
where-not: where(not(c), x, y) => where(c, y, x)
round-odd: round(neg(x:float)) => neg(round(x))
greater-swapped: greater(a, b) => less(b, a)
at-least-swapped: greater_or_equal(a, b) => less_or_equal(b, a)
smaller-integer: where(less(x:int, y), x, y) => min(x, y)
larger-integer: where(less(y, x:int), x, y) => max(x, y)
not-less: not(less(a:int, b)) => greater_or_equal(a, b)
not-greater: not(greater(a:int, b)) => less_or_equal(a, b)
not-at-most: not(less_or_equal(a:int, b)) => greater(a, b)
not-at-least: not(greater_or_equal(a:int, b)) => less(a, b)
)";
// Where the numbers are numbers: NaN is neither less nor the smaller, and infinities do not cancel.
constexpr std::string_view kOfNumbers = R"(
absolute [reassociates]: max(x:float, neg(x)) => abs(x)
smaller [reassociates]: where(less(x:float, y), x, y) => min(x, y)
smaller-or-equal [reassociates]: where(less_or_equal(x:float, y), x, y) => min(x, y)
larger [reassociates]: where(less(y, x:float), x, y) => max(x, y)
larger-or-equal [reassociates]: where(less_or_equal(y, x:float), x, y) => max(x, y)
larger-by-rest [reassociates]: add(x:float, max(sub(y, x), 0)) => max(x, y)
larger-of-sums [reassociates]: max(add(x:float, z), add(y, z)) => add(max(x, y), z)
smaller-of-sums [reassociates]: min(add(x:float, z), add(y, z)) => add(min(x, y), z)
)";
// What the right side leaves out must be a number, have sizes that fit and be read within its sizes. The logarithm of
// exp(x) has the errors of 1, which x need not have.
constexpr std::string_view kWidening = R"(
times-integer-zero: mul(x:int, 0) => 0
or-true: or(x, 1) => 1
and-false: and(x, 0) => 0
where-true: where(1, x, y) => x
where-false: where(0, x, y) => y
where-same: where(c, x, x) => x
xor-twice: xor(xor(x, y), y) => x
xor-twice-swapped: xor(xor(y, x), y) => x
bits-twice: bitwise_xor(bitwise_xor(x, y), y) => x
bits-twice-swapped: bitwise_xor(bitwise_xor(y, x), y) => x
exp-of-log [reassociates]: exp(log(x:float)) => x
log-of-exp [reassociates]: log(exp(x:float)) => x
log-of-quotient [reassociates]: log(div(exp(x:float), y)) => sub(x, log(y))
times-zero [reassociates]: mul(x:float, 0) => 0
log-difference [reassociates]: sub(log(x:float), log(y)) => log(div(x, y))
product-of-roots [reassociates]: mul(sqrt(x:float), sqrt(y)) => sqrt(mul(x, y))
)";

class Rewriting {
  public:
    // With what is no number in its place the whole is none: not even for certain where zeros have the same sign, not
    // for certain, where it is NaN, or in any case.
    enum class Around { Signs, Any, NaN, Strict };

    Rewriting(const ElementRule& element, bool is_left) : element_(element) {
        types_ = types_of(element.rule);
        for (const Rule& law : laws().total) laws_.push_back({&law, Kind::Total});
        for (const Rule& law : laws().of_numbers) laws_.push_back({&law, Kind::OfNumbers});
        if (!is_left) return;
        for (const Rule& law : laws().widening) laws_.push_back({&law, Kind::Widening});
    }
    Exactness least = Exactness::Exact;

    // What a term becomes depends on nothing but the term and what is around it: each is rewritten once.
    Term run(const Term& t, Around around) {
        const std::pair<std::string, Around> key(ordered_text(t, element_.rule), around);
        if (auto known = done_.find(key); known != done_.end()) return known->second;
        Term out = rewritten(t, around);
        done_.emplace(std::pair(ordered_text(out, element_.rule), around), out);
        return done_.insert_or_assign(key, std::move(out)).first->second;
    }

  private:
    const ElementRule& element_;
    enum class Kind { Total, OfNumbers, Widening };
    std::vector<std::pair<const Rule*, Kind>> laws_;
    std::map<std::string, DTypes> types_;
    std::map<std::pair<std::string, Around>, Term> done_;

    Term rewritten(Term t, Around around) {
        for (size_t i = 0; i < t.args.size(); ++i) t.args[i] = run(t.args[i], inside(t, i, around));
        for (int i = 0; i < 50; ++i) {
            bool changed = false;
            for (const auto& [rule, kind] : laws_) {
                const Rule& law = *rule;
                std::map<int, Term> bound;
                if (!matches(law.pattern[0], t, law, bound) || !conditions_hold(law, bound)) continue;
                if (!speaks_of(law, kind, bound, t, around)) continue;
                t = built(law.replacement[0], bound);
                for (size_t k = 0; k < t.args.size(); ++k) t.args[k] = run(t.args[k], inside(t, k, around));
                least = std::max(least, law.exactness);
                changed = true;
                break;
            }
            if (!changed) break;
        }
        return t;
    }

    bool satisfies_all(const Term& t, const std::string& constraint) {
        if (constraint.empty()) return true;
        const DTypes types = types_of_term(t, types_);
        return t.form != Form::Number && types.without(admitted(constraint)) == DTypes();
    }

    bool matches(const Term& pattern, const Term& t, const Rule& law, std::map<int, Term>& bound) {
        if (pattern.form == Form::Variable) {
            if (t.list || t.optional) return false;
            auto [it, fresh] = bound.emplace(pattern.slot, t);
            if (!fresh) return ordered_text(it->second, element_.rule) == ordered_text(t, element_.rule);
            return satisfies_all(t, law.variables[static_cast<size_t>(pattern.slot)].constraint);
        }
        if (pattern.form == Form::Number) {
            if (t.form != Form::Number || t.number != pattern.number) return false;
            // A literal without a point stands for both zeros.
            return pattern.number != 0 || !pattern.has_point ||
                   (t.has_point && std::signbit(t.number) == std::signbit(pattern.number));
        }
        if (t.form != Form::Op || t.op != pattern.op || t.output || t.args.size() != pattern.args.size()) return false;
        if (!t.attrs.empty() || t.rest_slot >= 0) return false;
        auto in_order = [&](bool swapped) {
            std::map<int, Term> before = bound;
            for (size_t i = 0; i < t.args.size(); ++i)
                if (!matches(pattern.args[i], t.args[swapped ? t.args.size() - 1 - i : i], law, bound)) {
                    bound = before;
                    return false;
                }
            return true;
        };
        return in_order(false) || (t.op->has(Trait::Commutative) && t.args.size() == 2 && in_order(true));
    }

    bool conditions_hold(const Rule& law, const std::map<int, Term>& bound) const {
        return std::all_of(law.conditions.begin(), law.conditions.end(), [&](const Term& c) {
            const Term& t = bound.at(c.args.at(0).slot);
            if (t.form != Form::Variable) return false;
            const std::string wanted = fmt::format("{}({})", c.name, t.name);
            return std::any_of(element_.rule.conditions.begin(), element_.rule.conditions.end(),
                               [&](const Term& said) { return to_string(said, element_.rule) == wanted; });
        });
    }

    // A law of real numbers says nothing of infinities, and one of numbers nothing of NaN. What it makes of a term that
    // is no number may be another, or one: that must not show.
    bool speaks_of(const Rule& law, Kind kind, const std::map<int, Term>& bound, const Term& t, Around around) const {
        if (law.exactness == Exactness::Exact) return true;
        if (around == Around::Signs) return false;
        const Partial most = kind == Kind::OfNumbers ? Partial::None : Partial::NaN;
        if (!std::all_of(bound.begin(), bound.end(), [&](const auto& b) { return partial(b.second) <= most; }))
            return false;
        const Partial whole = partial(t);
        if (whole == Partial::Infinite) return around == Around::Strict;
        return whole == Partial::None || kind != Kind::Widening || around > Around::Any;
    }
    static Around inside(const Term& t, size_t operand, Around around) {
        static const std::set<std::string> strict = {"identity", "neg", "add", "sub", "mul", "sqrt", "abs"};
        static const std::set<std::string> nan = {"exp", "log", "tanh",       "sigmoid",  "relu",  "erf",  "sin",
                                                  "cos", "div", "reciprocal", "softplus", "floor", "ceil", "round"};
        if (t.form != Form::Op || around == Around::Signs) return std::min(around, Around::Any);
        // 1 / -0.0 is -inf, of which a function may make a number; bits and texts show the sign itself.
        const bool divides = operand == 0 ? is_one_of(t.op->name, {"reciprocal", "rsqrt", "pow"}) : t.op->name == "div";
        if (shows_bits(t) || (divides && around != Around::Strict)) return Around::Signs;
        if (strict.contains(t.op->name) || (t.op->name == "div" && operand == 0)) return around;
        return nan.contains(t.op->name) ? std::min(around, Around::NaN) : Around::Any;
    }
    // Whether it gives the bits of its operand, or their text.
    static bool shows_bits(const Term& t) {
        if (t.op->name == "bit_cast") return true;
        const std::optional<DType> to = t.op->name == "cast" ? cast_type(t) : DType::f32;
        return !to || *to == DType::string;
    }
    Partial partial(const Term& t) const {
        if (t.form == Form::Variable) {
            auto it = element_.elements.find(t.name);
            return it == element_.elements.end() ? Partial::None : it->second.partial;
        }
        Partial out = t.form == Form::Op ? partial_of(t) : Partial::None;
        for (const Term& a : t.args) out = std::max(out, partial(a));
        return out;
    }

    static Term built(const Term& t, const std::map<int, Term>& bound) {
        if (t.form == Form::Variable) return bound.at(t.slot);
        Term out = t;
        for (Term& a : out.args) a = built(a, bound);
        return out;
    }
};

// Whether its literals are numbers of f32.
bool has_short_literals(const Term& t) {
    if (t.form == Form::Number) return static_cast<double>(static_cast<float>(t.number)) == t.number;
    return std::all_of(t.args.begin(), t.args.end(), has_short_literals);
}

void collect_names(const Term& t, std::set<std::string>& names) {
    if (t.form == Form::Variable) names.insert(t.name);
    for (const Term& a : t.args) collect_names(a, names);
}

// Sums of products of whole terms.
using Polynomial = std::map<std::vector<std::string>, uint64_t>;

std::optional<Polynomial> polynomial(const Term& t, const Rule& rule) {
    if (t.form == Form::Number) {
        if (t.has_point || std::abs(t.number) > 1e9) return {};
        return Polynomial{{{}, static_cast<uint64_t>(t.whole())}};
    }
    if (t.form == Form::Variable) {
        if (t.list || t.optional) return {};
        return Polynomial{{{t.name}, 1}};
    }
    if (t.form != Form::Op) return {};
    const std::string& name = t.op->name;
    const bool sum = name == "add" || name == "sub";
    if ((!sum && name != "mul" && name != "neg") || t.rest_slot >= 0) return {};
    std::optional<Polynomial> a = polynomial(t.args[0], rule), out;
    std::optional<Polynomial> b = name == "neg" ? a : polynomial(t.args[1], rule);
    if (!a || !b) return {};
    out.emplace();
    if (name == "mul") {
        for (const auto& [x, c] : *a)
            for (const auto& [y, d] : *b) {
                std::vector<std::string> both = x;
                both.insert(both.end(), y.begin(), y.end());
                std::sort(both.begin(), both.end());
                (*out)[both] += c * d;
            }
    } else {
        if (sum) out = a;
        for (const auto& [y, d] : *b) (*out)[y] += name == "add" ? d : -d;
    }
    std::erase_if(*out, [](const auto& term) { return term.second == 0; });
    return out;
}

}  // namespace

Partial partial_of(const Term& t) {
    static const std::set<std::string> numbers = {
        "add",       "sub",      "mul",        "neg",       "abs",  "relu",   "exp",       "tanh",    "sigmoid",
        "erf",       "sin",      "cos",        "max",       "min",  "clip",   "softplus",  "gelu",    "transpose",
        "slice",     "gather",   "expand",     "tile",      "pad",  "concat", "reshape",   "squeeze", "flatten",
        "unsqueeze", "identity", "reduce_sum", "matmul",    "gemm", "conv",   "reduce_l1", "where",   "conv_transpose",
        "swish",     "silu",     "sum",        "hard_swish"};
    static const std::set<std::string> nan = {"reduce_mean", "sqrt", "asin", "acos"};
    const std::string& name = t.op->name;
    if (t.output) return Partial::Infinite;
    if (name == "pow" && t.args[1].form == Form::Number && t.args[1].number >= 0 &&
        t.args[1].number == static_cast<double>(t.args[1].whole()))
        return Partial::None;
    return numbers.contains(name) ? Partial::None : nan.contains(name) ? Partial::NaN : Partial::Infinite;
}

const Laws& laws() {
    static const Laws all = [] {
        Laws out;
        auto read = [](std::string_view text, Rules& into) {
            Result<Rules> rules = read_rules(text, "laws");
            CHECK(rules.ok(), "a law cannot be read: {}", rules.error().to_string());
            into = std::move(*rules);
        };
        read(kTotal, out.total);
        read(kOfNumbers, out.of_numbers);
        read(kWidening, out.widening);
        return out;
    }();
    return all;
}

Term rewritten_by_laws(const Term& t, const ElementRule& element) {
    return Rewriting(element, false).run(t, Rewriting::Around::Any);
}

Exactness rewrite_by_laws(ElementRule& element) {
    Rewriting right(element, false), left(element, true);
    for (Term& t : element.rule.pattern) t = left.run(t, Rewriting::Around::Strict);
    for (Term& t : element.rule.replacement) t = right.run(t, Rewriting::Around::Strict);
    element.same = true;
    for (size_t i = 0; i < element.rule.pattern.size(); ++i)
        element.same &= ordered_text(element.rule.pattern[i], element.rule) ==
                        ordered_text(element.rule.replacement[i], element.rule);
    return std::max(left.least, right.least);
}

bool equal_choices(const Term& a, const Term& b, const Rule& rule) {
    std::map<std::string, size_t> atoms;
    std::map<double, size_t> numbers;
    auto is_choice = [](const Term& t) {
        // One of a list is chosen of any number of elements: which is not known.
        return t.form == Form::Op && (t.op->name == "max" || t.op->name == "min") && !t.args.empty() &&
               std::none_of(t.args.begin(), t.args.end(), [](const Term& a) { return a.list; });
    };
    std::function<bool(const Term&, uint32_t)> value = [&](const Term& t, uint32_t bits) -> bool {
        if (is_choice(t)) {
            const bool largest = t.op->name == "max";
            bool out = !largest;
            for (const Term& x : t.args) {
                const bool v = value(x, bits);
                out = largest ? out || v : out && v;
            }
            return out;
        }
        auto [it, fresh] = atoms.emplace(ordered_text(t, rule), atoms.size());
        if (fresh && t.form == Form::Number) numbers[t.number] = it->second;
        return bits >> it->second & 1;
    };
    if (!is_choice(a) || !is_choice(b)) return false;
    // Of the same numbers: one that is none is none of both.
    value(a, 0);
    const size_t left = atoms.size();
    value(b, 0);
    std::set<std::string> right;
    std::function<void(const Term&)> collect = [&](const Term& t) {
        if (!is_choice(t)) right.insert(ordered_text(t, rule));
        for (const Term& x : is_choice(t) ? t.args : std::vector<Term>()) collect(x);
    };
    collect(b);
    if (atoms.size() != left || right.size() != left || left > 12) return false;
    std::vector<std::pair<size_t, size_t>> at_most;  // the first is at most the second
    for (auto it = numbers.begin(); it != numbers.end(); ++it)
        if (auto next = std::next(it); next != numbers.end()) at_most.emplace_back(it->second, next->second);
    for (const Term& c : rule.conditions) {
        if (c.form != Form::Call || (c.name != "<=" && c.name != "<")) continue;
        if (c.args[0].name != "number" || c.args[1].name != "number") continue;
        auto atom = [&](const Term& n) { return atoms.find(rule.variables[static_cast<size_t>(n.args[0].slot)].name); };
        if (atom(c.args[0]) != atoms.end() && atom(c.args[1]) != atoms.end())
            at_most.emplace_back(atom(c.args[0])->second, atom(c.args[1])->second);
    }
    for (uint32_t bits = 0; bits < 1u << atoms.size(); ++bits) {
        const bool allowed = std::all_of(at_most.begin(), at_most.end(), [&](const auto& pair) {
            return !(bits >> pair.first & 1) || (bits >> pair.second & 1);
        });
        if (allowed && value(a, bits) != value(b, bits)) return false;
    }
    return true;
}

bool uses(const Rule& rule, const std::string& name) {
    auto used = [&](auto& self, const Term& t) -> bool {
        if (t.form == Form::Variable) return t.name == name;
        return std::any_of(t.args.begin(), t.args.end(), [&](const Term& a) { return self(self, a); });
    };
    return std::any_of(rule.pattern.begin(), rule.pattern.end(), [&](const Term& t) { return used(used, t); });
}

bool of_floats(const Rule& rule) {
    for (const auto& [name, types] : types_of(rule))
        if (types.without(kFloats) != types && uses(rule, name)) return true;
    return false;
}

bool names_large_integer(const Rule& rule) {
    constexpr double kFirstShared = 9007199254740992;  // 2^53: from there on, several integers are one double
    bool integers = false;
    for (const auto& [name, types] : types_of(rule)) integers |= types.without(kInts) != types && uses(rule, name);
    auto large = [&](auto& self, const Term& t) -> bool {
        if (t.form == Form::Number && std::isfinite(t.number) && std::abs(t.number) >= kFirstShared) return true;
        return std::any_of(t.args.begin(), t.args.end(), [&](const Term& a) { return self(self, a); }) ||
               std::any_of(t.attrs.begin(), t.attrs.end(), [&](const auto& a) { return self(self, a.second); });
    };
    auto any = [&](const std::vector<Term>& terms) {
        return std::any_of(terms.begin(), terms.end(), [&](const Term& t) { return large(large, t); });
    };
    return integers && (any(rule.pattern) || any(rule.replacement) || any(rule.conditions));
}

bool has_casts(const Rule& rule) {
    auto casts = [&](auto& self, const Term& t) -> bool {
        if (t.form == Form::Op && is_one_of(t.op->name, {"cast", "cast_like"})) return true;
        return std::any_of(t.args.begin(), t.args.end(), [&](const Term& a) { return self(self, a); });
    };
    auto any = [&](const std::vector<Term>& terms) {
        return std::any_of(terms.begin(), terms.end(), [&](const Term& t) { return casts(casts, t); });
    };
    return any(rule.pattern) || any(rule.replacement);
}

bool equal_polynomials(const Term& a, const Term& b) {
    std::set<std::string> left, right;
    collect_names(a, left);
    collect_names(b, right);
    // What cancels on the right may fit nothing that the left side reads.
    if (!std::includes(left.begin(), left.end(), right.begin(), right.end())) return false;
    std::optional<Polynomial> p = polynomial(a, {}), q = polynomial(b, {});
    return p && q && *p == *q;
}

bool of_integers(const Rule& rule) {
    bool some = false;
    for (const auto& [name, types] : types_of(rule)) {
        if (!uses(rule, name)) continue;
        if (types == DTypes() || types.without(kInts) != DTypes()) return false;
        some = true;
    }
    return some;
}

namespace {

// Whether a term is no number where the variable is none.
bool propagates(const Term& t, const std::string& name, bool nan_only) {
    if (t.form == Form::Variable) return t.name == name;
    if (t.form != Form::Op) return false;
    const std::string& op = t.op->name;
    constexpr std::string_view kAll[] = {"identity", "neg", "add", "sub", "mul", "sqrt", "abs", "div"};
    constexpr std::string_view kHide[] = {"sign", "thresholded_relu", "shrink", "hardmax"};  // numbers, also of NaN
    const auto among = [&](const auto& names) {
        return std::find(std::begin(names), std::end(names), op) != std::end(names);
    };
    if (!among(kAll) &&
        (!nan_only || among(kHide) || t.args.size() != 1 || t.op->types.size() != 1 || t.op->outputs[0].type != "T"))
        return false;
    for (size_t i = 0; i < t.args.size(); ++i)
        if ((op != "div" || i == 0 || nan_only) && propagates(t.args[i], name, nan_only)) return true;
    return false;
}

bool reads(const Term& t, const std::string& name) {
    if (t.form == Form::Variable) return t.name == name;
    return std::any_of(t.args.begin(), t.args.end(), [&](const Term& a) { return reads(a, name); });
}

}  // namespace

Status check_partial(const ElementRule& element) {
    const Rule& rule = element.rule;
    for (const auto& [name, e] : element.elements)
        for (size_t i = 0; i < rule.replacement.size(); ++i) {
            if (e.partial == Partial::None || !reads(rule.replacement[i], name)) continue;
            if (!propagates(rule.pattern[i], name, e.partial == Partial::NaN))
                return Error(Code::E0305, "{}: {} may be undefined where the left side is defined", rule.name, e.what);
        }
    return {};
}

Result<Claim> claim_of(const ElementRule& element) {
    Rule rule = element.rule;
    // A variable of a claim is a number. One that stands for an op may be none: then the left side must be none.
    TRY(check_partial(element));
    const std::map<std::string, DTypes> types = types_of(rule);
    std::map<std::string, Shape> shapes;
    auto is_short = [](const Term& t) { return has_short_literals(t); };
    const bool short_literals = std::all_of(rule.pattern.begin(), rule.pattern.end(), is_short) &&
                                std::all_of(rule.replacement.begin(), rule.replacement.end(), is_short);
    for (RuleVariable& v : rule.variables) {
        auto it = types.find(v.name);
        if (it == types.end() || !element.elements.contains(v.name)) continue;
        if (it->second.without(kFloats) != DTypes())
            return Error(Code::E0305, "{}: {} may have elements that are not floats", rule.name,
                         element.elements.at(v.name).what);
        // A literal is read in the widest type; in others it is rounded, as results are.
        if (v.constraint.empty() || (v.constraint == "float" && !short_literals))
            v.constraint = short_literals ? "float" : "f64";
    }
    // The result of an op stays it; a variable alone is no pattern.
    for (size_t i = 0; i < rule.pattern.size(); ++i)
        for (Term* t : {&rule.pattern[i], &rule.replacement[i]}) {
            Term kept;
            kept.form = Form::Op;
            kept.op = find_op("identity");
            kept.name = "identity";
            kept.args = {*t};
            *t = std::move(kept);
        }
    rule.evidence = Evidence::Stated;
    Rules clean = TRY(read_rules(to_string(rule), rule.source));
    if (clean.size() != 1) return Error(Code::E0305, "{}: it does not reduce to one rule between scalars", rule.name);
    for (const RuleVariable& v : clean[0].variables) {
        if (v.kind != TermKind::Tensor)
            return Error(Code::E0305, "{}: the attribute {} is unconstrained", rule.name, v.name);
        shapes.emplace(v.name, Shape());
    }
    return Claim{std::move(clean[0]), std::move(shapes)};
}

// Whether operands may change places without a change of bits: two of them, and of two zeros a maximum is either.
bool may_swap(const Term& t) {
    return t.op->has(Trait::Commutative) && t.op->name != "max" && t.op->name != "min" && t.args.size() == 2 &&
           !t.args[0].list && !t.args[1].list;
}

std::string ordered_text(const Term& t, const Rule& rule) {
    if (t.form != Form::Op) return t.form == Form::Variable ? t.name : to_string(t, rule);
    std::vector<std::string> args;
    for (const Term& a : t.args) args.push_back(ordered_text(a, rule));
    if (may_swap(t)) std::sort(args.begin(), args.end());
    std::string attrs;
    for (const auto& [name, value] : t.attrs) attrs += fmt::format("{}={},", name, to_string(value, rule));
    if (t.rest_slot >= 0) attrs += ".." + rule.variables[static_cast<size_t>(t.rest_slot)].name;
    return fmt::format("{}.{}[{}]({})", t.op->name, t.output, attrs, fmt::join(args, ", "));
}

}  // namespace tessera::checker
