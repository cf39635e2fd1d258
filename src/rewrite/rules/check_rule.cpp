#include "rewrite/rules/check_rule.h"

#include <algorithm>
#include <set>

#include "base/nearest.h"
#include "rewrite/rules/functions.h"

namespace tessera {
namespace {

using Form = Term::Form;

TermKind kind_of(AttrKind kind) {
    switch (kind) {
        case AttrKind::Int: return TermKind::Int;
        case AttrKind::Float: return TermKind::Float;
        case AttrKind::String: return TermKind::String;
        case AttrKind::Ints: return TermKind::Ints;
        case AttrKind::Floats: return TermKind::Floats;
        case AttrKind::Strings: return TermKind::Strings;
        default: return TermKind::Any;
    }
}

bool fits(TermKind given, TermKind wanted) {
    return given == wanted || wanted == TermKind::Any || given == TermKind::Any ||
           (given == TermKind::Int && wanted == TermKind::Float) ||
           (given == TermKind::Ints && wanted == TermKind::Floats);
}

class RuleChecker {
  public:
    RuleChecker(Rule& rule, const TextScanner& scan) : rule_(rule), scan_(scan) {}

    Status check() {
        std::set<int> before;
        for (size_t i = 0; i < rule_.pattern.size(); ++i) {
            Term& root = rule_.pattern[i];
            if (root.form != Form::Op) return error(root, "a pattern begins with an op");
            TRY(pattern(root));
            std::set<int> here;
            tensor_slots(root, here);
            bool shares = std::any_of(here.begin(), here.end(), [&](int slot) { return before.contains(slot); });
            if (i > 0 && !shares) return error(root, "it shares no tensor with the patterns before it");
            before.merge(here);
        }
        for (const Term& root : rule_.pattern) TRY(acyclic(root));
        for (auto& [slot, term] : rule_.lets) {
            if (term.form == Form::Op)
                TRY(tensor(term));
            else
                term.kind = TRY(value(term));
            rule_.variables[static_cast<size_t>(slot)].kind = term.kind;
        }
        for (Term& term : rule_.replacement) TRY(tensor(term));
        size_t roots = rule_.pattern.size(), results = rule_.replacement.size();
        bool splits = results == 1 && rule_.replacement[0].form == Form::Op;
        if (results != roots && !splits)
            return error(rule_.replacement[0], "{} results for {} patterns", results, roots);
        for (Term& term : rule_.conditions)
            if (TermKind kind = TRY(value(term)); kind != TermKind::Bool)
                return error(term, "a condition is true or false, this is {}", name_of(kind));
        return {};
    }

  private:
    Rule& rule_;
    const TextScanner& scan_;

    template <typename... Args>
    Error error(const Term& term, fmt::format_string<Args...> text, Args&&... args) const {
        return scan_.error(term.at, Code::E0303, "{}", fmt::format(text, std::forward<Args>(args)...));
    }

    RuleVariable& variable(const Term& t) { return rule_.variables[static_cast<size_t>(t.slot)]; }

    static void tensor_slots(const Term& term, std::set<int>& out) {
        if (term.form == Form::Variable && term.slot >= 0) out.insert(term.slot);
        if (term.form == Form::Op)
            for (const Term& arg : term.args) tensor_slots(arg, out);
    }

    Status bind(int slot, TermKind kind, const Term& at) {
        RuleVariable& v = rule_.variables[static_cast<size_t>(slot)];
        if (v.kind == TermKind::Any) v.kind = kind;
        if (v.kind != kind) return error(at, "{} is {} and here {}", v.name, name_of(v.kind), name_of(kind));
        return {};
    }

    // The inputs that the op takes, and the attributes it has. `each` checks a term for an attribute of its kind.
    template <typename F>
    Status call(Term& t, F each) {
        const OpDef& op = *t.op;
        bool variadic = !op.inputs.empty() && op.inputs.back().variadic;
        bool spread = std::any_of(t.args.begin(), t.args.end(), [](const Term& a) { return a.list; });
        if (spread && !variadic) return error(t, "{} does not take a list of inputs", op.name);
        if (!variadic && t.args.size() > op.inputs.size())
            return error(t, "{} takes at most {} inputs, here are {}", op.name, op.inputs.size(), t.args.size());
        if (!spread && t.args.size() < op.min_inputs())
            return error(t, "{} takes at least {} inputs, here are {}", op.name, op.min_inputs(), t.args.size());
        if (static_cast<size_t>(t.output) >= op.outputs.size() && !(!op.outputs.empty() && op.outputs.back().variadic))
            return error(t, "{} has no output {}", op.name, t.output);
        for (auto& [name, term] : t.attrs) {
            const AttrDef* def = op.attr(name);
            if (!def) {
                std::vector<std::string_view> names;
                for (const AttrDef& a : op.attrs) names.push_back(a.name);
                Error e = error(term, "{} has no attribute {}", op.name, name);
                if (std::string near = nearest(name, names); !near.empty()) return std::move(e).hint("did you mean \"{}\"?", near);
                return e;
            }
            TermKind wanted = kind_of(def->kind);
            if (wanted == TermKind::Any) return error(term, "{} can only stand among the ..rest", name);
            TRY(each(term, wanted, name));
        }
        if (t.rest_slot >= 0) TRY(bind(t.rest_slot, TermKind::Attrs, t));
        t.kind = TermKind::Tensor;
        return {};
    }

