#include "rewrite/rules/instantiate.h"

#include <algorithm>

#include "graph/evaluate/evaluate.h"
#include "rewrite/rules/windows_fit.h"

namespace tessera {
namespace {

using Form = Term::Form;

std::optional<Attr> to_attr(const RuleValue& v, AttrKind kind) {
    auto* e = std::get_if<Expr>(&v);
    switch (kind) {
        case AttrKind::Int:
            if (e && e->as_int()) return Attr(*e->as_int());
            return {};
        case AttrKind::Float:
            if (auto* d = std::get_if<double>(&v)) return Attr(static_cast<float>(*d));
            if (e && e->as_int()) return Attr(static_cast<float>(*e->as_int()));
            return {};
        case AttrKind::String:
            if (auto* s = std::get_if<std::string>(&v)) return Attr(*s);
            return {};
        case AttrKind::Ints:
            if (auto* l = std::get_if<std::vector<Expr>>(&v))
                if (auto list = numbers_of(*l)) return Attr(*list);
            return {};
        case AttrKind::Floats:
            if (auto* l = std::get_if<std::vector<double>>(&v)) return Attr(std::vector<float>(l->begin(), l->end()));
            return {};
        case AttrKind::Strings:
            if (auto* l = std::get_if<std::vector<std::string>>(&v)) return Attr(*l);
            return {};
        default: return {};
    }
}

class Instantiation {
  public:
    Instantiation(Graph& graph, const Match& match, const PassContext& context)
        : graph_(graph), match_(match), context_(context), slots_(match.slots) {}

    std::optional<Instance> run() {
        if (!build()) {
            for (auto it = made_.created.rbegin(); it != made_.created.rend(); ++it) graph_.disconnect(**it);
            return {};
        }
        return std::move(made_);
    }

  private:
    Graph& graph_;
    const Match& match_;
    const PassContext& context_;
    std::vector<RuleValue> slots_;
    Instance made_;

    bool build() {
        const Rule& rule = *match_.rule;
        for (const auto& [slot, term] : rule.lets) {
            if (term.form != Form::Op) continue;
            std::vector<Value*> out;
            if (!op(term, {}, static_cast<size_t>(term.output) + 1, out)) return false;
            slots_[static_cast<size_t>(slot)] = out[static_cast<size_t>(term.output)];
        }
        auto root_name = [&](size_t i) { return match_.roots[i]->node()->name(); };
        if (rule.replacement.size() < match_.roots.size()) {
            if (!op(rule.replacement[0], root_name(0), match_.roots.size(), made_.values)) return false;
        } else {
            for (size_t i = 0; i < rule.replacement.size(); ++i) {
                const Term& term = rule.replacement[i];
                Value* v = nullptr;
                if (term.form == Form::Op) {
                    std::vector<Value*> out;
                    if (!op(term, root_name(i), static_cast<size_t>(term.output) + 1, out)) return false;
                    v = out[static_cast<size_t>(term.output)];
                } else if (std::optional<Value*> built = operand(term, match_.roots[i]->type().tensor().dtype)) {
                    v = *built;
                }
                if (!v) return false;
                made_.values.push_back(v);
            }
        }
        for (size_t i = 0; i < match_.roots.size(); ++i) {
            if (made_.values[i] == match_.roots[i]) return false;
            const Type &made = made_.values[i]->type(), &was = match_.roots[i]->type();
            if (!(made == was)) return false;
            if (was.is_tensor() && !was.tensor().shape.ranked()) return false;  // two unknown ranks may differ
        }
        return match_.nodes.empty() || windows_fit(made_.created, match_.nodes);  // without nodes, nothing is replaced
    }

