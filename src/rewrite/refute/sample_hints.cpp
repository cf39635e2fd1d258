#include "rewrite/refute/sample_hints.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kAnyRank = 8;
constexpr double kUsualLength = 7, kMuch = 2000, kMostLength = 66000;

int variable_of(const Term& t) { return t.form == Term::Form::Variable ? t.slot : -1; }

// The variable x of f(x).
int argument_of(const Term& t, std::string_view f) {
    return t.form == Term::Form::Call && t.name == f && t.args.size() == 1 ? variable_of(t.args[0]) : -1;
}

void narrow(Hints& hints, int slot, const std::string& relation, double n) {
    auto [it, fresh] = hints.range.emplace(slot, std::pair(-kInf, kInf));
    if (relation[0] == '<') it->second.second = std::min(it->second.second, n);
    if (relation[0] == '>') it->second.first = std::max(it->second.first, n);
}

// dim(x, axis) relation n.
void size(Hints& hints, const Term& left, const std::string& relation, double n) {
    const auto number = static_cast<int64_t>(std::clamp(n, 0.0, kMostLength));
    Hints::Size size{left.args[1].whole(), 0, INT64_MAX};
    if (relation == ">" || relation == ">=" || relation == "==") size.low = number + (relation == ">");
    if (relation == "<" || relation == "<=" || relation == "==") size.high = number - (relation == "<");
    hints.sizes[variable_of(left.args[0])].push_back(size);
}

void compare(Hints& hints, const Term& left, const std::string& relation, double n) {
    if (left.form == Term::Form::Call && left.name == "dim" && left.args.size() == 2 &&
        variable_of(left.args[0]) >= 0 && left.args[1].form == Term::Form::Number && relation != "!=")
        return size(hints, left, relation, n);
    if (int slot = argument_of(left, "number"); slot >= 0) {
        if (relation == "==") hints.number[slot] = n;
        if (relation[0] == '>' && n >= 0) hints.positive.insert(slot);
    } else if (int slot = argument_of(left, "count"); slot >= 0) {
        if (relation == "==" && n == 1) hints.single.insert(slot);
    } else if (int slot = argument_of(left, "rank"); slot >= 0) {
        auto rank = static_cast<int64_t>(std::min(std::max(n, 0.0), double(kAnyRank)));
        auto [it, fresh] = hints.rank.emplace(slot, std::pair<int64_t, int64_t>(0, kAnyRank));
        auto& [least, most] = it->second;
        if (relation == "==" || relation == ">=") least = std::max(least, rank);
        if (relation == ">") least = std::max(least, rank + 1);
        if (relation == "==" || relation == "<=") most = std::min(most, rank);
        if (relation == "<") most = std::min(most, rank - 1);
    } else if (int slot = variable_of(left); slot >= 0) {
        if (relation == "==") hints.number[slot] = n;
        narrow(hints, slot, relation, n);
    }
}

// f(x) == term.
void equation(Hints& hints, const Term& left, const Term& term) {
    using About = Hints::Equation::About;
    auto add = [&](int slot, About about, const Term* rank = nullptr) {
        if (slot >= 0) hints.equations.push_back({slot, about, &term, rank});
    };
    add(argument_of(left, "ints"), About::Elements);
    add(argument_of(left, "dims"), About::Dims);
    add(argument_of(left, "number"), About::Number);
    add(variable_of(left), About::Attribute);
    const Term* rank = left.args.size() == 2 ? &left.args[1] : nullptr;
    if (left.form == Term::Form::Call && left.name == "axes_in" && !left.args.empty())
        add(argument_of(left.args[0], "ints"), About::Elements, rank);
    if (left.form == Term::Form::Call && left.name == "axis_in" && !left.args.empty())
        add(variable_of(left.args[0]), About::Axis, rank);
}

bool mentions(const Term& t, std::string_view function) {
    return (t.form == Term::Form::Call && t.name == function) ||
           std::any_of(t.args.begin(), t.args.end(), [&](const Term& a) { return mentions(a, function); });
}

void all_equal(Hints& hints, const Term& t) {
    if (t.name != "all_equal" || t.args.size() != 2 || t.args[1].form != Term::Form::Number) return;
    int slot = std::max(argument_of(t.args[0], "ints"), variable_of(t.args[0]));
    if (slot >= 0) hints.all_equal[slot] = t.args[1].whole();
}

