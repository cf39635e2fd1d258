#include "rewrite/rules/match.h"

#include <algorithm>
#include <cmath>

#include "base/numeric.h"
#include "rewrite/rules/check_rule.h"

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

class Matcher {
  public:
    Matcher(const Rule& rule, Value& root, const std::function<bool(const Match&)>& accept)
        : rule_(rule), graph_(&root.graph()), accept_(accept) {
        state_.rule = &rule;
        state_.slots.resize(rule.variables.size());
        state_.roots = {&root};
        bound_.resize(rule.variables.size());
        agenda_ = {{&rule.pattern[0], &root}};
    }

    std::optional<Match> find() {
        if (!next()) return {};
        return std::move(state_);
    }

  private:
    const Rule& rule_;
    Graph* graph_;
    const std::function<bool(const Match&)>& accept_;
    Match state_;
    std::vector<bool> bound_;
    std::vector<std::pair<const Term*, Value*>> agenda_;

    struct Saved {
        Match state;
        std::vector<bool> bound;
        std::vector<std::pair<const Term*, Value*>> agenda;
    };
    Saved save() const { return {state_, bound_, agenda_}; }
    void restore(const Saved& s) {
        state_ = s.state;
        bound_ = s.bound;
        agenda_ = s.agenda;
    }

    // Matches what is on the agenda, then further roots, then the conditions.
    bool next() {
        while (!agenda_.empty()) {
            auto [term, value] = agenda_.back();
            agenda_.pop_back();
            switch (term->form) {
                case Form::Variable:
                    if (!variable(*term, value)) return false;
                    break;
                case Form::Number:
                    if (!value || !matches_literal(*term, *value)) return false;
                    break;
                case Form::List:
                    if (!value || !matches_list(*term, *value)) return false;
                    break;
                case Form::Op: {
                    if (!value || !op(*term, *value)) return false;
                    std::optional<bool> branched = inputs(*term, *value->node());
                    if (branched) return *branched;
                    break;
                }
                default: return false;
            }
        }
        if (state_.roots.size() < rule_.pattern.size()) return further_root();
        for (const auto& [slot, term] : rule_.lets) {
            if (term.form == Form::Op) continue;
            std::optional<RuleValue> value = evaluate_term(term, state_.slots);
            if (!value) return false;
            state_.slots[static_cast<size_t>(slot)] = std::move(*value);
        }
        for (const Term& condition : rule_.conditions) {
            std::optional<RuleValue> holds = evaluate_term(condition, state_.slots);
            if (!holds || !std::get<bool>(*holds)) return false;
        }
        return accept_(state_);
    }

    bool bind(int slot, RuleValue value) {
        if (slot < 0) return true;
        auto i = static_cast<size_t>(slot);
        if (bound_[i]) return same_value(state_.slots[i], value);
        bound_[i] = true;
        state_.slots[i] = std::move(value);
        return true;
    }

    bool variable(const Term& term, Value* value) {
        if (!value) return term.optional && bind(term.slot, {});
        if (term.slot < 0) return true;
        const RuleVariable& v = rule_.variables[static_cast<size_t>(term.slot)];
        if (!value->type().is_tensor() || !satisfies(value->type().tensor().dtype, v.constraint)) return false;
        return bind(term.slot, value);
    }

    // The node, its attributes and its number of inputs.
    bool op(const Term& term, Value& value) {
        Node* node = value.node();
        if (!node || &node->op() != term.op || value.index() != static_cast<size_t>(term.output)) return false;
        if (&node->graph() != graph_) return false;
        if (!bind(term.bound_slot, &value)) return false;
        auto bind_slot = [this](int slot, RuleValue v) { return bind(slot, std::move(v)); };
        if (!match_attributes(term, *node, state_.slots, bind_slot)) return false;
        if (std::find(state_.nodes.begin(), state_.nodes.end(), node) == state_.nodes.end())
            state_.nodes.push_back(node);
        return true;
    }

