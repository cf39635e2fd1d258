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

std::string to_text(const Attr& a) {
    if (auto* n = std::get_if<int64_t>(&a)) return fmt::format("{}", *n);
    if (auto* x = std::get_if<float>(&a)) return fmt::format("{:a}", *x);
    if (auto* word = std::get_if<std::string>(&a)) return fmt::format("\"{}\"", *word);
    if (auto* list = std::get_if<std::vector<int64_t>>(&a)) return fmt::format("[{}]", fmt::join(*list, ", "));
    if (auto* words = std::get_if<std::vector<std::string>>(&a)) return fmt::format("[{}]", fmt::join(*words, ", "));
    return "?";
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
    for (const Term& t : rule.pattern) learn_rests(t);
    for (const auto* terms : {&rule.pattern, &rule.replacement, &rule.conditions})
        for (const Term& t : *terms) remember(t);
    for (const Term& c : rule.conditions) learn(c);
}

void Facts::remember(const Term& t) {
    for (const Term& a : t.args) remember(a);
    keys_.emplace(&t, text(t));
}

// A rest is what its op has beside what it names. One that stands at several ops is the same for all: it holds only
// what each of them has and none of them names.
void Facts::learn_rests(const Term& t) {
    if (t.form == Form::Op && t.rest_slot >= 0) {
        std::set<std::string> left;
        for (const AttrDef& def : t.op->attrs)
            if (std::none_of(t.attrs.begin(), t.attrs.end(), [&](const auto& a) { return a.first == def.name; }))
                left.insert(def.name);
        auto [it, fresh] = held_.emplace(t.rest_slot, left);
        if (!fresh) std::erase_if(it->second, [&](const std::string& name) { return !left.contains(name); });
    }
    for (const Term& a : t.args) learn_rests(a);
}

bool Facts::may_hold(int rest_slot, const std::string& attr) const {
    auto it = held_.find(rest_slot);
    return it != held_.end() && it->second.contains(attr);
}

const Term* Facts::let(int slot) const {
    for (const auto& [s, term] : rule_.lets)
        if (s == slot) return &term;
    return nullptr;
}

std::string Facts::text(const Term& t) const {
    constexpr size_t kLong = 4000;
    if (auto known = keys_.find(&t); known != keys_.end()) return known->second;
    std::string key = written(t);
    if (key.size() <= kLong) return key;
    return fmt::format("#{}#", long_keys_.emplace(std::move(key), long_keys_.size()).first->second);
}

std::string Facts::written(const Term& t) const {
    std::vector<std::string> inside;
    for (const Term& a : t.args) inside.push_back(text(a));
    switch (t.form) {
        case Form::Variable:
            if (t.slot < 0) return fmt::format("_@{}", t.at);
            if (const Term* l = let(t.slot); l && l->form != Form::Op) {
                auto known = let_keys_.find(t.slot);
                return known != let_keys_.end() ? known->second : let_keys_.emplace(t.slot, text(*l)).first->second;
            }
            return name(t.slot);
        case Form::Number: return fmt::format("{}{}", t.number, t.has_point && t.number == 0 ? ".0" : "");
        case Form::Text: return fmt::format("\"{}\"", t.name);
        case Form::List: return fmt::format("[{}]", fmt::join(inside, ", "));
        case Form::Op:
            return fmt::format("{}.{}[{}]({})", t.op->name, t.output, attributes(t), fmt::join(inside, ", "));
        default: return fmt::format("{}({})", t.name, fmt::join(inside, ", "));
    }
}

std::string Facts::attribute(const Term& op, std::string_view attr) const {
    const AttrDef* def = op.op->attr(std::string(attr));
    for (const auto& [name, value] : op.attrs)
        if (name == attr) return is_default(*def, value) ? "" : text(value);
    if (!def || op.rest_slot < 0 || !may_hold(op.rest_slot, def->name)) return "";
    // What the rest does not hold has this op's default.
    return fmt::format("..{}.{}|{}", name(op.rest_slot), attr, def->fallback ? to_text(*def->fallback) : "");
}

std::string Facts::attributes(const Term& op, const std::set<std::string>& but) const {
    std::map<std::string, std::string> given;
    for (const AttrDef& def : op.op->attrs)
        if (!but.contains(def.name)) given[def.name] = attribute(op, def.name);
    std::string out;
    for (const auto& [name, value] : given)
        if (!value.empty()) out += fmt::format("{}={},", name, value);
    return out;
}

void Facts::learn(const Term& c) {
    if (c.form != Form::Call) return;
    if (c.name == "and") {
        for (const Term& part : c.args) learn(part);
        return;
    }
    all_.push_back(&c);
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
        equal_.emplace(text(a), &b);
        if (std::string x = of(a, "rank"), y = of(b, "rank"); !x.empty() && !y.empty()) join(ranks_, x, y);
        if (std::string x = of(a, "dims"), y = of(b, "dims"); !x.empty() && !y.empty()) join(sizes_, x, y);
        if (std::string x = of(a, "rank"); !x.empty() && b.form == Form::Number && b.number == 0) join(ranks_, x, "0");
        if (std::string x = of(a, "number"); !x.empty() && b.form == Form::Number) numbers_[x] = b.number;
    }
}

const Term* Facts::equal_to(const std::string& key) const {
    auto it = equal_.find(key);
    return it == equal_.end() ? nullptr : it->second;
}

bool Facts::says_of(std::string_view function, const std::vector<std::string>& first) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Term* c) {
        if (c->name != function || c->args.size() < first.size()) return false;
        for (size_t i = 0; i < first.size(); ++i)
            if (text(c->args[i]) != first[i]) return false;
        return true;
    });
}

void Facts::join_sizes(const std::string& a, const std::string& b) { join(sizes_, a, b); }

// The list of axes in axes_in(list, rank(x)), where x has that rank.
std::optional<std::string> Facts::axes_in(const Term& t, const std::string& rank) const {
    if (t.form != Form::Call || t.name != "axes_in" || t.args.size() != 2) return {};
    const Term& n = t.args[1];
    if (n.form != Form::Call || n.name != "rank" || n.args[0].form != Form::Variable || n.args[0].slot < 0) return {};
    if (same_rank(name(n.args[0].slot)) != rank) return {};
    return text(t.args[0]);
}

std::string Facts::axes_name(const std::string& axes, const std::string& rank) const {
    for (const Term* c : all_) {
        if (c->name != "==") continue;
        const std::optional<std::string> a = axes_in(c->args[0], rank), b = axes_in(c->args[1], rank);
        if (a && b && (*a == axes || *b == axes)) return text(c->args[1]);
    }
    return axes;
}

// The lengths of lists that are equal are.
bool Facts::one_axis(const std::string& axes, const std::string& rank) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Term* c) {
        if (c->name != "==") return false;
        const std::optional<std::string> a = axes_in(c->args[0], rank), b = axes_in(c->args[1], rank);
        return a && b && *b == axes && says(fmt::format("==(length({}), 1)", *a));
    });
}

bool Facts::has_elements(const std::string& variable) const {
    return says(fmt::format(">(count({}), 0)", variable)) || says(fmt::format(">=(count({}), 1)", variable)) ||
           says(fmt::format("==(count({}), 1)", variable));
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