// One of several conditions that may hold: elements that it asks for can do no harm.
void alternative(Hints& hints, const Term& t) {
    if (t.form != Term::Form::Call) return;
    if (t.name == "or" || t.name == "and")
        for (const Term& arg : t.args) alternative(hints, arg);
    if (t.name == "==" && t.args.size() == 2 && t.args[1].form == Term::Form::Number)
        if (int slot = argument_of(t.args[0], "number"); slot >= 0) hints.number[slot] = t.args[1].number;
    all_equal(hints, t);
}

void read(Hints& hints, const Term& t) {
    if (t.form != Term::Form::Call) return;
    if (t.name == "or") alternative(hints, t);
    hints.opset |= mentions(t, "opset");
    if (t.name == "==" && t.args.size() == 2) {
        equation(hints, t.args[0], t.args[1]);
        equation(hints, t.args[1], t.args[0]);
        // [axis_in(a, n)] == ...
        for (size_t i : {0, 1})
            if (t.args[i].form == Term::Form::List && t.args[i].args.size() == 1)
                equation(hints, t.args[i].args[0], t.args[1 - i]);
    }
    if (t.name == "same_dims" && t.args.size() == 2)
        for (size_t i : {0, 1})
            if (int slot = variable_of(t.args[i]); slot >= 0)
                hints.equations.push_back({slot, Hints::Equation::About::Dims, &t.args[1 - i]});
    if (t.name == "covers" && !t.args.empty())
        if (int slot = argument_of(t.args[0], "ints"); slot >= 0) hints.covers.insert(slot);
    const bool relates = t.args.size() == 2 && (t.name == "==" || t.name[0] == '<' || t.name[0] == '>');
    if (relates && t.args[1].form == Term::Form::Number) compare(hints, t.args[0], t.name, t.args[1].number);
    if (relates && t.args[0].form == Term::Form::Number) {
        std::string turned = t.name;
        if (turned[0] == '<' || turned[0] == '>') turned[0] = turned[0] == '<' ? '>' : '<';
        compare(hints, t.args[1], turned, t.args[0].number);
    }
    all_equal(hints, t);
    if (t.name == "not" && t.args.size() == 1) {
        if (int slot = argument_of(t.args[0], "const"); slot >= 0) hints.variable.insert(slot);
        if (int slot = argument_of(t.args[0], "given"); slot >= 0) hints.missing.insert(slot);
    }
    const std::pair<std::string_view, std::set<int>*> about[] = {
        {"const", &hints.constants},   {"consts", &hints.constants},   {"given", &hints.given},
        {"positive", &hints.positive}, {"invertible", &hints.nonzero}, {"power_of_two", &hints.powers_of_two},
    };
    for (const auto& [name, slots] : about)
        if (t.name == name)
            for (const Term& arg : t.args)
                if (int slot = variable_of(arg); slot >= 0) slots->insert(slot);
}

void each_number(const Term& t, std::vector<double>& found) {
    if (t.form == Term::Form::Number) found.push_back(t.number);
    for (const Term& arg : t.args) each_number(arg, found);
    for (const auto& [name, attr] : t.attrs) each_number(attr, found);
}

}  // namespace

Hints hints_of(const Rule& rule) {
    Hints hints;
    for (const auto* terms : {&rule.pattern, &rule.replacement, &rule.conditions})
        for (const Term& t : *terms) each_number(t, hints.numbers);
    for (const auto& [slot, t] : rule.lets) each_number(t, hints.numbers);
    for (const double n : hints.numbers)
        if (n >= kUsualLength && n <= kMostLength && n == std::floor(n))
            (n <= kMuch ? hints.lengths : hints.long_lengths).push_back(static_cast<int64_t>(n));
    for (const Term& condition : rule.conditions) read(hints, condition);
    // What is said of a constant's elements is true of constants only.
    for (const auto& [slot, n] : hints.number)
        if (rule.variables[static_cast<size_t>(slot)].kind == TermKind::Tensor) hints.constants.insert(slot);
    for (const auto* slots : {&hints.positive, &hints.powers_of_two, &hints.nonzero})
        hints.constants.insert(slots->begin(), slots->end());
    return hints;
}

}  // namespace tessera