    Status pattern(Term& t) {
        switch (t.form) {
            case Form::Variable:
                t.kind = t.list ? TermKind::Tensors : TermKind::Tensor;
                return t.slot >= 0 ? bind(t.slot, t.kind, t) : Status();
            case Form::Number: t.kind = TermKind::Tensor; return {};
            case Form::List: {
                TermKind kind = TRY(value(t));
                if (kind != TermKind::Ints) return error(t, "only lists of integers can stand for an input");
                for (const Term& element : t.args)
                    if (element.form != Form::Number) return error(element, "a pattern's list has numbers");
                return {};
            }
            case Form::Op: break;
            default: return error(t, "a pattern is made of ops and variables");
        }
        if (t.bound_slot >= 0) TRY(bind(t.bound_slot, TermKind::Tensor, t));
        if (std::count_if(t.args.begin(), t.args.end(), [](const Term& a) { return a.list; }) > 2)
            return error(t, "at most two lists can stand in one pattern");
        for (Term& arg : t.args) TRY(pattern(arg));
        return call(t, [&](Term& term, TermKind wanted, const std::string& name) -> Status {
            if (term.form == Form::Variable) {
                term.kind = wanted;
                if (term.list) return error(term, "{} is one attribute", name);
                return term.slot >= 0 ? bind(term.slot, wanted, term) : Status();
            }
            if (term.form == Form::Call || term.form == Form::Op)
                return error(term, "in a pattern an attribute is a variable or a value; use a condition");
            TermKind kind = TRY(value(term));
            if (!fits(kind, wanted)) return error(term, "{} is {}, this is {}", name, name_of(wanted), name_of(kind));
            return Status();
        });
    }

    // No graph has a node among its own operands, however far down, so no pattern may name one there.
    Status acyclic(const Term& t) {
        std::set<int> inside;
        for (const Term& arg : t.args) named_inside(arg, inside);
        if (t.bound_slot >= 0 && inside.contains(t.bound_slot))
            return error(t, "{} is among its own operands", rule_.variables[static_cast<size_t>(t.bound_slot)].name);
        for (const Term& arg : t.args) TRY(acyclic(arg));
        return {};
    }
    // The tensors that a term reads, through the ops that they name.
    void named_inside(const Term& t, std::set<int>& found) const {
        if (t.form == Form::Variable && t.slot >= 0 && found.insert(t.slot).second)
            for (const Term& root : rule_.pattern) named_by(root, t.slot, found);
        for (const Term& arg : t.args) named_inside(arg, found);
    }
    void named_by(const Term& t, int slot, std::set<int>& found) const {
        for (const Term& arg : t.args) {
            if (t.bound_slot == slot) named_inside(arg, found);
            named_by(arg, slot, found);
        }
    }

    // A term where the replacement needs a tensor.
    Status tensor(Term& t) {
        if (t.form == Form::Op) {
            if (t.bound_slot >= 0) return error(t, "only a pattern can name an op's output; use let");
            TRY(call(t, [&](Term& term, TermKind wanted, const std::string& name) -> Status {
                TermKind kind = TRY(value(term));
                if (!fits(kind, wanted))
                    return error(term, "{} is {}, this is {}", name, name_of(wanted), name_of(kind));
                return Status();
            }));
            bool typed = t.args.empty();
            for (Term& arg : t.args) {
                TRY(tensor(arg));
                typed |= arg.form != Form::Number;
            }
            if (!typed) return error(t, "the numbers' element type is not known here");
            return {};
        }
        if (t.form == Form::Number) {
            t.kind = TermKind::Tensor;
            return {};
        }
        TermKind kind = TRY(value(t));
        bool can = kind == TermKind::Tensor || kind == TermKind::Tensors || kind == TermKind::Int ||
                   kind == TermKind::Ints || kind == TermKind::Float;
        if (!can) return error(t, "this should be a tensor, not {}", name_of(kind));
        if (t.list != (kind == TermKind::Tensors)) return error(t, "a list of tensors is written xs...");
        return {};
    }

