#include "search/ematch.h"

#include <algorithm>

#include "rewrite/rules/check_rule.h"

namespace tessera {
namespace {

using Form = Term::Form;

class EMatcher {
  public:
    EMatcher(const EGraph& egraph, const Rule& rule, const std::function<bool(const Match&)>& each, const Value* second)
        : egraph_(egraph), rule_(rule), each_(each), second_(second) {
        state_.rule = &rule;
        state_.slots.resize(rule.variables.size());
        bound_.resize(rule.variables.size());
    }

    bool run(Value& root) {
        state_.roots = {&root};
        return op(rule_.pattern[0], root) && inputs(rule_.pattern[0], *root.node());
    }

  private:
    const EGraph& egraph_;
    const Rule& rule_;
    const std::function<bool(const Match&)>& each_;
    const Value* second_;
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

    // Matches what is on the agenda, then further roots, then the conditions. True: stop looking.
    bool next() {
        if (agenda_.empty()) return state_.roots.size() < rule_.pattern.size() ? further_root() : finish();
        auto [term, value] = agenda_.back();
        agenda_.pop_back();
        switch (term->form) {
            case Form::Variable: return variable(*term, value) && next();
            case Form::Number: return value && matches_literal(*term, *value) && next();
            case Form::List: return value && matches_list(*term, *value) && next();
            case Form::Op: return value && members(*term, *value);
            default: return false;
        }
    }

    bool members(const Term& term, const Value& value) {
        const std::vector<Value*>& all = egraph_.members(egraph_.class_of(value));
        std::optional<Saved> before;
        for (Value* member : all) {
            if (!could_match(term, *member)) continue;
            if (before)
                restore(*before);
            else
                before = save();
            if (op(term, *member) && inputs(term, *member->node())) return true;
        }
        return false;
    }

    static bool could_match(const Term& term, const Value& v) {
        return v.node() && &v.node()->op() == term.op && v.index() == static_cast<size_t>(term.output);
    }

    bool could_be(const Term& term, const Value* v) const {
        if (term.form == Form::Number) return v && v->is_constant();
        if (term.form != Form::Op) return v || term.optional;
        if (!v) return false;
        const auto& all = egraph_.members(egraph_.class_of(*v));
        return std::any_of(all.begin(), all.end(), [&](const Value* m) { return could_match(term, *m); });
    }

    bool finish() {
        for (const auto& [slot, term] : rule_.lets) {
            if (term.form == Form::Op) continue;
            std::optional<RuleValue> value = evaluate_term(term, state_.slots);
            if (!value) return false;
            state_.slots[static_cast<size_t>(slot)] = std::move(*value);
        }
        for (const Term& condition : rule_.conditions)
            if (holds(condition) != std::optional(true)) return false;
        return each_(state_);
    }

    // Like evaluate_term, but what comes from weights alone is constant although it is not computed yet.
    std::optional<bool> holds(const Term& term) const {
        if (term.form == Form::Call && (term.name == "and" || term.name == "or")) {
            bool decides = term.name == "or", unknown = false;
            for (const Term& arg : term.args) {
                std::optional<bool> v = holds(arg);
                if (v == std::optional(decides)) return decides;
                unknown |= !v;
            }
            return unknown ? std::nullopt : std::optional(!decides);
        }
        if (term.form == Form::Call && term.name == "not") {
            std::optional<bool> v = holds(term.args[0]);
            return v ? std::optional(!*v) : v;
        }
        if (term.form == Form::Call && term.name == "const") {
            for (const Term& arg : term.args) {
                std::optional<RuleValue> v = evaluate_term(arg, state_.slots);
                if (!v) return {};
                auto* value = std::get_if<Value*>(&*v);
                if (value && !egraph_.weight_only(egraph_.class_of(**value))) return false;
            }
            return true;
        }
        std::optional<RuleValue> v = evaluate_term(term, state_.slots);
        if (!v) return {};
        return std::get<bool>(*v);
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
        return bind(term.slot, egraph_.representative(*value));
    }

    // The node and its attributes.
    bool op(const Term& term, Value& value) {
        const Node* node = value.node();
        if (!could_match(term, value) || !egraph_.alive(*node)) return false;
        if (!bind(term.bound_slot, egraph_.representative(value))) return false;
        auto bind_slot = [this](int slot, RuleValue v) { return bind(slot, std::move(v)); };
        if (!match_attributes(term, *node, state_.slots, bind_slot)) return false;
        if (std::find(state_.nodes.begin(), state_.nodes.end(), node) == state_.nodes.end())
            state_.nodes.push_back(value.node());
        return true;
    }

