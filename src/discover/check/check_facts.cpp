#include "discover/check/check_facts.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::checker {
namespace {

using Form = Term::Form;

std::string found(const std::map<std::string, std::string>& of, std::string name) {
    for (auto it = of.find(name); it != of.end(); it = of.find(name)) name = it->second;
    return name;
}

void join(std::map<std::string, std::string>& of, const std::string& a, const std::string& b) {
    std::string from = found(of, a), to = found(of, b);
    if (from == to) return;
    if (from == "0") std::swap(from, to);
    of[from] = to;
}

bool is_default(const AttrDef& def, const Term& value) {
    if (!def.fallback) return false;
    if (value.form == Form::Number) {
        if (auto* n = std::get_if<int64_t>(&*def.fallback)) return value.number == static_cast<double>(*n);
        if (auto* x = std::get_if<float>(&*def.fallback)) return static_cast<float>(value.number) == *x;
    }
    if (auto* word = std::get_if<std::string>(&*def.fallback)) return value.form == Form::Text && value.name == *word;
    return false;
}

}  // namespace

Facts::Facts(const Rule& rule) : rule_(rule) {
    for (const Term& c : rule.conditions) learn(c);
}

const Term* Facts::let(int slot) const {
    for (const auto& [s, term] : rule_.lets)
        if (s == slot) return &term;
    return nullptr;
}

std::string Facts::text(const Term& t) const {
    std::vector<std::string> inside;
    for (const Term& a : t.args) inside.push_back(text(a));
    switch (t.form) {
        case Form::Variable:
            if (t.slot < 0) return fmt::format("_@{}", t.at);
            if (const Term* l = let(t.slot); l && l->form != Form::Op) return text(*l);
            return name(t.slot);
        case Form::Number: return fmt::format("{}{}", t.number, t.has_point && t.number == 0 ? ".0" : "");
        case Form::Text: return fmt::format("\"{}\"", t.name);
        case Form::List: return fmt::format("[{}]", fmt::join(inside, ", "));
        default: return fmt::format("{}({})", t.name, fmt::join(inside, ", "));
    }
}

std::string Facts::attribute(const Term& op, std::string_view attr) const {
    for (const auto& [name, value] : op.attrs)
        if (name == attr && !is_default(*op.op->attr(name), value)) return text(value);
    return "";
}

std::string Facts::attributes(const Term& op, const std::set<std::string>& but) const {
    std::map<std::string, std::string> given;
    for (const auto& [name, value] : op.attrs)
        if (!but.contains(name) && !is_default(*op.op->attr(name), value)) given[name] = text(value);
    std::string out;
    for (const auto& [name, value] : given) out += fmt::format("{}={},", name, value);
    if (op.rest_slot >= 0) {
        // What a rest leaves out is what the terms name, so that two rests are equal where those are.
        out += fmt::format("..{}", name(op.rest_slot));
    }
    return out;
}

void Facts::learn(const Term& c) {
    if (c.form != Form::Call) return;
    if (c.name == "and") {
        for (const Term& part : c.args) learn(part);
        return;
    }
    said_.insert(text(c));
    auto variable = [&](const Term& t) { return t.form == Form::Variable && t.slot >= 0 ? name(t.slot) : ""; };
    auto of = [&](const Term& t, std::string_view function) {
        return t.form == Form::Call && t.name == function && t.args.size() == 1 ? variable(t.args[0]) : "";
    };
    if (c.name == "same_dims") {
        join(sizes_, variable(c.args[0]), variable(c.args[1]));
        join(ranks_, variable(c.args[0]), variable(c.args[1]));
    }
    if (c.name == "==") {
        const Term &a = c.args[0], &b = c.args[1];
        equal_.emplace(text(a), text(b));
        if (std::string x = of(a, "rank"), y = of(b, "rank"); !x.empty() && !y.empty()) join(ranks_, x, y);
        if (std::string x = of(a, "dims"), y = of(b, "dims"); !x.empty() && !y.empty()) join(sizes_, x, y);
        if (std::string x = of(a, "rank"); !x.empty() && b.form == Form::Number && b.number == 0) join(ranks_, x, "0");
        if (std::string x = of(a, "number"); !x.empty() && b.form == Form::Number) numbers_[x] = b.number;
    }
}

std::optional<std::string> Facts::equal_to(const std::string& text) const {
    auto it = equal_.find(text);
    return it == equal_.end() ? std::nullopt : std::optional(it->second);
}
bool Facts::says_of(std::string_view begin) const {
    return std::any_of(said_.begin(), said_.end(), [&](const std::string& c) { return c.starts_with(begin); });
}
void Facts::join_sizes(const std::string& a, const std::string& b) { join(sizes_, a, b); }

std::string Facts::axes_name(const std::string& axes) const {
    const std::string begin = fmt::format("axes_in({}, rank(", axes);
    for (const auto& [a, b] : equal_) {
        if (a.starts_with(begin) && b.starts_with("axes_in(")) return b;
        if (b.starts_with(begin) && a.starts_with("axes_in(")) return b;
    }
    return axes;
}
// The lengths of lists that are equal are.
bool Facts::one_axis(const std::string& axes) const {
    const std::string begin = fmt::format("axes_in({}, rank(", axes);
    for (const auto& [a, b] : equal_)
        if (b.starts_with(begin) && a.starts_with("axes_in(")) {
            const std::string other = a.substr(8, a.rfind(", rank(") - 8);
            if (says(fmt::format("==(length({}), 1)", other))) return true;
        }
    return false;
}

bool Facts::narrow(const std::string& variable) const {
    return says(fmt::format("<=(element_bits({}), 32)", variable));
}

std::string Facts::same_sizes(const std::string& variable) const { return found(sizes_, variable); }
std::string Facts::same_rank(const std::string& variable) const { return found(ranks_, variable); }

bool Facts::one_element(const std::string& variable) const {
    return same_rank(variable) == "0" || says(fmt::format("==(count({}), 1)", variable));
}

bool Facts::rank_at_most(const std::string& small, const std::string& large) const {
    return same_rank(small) == "0" || same_rank(small) == same_rank(large) || fits(small, large) ||
           says(fmt::format("<=(rank({}), rank({}))", small, large));
}

bool Facts::fits(const std::string& small, const std::string& large) const {
    if (same_rank(small) == "0" || same_sizes(small) == same_sizes(large)) return true;
    if (says(fmt::format("fits_into({}, {})", small, large))) return true;
    if (says(fmt::format("same_dims_after({}, {})", large, small))) return true;
    return says(fmt::format("==(count({}), 1)", small)) && says(fmt::format("<=(rank({}), rank({}))", small, large));
}

std::optional<double> Facts::number(const std::string& variable) const {
    auto it = numbers_.find(variable);
    return it == numbers_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace tessera::checker