    // Puts the inputs on the agenda. Where there is more than one way it tries them all, and says how that ended.
    std::optional<bool> inputs(const Term& term, Node& node) {
        const std::vector<Term>& args = term.args;
        size_t count = std::max(node.inputs().size(), args.size());
        auto first_list = std::find_if(args.begin(), args.end(), [](const Term& a) { return a.list; });
        if (first_list != args.end()) return spread(term, node, static_cast<size_t>(first_list - args.begin()));
        if (node.inputs().size() > args.size()) return false;
        const bool either = node.is(Trait::Commutative) && args.size() == 2 && node.inputs().size() == 2;
        if (!either && !literals_fit(term, node)) return false;
        if (either) {
            Saved before = save();
            for (bool swapped : {false, true}) {
                if (swapped) restore(before);
                Value* a = node.input(swapped ? 1 : 0);
                Value* b = node.input(swapped ? 0 : 1);
                if (!could_be(args[0], a) || !could_be(args[1], b) || !literals_fit(term, node, swapped)) continue;
                agenda_.emplace_back(&args[0], a);
                agenda_.emplace_back(&args[1], b);
                if (next()) return true;
            }
            return false;
        }
        for (size_t i = count; i-- > 0;) {
            if (!could_be(args[i], node.input(i))) return false;
            agenda_.emplace_back(&args[i], node.input(i));
        }
        return {};
    }

    // A cheap look before the order is tried.
    static bool could_be(const Term& term, const Value* v) {
        if (term.form == Form::Op) return v && v->node() && &v->node()->op() == term.op;
        if (term.form == Form::Number) return v && v->is_constant();
        return v || term.optional;
    }

    // Inputs with lists among them: the second list takes what the first one leaves.
    std::optional<bool> spread(const Term& term, Node& node, size_t first) {
        const std::vector<Term>& args = term.args;
        const std::vector<Value*>& given = node.inputs();
        size_t last = args.size() - 1;
        while (!args[last].list) --last;
        size_t fixed = args.size() - (first == last ? 1 : 2);
        if (given.size() < fixed) return false;
        size_t loose = given.size() - fixed;
        auto place = [&](size_t taken) {
            size_t at = 0;
            std::vector<const Value*> literals;
            for (size_t i = 0; i < args.size(); ++i) {
                if (args[i].list) {
                    size_t n = i == first ? taken : loose - taken;
                    std::vector<Value*> part(given.begin() + static_cast<std::ptrdiff_t>(at),
                                             given.begin() + static_cast<std::ptrdiff_t>(at + n));
                    if (!bind(args[i].slot, std::move(part))) return false;
                    at += n;
                } else {
                    if (args[i].form == Form::Number) literals.push_back(given[at]);
                    agenda_.emplace_back(&args[i], given[at++]);
                }
            }
            return literals_fit(node, literals);
        };
        if (first == last) {
            if (!place(loose)) return false;
            return {};
        }
        Saved before = save();
        for (size_t taken = 0; taken <= loose; ++taken) {
            restore(before);
            if (place(taken) && next()) return true;
        }
        return false;
    }

    // Roots after the first are found from a value they share with those before.
    bool further_root() {
        const Term& root = rule_.pattern[state_.roots.size()];
        std::vector<const Term*> path;
        Value* shared = nullptr;
        if (!find_shared(root, path, shared, false) && !find_shared(root, path, shared, true)) return false;
        std::vector<Value*> candidates = {shared};
        for (size_t i = path.size(); i-- > 0;) {
            std::vector<Value*> above;
            for (Value* v : candidates)
                for (const Use& use : v->uses())
                    if (use.node && use.graph == graph_ && &use.node->op() == path[i]->op &&
                        static_cast<size_t>(path[i]->output) < use.node->output_count()) {
                        Value* out = use.node->output(static_cast<size_t>(path[i]->output));
                        if (std::find(above.begin(), above.end(), out) == above.end()) above.push_back(out);
                    }
            candidates = std::move(above);
        }
        Saved before = save();
        for (Value* candidate : candidates) {
            if (std::find(state_.roots.begin(), state_.roots.end(), candidate) != state_.roots.end()) continue;
            restore(before);
            state_.roots.push_back(candidate);
            agenda_ = {{&root, candidate}};
            if (next()) return true;
        }
        return false;
    }

    // The ops from a root down to a variable that is bound already; one that is computed leads to fewer places.
    bool find_shared(const Term& term, std::vector<const Term*>& path, Value*& shared, bool constant) const {
        path.push_back(&term);
        for (const Term& arg : term.args) {
            if (arg.form == Form::Variable && arg.slot >= 0 && bound_[static_cast<size_t>(arg.slot)])
                if (auto* v = std::get_if<Value*>(&state_.slots[static_cast<size_t>(arg.slot)]);
                    v && *v && (*v)->is_constant() == constant) {
                    shared = *v;
                    return true;
                }
            if (arg.form == Form::Op && find_shared(arg, path, shared, constant)) return true;
        }
        path.pop_back();
        return false;
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
    return Matcher(rule, root, accept).find();
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
