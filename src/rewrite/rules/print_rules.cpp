#include <charconv>
#include <limits>

#include "graph/text/literal.h"
#include "rewrite/rule.h"

namespace tessera {
namespace {

using Form = Term::Form;

std::string number_text(const Term& t) {
    if (!t.has_point) return std::to_string(t.whole());
    char digits[40];
    auto [end, code] = std::to_chars(digits, digits + sizeof digits, t.number);
    std::string text(digits, end);
    return text.find_first_of(".ein") == std::string::npos ? text + ".0" : text;
}

class TermText {
  public:
    explicit TermText(const Rule& rule) : rule_(rule), constrained_(rule.variables.size()) {}

    std::string term(const Term& t, bool in_pattern) {
        switch (t.form) {
            case Form::Variable: {
                std::string text = t.slot < 0 ? "_" : name(t.slot);
                if (t.list) text += "...";
                if (t.optional) text += "?";
                if (in_pattern && t.slot >= 0 && !constrained_[static_cast<size_t>(t.slot)]) {
                    constrained_[static_cast<size_t>(t.slot)] = true;
                    const std::string& constraint = rule_.variables[static_cast<size_t>(t.slot)].constraint;
                    if (!constraint.empty()) text += ":" + constraint;
                }
                return text;
            }
            case Form::Number: return number_text(t);
            case Form::Text: return quote(t.name);
            case Form::List: return "[" + terms(t.args, in_pattern) + "]";
            case Form::Op: return op(t, in_pattern);
            case Form::Call: break;
        }
        if (t.name == "at") return fmt::format("{}[{}]", operand(t.args[0]), term(t.args[1], false));
        if (t.name == "not") return "not " + operand(t.args[0]);
        if (t.name == "negate") return "-" + operand(t.args[0]);
        bool infix = t.name == "and" || t.name == "or" || !((t.name[0] >= 'a' && t.name[0] <= 'z') || t.name[0] == '_');
        if (infix) return fmt::format("{} {} {}", operand(t.args[0]), t.name, operand(t.args[1]));
        return fmt::format("{}({})", t.name, terms(t.args, false));
    }

    std::string terms(const std::vector<Term>& list, bool in_pattern) {
        std::string text;
        for (const Term& t : list) text += (text.empty() ? "" : ", ") + term(t, in_pattern);
        return text;
    }

  private:
    const Rule& rule_;
    std::vector<bool> constrained_;

    const std::string& name(int slot) const { return rule_.variables[static_cast<size_t>(slot)].name; }

    // With parentheses where it is an operator of its own.
    std::string operand(const Term& t) {
        std::string text = term(t, false);
        bool compound = t.form == Form::Call && text.find(' ') != std::string::npos && !text.starts_with(t.name + "(");
        return compound ? "(" + text + ")" : text;
    }

    std::string op(const Term& t, bool in_pattern) {
        std::string text = t.bound_slot >= 0 ? name(t.bound_slot) + "@" : "";
        text += t.name;
        if (t.output) text += fmt::format(".{}", t.output);
        std::string inside = terms(t.args, in_pattern);
        for (const auto& [attr, value] : t.attrs)
            inside += fmt::format("{}{}={}", inside.empty() ? "" : ", ", attr, term(value, in_pattern));
        if (t.rest_slot >= 0) inside += fmt::format("{}..{}", inside.empty() ? "" : ", ", name(t.rest_slot));
        return text + "(" + inside + ")";
    }
};

std::string tuple(TermText& text, const std::vector<Term>& terms, bool in_pattern) {
    std::string inside = text.terms(terms, in_pattern);
    return terms.size() == 1 ? inside : "(" + inside + ")";
}

}  // namespace

int64_t Term::whole() const {
    using Limits = std::numeric_limits<int64_t>;
    if (number >= 0x1p63) return Limits::max();
    return number < -0x1p63 ? Limits::min() : static_cast<int64_t>(number);
}

std::string to_string(const Term& term, const Rule& rule) { return TermText(rule).term(term, false); }

std::string to_string(const Rule& rule) {
    TermText text(rule);
    std::string out = rule.name;
    std::vector<std::string_view> tags;
    if (rule.exactness != Exactness::Exact) tags.push_back(name_of(rule.exactness));
    if (rule.grows) tags.push_back("grows");
    if (rule.evidence != Evidence::Stated) tags.push_back(name_of(rule.evidence));
    if (!tags.empty()) out += fmt::format(" [{}]", fmt::join(tags, ", "));
    out += ": " + tuple(text, rule.pattern, true);
    out += " => ";
    for (size_t i = 0; i < rule.lets.size(); ++i) {
        const auto& [slot, term] = rule.lets[i];
        out += fmt::format("{}{} = {}", i ? ", " : "let ", rule.variables[static_cast<size_t>(slot)].name,
                           text.term(term, false));
    }
    if (!rule.lets.empty()) out += " in ";
    out += tuple(text, rule.replacement, false);
    for (size_t i = 0; i < rule.conditions.size(); ++i) {
        std::string condition = text.term(rule.conditions[i], false);
        if (rule.conditions[i].name == "or") condition = "(" + condition + ")";
        out += (i ? " and " : " if ") + condition;
    }
    return out;
}

const Rules& built_in_rules(std::string_view file) {
    static const std::map<std::string_view, Rules> all = [] {
        std::map<std::string_view, Rules> by_file;
        for (const RuleFile& f : built_in_rule_files()) {
            Result<Rules> rules = read_rules(f.text, fmt::format("rules/{}.rules", f.name));
            CHECK(rules.ok(), "{}", rules.error().to_string());
            by_file.emplace(f.name, std::move(*rules));
        }
        return by_file;
    }();
    static const Rules none;
    auto it = all.find(file);
    return it == all.end() ? none : it->second;
}

}  // namespace tessera
