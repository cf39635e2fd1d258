#include "discover/prove/comprehension.h"

#include <algorithm>
#include <set>

#include "base/random.h"
#include "graph/expand_node.h"
#include "graph/ops/conv_window.h"
#include "rewrite/rules/match.h"

namespace tessera {
namespace {

using Form = Term::Form;

template <typename... Args>
Error senseless(const Claim& claim, fmt::format_string<Args...> text, Args&&... args) {
    return Error(Code::E0303, "{}: {}", claim.rule.name, fmt::format(text, std::forward<Args>(args)...));
}

std::optional<Attr> attr_of(const RuleValue& v, AttrKind kind) {
    auto* e = std::get_if<Expr>(&v);
    auto* d = std::get_if<double>(&v);
    if (kind == AttrKind::Int && e && e->as_int()) return Attr(*e->as_int());
    if (kind == AttrKind::Float && d) return Attr(static_cast<float>(*d));
    if (kind == AttrKind::Float && e && e->as_int()) return Attr(static_cast<float>(*e->as_int()));
    if (auto* s = std::get_if<std::string>(&v); s && kind == AttrKind::String) return Attr(*s);
    if (auto* l = std::get_if<std::vector<Expr>>(&v); l && kind == AttrKind::Ints) {
        std::vector<int64_t> list;
        for (const Expr& size : *l)
            list.push_back(size.as_int() ? *size.as_int() : SymbolicWindows::current()->add(size));
        return Attr(list);
    }
    if (auto* l = std::get_if<std::vector<double>>(&v); l && kind == AttrKind::Floats)
        return Attr(std::vector<float>(l->begin(), l->end()));
    return {};
}

// Says when a rule pays or can be written down, not when it holds.
bool is_profit(const Term& t) {
    static const std::set<std::string> kNames{"const", "consts", "uses", "opset", "fully_known", "all_known"};
    if (t.form != Form::Call) return false;
    return kNames.contains(t.name) || std::any_of(t.args.begin(), t.args.end(), is_profit);
}

class SideBuilder {
  public:
    SideBuilder(const Claim& claim, const Bindings& sizes) : claim_(claim), sizes_(sizes) {}

    Result<Sides> build(bool* left_built) {
        const Rule& rule = claim_.rule;
        sides_.graph = std::make_unique<Graph>(rule.name);
        slots_.resize(rule.variables.size());
        for (size_t i = 0; i < rule.variables.size(); ++i) {
            const RuleVariable& v = rule.variables[i];
            if (auto shape = claim_.shapes.find(v.name); shape != claim_.shapes.end()) {
                Shape bound;
                for (const Dim& d : shape->second) bound.push_back(substitute(d, sizes_));
                slots_[i] = graph().add_input(v.name, Type(element_type(rule, v).value_or(DType::f32), bound));
            } else if (auto value = claim_.values.find(v.name); value != claim_.values.end()) {
                slots_[i] = value->second;
                if (auto* list = std::get_if<std::vector<Expr>>(&slots_[i]))
                    for (Expr& e : *list) e = substitute(e, sizes_);
                if (v.kind == TermKind::Tensor) slots_[i] = TRY(value_of(slots_[i]));
            } else if (v.kind == TermKind::Tensors) {
                std::vector<Value*> list;
                for (;;) {
                    auto part = claim_.shapes.find(fmt::format("{}.{}", v.name, list.size()));
                    if (part == claim_.shapes.end()) break;
                    Shape bound;
                    for (const Dim& d : part->second) bound.push_back(substitute(d, sizes_));
                    list.push_back(graph().add_input(part->first, Type(DType::f32, bound)));
                }
                slots_[i] = std::move(list);
            }
        }
        for (const Term& term : rule.pattern) {
            Value* v = TRY(tensor(term, 1));
            sides_.left.push_back(v);
        }
        for (const auto& [slot, term] : rule.lets) {
            if (term.form == Form::Op) {
                slots_[static_cast<size_t>(slot)] = TRY(tensor(term, 1));
                continue;
            }
            std::optional<RuleValue> v = evaluate_term(term, slots_);
            if (!v) return senseless(claim_, "{} is not known", to_string(term, rule));
            slots_[static_cast<size_t>(slot)] = *v;
        }
        for (const Term& condition : rule.conditions) {
            if (is_profit(condition)) continue;
            // One that cannot be told is left out: what is proved without it holds with it.
            std::optional<RuleValue> holds = evaluate_term(condition, slots_);
            if (holds && !std::get<bool>(*holds))
                return senseless(claim_, "its condition {} does not hold", to_string(condition, rule));
        }
        if (left_built) *left_built = true;
        if (rule.replacement.size() < rule.pattern.size()) {
            const Term& term = rule.replacement[0];
            if (term.form != Form::Op) return senseless(claim_, "one term for several roots");
            Node* node = TRY(op(term, rule.pattern.size()));
            for (size_t i = 0; i < rule.pattern.size(); ++i) sides_.right.push_back(node->output(i));
        } else {
            for (const Term& term : rule.replacement) {
                Value* v = TRY(tensor(term, 1));
                sides_.right.push_back(v);
            }
        }
        for (size_t i = 0; i < sides_.left.size(); ++i) {
            const Type &l = sides_.left[i]->type(), &r = sides_.right[i]->type();
            if (!(l == r)) return senseless(claim_, "the left side is a {}, the right side a {}", l, r);
            if (!l.is_tensor() || !l.tensor().shape.ranked()) return senseless(claim_, "the rank is not known");
        }
        return std::move(sides_);
    }

