#include "rewrite/mutate_rules.h"

#include <set>

namespace tessera {
namespace {

using Form = Term::Form;

const std::map<std::string, std::string>& siblings() {
    static const std::map<std::string, std::string> table{
        {"add", "sub"},
        {"sub", "add"},
        {"mul", "div"},
        {"div", "mul"},
        {"max", "min"},
        {"min", "max"},
        {"relu", "sigmoid"},
        {"sigmoid", "tanh"},
        {"exp", "log"},
        {"sqrt", "reciprocal"},
        {"reciprocal", "neg"},
        {"neg", "abs"},
        {"abs", "neg"},
        {"floor", "ceil"},
        {"cos", "sin"},
        {"sin", "cos"},
        {"less", "less_or_equal"},
        {"greater", "greater_or_equal"},
        {"less_or_equal", "less"},
        {"greater_or_equal", "greater"},
        {"and", "or"},
        {"or", "and"},
        {"reduce_sum", "reduce_mean"},
        {"reduce_mean", "reduce_sum"},
        {"reduce_max", "reduce_min"},
        {"reduce_min", "reduce_max"},
        {"arg_max", "arg_min"},
        {"arg_min", "arg_max"},
        {"softmax", "log_softmax"},
        {"log_softmax", "softmax"},
        {"gelu", "relu"},
        {"swish", "mish"},
        {"mish", "swish"},
        {"hard_swish", "relu"},
        {"hard_sigmoid", "sigmoid"},
        {"softplus", "relu"},
        {"global_average_pool", "global_max_pool"},
        {"erf", "tanh"},
        {"tanh", "erf"},
        {"sum", "mean"},
        {"clip", "identity"},
    };
    return table;
}

// About profit, or about what can be computed at once; true of no value of a tensor.
bool is_profit(const Term& t) {
    if (t.form != Form::Call) return false;
    static const std::set<std::string> kNames{"const", "consts",      "smaller_than", "uses",
                                              "opset", "fully_known", "all_known"};
    if (kNames.contains(t.name)) return true;
    if (t.name == "not" || t.name == "<" || t.name == ">") return is_profit(t.args[0]);
    return false;
}

class Mutator {
  public:
    explicit Mutator(const Rule& rule) : rule_(rule) { seen_.insert(to_string(rule)); }

    std::vector<Mutant> all() {
        conditions();
        for (size_t i = 0; i < rule_.replacement.size(); ++i) terms({Part::Replacement, i, {}}, rule_.replacement[i]);
        for (size_t i = 0; i < rule_.lets.size(); ++i) terms({Part::Let, i, {}}, rule_.lets[i].second);
        for (size_t i = 0; i < rule_.pattern.size(); ++i) pattern({Part::Pattern, i, {}}, rule_.pattern[i]);
        swap_variables();
        if (rule_.replacement.size() > 1) {
            Rule r = rule_;
            std::swap(r.replacement[0], r.replacement[1]);
            keep("swap the first two results", r);
        }
        return std::move(found_);
    }

  private:
    enum class Part { Pattern, Replacement, Let, Condition };
    // Where a term stands in the rule: a part, and the way down. Attributes are counted behind the arguments.
    struct Path {
        Part part;
        size_t index;
        std::vector<size_t> way;
        Path down(size_t i) const {
            Path p = *this;
            p.way.push_back(i);
            return p;
        }
    };

    static Term& at(Rule& rule, const Path& path) {
        Term* t = path.part == Part::Pattern       ? &rule.pattern[path.index]
                  : path.part == Part::Replacement ? &rule.replacement[path.index]
                  : path.part == Part::Let         ? &rule.lets[path.index].second
                                                   : &rule.conditions[path.index];
        for (size_t i : path.way) t = i < t->args.size() ? &t->args[i] : &t->attrs[i - t->args.size()].second;
        return *t;
    }

    std::string text(const Term& t) const { return to_string(t, rule_); }

    void keep(std::string change, const Rule& mutated) {
        std::string source = to_string(mutated);
        if (!seen_.insert(source).second) return;
        Result<Rules> read = read_rules(source, "mutant");
        if (!read.ok() || read->size() != 1) return;
        found_.push_back({std::move(change), std::move((*read)[0])});
    }

    template <typename F>
    void change(const Path& path, std::string what, F f) {
        Rule r = rule_;
        f(at(r, path));
        keep(std::move(what), r);
    }

    static Term plus_one(const Term& t, bool flag = false) {
        if (t.form == Form::Number) {
            Term n = t;
            n.number += n.number == -1 ? 2 : 1;  // a reshape's 0 would say the same
            if (t.number == 1 && flag) n.number = 0;
            return n;
        }
        Term sum, one;
        one.form = Form::Number;
        one.kind = TermKind::Int;
        one.number = 1;
        sum.form = Form::Call;
        sum.name = "+";
        sum.kind = t.kind;
        sum.args = {t, one};
        return sum;
    }

    void conditions() {
        for (size_t i = 0; i < rule_.conditions.size(); ++i) {
            const Term& c = rule_.conditions[i];
            if (is_profit(c)) continue;
            Rule r = rule_;
            r.conditions.erase(r.conditions.begin() + static_cast<std::ptrdiff_t>(i));
            keep("drop condition " + text(c), r);
        }
    }

