#include "rewrite/rules/match.h"

#include <algorithm>
#include <cmath>

#include "base/numeric.h"
#include "rewrite/rules/matcher.h"

namespace tessera {
namespace {

using Form = Term::Form;

// What a literal stands for: an integer as it is; a float exactly, or rounded to the element type where the literal is
// no number of it.
bool is_literal(const Tensor& t, int64_t i, const Term& literal) {
    const DType dtype = t.dtype();
    if (is_int(dtype)) {
        const bool too_large = dtype == DType::u64 && t.int_at(i) < 0;  // 2^63 and more
        return !literal.has_point && !too_large && t.int_at(i) == literal.whole();
    }
    const double value = t.real_at(i);
    if (!literal.has_point) return value == literal.number;
    if (!kFloats.has(dtype)) return false;
    if (literal.number == 0) return value == 0 && std::signbit(value) == std::signbit(literal.number);
    if (value == literal.number) return true;
    if (static_cast<double>(static_cast<float>(literal.number)) == literal.number) return false;
    if (dtype == DType::f16 || dtype == DType::bf16)
        return value == Tensor::filled(dtype, {}, literal.number)->real_at(0);
    return std::fabs(value - literal.number) <= 1e-6 * std::fabs(literal.number);
}

// The values of one graph; nested graphs are not entered.
struct GraphSource {
    const Graph* graph;

    std::span<Value* const> members(Value* const& value) const { return {&value, 1}; }
    Value* representative(Value& value) const { return &value; }
    bool contains(const Node& node) const { return &node.graph() == graph; }
    bool is_constant(const Value& value) const { return value.is_constant(); }
    bool same(const Value& a, const Value& b) const { return &a == &b; }
    std::optional<bool> holds(const Term& condition, const std::vector<RuleValue>& slots) const {
        const std::optional<RuleValue> value = evaluate_term(condition, slots);
        return value ? std::optional(std::get<bool>(*value)) : std::nullopt;
    }
};

}  // namespace

RuleValue rule_value(const Attr& a) {
    switch (attr_kind(a)) {
        case AttrKind::Int: return Expr(std::get<int64_t>(a));
        case AttrKind::Float: return double{std::get<float>(a)};
        case AttrKind::String: return std::get<std::string>(a);
        case AttrKind::Ints: {
            const auto& list = std::get<std::vector<int64_t>>(a);
            return std::vector<Expr>(list.begin(), list.end());
        }
        case AttrKind::Floats: {
            const auto& list = std::get<std::vector<float>>(a);
            return std::vector<double>(list.begin(), list.end());
        }
        case AttrKind::Strings: return std::get<std::vector<std::string>>(a);
        default: return {};
    }
}

bool same_value(const RuleValue& a, const RuleValue& b) {
    if (a.index() != b.index()) {
        // A number without a point is an integer wherever it stands.
        auto* real = std::get_if<double>(&a) ? std::get_if<double>(&a) : std::get_if<double>(&b);
        auto* whole = std::get_if<Expr>(&a) ? std::get_if<Expr>(&a) : std::get_if<Expr>(&b);
        return real && whole && whole->as_int() && static_cast<double>(*whole->as_int()) == *real;
    }
    // An attribute has single precision.
    if (auto* x = std::get_if<double>(&a), *y = std::get_if<double>(&b); x && y)
        return static_cast<float>(*x) == static_cast<float>(*y);
    return a == b;
}

bool match_attributes(const Term& term, const Node& node, const std::vector<RuleValue>& slots,
                      const std::function<bool(int slot, RuleValue value)>& bind) {
    AttrMap rest;
    for (const AttrDef& def : term.op->attrs) {
        auto given = node.attrs().find(def.name);
        const Attr* attr = given != node.attrs().end() ? &given->second : def.fallback ? &*def.fallback : nullptr;
        auto named = std::find_if(term.attrs.begin(), term.attrs.end(),
                                  [&](const auto& entry) { return entry.first == def.name; });
        if (named != term.attrs.end()) {
            RuleValue actual = attr ? rule_value(*attr) : RuleValue();
            const Term& wanted = named->second;
            if (wanted.form == Form::Variable) {
                if (!bind(wanted.slot, std::move(actual))) return false;
            } else {
                std::optional<RuleValue> expected = evaluate_term(wanted, slots);
                if (!expected || !same_value(*expected, actual)) return false;
            }
        } else if (term.rest_slot >= 0) {
            if (given != node.attrs().end()) rest.insert(*given);
        } else if (given != node.attrs().end() && (!def.fallback || given->second != *def.fallback)) {
            return false;
        }
    }
    return term.rest_slot < 0 || bind(term.rest_slot, std::move(rest));
}

bool matches_literal(const Term& literal, const Value& v) {
    if (!v.is_constant() || v.tensor()->dtype() == DType::string || kComplex.has(v.tensor()->dtype())) return false;
    const Tensor& t = *v.tensor();
    if (t.elements() == 0) return false;
    for (int64_t i = 0; i < t.elements(); ++i)
        if (!is_literal(t, i, literal)) return false;
    return true;
}

Result<Tensor> tensor_of(const Term& literal, DType dtype, Sizes sizes) {
    if (!is_int(dtype) || literal.has_point) return Tensor::filled(dtype, std::move(sizes), literal.number);
    Tensor t = TRY(Tensor::zeros(dtype, std::move(sizes)));
    for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, int_wrap(dtype, literal.whole()));
    return t;
}