    // Puts the inputs on the agenda in every way there is, and goes on.
    bool inputs(const Term& term, const Node& node) {
        const std::vector<Term>& args = term.args;
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
                agenda_.emplace_back(&args[1], b);
                agenda_.emplace_back(&args[0], a);
                if (next()) return true;
            }
            return false;
        }
        for (size_t i = args.size(); i-- > 0;) {
            if (!could_be(args[i], node.input(i))) return false;
            agenda_.emplace_back(&args[i], node.input(i));
        }
        return next();
    }

    // Inputs with lists among them: the second list takes what the first one leaves.
    bool spread(const Term& term, const Node& node, size_t first) {
        const std::vector<Term>& args = term.args;
        const std::vector<Value*>& given = node.inputs();
        size_t last = args.size() - 1;
        while (!args[last].list) --last;
        size_t fixed = args.size() - (first == last ? 1 : 2);
        if (given.size() < fixed) return false;
        size_t loose = given.size() - fixed;
        Saved before = save();
        for (size_t taken = first == last ? loose : 0; taken <= loose; ++taken) {
            restore(before);
            size_t at = 0;
            bool fits = true;
            std::vector<const Value*> literals;
            for (size_t i = 0; i < args.size() && fits; ++i) {
                if (args[i].list) {
                    size_t n = i == first ? taken : loose - taken;
                    std::vector<Value*> part(given.begin() + static_cast<std::ptrdiff_t>(at),
                                             given.begin() + static_cast<std::ptrdiff_t>(at + n));
                    fits = bind(args[i].slot, std::move(part));
                    at += n;
                } else {
                    if (args[i].form == Form::Number) literals.push_back(given[at]);
                    agenda_.emplace_back(&args[i], given[at++]);
                }
            }
            if (fits && literals_fit(node, literals) && next()) return true;
        }
        return false;
    }

    // Roots after the first are found from a class they share with those before.
    bool further_root() {
        const Term& root = rule_.pattern[state_.roots.size()];
        std::vector<Value*> candidates;
        if (second_) {
            candidates = egraph_.members(egraph_.class_of(*second_));
        } else {
            std::vector<const Term*> path;
            Value* shared = nullptr;
            if (!find_shared(root, path, shared, false)) path.clear();
            if (!shared && !find_shared(root, path, shared, true)) return false;
            candidates = {shared};
            for (size_t i = path.size(); i-- > 0;) candidates = above(candidates, *path[i]);
        }
        Saved before = save();
        for (Value* candidate : candidates) {
            if (!could_match(root, *candidate) || taken(*candidate)) continue;
            restore(before);
            state_.roots.push_back(candidate);
            if (op(root, *candidate) && inputs(root, *candidate->node())) return true;
        }
        return false;
    }

    bool taken(const Value& candidate) const {
        return std::any_of(state_.roots.begin(), state_.roots.end(),
                           [&](const Value* r) { return egraph_.class_of(*r) == egraph_.class_of(candidate); });
    }

    std::vector<Value*> above(const std::vector<Value*>& below, const Term& term) const {
        std::vector<Value*> out;
        for (Value* v : below)
            for (const Use& use : egraph_.representative(*v)->uses()) {
                if (!use.node || use.graph != &egraph_.graph() || !egraph_.alive(*use.node)) continue;
                if (&use.node->op() != term.op || static_cast<size_t>(term.output) >= use.node->output_count())
                    continue;
                Value* o = use.node->output(static_cast<size_t>(term.output));
                if (std::find(out.begin(), out.end(), o) == out.end()) out.push_back(o);
            }
        return out;
    }

    // The ops from a root down to a variable that is bound already.
    bool find_shared(const Term& term, std::vector<const Term*>& path, Value*& shared, bool weights) const {
        path.push_back(&term);
        for (const Term& arg : term.args) {
            if (arg.form == Form::Variable && arg.slot >= 0 && bound_[static_cast<size_t>(arg.slot)])
                if (auto* v = std::get_if<Value*>(&state_.slots[static_cast<size_t>(arg.slot)]);
                    v && *v && egraph_.weight_only(egraph_.class_of(**v)) == weights) {
                    shared = *v;
                    return true;
                }
            if (arg.form == Form::Op && find_shared(arg, path, shared, weights)) return true;
        }
        path.pop_back();
        return false;
    }
};

}  // namespace

bool ematch(const EGraph& egraph, const Rule& rule, Value& root, const std::function<bool(const Match&)>& each,
            const Value* second) {
    return EMatcher(egraph, rule, each, second).run(root);
}

}  // namespace tessera
