#include "search/ematch.h"

#include "rewrite/rules/matcher.h"

namespace tessera {
namespace {

using Form = Term::Form;

// The members of the classes of an e-graph.
struct EGraphSource {
    const EGraph& egraph;

    std::span<Value* const> members(Value* value) const { return egraph.members(egraph.class_of(*value)); }
    Value* representative(Value& value) const { return egraph.representative(value); }
    bool contains(const Node& node) const { return &node.graph() == &egraph.graph() && egraph.alive(node); }
    bool is_constant(const Value& value) const { return egraph.weight_only(egraph.class_of(value)); }
    bool same(const Value& a, const Value& b) const { return egraph.class_of(a) == egraph.class_of(b); }

    // Like evaluate_term, but what comes from weights alone is constant although it is not computed yet.
    std::optional<bool> holds(const Term& term, const std::vector<RuleValue>& slots) const {
        if (term.form == Form::Call && (term.name == "and" || term.name == "or")) {
            bool decides = term.name == "or", unknown = false;
            for (const Term& arg : term.args) {
                std::optional<bool> v = holds(arg, slots);
                if (v == std::optional(decides)) return decides;
                unknown |= !v;
            }
            return unknown ? std::nullopt : std::optional(!decides);
        }
        if (term.form == Form::Call && term.name == "not") {
            std::optional<bool> v = holds(term.args[0], slots);
            return v ? std::optional(!*v) : v;
        }
        if (term.form == Form::Call && term.name == "const") {
            for (const Term& arg : term.args) {
                std::optional<RuleValue> v = evaluate_term(arg, slots);
                if (!v) return {};
                auto* value = std::get_if<Value*>(&*v);
                if (value && !egraph.weight_only(egraph.class_of(**value))) return false;
            }
            return true;
        }
        std::optional<RuleValue> v = evaluate_term(term, slots);
        if (!v) return {};
        return std::get<bool>(*v);
    }
};

}  // namespace

bool ematch(const EGraph& egraph, const Rule& rule, Value& root, const std::function<bool(const Match&)>& each,
            const Value* second) {
    const EGraphSource source{egraph};
    return Matcher(source, rule, each).find(root, second ? &egraph.members(egraph.class_of(*second)) : nullptr);
}

}  // namespace tessera