bool literals_fit(const Node& node, const std::vector<const Value*>& literals) {
    bool scalars = true;
    for (const Value* v : literals) {
        if (!v || !v->is_constant()) return false;
        scalars &= v->tensor()->rank() == 0;
    }
    if (scalars) return true;
    if (!node.is(Trait::Elementwise) || node.output_count() != 1) return false;
    std::optional<Shape> others;
    for (const Value* v : node.inputs()) {
        if (!v || std::find(literals.begin(), literals.end(), v) != literals.end()) continue;
        if (!v->type().is_tensor() || !v->type().tensor().shape.ranked()) return false;
        const Shape& shape = v->type().tensor().shape;
        others = others ? broadcast(*others, shape) : shape;
        if (!others) return false;
    }
    const Type& result = node.output(0)->type();
    return others && result.is_tensor() && *others == result.tensor().shape;
}

bool literals_fit(const Term& term, const Node& node, bool swapped) {
    std::vector<const Value*> literals;
    for (size_t i = 0; i < term.args.size() && i < node.inputs().size(); ++i)
        if (term.args[i].form == Form::Number) literals.push_back(node.input(swapped ? 1 - i : i));
    return literals_fit(node, literals);
}

bool matches_list(const Term& term, const Value& value) {
    auto wanted = [&](size_t i) { return term.args[i].whole(); };
    if (value.is_constant()) {
        const Tensor& t = *value.tensor();
        if (!is_int(t.dtype()) || t.rank() != 1 || t.elements() != static_cast<int64_t>(term.args.size())) return false;
        for (size_t i = 0; i < term.args.size(); ++i)
            if (t.int_at(static_cast<int64_t>(i)) != wanted(i)) return false;
        return true;
    }
    if (!value.contents() || value.contents()->size() != term.args.size()) return false;
    if (value.type().tensor().shape.rank() != 1) return false;
    for (size_t i = 0; i < term.args.size(); ++i)
        if (!(*value.contents())[i].is_int(wanted(i))) return false;
    return true;
}

std::optional<Match> find_match(const Rule& rule, Value& root, const std::function<bool(const Match&)>& accept) {
    const GraphSource source{&root.graph()};
    Matcher matcher(source, rule, accept);
    if (!matcher.find(root)) return {};
    return std::move(matcher.match());
}

std::optional<RuleValue> evaluate_term(const Term& term, const std::vector<RuleValue>& slots) {
    switch (term.form) {
        case Form::Variable: return slots[static_cast<size_t>(term.slot)];
        case Form::Number:
            if (term.kind == TermKind::Int) return RuleValue(Expr(term.whole()));
            return RuleValue(term.number);
        case Form::Text: return RuleValue(term.name);
        case Form::List: {
            std::vector<Expr> ints;
            std::vector<double> reals;
            std::vector<std::string> strings;
            for (const Term& element : term.args) {
                std::optional<RuleValue> v = evaluate_term(element, slots);
                if (!v) return {};
                if (auto* e = std::get_if<Expr>(&*v)) {
                    ints.push_back(*e);
                    reals.push_back(static_cast<double>(e->as_int().value_or(0)));
                } else if (auto* d = std::get_if<double>(&*v)) {
                    reals.push_back(*d);
                } else if (auto* s = std::get_if<std::string>(&*v)) {
                    strings.push_back(*s);
                } else {
                    return {};
                }
            }
            if (term.kind == TermKind::Floats) return RuleValue(std::move(reals));
            if (term.kind == TermKind::Strings) return RuleValue(std::move(strings));
            return RuleValue(std::move(ints));
        }
        case Form::Op: return {};
        case Form::Call: break;
    }
    // One side may decide although the other is not known.
    if (term.name == "and" || term.name == "or") {
        bool decides = term.name == "or", unknown = false;
        for (const Term& arg : term.args) {
            std::optional<RuleValue> v = evaluate_term(arg, slots);
            if (!v)
                unknown = true;
            else if (std::get<bool>(*v) == decides)
                return RuleValue(decides);
        }
        if (unknown) return {};
        return RuleValue(!decides);
    }
    std::vector<RuleValue> args;
    for (const Term& arg : term.args) {
        std::optional<RuleValue> v = evaluate_term(arg, slots);
        if (!v) return {};
        args.push_back(std::move(*v));
    }
    return term.function->evaluate(args);
}

}  // namespace tessera
