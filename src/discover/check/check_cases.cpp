#include "discover/check/check_cases.h"

#include <map>
#include <set>

namespace tessera::checker {
namespace {

using Form = Term::Form;

constexpr size_t kMost = 6;  // inputs that may be absent

// Which input it is: by its variable, and each `_` is its own.
using Input = std::pair<int, size_t>;
Input input_of(const Term& t) { return {t.slot, t.slot < 0 ? t.at : 0}; }

void collect(const Term& t, std::set<Input>& found) {
    if (t.form == Form::Variable && t.optional) found.insert(input_of(t));
    for (const Term& a : t.args) collect(a, found);
}

Term truth(bool value) {
    Term t;
    t.form = Form::Number;
    t.kind = TermKind::Bool;
    t.number = value;
    return t;
}
bool is_truth(const Term& t, bool value) {
    return t.form == Form::Number && t.kind == TermKind::Bool && t.number == value;
}

class Case {
  public:
    explicit Case(std::map<Input, bool> given) : given_(std::move(given)) {}

    Term operands(Term t) const {
        std::vector<Term> args;
        for (const Term& a : t.args) {
            Term here = operands(a);
            auto given = given_.find(input_of(a));
            if (a.form == Form::Variable && a.optional && given != given_.end()) {
                here.optional = false;
                if (!given->second) {
                    here = {};
                    here.form = Form::Text;
                    here.kind = TermKind::Tensor;
                    here.optional = true;
                }
            }
            args.push_back(std::move(here));
        }
        if (t.form == Form::Op)
            while (!args.empty() && is_absent(args.back())) args.pop_back();
        t.args = std::move(args);
        return t;
    }

    Term condition(Term t) const {
        if (t.form != Form::Call) return t;
        if (t.name == "given" && t.args[0].form == Form::Variable)
            if (auto it = given_.find({t.args[0].slot, 0}); it != given_.end()) return truth(it->second);
        for (Term& a : t.args) a = condition(a);
        if (t.name == "not" && is_truth(t.args[0], true)) return truth(false);
        if (t.name == "not" && is_truth(t.args[0], false)) return truth(true);
        if (t.name != "and" && t.name != "or") return t;
        const bool decides = t.name == "or";
        for (const Term& a : t.args)
            if (is_truth(a, decides)) return truth(decides);
        std::erase_if(t.args, [&](const Term& a) { return is_truth(a, !decides); });
        if (t.args.empty()) return truth(!decides);
        return t.args.size() == 1 ? Term(t.args[0]) : t;
    }

  private:
    std::map<Input, bool> given_;
};

}  // namespace

bool is_absent(const Term& t) { return t.form == Form::Text && t.optional; }

Result<std::vector<Rule>> cases_of(const Rule& rule) {
    std::set<Input> found;
    for (const Term& t : rule.pattern) collect(t, found);
    if (found.size() > kMost) return Error(Code::E0305, "{}: too many optional inputs", rule.name).at(rule.source);
    std::vector<Rule> out;
    for (size_t code = 0; code < size_t{1} << found.size(); ++code) {
        std::map<Input, bool> given;
        size_t i = 0;
        for (const Input& input : found) given[input] = !(code >> i++ & 1);
        const Case with(std::move(given));
        Rule one = rule;
        for (Term& t : one.pattern) t = with.operands(t);
        for (auto& [slot, t] : one.lets) t = with.operands(t);
        for (Term& t : one.replacement) t = with.operands(t);
        one.conditions.clear();
        bool possible = true;
        for (const Term& c : rule.conditions) {
            Term here = with.condition(c);
            possible &= !is_truth(here, false);
            if (!is_truth(here, true)) one.conditions.push_back(std::move(here));
        }
        if (possible) out.push_back(std::move(one));
    }
    return out;
}

}  // namespace tessera::checker