    // A term that is no op, as an input. Null: an optional input that is not given; empty: it cannot be built.
    std::optional<Value*> operand(const Term& term, DType like) {
        auto number = [&](double v) -> std::optional<Value*> {
            Result<Tensor> t = Tensor::filled(like, {}, v);
            if (!t.ok()) return {};
            return graph_.constant(std::move(*t));
        };
        if (term.form == Form::Number) {
            Result<Tensor> t = tensor_of(term, like, {});
            if (!t.ok()) return {};
            return graph_.constant(std::move(*t));
        }
        std::optional<RuleValue> v = evaluate_term(term, slots_);
        if (!v) return {};
        if (std::holds_alternative<std::monostate>(*v)) return nullptr;
        if (auto* value = std::get_if<Value*>(&*v)) return *value;
        if (auto* d = std::get_if<double>(&*v)) return number(*d);
        std::optional<Attr> attr = to_attr(*v, AttrKind::Ints);
        if (attr) return graph_.constant(Tensor::ints(std::get<std::vector<int64_t>>(*attr)));
        attr = to_attr(*v, AttrKind::Int);
        if (attr) return graph_.constant(Tensor::scalar(std::get<int64_t>(*attr)));
        return {};
    }

    bool op(const Term& term, std::string name, size_t outputs, std::vector<Value*>& out) {
        std::vector<Value*> inputs;
        std::vector<std::pair<size_t, const Term*>> later;  // numbers, whose type the others give
        std::vector<std::pair<std::string, DType>> told;    // the parameters' types, and what they are
        auto param = [&](size_t i) { return term.op->inputs[std::min(i, term.op->inputs.size() - 1)].type; };
        for (const Term& arg : term.args) {
            if (arg.form == Form::Op) {
                std::vector<Value*> built;
                if (!op(arg, {}, static_cast<size_t>(arg.output) + 1, built)) return false;
                inputs.push_back(built[static_cast<size_t>(arg.output)]);
            } else if (arg.list) {
                const auto& list = std::get<std::vector<Value*>>(slots_[static_cast<size_t>(arg.slot)]);
                inputs.insert(inputs.end(), list.begin(), list.end());
            } else if (arg.form == Form::Number || arg.kind == TermKind::Float) {
                later.emplace_back(inputs.size(), &arg);
                inputs.push_back(nullptr);
            } else {
                std::optional<Value*> v = operand(arg, DType::f32);
                if (!v) return false;
                inputs.push_back(*v);
            }
            // The type of an integer list that the rule computed says nothing of the others.
            bool tells = arg.form == Form::Op || arg.kind == TermKind::Tensor || arg.list;
            if (tells && !inputs.empty() && inputs.back() && inputs.back()->type().is_tensor())
                told.emplace_back(param(inputs.size() - 1), inputs.back()->type().tensor().dtype);
        }
        // A number has the type of an operand that must have its own, or of one that may have any.
        auto like = [&](size_t i) {
            if (std::optional<DType> own = dtype_from_name(param(i))) return *own;
            for (const auto& [type, dtype] : told)
                if (type == param(i)) return dtype;
            for (const auto& [type, dtype] : told)
                if (!dtype_from_name(type)) return dtype;
            return DType::f32;
        };
        for (auto [i, literal] : later) {
            std::optional<Value*> v = operand(*literal, like(i));
            if (!v) return false;
            inputs[i] = *v;
        }
        AttrMap attrs;
        if (term.rest_slot >= 0) attrs = std::get<AttrMap>(slots_[static_cast<size_t>(term.rest_slot)]);
        for (auto it = attrs.begin(); it != attrs.end();)
            it = term.op->attr(it->first) ? std::next(it) : attrs.erase(it);
        for (const auto& [attr_name, value] : term.attrs) {
            std::optional<RuleValue> v = evaluate_term(value, slots_);
            if (!v) return false;
            attrs.erase(attr_name);  // what is named counts, whatever the rest holds
            if (std::holds_alternative<std::monostate>(*v)) continue;
            const AttrDef* def = term.op->attr(attr_name);
            std::optional<Attr> attr = to_attr(*v, def->kind);
            if (!attr) return false;
            if (!def->fallback || *attr != *def->fallback) attrs[attr_name] = std::move(*attr);
        }
        // One output of an op with as many as an attribute says.
        if (auto it = attrs.find("num_outputs"); it != attrs.end() && term.op->outputs.back().variadic)
            if (auto* count = std::get_if<int64_t>(&it->second))
                outputs = std::max(outputs, static_cast<size_t>(std::clamp<int64_t>(*count, 0, 64)));
        if (folded(*term.op, inputs, attrs, outputs, out)) return true;
        Result<Node*> node = graph_.add({term.op, std::move(inputs), std::move(attrs), outputs, std::move(name)});
        if (!node.ok()) return false;
        made_.created.push_back(*node);
        for (size_t i = 0; i < outputs; ++i) out.push_back((*node)->output(i));
        return true;
    }

