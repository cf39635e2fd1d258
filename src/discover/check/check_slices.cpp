// Laws of slices along one axis in steps of one: which element is read is where it begins, added to where it is.
#include <fmt/ranges.h>

#include "discover/check/check_element_reader.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

}  // namespace

ElementReader::Linear ElementReader::linear(const Term& t) const {
    count_step();
    if (t.form == Form::Number) return {{"", t.whole()}};
    if (t.form == Form::Variable && t.slot >= 0)
        if (const Term* l = facts_.let(t.slot); l && l->form != Form::Op) return linear(*l);
    if (t.form == Form::Call && t.args.size() == 2 && (t.name == "+" || t.name == "-"))
        return combined(linear(t.args[0]), linear(t.args[1]), t.name == "+" ? 1 : -1);
    return {{facts_.text(t), 1}};
}

// a + sign * b, without what is 0 times.
ElementReader::Linear ElementReader::combined(Linear a, const Linear& b, int sign) {
    for (const auto& [name, n] : b) {
        int64_t& sum = a[name];
        if (sign < 0 ? __builtin_sub_overflow(sum, n, &sum) : __builtin_add_overflow(sum, n, &sum))
            throw NoElement{"a number is too large"};
    }
    std::erase_if(a, [](const auto& term) { return term.second == 0; });
    return a;
}

std::string ElementReader::linear_text(const Linear& sum) {
    std::string out;
    for (const auto& [name, n] : sum)
        out += fmt::format("{}{}*{}", out.empty() ? "" : " + ", n, name.empty() ? "1" : name);
    return out;
}

// Whether the conditions say so of it, or of two whose sum it is.
bool ElementReader::is_not_negative(const Term& t) const {
    Linear wanted = linear(t);
    std::erase_if(wanted, [](const auto& term) { return term.second == 0; });
    if (wanted.empty() || (wanted.size() == 1 && wanted.contains("") && wanted.at("") >= 0)) return true;
    std::vector<Linear> known;
    for (const Term& c : rule_.conditions)
        if (c.form == Form::Call && (c.name == ">" || c.name == ">=") && c.args[0].kind != TermKind::Float)
            known.push_back(combined(linear(c.args[0]), linear(c.args[1]), -1));
    for (const Linear& a : known) {
        if (a == wanted) return true;
        for (const Linear& b : known)
            if (combined(a, b, 1) == wanted) return true;
    }
    return false;
}

// The axis, and where along it the slice begins.
std::optional<std::pair<std::string, ElementReader::Linear>> ElementReader::shift_of(const Term& t) {
    auto first_of = [&](const Term& list) -> std::optional<Term> {
        if (list.form == Form::List) return list.args.size() == 1 ? std::optional(list.args[0]) : std::nullopt;
        Term zero;
        zero.form = Form::Number;
        if (list.form == Form::Variable && list.slot >= 0 && !list.optional && !facts_.let(list.slot))
            return call_term("at", {call_term("ints", {list}), zero});
        return {};
    };
    if (is_op(t, "gather") && t.args[1].form == Form::Variable) {
        const std::string i = facts_.text(t.args[1]), axis = facts_.attribute(t, "axis");
        const std::optional<Term> first = first_of(t.args[1]);
        if (axis.empty() || !first || !facts_.says(fmt::format("==(rank({}), 1)", i)) ||
            !facts_.says(fmt::format("consecutive(ints({}))", i)) || !facts_.says(fmt::format(">=({}, 0)", axis)) ||
            !is_not_negative(*first))
            return {};
        return std::pair(fmt::format("[{}]", axis), linear(*first));
    }
    if (!is_op(t, "slice") || t.args.size() < 4 || !keeps_order(t)) return {};
    const Term& list = t.args[3];
    std::string axes = facts_.text(list);
    const bool one = list.form == Form::List && list.args.size() == 1;
    if (list.form == Form::Variable) axes = fmt::format("ints({})", axes);
    const std::string n = rank(t.args[0]);
    if (!one && !facts_.says(fmt::format("==(length({}), 1)", axes)) && !facts_.one_axis(axes, n)) return {};
    const std::optional<Term> begin = first_of(t.args[1]);
    if (!begin || !is_not_negative(*begin)) return {};
    return std::pair(facts_.axes_name(axes, n), linear(*begin));
}

// Two of a kind as one: slices along different axes, paddings with one value.
std::optional<Term> ElementReader::merged_movement(const Term& t) const {
    if (t.args.empty()) return {};
    const Term& inner = resolved(t.args[0]);
    if (inner.form != Form::Op || inner.op != t.op || inner.rest_slot >= 0 || t.rest_slot >= 0) return {};
    if (!inner.attrs.empty() || !t.attrs.empty() || inner.args.size() != t.args.size()) return {};
    for (size_t i = 1; i < t.args.size(); ++i)
        if (t.args[i].form != Form::Variable || inner.args[i].form != Form::Variable) return {};
    auto ints = [](const Term& a) { return call_term("ints", {a}); };
    Term out = t;
    out.bound_slot = -1;
    out.args[0] = inner.args[0];
    if (is_op(t, "slice") && t.args.size() == 5) {
        std::string rank = fmt::format("rank({})", facts_.text(inner.args[0]));
        if (!facts_.says(fmt::format("disjoint(axes_in(ints({}), {}), axes_in(ints({}), {}))",
                                     facts_.text(inner.args[3]), rank, facts_.text(t.args[3]), rank)))
            return {};
        for (size_t i = 1; i < 5; ++i) out.args[i] = call_term("join", {ints(inner.args[i]), ints(t.args[i])});
        return out;
    }
    if (is_op(t, "pad") && t.args.size() <= 3) {
        if (t.args.size() == 3 && facts_.text(t.args[2]) != facts_.text(inner.args[2])) return {};
        for (const Term& p : {t.args[1], inner.args[1]})
            if (!facts_.says(fmt::format("all_at_least(ints({}), 0)", facts_.text(p)))) return {};
        out.args[1] = call_term("+", {ints(inner.args[1]), ints(t.args[1])});
        return out;
    }
    return {};
}

}  // namespace tessera::checker
