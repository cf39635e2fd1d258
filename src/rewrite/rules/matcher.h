// Matches a rule's pattern by backtracking. Where values come from is a parameter: of a graph, each value is computed
// by one node; of an e-graph, by any member of its class.
#pragma once

#include <algorithm>
#include <span>

#include "rewrite/rules/check_rule.h"
#include "rewrite/rules/match.h"

namespace tessera {

// Source has:
//   std::span<Value* const> members(Value* const& value)   what an op of the pattern may match in place of the value
//   Value* representative(Value& value)                    what a variable is bound to
//   bool contains(const Node& node)                        the node may be matched
//   bool is_constant(const Value& value)                   a second root is looked for from other values first
//   bool same(const Value& a, const Value& b)
//   std::optional<bool> holds(const Term& condition, const std::vector<RuleValue>& slots)
template <typename Source>
class Matcher {
  public:
    // `accept` gets each match, until it returns true.
    Matcher(const Source& source, const Rule& rule, const std::function<bool(const Match&)>& accept)
        : source_(source), rule_(rule), accept_(accept) {
        state_.rule = &rule;
        state_.slots.resize(rule.variables.size());
        bound_.resize(rule.variables.size());
    }

    // Whether a match with this first root was accepted; match() returns it. With `seconds`, the second root is one of
    // these.
    bool find(Value& root, const std::vector<Value*>* seconds = nullptr) {
        seconds_ = seconds;
        state_.roots = {&root};
        return match_node(rule_.pattern[0], root);
    }
    Match& match() { return state_; }

  private:
    using Form = Term::Form;

    const Source& source_;
    const Rule& rule_;
    const std::function<bool(const Match&)>& accept_;
    const std::vector<Value*>* seconds_ = nullptr;
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