    bool folded(const OpDef& op, const std::vector<Value*>& inputs, const AttrMap& attrs, size_t outputs,
                std::vector<Value*>& out) {
        if (!op.has(Trait::Pure) || inputs.empty()) return false;
        std::vector<std::optional<Datum>> data;
        int64_t given = 0;
        for (const Value* v : inputs) {
            if (v && !v->is_constant()) return false;
            if (v) given += v->tensor()->bytes();
            data.push_back(v ? std::optional<Datum>(*v->tensor()) : std::nullopt);
        }
        if (given > context_.fold_inputs) return false;
        const int64_t bytes = context_.fold_limit + given;
        Result<std::vector<Datum>> results = evaluate_op(op, data, attrs, outputs, {.cancel = context_.cancel});
        if (!results.ok()) return false;
        for (const Datum& d : *results)
            if (!d.is_tensor() || d.tensor().bytes() > bytes) return false;
        for (const Datum& d : *results) out.push_back(graph_.constant(d.tensor()));
        return true;
    }
};

// Whether the term is constant in this match; adds the ops it takes where it is not.
bool constant_term(const Match& match, const Term& term, std::vector<bool>& let_constant,
                   std::vector<const OpDef*>& ops) {
    if (term.form == Form::Variable && term.slot >= 0) {
        auto slot = static_cast<size_t>(term.slot);
        if (let_constant[slot]) return true;
        const RuleValue& v = match.slots[slot];
        if (auto* value = std::get_if<Value*>(&v)) return (*value)->is_constant();
        if (auto* list = std::get_if<std::vector<Value*>>(&v))
            return std::all_of(list->begin(), list->end(), [](Value* x) { return x && x->is_constant(); });
        // An op that a let built and that is not constant has no value yet.
        for (const auto& [bound, let] : match.rule->lets)
            if (bound == term.slot && let.form == Form::Op) return false;
        return true;
    }
    if (term.form != Form::Op) return true;
    bool all = !term.args.empty();
    for (const Term& arg : term.args)
        if (!constant_term(match, arg, let_constant, ops)) all = false;
    if (!all) ops.push_back(term.op);
    return all;
}

bool mentions(const Term& term, int slot) {
    if (term.form == Form::Variable && term.slot == slot) return true;
    if (term.form != Form::Op) return false;  // what a function reads off a value needs no node
    return std::any_of(term.args.begin(), term.args.end(), [&](const Term& a) { return mentions(a, slot); });
}

}  // namespace

std::optional<Instance> instantiate(Graph& graph, const Match& match, const PassContext& context) {
    return Instantiation(graph, match, context).run();
}

std::vector<const OpDef*> new_ops(const Match& match) {
    std::vector<const OpDef*> ops;
    std::vector<bool> let_constant(match.slots.size());
    for (const auto& [slot, term] : match.rule->lets)
        if (term.form == Form::Op)
            let_constant[static_cast<size_t>(slot)] = constant_term(match, term, let_constant, ops);
    for (const Term& term : match.rule->replacement) constant_term(match, term, let_constant, ops);
    return ops;
}

bool replacement_uses(const Rule& rule, int slot) {
    auto in = [&](const Term& t) { return mentions(t, slot); };
    return std::any_of(rule.replacement.begin(), rule.replacement.end(), in) ||
           std::any_of(rule.lets.begin(), rule.lets.end(), [&](const auto& let) { return in(let.second); });
}

}  // namespace tessera