  private:
    const Claim& claim_;
    const Bindings& sizes_;
    Sides sides_;
    std::vector<RuleValue> slots_;

    Graph& graph() { return *sides_.graph; }

    Result<Value*> value_of(const RuleValue& v, DType like = DType::f32) {
        if (auto* value = std::get_if<Value*>(&v)) return *value;
        if (std::holds_alternative<std::monostate>(v)) return static_cast<Value*>(nullptr);
        if (auto* d = std::get_if<double>(&v)) return graph().constant(TRY(Tensor::filled(like, {}, *d)));
        std::vector<Expr> list;
        Shape shape;
        if (auto* l = std::get_if<std::vector<Expr>>(&v)) {
            list = *l;
            shape.push_back(static_cast<int64_t>(list.size()));
        } else if (auto* e = std::get_if<Expr>(&v)) {
            list = {*e};
        } else {
            return senseless(claim_, "a term that is no tensor stands for one");
        }
        if (auto numbers = numbers_of(list))
            return graph().constant(shape.rank() ? Tensor::ints(*numbers) : Tensor::scalar((*numbers)[0]));
        Value* input = graph().add_input("sizes", Type(DType::i64, shape));
        input->set_contents(list);
        return input;
    }

    Result<Value*> tensor(const Term& term, size_t roots, DType like = DType::f32) {
        if (term.form == Form::Op) {
            Node* node = TRY(op(term, std::max(roots, static_cast<size_t>(term.output) + 1)));
            Value* v = node->output(static_cast<size_t>(term.output));
            if (term.bound_slot >= 0) slots_[static_cast<size_t>(term.bound_slot)] = v;
            return v;
        }
        if (term.form == Form::Number) return graph().constant(TRY(Tensor::filled(like, {}, term.number)));
        if (term.form == Form::Variable) {
            if (term.slot < 0) return senseless(claim_, "it has a term without a name");
            if (term.list) return senseless(claim_, "{}... is any number of tensors", term.name);
        }
        std::optional<RuleValue> v = evaluate_term(term, slots_);
        if (!v) return senseless(claim_, "{} is not known", to_string(term, claim_.rule));
        if (std::holds_alternative<std::monostate>(*v) && !term.optional)
            return senseless(claim_, "{} has no shape", to_string(term, claim_.rule));
        return value_of(*v, like);
    }