    // A term of an attribute or a condition.
    Result<TermKind> value(Term& t) {
        switch (t.form) {
            case Form::Variable:
                if (t.slot < 0) return error(t, "_ stands for nothing here");
                t.kind = variable(t).kind;
                return t.kind;
            case Form::Number: t.kind = t.has_point ? TermKind::Float : TermKind::Int; return t.kind;
            case Form::Text: t.kind = TermKind::String; return t.kind;
            case Form::List: {
                TermKind element = TermKind::Int;
                for (size_t i = 0; i < t.args.size(); ++i) {
                    TermKind kind = TRY(value(t.args[i]));
                    if (i > 0 && kind == TermKind::Float) element = kind;
                    if (i == 0) element = kind;
                    if (!fits(kind, element)) return error(t.args[i], "a list has elements of one kind");
                }
                if (element == TermKind::Int)
                    t.kind = TermKind::Ints;
                else if (element == TermKind::Float)
                    t.kind = TermKind::Floats;
                else if (element == TermKind::String)
                    t.kind = TermKind::Strings;
                else
                    return error(t, "a list has integers, floats or strings");
                return t.kind;
            }
            case Form::Op: return error(t, "an op cannot stand here; only functions can");
            case Form::Call: break;
        }
        std::vector<TermKind> given;
        for (Term& arg : t.args) given.push_back(TRY(value(arg)));
        std::vector<const RuleFunction*> candidates = find_rule_functions(t.name);
        for (const RuleFunction* f : candidates) {
            if (f->variadic ? given.size() + 1 < f->takes.size() : given.size() != f->takes.size()) continue;
            bool all = true;
            for (size_t i = 0; i < given.size(); ++i) all &= fits(given[i], f->takes[std::min(i, f->takes.size() - 1)]);
            if (!all) continue;
            t.function = f;
            t.kind = f->gives;
            return t.kind;
        }
        std::vector<std::string> forms;
        for (const RuleFunction* f : candidates) {
            std::vector<std::string_view> takes;
            for (TermKind k : f->takes) takes.push_back(name_of(k));
            forms.push_back(fmt::format("{}({}{})", t.name, fmt::join(takes, ", "), f->variadic ? "..." : ""));
        }
        std::vector<std::string_view> got;
        for (TermKind k : given) got.push_back(name_of(k));
        return error(t, "{} is not defined for ({})", t.name, fmt::join(got, ", ")).hint("{}", fmt::join(forms, "; "));
    }
};

}  // namespace

Status check_rule(Rule& rule, const TextScanner& scan) { return RuleChecker(rule, scan).check(); }

bool is_constraint(std::string_view word) {
    return word == "float" || word == "int" || word == "bool" || word == "number" || dtype_from_name(word);
}

bool satisfies(DType dtype, std::string_view constraint) {
    if (constraint.empty()) return true;
    // One of exponents only has neither zero nor sign: it scales, and is nothing to compute with.
    if ((constraint == "float" || constraint == "number") && dtype == DType::f8e8m0) return false;
    if (constraint == "float") return kFloats.has(dtype);
    if (constraint == "int") return kInts.has(dtype);
    if (constraint == "bool") return dtype == DType::boolean;
    if (constraint == "number") return kNumbers.has(dtype);
    return dtype_from_name(constraint) == dtype;
}

bool admits(Precision precision, Exactness exactness) {
    return static_cast<int>(exactness) <= static_cast<int>(precision);
}

std::string_view name_of(Exactness e) {
    return e == Exactness::Exact ? "exact" : e == Exactness::Reassociates ? "reassociates" : "approximates";
}

std::string_view name_of(Evidence e) {
    return e == Evidence::Stated ? "stated" : e == Evidence::Tested ? "tested" : "proved";
}

std::string_view name_of(Precision p) {
    return p == Precision::Strict ? "strict" : p == Precision::Default ? "default" : "fast";
}

std::string_view name_of(TermKind kind) {
    switch (kind) {
        case TermKind::Tensor: return "a tensor";
        case TermKind::Tensors: return "a list of tensors";
        case TermKind::Int: return "an integer";
        case TermKind::Ints: return "a list of integers";
        case TermKind::Float: return "a float";
        case TermKind::Floats: return "a list of floats";
        case TermKind::String: return "a string";
        case TermKind::Strings: return "a list of strings";
        case TermKind::Bool: return "a truth value";
        case TermKind::DType: return "an element type";
        case TermKind::Attrs: return "a set of attributes";
        case TermKind::Any: return "anything";
    }
    return {};
}

}  // namespace tessera