    // Matches what is on the agenda, then further roots, then the conditions. True: a match was accepted.
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
                    if (!value) return false;
                    const std::span<Value* const> members = source_.members(value);
                    if (members.size() != 1) return any_member(*term, members);
                    if (!op(*term, *members[0])) return false;
                    if (const std::optional<bool> branched = inputs(*term, *members[0]->node())) return *branched;
                    break;
                }
                default: return false;
            }
        }
        return state_.roots.size() < rule_.pattern.size() ? further_root() : finish();
    }

    // A node for an op of the pattern, then the rest of the agenda.
    bool match_node(const Term& term, Value& value) {
        if (!op(term, value)) return false;
        const std::optional<bool> branched = inputs(term, *value.node());
        return branched ? *branched : next();
    }

    bool any_member(const Term& term, std::span<Value* const> members) {
        std::optional<Saved> before;
        for (Value* member : members) {
            if (!could_match(term, *member)) continue;
            if (before)
                restore(*before);
            else
                before = save();
            if (match_node(term, *member)) return true;
        }
        return false;
    }

    bool finish() {
        for (const auto& [slot, term] : rule_.lets) {
            if (term.form == Form::Op) continue;
            std::optional<RuleValue> value = evaluate_term(term, state_.slots);
            if (!value) return false;
            state_.slots[size_t(slot)] = std::move(*value);
        }
        for (const Term& condition : rule_.conditions)
            if (source_.holds(condition, state_.slots) != std::optional(true)) return false;
        return accept_(state_);
    }

    bool bind(int slot, RuleValue value) {
        if (slot < 0) return true;
        const auto i = size_t(slot);
        if (bound_[i]) return same_value(state_.slots[i], value);
        bound_[i] = true;
        state_.slots[i] = std::move(value);
        return true;
    }

    bool variable(const Term& term, Value* value) {
        if (!value) return term.optional && bind(term.slot, {});
        if (term.slot < 0) return true;
        const RuleVariable& v = rule_.variables[size_t(term.slot)];
        if (!value->type().is_tensor() || !satisfies(value->type().tensor().dtype, v.constraint)) return false;
        return bind(term.slot, source_.representative(*value));
    }

    // Each tensor of a list is of the class that the list is said to be of.
    bool satisfies_all(const Term& term, const std::vector<Value*>& list) const {
        if (term.slot < 0) return true;
        const std::string& constraint = rule_.variables[size_t(term.slot)].constraint;
        return constraint.empty() || std::all_of(list.begin(), list.end(), [&](const Value* v) {
                   return v && v->type().is_tensor() && satisfies(v->type().tensor().dtype, constraint);
               });
    }

    static bool could_match(const Term& term, const Value& v) {
        return v.node() && &v.node()->op() == term.op && v.index() == size_t(term.output);
    }

    // A cheap check before an order of inputs is tried.
    bool could_be(const Term& term, Value* v) const {
        if (term.form == Form::Number) return v && v->is_constant();
        if (term.form != Form::Op) return v || term.optional;
        if (!v) return false;
        const std::span<Value* const> members = source_.members(v);
        return std::any_of(members.begin(), members.end(), [&](const Value* m) { return could_match(term, *m); });
    }

    // The node and its attributes.
    bool op(const Term& term, Value& value) {
        Node* node = value.node();
        if (!could_match(term, value) || !source_.contains(*node)) return false;
        if (!bind(term.bound_slot, source_.representative(value))) return false;
        auto bind_slot = [this](int slot, RuleValue v) { return bind(slot, std::move(v)); };
        if (!match_attributes(term, *node, state_.slots, bind_slot)) return false;
        if (std::find(state_.nodes.begin(), state_.nodes.end(), node) == state_.nodes.end())
            state_.nodes.push_back(node);
        return true;
    }

    // Puts the inputs on the agenda. If there are several ways, tries them all and returns the result.
    std::optional<bool> inputs(const Term& term, Node& node) {
        const std::vector<Term>& args = term.args;
        auto first_list = std::find_if(args.begin(), args.end(), [](const Term& a) { return a.list; });
        if (first_list != args.end()) return spread(term, node, size_t(first_list - args.begin()));
        if (node.inputs().size() > args.size()) return false;
        if (node.is(Trait::Commutative) && args.size() == 2 && node.inputs().size() == 2)
            return either_order(term, node);
        if (!literals_fit(term, node)) return false;
        for (size_t i = args.size(); i-- > 0;) {
            if (!could_be(args[i], node.input(i))) return false;
            agenda_.emplace_back(&args[i], node.input(i));
        }
        return {};
    }

    bool either_order(const Term& term, Node& node) {
        const Saved before = save();
        for (bool swapped : {false, true}) {
            if (swapped) restore(before);
            Value* a = node.input(swapped ? 1 : 0);
            Value* b = node.input(swapped ? 0 : 1);
            if (!could_be(term.args[0], a) || !could_be(term.args[1], b) || !literals_fit(term, node, swapped))
                continue;
            agenda_.emplace_back(&term.args[0], a);
            agenda_.emplace_back(&term.args[1], b);
            if (next()) return true;
        }
        return false;
    }

    // Inputs with lists among them: the second list takes what the first one leaves.
    std::optional<bool> spread(const Term& term, Node& node, size_t first) {
        const std::vector<Term>& args = term.args;
        size_t last = args.size() - 1;
        while (!args[last].list) --last;
        const size_t fixed = args.size() - (first == last ? 1 : 2);
        if (node.inputs().size() < fixed) return false;
        const size_t loose = node.inputs().size() - fixed;
        if (first == last) {
            if (!place(term, node, first, loose)) return false;
            return {};
        }
        const Saved before = save();
        for (size_t taken = 0; taken <= loose; ++taken) {
            restore(before);
            if (place(term, node, first, taken) && next()) return true;
        }
        return false;
    }

    // Binds the lists, of which the first one takes so many inputs; puts the other inputs on the agenda.
    bool place(const Term& term, Node& node, size_t first, size_t taken) {
        const std::vector<Value*>& given = node.inputs();
        const auto lists =
            size_t(std::count_if(term.args.begin(), term.args.end(), [](const Term& a) { return a.list; }));
        const size_t loose = given.size() - (term.args.size() - lists);
        size_t at = 0;
        std::vector<const Value*> literals;
        for (size_t i = 0; i < term.args.size(); ++i) {
            const Term& arg = term.args[i];
            if (arg.list) {
                const auto begin = given.begin() + std::ptrdiff_t(at);
                const size_t count = i == first ? taken : loose - taken;
                std::vector<Value*> list(begin, begin + std::ptrdiff_t(count));
                if (!satisfies_all(arg, list) || !bind(arg.slot, std::move(list))) return false;
                at += count;
            } else {
                if (arg.form == Form::Number) literals.push_back(given[at]);
                agenda_.emplace_back(&arg, given[at++]);
            }
        }
        return literals_fit(node, literals);
    }

    // Roots after the first are found from a value they share with those before.
    bool further_root() {
        const Term& root = rule_.pattern[state_.roots.size()];
        std::vector<Value*> candidates;
        if (seconds_) {
            candidates = *seconds_;
        } else {
            std::vector<const Term*> path;
            Value* shared = nullptr;
            if (!find_shared(root, path, shared, false) && !find_shared(root, path, shared, true)) return false;
            candidates = {shared};
            for (size_t i = path.size(); i-- > 0;) candidates = above(candidates, *path[i]);
        }
        const Saved before = save();
        for (Value* candidate : candidates) {
            if (!could_match(root, *candidate) || taken(*candidate)) continue;
            restore(before);
            state_.roots.push_back(candidate);
            if (match_node(root, *candidate)) return true;
        }
        return false;
    }

    bool taken(const Value& candidate) const {
        return std::any_of(state_.roots.begin(), state_.roots.end(),
                           [&](const Value* r) { return source_.same(*r, candidate); });
    }

    // What nodes of this op compute from these values.
    std::vector<Value*> above(const std::vector<Value*>& below, const Term& term) const {
        std::vector<Value*> out;
        for (Value* v : below)
            for (const Use& use : source_.representative(*v)->uses()) {
                if (!use.node || !source_.contains(*use.node) || &use.node->op() != term.op) continue;
                if (size_t(term.output) >= use.node->output_count()) continue;
                Value* o = use.node->output(size_t(term.output));
                if (std::find(out.begin(), out.end(), o) == out.end()) out.push_back(o);
            }
        return out;
    }

    // The ops from a root down to a variable that is bound already; one that is computed has fewer uses.
    bool find_shared(const Term& term, std::vector<const Term*>& path, Value*& shared, bool constant) const {
        path.push_back(&term);
        for (const Term& arg : term.args) {
            if (arg.form == Form::Variable && arg.slot >= 0 && bound_[size_t(arg.slot)])
                if (auto* v = std::get_if<Value*>(&state_.slots[size_t(arg.slot)]);
                    v && *v && source_.is_constant(**v) == constant) {
                    shared = *v;
                    return true;
                }
            if (arg.form == Form::Op && find_shared(arg, path, shared, constant)) return true;
        }
        path.pop_back();
        return false;
    }
};

}  // namespace tessera