    Result<Node*> op(const Term& term, size_t outputs) {
        if (!term.op->has(Trait::Pure)) return senseless(claim_, "{} is no function", term.op->name);
        std::vector<Value*> inputs;
        std::vector<std::pair<size_t, const Term*>> later;  // numbers, whose element type the others give
        std::optional<DType> like;
        for (const Term& arg : term.args) {
            if (arg.list && arg.slot >= 0) {
                auto* list = std::get_if<std::vector<Value*>>(&slots_[static_cast<size_t>(arg.slot)]);
                if (!list) return senseless(claim_, "{}... is any number of tensors", arg.name);
                inputs.insert(inputs.end(), list->begin(), list->end());
            } else if (arg.form == Form::Number || arg.kind == TermKind::Float) {
                later.emplace_back(inputs.size(), &arg);
                inputs.push_back(nullptr);
            } else {
                Value* v = TRY(tensor(arg, 1));
                inputs.push_back(v);
            }
            const Value* last = inputs.empty() ? nullptr : inputs.back();
            if (!like && last && last->type().is_tensor() && is_float(last->type().tensor().dtype))
                like = last->type().tensor().dtype;
        }
        for (auto [i, number] : later) inputs[i] = TRY(tensor(*number, 1, like.value_or(DType::f32)));
        while (!inputs.empty() && !inputs.back()) inputs.pop_back();
        AttrMap attrs;
        if (term.rest_slot >= 0)
            if (auto* rest = std::get_if<AttrMap>(&slots_[static_cast<size_t>(term.rest_slot)]))
                for (const auto& [name, value] : *rest)
                    if (term.op->attr(name)) attrs.emplace(name, value);
        for (const auto& [name, value] : term.attrs) {
            if (value.form == Form::Variable && value.slot < 0)
                return senseless(claim_, "its {} may be anything", name);
            std::optional<RuleValue> v = evaluate_term(value, slots_);
            if (!v) return senseless(claim_, "{} is not known", to_string(value, claim_.rule));
            if (std::holds_alternative<std::monostate>(*v)) continue;
            std::optional<Attr> attr = attr_of(*v, term.op->attr(name)->kind);
            if (!attr) return senseless(claim_, "{} is no value of {}", to_string(value, claim_.rule), name);
            attrs.insert_or_assign(name, *attr);
        }
        if (term.op->count_outputs) {
            std::vector<Type> types;
            for (const Value* v : inputs) types.push_back(v ? v->type() : Type());
            auto told = term.op->count_outputs(OpView(*term.op, attrs, std::move(types), outputs));
            outputs = std::max(outputs, told.value_or(0));
        }
        Result<Node*> node = graph().add({term.op, std::move(inputs), std::move(attrs), outputs});
        if (!node.ok()) return senseless(claim_, "{}", node.error().message());
        return *node;
    }
};

// Elements of values as expressions. Reduction variables get names of their own, since bodies number them from 0.
class Composer {
  public:
    Composer(const Claim& claim, Graph& graph) : claim_(claim), graph_(graph) {}

    Result<Expr> element(Value* v, const std::vector<Expr>& at) {
        if (v->is_constant()) return constant_element(*v->tensor(), at);
        if (v->contents() && v->type().is_tensor() && v->type().tensor().dtype == DType::i64) {
            const auto& list = *v->contents();
            size_t i = 0;
            if (!at.empty()) {
                auto n = at[0].as_int();
                if (at.size() != 1 || !n || *n < 0 || *n >= static_cast<int64_t>(list.size()))
                    return senseless(claim_, "sizes are read at a computed place");
                i = static_cast<size_t>(*n);
            }
            return list[i];
        }
        if (v->kind() == Value::Kind::Input) return load(static_cast<int>(v->index()), v->type().tensor().dtype, at);
        Node& node = *v->node();
        const OpDef& op = node.op();
        if (!op.body || (op.body_applies && !op.body_applies(node.view()))) {
            Value* expanded = TRY(expansion(node, v->index()));
            return element(expanded, at);
        }
        OpView view = node.view();
        view.for_output(v->index());
        Expr body = op.body(view, Indices(at));
        return inside(body, node, {});
    }

  private:
    const Claim& claim_;
    Graph& graph_;
    static constexpr int64_t kMostComposed = 200'000;
    std::map<const Node*, std::vector<Value*>> expanded_;
    int next_ = 0;
    int64_t composed_ = 0;

    Result<Expr> constant_element(const Tensor& t, const std::vector<Expr>& at) {
        if (t.dtype() == DType::string || kComplex.has(t.dtype()) || t.elements() == 0)
            return senseless(claim_, "a constant that is no number");
        bool whole = is_int(t.dtype()) || t.dtype() == DType::boolean;
        auto number = [&](int64_t i) {
            return whole ? int_const(t.int_at(i), t.dtype()) : real_const(t.real_at(i), t.dtype());
        };
        bool uniform = true;
        for (int64_t i = 1; i < t.elements(); ++i) uniform &= number(i) == number(0);
        if (uniform) return number(0);
        int64_t flat = 0;
        for (size_t d = 0; d < at.size(); ++d) {
            auto n = at[d].as_int();
            if (!n) return senseless(claim_, "a constant with elements that differ");
            flat = flat * t.size(static_cast<int64_t>(d)) + *n;
        }
        return number(flat);
    }

    Result<Value*> expansion(Node& node, size_t output) {
        auto found = expanded_.find(&node);
        if (found == expanded_.end()) {
            if (!node.op().expand) return senseless(claim_, "{} has no body", node.op().name);
            Builder build(graph_);
            auto results = expand_node(node, build);
            if (!results) return senseless(claim_, "{} cannot be written out", node.op().name);
            found = expanded_.emplace(&node, std::move(*results)).first;
        }
        if (output >= found->second.size() || !found->second[output])
            return senseless(claim_, "{} has no output {}", node.op().name, output);
        return found->second[output];
    }