    // Terms of the right-hand side.
    void terms(const Path& path, const Term& t) {
        if (t.form == Form::Op) op(path, t);
        if (t.form == Form::Number) change(path, "take " + text(t) + " one larger", [](Term& x) { x = plus_one(x); });
        if (t.form == Form::Call) {
            static const std::map<std::string, std::string> kOther{
                {"+", "-"}, {"-", "+"}, {"take", "drop"}, {"drop", "take"}, {"larger", "smaller"}};
            if (auto it = kOther.find(t.name); it != kOther.end())
                change(path, "take " + it->second + " for " + text(t), [&](Term& x) { x.name = it->second; });
            if ((t.name == "permute" || t.name == "join" || t.name == "each_at") && t.args.size() == 2)
                change(path, "swap the arguments of " + text(t), [](Term& x) { std::swap(x.args[0], x.args[1]); });
            if (t.name == "inverse")
                change(path, "leave the inverse out of " + text(t), [](Term& x) { x = Term(x.args[0]); });
        }
        for (size_t i = 0; i < t.args.size(); ++i) terms(path.down(i), t.args[i]);
        for (size_t i = 0; i < t.attrs.size(); ++i)
            attribute(path.down(t.args.size() + i), t.attrs[i].first, t.attrs[i].second);
    }

    void op(const Path& path, const Term& t) {
        const std::string here = text(t);
        if (auto it = siblings().find(t.op->name); it != siblings().end())
            change(path, "take " + it->second + " for " + t.op->name + " in " + here, [&](Term& x) {
                x.op = find_op(it->second);
                x.name = it->second;
                if (it->second == "identity") x.args.resize(1);
            });
        if (!t.args.empty() && (path.part != Part::Let || !path.way.empty()))
            change(path, "take the first input for " + here, [](Term& x) { x = Term(x.args[0]); });
        bool commutes =
            t.op->has(Trait::Commutative) || t.op->name == "max" || t.op->name == "min" || t.op->name == "sum";
        for (size_t i = 0; i + 1 < t.args.size() && !commutes; ++i)
            change(path, fmt::format("swap inputs {} and {} of {}", i, i + 1, here),
                   [&](Term& x) { std::swap(x.args[i], x.args[i + 1]); });
        if (t.args.size() > t.op->min_inputs())
            change(path, "drop the last input of " + here, [](Term& x) { x.args.pop_back(); });
        for (size_t i = 0; i < t.attrs.size(); ++i)
            change(path, "drop " + t.attrs[i].first + " of " + here,
                   [&](Term& x) { x.attrs.erase(x.attrs.begin() + static_cast<std::ptrdiff_t>(i)); });
        if (t.rest_slot >= 0 && !t.op->attrs.empty())
            change(path, "drop the rest of " + here, [](Term& x) { x.rest_slot = -1; });
    }

    void attribute(const Path& path, const std::string& name, const Term& t) {
        if (t.kind == TermKind::Int || t.kind == TermKind::Float)
            change(path, "take " + name + " for another than " + text(t), [&](Term& x) { x = plus_one(x, true); });
        if (t.form == Form::List)
            for (size_t i = 0; i < t.args.size(); ++i)
                change(path.down(i), fmt::format("take element {} of {}={} one larger", i, name, text(t)),
                       [](Term& x) { x = plus_one(x); });
        if (t.kind == TermKind::Ints && name == "pads")
            change(path, "take pads twice for " + text(t), [](Term& x) {
                Term sum;
                sum.form = Form::Call;
                sum.name = "+";
                sum.kind = TermKind::Ints;
                sum.args = {x, x};
                x = sum;
            });
        terms(path, t);
    }

    // Terms of the left-hand side: what the rule demands, it demands no more.
    void pattern(const Path& path, const Term& t) {
        if (t.form == Form::Number && !path.way.empty())
            change(path, "match " + text(t) + " one larger", [](Term& x) { x.number += 1; });
        if (t.form != Form::Op) return;
        for (size_t i = 0; i < t.attrs.size(); ++i) {
            const Term& attr = t.attrs[i].second;
            if (attr.form == Form::Variable) continue;
            change(path.down(t.args.size() + i), "match any " + t.attrs[i].first + " of " + text(t), [](Term& x) {
                x = Term();
                x.form = Form::Variable;
                x.slot = -1;
            });
        }
        for (size_t i = 0; i < t.args.size(); ++i) pattern(path.down(i), t.args[i]);
    }

    static void rename(Term& t, int a, int b) {
        if (t.form == Form::Variable && (t.slot == a || t.slot == b)) t.slot = t.slot == a ? b : a;
        for (Term& arg : t.args) rename(arg, a, b);
        for (auto& [name, attr] : t.attrs) rename(attr, a, b);
    }

    void swap_variables() {
        for (size_t a = 0; a < rule_.variables.size(); ++a)
            for (size_t b = a + 1; b < rule_.variables.size(); ++b) {
                TermKind kind = rule_.variables[a].kind;
                if (kind != rule_.variables[b].kind || kind == TermKind::Attrs || kind == TermKind::Any) continue;
                Rule r = rule_;
                for (Term& t : r.replacement) rename(t, static_cast<int>(a), static_cast<int>(b));
                for (auto& [slot, t] : r.lets) rename(t, static_cast<int>(a), static_cast<int>(b));
                keep(fmt::format("swap {} and {} on the right", rule_.variables[a].name, rule_.variables[b].name), r);
            }
    }

    const Rule& rule_;
    std::set<std::string> seen_;
    std::vector<Mutant> found_;
};

}  // namespace

std::vector<Mutant> mutants_of(const Rule& rule) { return Mutator(rule).all(); }

}  // namespace tessera