    // The body with its reduction variables renamed and its loads replaced by what they read.
    Result<Expr> inside(const Expr& e, Node& node, const Bindings& renamed) {
        if (++composed_ > kMostComposed) return senseless(claim_, "its expressions are too large");
        if (e.is(ExprKind::Var)) {
            auto found = renamed.find(e.node().name);
            return found == renamed.end() ? e : found->second;
        }
        if (e.args().empty() && !e.is(ExprKind::Load)) return e;
        if (e.is(ExprKind::Reduce)) {
            Bindings inner = renamed;
            std::vector<ReduceAxis> axes;
            for (const ReduceAxis& axis : e.node().axes) {
                Expr extent = TRY(inside(axis.extent, node, renamed));
                Expr var = index_var(fmt::format("_r{}", ++next_), extent.as_int());
                inner.insert_or_assign(axis.var.node().name, var);
                axes.push_back({var, extent});
            }
            Expr value = TRY(inside(e.arg(0), node, inner));
            return reduce(e.node().reduce_op, axes, value);
        }
        std::vector<Expr> args;
        for (const Expr& a : e.args()) {
            Expr made = TRY(inside(a, node, renamed));
            args.push_back(made);
        }
        if (!e.is(ExprKind::Load)) return with_args(e, std::move(args));
        Value* input = node.input(static_cast<size_t>(e.node().slot));
        CHECK(input, "a body reads an input that is not given");
        return element(input, args);
    }
};

}  // namespace

Result<Sides> build_sides(const Claim& claim, const Bindings& sizes, bool* left_built) {
    std::optional<SymbolicWindows> windows;
    if (!SymbolicWindows::current()) windows.emplace();
    return SideBuilder(claim, sizes).build(left_built);
}

namespace {

// The symbols of attributes: strides, dilations, pads.
std::set<std::string> value_symbols(const Claim& claim) {
    std::set<std::string> names;
    for (const auto& [name, value] : claim.values)
        if (auto* list = std::get_if<std::vector<Expr>>(&value))
            for (const Expr& e : *list)
                for (std::string& s : free_symbols(e)) names.insert(std::move(s));
    return names;
}

}  // namespace

std::vector<std::string> size_symbols(const Claim& claim) {
    std::set<std::string> names = value_symbols(claim);
    for (const auto& [name, shape] : claim.shapes)
        for (const Dim& d : shape)
            for (std::string& s : free_symbols(d)) names.insert(std::move(s));
    return {names.begin(), names.end()};
}

Status check_well_formed(const Claim& claim, Bindings* accepted_sizes) {
    std::vector<std::string> symbols = size_symbols(claim);
    const std::set<std::string> of_values = value_symbols(claim);
    RandomStream random(17, "sizes");
    uint64_t drawn = 0;
    int accepted = 0;
    std::optional<Error> refused;
    for (int round = 0; round < 40 && accepted < 2; ++round) {
        // All different, so that nothing fits by chance; small ones too, for windows.
        Bindings sizes;
        std::set<int64_t> taken;
        for (const std::string& s : symbols) {
            bool of_value = of_values.contains(s);
            int64_t size = 0;
            do {
                uint64_t bits = random.bits(drawn++);
                size = static_cast<int64_t>(bits & 1 ? 60 + (bits >> 8) % 900 : (bits & 6 ? 2 : 0) + (bits >> 8) % 9);
                if (of_value) size = static_cast<int64_t>(bits % 3);
            } while (!of_value && !taken.insert(size).second);
            sizes.emplace(s, size);
        }
        bool left = false;
        Result<Sides> sides = build_sides(claim, sizes, &left);
        if (!sides.ok() && left) return sides.error();
        if (!sides.ok()) refused = sides.error();
        accepted += sides.ok();
        if (sides.ok() && accepted_sizes) *accepted_sizes = std::move(sizes);
    }
    if (accepted < 2 && refused) return *refused;
    return {};
}

Result<std::vector<Comprehension>> comprehend(const Claim& claim) {
    SymbolicWindows windows;  // bodies see them too
    Sides sides = TRY(build_sides(claim));
    std::vector<Comprehension> all;
    Composer composer(claim, *sides.graph);
    for (size_t i = 0; i < sides.left.size(); ++i) {
        Comprehension c{sides.left[i]->type().tensor().shape, {}, {}};
        if (!is_float(sides.left[i]->type().tensor().dtype)) return senseless(claim, "its results are not floats");
        std::vector<Expr> at;
        for (int64_t d = 0; d < c.shape.rank(); ++d)
            at.push_back(index_var(fmt::format("_o{}", d), c.shape[d].as_int()));
        c.left = TRY(composer.element(sides.left[i], at));
        c.right = TRY(composer.element(sides.right[i], at));
        all.push_back(std::move(c));
    }
    return all;
}

}  // namespace tessera
