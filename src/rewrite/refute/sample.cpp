#include "rewrite/refute/sample.h"

#include <cmath>

#include "rewrite/rules/match.h"

namespace tessera {
namespace {

constexpr int kAlias = 5;              // percent of variables that are a value already there
constexpr int kSymbolic = 30;          // of instances whose inputs have symbolic sizes
constexpr int kConstant = 12;          // of free variables that are constants
constexpr int kBetween = 15;           // of constants that lie between two numbers of the rule
constexpr int kSwapped = 25;           // of commutative ops whose operands come in the other order
constexpr int kFromTheEnd = 40;        // of axes that a condition decides
constexpr double kNearLiteral = 5e-7;  // relative, of what a literal stands for in any type
constexpr int kNearLength = 8;         // of instances with a length near a number of the rule
constexpr int kNearLongLength = 3;     // likewise, with one that takes long
constexpr int64_t kSizes = 67000;      // that an axis has at most
constexpr int kRunTime = 6;            // of shapes, indices and the like that are only known at run time

class SampleBuilder {
  public:
    SampleBuilder(const Rule& rule, const Hints& hints, Draw& draw, const SampleOptions& options)
        : rule_(rule), hints_(hints), draw_(draw), options_(options), pool_(draw, options) {
        sample_.graph = std::make_unique<Graph>("left");
        if (hints.opset) sample_.graph->info().opset = static_cast<int>(draw.between(7, 25));
        if (!hints.lengths.empty() && !options.tiny && draw.chance(kNearLength))
            pool_.offer(std::max<int64_t>(draw.pick(hints.lengths) + draw.pick<int64_t>({-1, 0, 1, 1, 2}), 0));
        else if (!hints.long_lengths.empty() && !options.tiny && draw.chance(kNearLongLength))
            pool_.offer(draw.pick(hints.long_lengths) + draw.pick<int64_t>({-1, 0, 1, 1, 2}));
        bound_.resize(rule.variables.size());
        for (const Term& root : rule.pattern) count_outputs(root);
    }

    std::optional<Sample> build() {
        for (const Term& root : rule_.pattern) {
            Value* v = op(root, {}, {});
            if (!v) return std::nullopt;
            sample_.graph->add_output(v);
        }
        for (const auto& v : sample_.graph->inputs()) {
            auto sizes = v->type().tensor().shape.sizes();
            if (!sizes) return std::nullopt;
            sample_.sizes[v->name()] = *sizes;
        }
        if (draw_.chance(kSymbolic)) make_symbolic();
        return std::move(sample_);
    }

  private:
    // What a variable stands for, once it is met.
    struct Binding {
        bool done = false;
        std::vector<Value*> values = {};  // one of a tensor, none of an optional input that is not given
        std::optional<Attr> attr = {};    // none of an attribute that is not given
        AttrMap rest = {};                // of ..rest
    };

    Graph& graph() { return *sample_.graph; }

    Value* op(const Term& term, std::optional<Wanted> want, std::optional<DType> dtype);
    bool settle_attrs(const Term& term, Draft& draft);
    std::optional<Attr> literal(const Term& term, AttrKind kind) const;
    std::optional<Attr> hinted(int slot, AttrKind kind);
    std::vector<RuleValue> rule_values() const;
    std::optional<RuleValue> solved(int slot, Hints::Equation::About about);
    std::optional<std::vector<int64_t>> solved_ints(int slot, Hints::Equation::About about);
    void draw_open(Draft& draft, bool last);
    bool settle(Draft& draft, size_t i, const Term& term);
    Value* fresh(Draft& draft, size_t i, int slot, bool constant);
    std::optional<Proposal> propose(Draft& draft, size_t i, int slot);
    void fulfil(Tensor& t, int slot);
    Value* number(Draft& draft, size_t i, const Term& literal);
    void draw_stand_ins(Tensor& t, double value, bool point);
    void spell(RuleValue& axes, int64_t rank);
    std::optional<DType> element_type(const Draft& draft, size_t i, const std::string& constraint);
    std::optional<Wanted> wanted(Draft& draft, size_t i);
    Value* alike(const Term& term, Draft& draft, size_t i);
    static std::string shape_of(const Term& term);
    std::string without_output(Term term) const;
    void count_outputs(const Term& term);
    void make_symbolic();

    const Rule& rule_;
    const Hints& hints_;
    Draw& draw_;
    const SampleOptions& options_;
    SizePool pool_;
    Sample sample_;
    std::vector<Binding> bound_;
    std::map<std::string, int> outputs_;         // of ops with several, by term: how many the pattern asks for
    std::map<std::string, Node*> nodes_;         // those that are built
    std::map<std::string, uint64_t> positions_;  // of the random choices, by the shape of the term they were made for
};

std::optional<Attr> SampleBuilder::literal(const Term& term, AttrKind kind) const {
    switch (term.form) {
        case Term::Form::Number:
            if (kind == AttrKind::Int) return Attr(term.whole());
            if (kind == AttrKind::Float) return Attr(static_cast<float>(term.number));
            return std::nullopt;
        case Term::Form::Text: return Attr(term.name);
        case Term::Form::List: {
            std::vector<int64_t> ints;
            std::vector<float> floats;
            for (const Term& t : term.args) {
                const Attr* known = nullptr;
                if (t.form == Term::Form::Variable && t.slot >= 0 && bound_[t.slot].done && bound_[t.slot].attr)
                    known = &*bound_[t.slot].attr;
                if (t.form != Term::Form::Number && !(known && std::holds_alternative<int64_t>(*known)))
                    return std::nullopt;
                ints.push_back(known ? std::get<int64_t>(*known) : t.whole());
                floats.push_back(known ? static_cast<float>(ints.back()) : static_cast<float>(t.number));
            }
            if (kind == AttrKind::Ints) return Attr(ints);
            if (kind == AttrKind::Floats) return Attr(floats);
            return std::nullopt;
        }
        default: return std::nullopt;
    }
}

// A value for an attribute that the conditions ask for.
std::optional<Attr> SampleBuilder::hinted(int slot, AttrKind kind) {
    std::optional<double> value;
    if (auto it = hints_.number.find(slot); it != hints_.number.end()) value = it->second;
    if (auto it = hints_.range.find(slot); !value && it != hints_.range.end()) {
        auto [low, high] = it->second;
        if (kind == AttrKind::Float && std::isfinite(low) && std::isfinite(high)) value = (low + high) / 2;
    }
    if (draw_.chance(10)) return std::nullopt;
    using About = Hints::Equation::About;
    for (About about : {About::Attribute, About::Axis}) {
        if (value) break;
        auto known = solved(slot, about);
        if (!known) continue;
        auto* list = std::get_if<std::vector<Expr>>(&*known);
        if (list && kind == AttrKind::Ints) {
            auto ints = solved_ints(slot, about);
            if (ints) return Attr(*ints);
        }
        if (list && about == About::Axis && list->size() == 1 && (*list)[0].as_int())
            value = double(*(*list)[0].as_int());
        if (auto* e = std::get_if<Expr>(&*known); e && e->as_int()) value = static_cast<double>(*e->as_int());
        if (auto* x = std::get_if<double>(&*known)) value = *x;
        if (auto* text = std::get_if<std::string>(&*known); text && kind == AttrKind::String) return Attr(*text);
    }
    if (!value || std::fabs(*value) > 1e15) return std::nullopt;
    if (kind == AttrKind::Int) return Attr(static_cast<int64_t>(*value));
    if (kind == AttrKind::Float) return Attr(static_cast<float>(*value));
    return std::nullopt;
}

// Attributes that the pattern or an earlier use of a variable decides; the others are left open.
bool SampleBuilder::settle_attrs(const Term& term, Draft& draft) {
    std::set<std::string> named;
    for (const auto& [name, t] : term.attrs) {
        named.insert(name);
        const AttrDef* def = draft.op->attr(name);
        if (!def) return false;
        if (t.form == Term::Form::Variable && t.slot >= 0) {
            if (bound_[t.slot].done) {
                if (bound_[t.slot].attr) draft.attrs[name] = *bound_[t.slot].attr;
                continue;
            }
            draft.slots[name] = t.slot;
        } else if (auto value = literal(t, def->kind)) {
            draft.attrs[name] = *value;
            continue;
        }
        // An optional attribute may be left to its default.
        if (def->is_required || !draw_.chance(20)) draft.open.insert(name);
    }
    if (term.rest_slot >= 0) {
        Binding& rest = bound_[term.rest_slot];
        if (rest.done) {
            for (const auto& [name, value] : rest.rest)
                if (!named.contains(name)) draft.attrs[name] = value;
            return true;
        }
        std::vector<std::string> free;
        for (const AttrDef& def : draft.op->attrs) {
            if (named.contains(def.name)) continue;
            if (def.is_required)
                draft.open.insert(def.name);
            else
                free.push_back(def.name);
        }
        // None, one alone, or any: an op with many takes few of their combinations.
        const int64_t style = free.empty() ? 0 : draw_.below(10);
        if (style >= 2 && style < 5) draft.open.insert(draw_.pick(free));
        for (const std::string& name : free)
            if (style >= 5 && draw_.chance(60)) draft.open.insert(name);
    }
    return true;
}

void SampleBuilder::draw_open(Draft& draft, bool last) {
    for (const std::string& name : std::set<std::string>(draft.open)) {
        const AttrDef* def = draft.op->attr(name);
        auto slot = draft.slots.find(name);
        auto value = slot != draft.slots.end() ? hinted(slot->second, def->kind) : std::nullopt;
        if (value) {
            draft.attrs[name] = std::move(*value);
            draft.open.erase(name);
            continue;
        }
        if (auto drawn = propose_attr(draft, name, pool_)) {
            auto all = slot != draft.slots.end() ? hints_.all_equal.find(slot->second) : hints_.all_equal.end();
            auto* list = std::get_if<std::vector<int64_t>>(&*drawn);
            if (all != hints_.all_equal.end() && list && draw_.chance(85)) list->assign(list->size(), all->second);
            draft.attrs[name] = std::move(*drawn);
            draft.open.erase(name);
        } else if (last) {
            draft.open.erase(name);
        }
    }
}

std::optional<DType> SampleBuilder::element_type(const Draft& draft, size_t i, const std::string& constraint) {
    const ParamDef& param = draft.param(i);
    if (auto fixed = dtype_from_name(param.type)) return fixed;
    for (size_t j = 0; j < draft.inputs.size(); ++j)
        if (draft.has(j) && param.type != "*" && draft.param(j).type == param.type &&
            draft.inputs[j]->type().is_tensor())
            return draft.inputs[j]->type().tensor().dtype;
    DTypes allowed = kBodyTypes;
    for (const TypeVar& v : draft.op->types)
        if (v.name == param.type) allowed = v.allowed;
    if (draft.want_dtype && draft.op->outputs[0].type == param.type && allowed.has(*draft.want_dtype))
        return draft.want_dtype;
    if (auto exact = dtype_from_name(constraint)) return exact;
    return some_type(allowed, constraint, options_, draw_);
}

// The variables as the engine will know them.
std::vector<RuleValue> SampleBuilder::rule_values() const {
    std::vector<RuleValue> out(bound_.size());
    for (size_t i = 0; i < bound_.size(); ++i) {
        const Binding& b = bound_[i];
        if (!b.done) continue;
        if (rule_.variables[i].kind == TermKind::Tensors) {
            out[i] = b.values;
        } else if (!b.values.empty() && b.values[0]) {
            out[i] = b.values[0];
        } else if (b.attr) {
            if (auto* n = std::get_if<int64_t>(&*b.attr)) out[i] = Expr(*n);
            if (auto* x = std::get_if<float>(&*b.attr)) out[i] = double{*x};
            if (auto* text = std::get_if<std::string>(&*b.attr)) out[i] = *text;
            if (auto* list = std::get_if<std::vector<int64_t>>(&*b.attr))
                out[i] = std::vector<Expr>(list->begin(), list->end());
        }
    }
    return out;
}

// What an equation among the conditions says of a variable, where its other side is known by now.
std::optional<RuleValue> SampleBuilder::solved(int slot, Hints::Equation::About about) {
    if (slot < 0) return std::nullopt;
    for (const Hints::Equation& e : hints_.equations) {
        if (e.slot != slot || e.about != about) continue;
        std::vector<RuleValue> values = rule_values();
        if (e.term->form == Term::Form::Variable && e.term->slot >= 0 && about == Hints::Equation::About::Dims) {
            auto* v = std::get_if<Value*>(&values[static_cast<size_t>(e.term->slot)]);
            if (v && (*v)->type().tensor().shape.ranked()) return RuleValue((*v)->type().tensor().shape.dims());
            continue;
        }
        auto value = evaluate_term(*e.term, values);
        if (!value || std::holds_alternative<std::monostate>(*value)) continue;
        auto rank = e.rank ? evaluate_term(*e.rank, values) : std::nullopt;
        if (auto* n = rank ? std::get_if<Expr>(&*rank) : nullptr; n && n->as_int()) spell(*value, *n->as_int());
        return value;
    }
    return std::nullopt;
}

// Some of the axes counted from the end.
void SampleBuilder::spell(RuleValue& axes, int64_t rank) {
    auto one = [&](Expr& e) {
        if (auto axis = e.as_int(); axis && *axis >= 0 && draw_.chance(kFromTheEnd)) e = Expr(*axis - rank);
    };
    if (auto* list = std::get_if<std::vector<Expr>>(&axes))
        for (Expr& e : *list) one(e);
    if (auto* e = std::get_if<Expr>(&axes)) one(*e);
}

std::optional<std::vector<int64_t>> SampleBuilder::solved_ints(int slot, Hints::Equation::About about) {
    auto value = solved(slot, about);
    auto* list = value ? std::get_if<std::vector<Expr>>(&*value) : nullptr;
    if (!list) return std::nullopt;
    std::vector<int64_t> out;
    for (const Expr& e : *list) {
        if (!e.as_int()) return std::nullopt;
        out.push_back(*e.as_int());
    }
    return out;
}

// With the rank and the number of elements that the conditions ask for.
std::optional<Proposal> SampleBuilder::propose(Draft& draft, size_t i, int slot) {
    auto rank = hints_.rank.find(slot);
    std::optional<Proposal> proposal;
    for (int again = 0; again < 8; ++again) {
        proposal = propose_input(draft, i, pool_);
        if (!proposal || rank == hints_.rank.end()) break;
        auto n = static_cast<int64_t>(proposal->sizes.size());
        if (n >= rank->second.first && n <= rank->second.second) break;
    }
    if (!proposal) return proposal;
    if (hints_.single.contains(slot) && !proposal->contents)
        proposal->sizes = Sizes(static_cast<size_t>(draw_.pick({0, 0, 0, 1, 1, 2, 3})), 1);
    if (auto all = hints_.all_equal.find(slot); all != hints_.all_equal.end() && proposal->contents)
        proposal->contents =
            *Tensor::filled(proposal->contents->dtype(), proposal->sizes, static_cast<double>(all->second));
    if (hints_.covers.contains(slot) && proposal->contents && draw_.chance(90))
        proposal->contents =
            *Tensor::filled(proposal->contents->dtype(), proposal->sizes, draw_.pick({1000.0, 0x1p62}));
    if (draw_.chance(85)) {
        using About = Hints::Equation::About;
        if (auto sizes = proposal->contents ? std::nullopt : solved_ints(slot, About::Dims)) proposal->sizes = *sizes;
        if (auto elements = proposal->contents ? solved_ints(slot, About::Elements) : std::nullopt) {
            proposal->sizes = {static_cast<int64_t>(elements->size())};
            proposal->contents = Tensor::ints(*elements);
        }
        int64_t elements = 1;
        bool fits = true;
        for (int64_t n : proposal->sizes) {
            fits &= n >= 0 && n < kSizes;
            elements *= fits ? std::max<int64_t>(n, 1) : 0;
            fits &= elements < 2 * kSizes;
        }
        if (!fits || proposal->sizes.size() > 8) return std::nullopt;
    }
    proposal->positive |= hints_.positive.contains(slot);
    if (auto sizes = hints_.sizes.find(slot); sizes != hints_.sizes.end() && !proposal->contents && draw_.chance(95))
        for (const Hints::Size& size : sizes->second) {
            const auto axes = static_cast<int64_t>(proposal->sizes.size());
            const int64_t axis = size.axis < 0 ? size.axis + axes : size.axis;
            if (axis < 0 || axis >= axes || size.low > size.high) continue;
            int64_t& n = proposal->sizes[static_cast<size_t>(axis)];
            if (n < size.low) n = std::min(size.high, size.low + draw_.pick<int64_t>({0, 0, 1, 1, 2, 3, 5, 8}));
            if (n > size.high) n = std::max(size.low, size.high - draw_.pick<int64_t>({0, 0, 1, 2}));
            int64_t elements = 1;
            for (int64_t s : proposal->sizes) elements = std::min(elements * s, 2 * kSizes);
            if (elements == 2 * kSizes) return std::nullopt;
        }
    return proposal;
}

// A constant's elements as the conditions ask for them.
void SampleBuilder::fulfil(Tensor& t, int slot) {
    if (!is_float(t.dtype()) && !is_int(t.dtype())) return;
    auto number = hints_.number.find(slot);
    // Conditions may bound it by numbers of theirs.
    if (!hints_.numbers.empty() && is_float(t.dtype()) && draw_.chance(kBetween)) {
        const double a = draw_.pick(hints_.numbers), b = draw_.pick(hints_.numbers), c = a + (b - a) * draw_.uniform();
        for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, std::isfinite(c) ? c : 1);
    }
    for (int64_t i = 0; i < t.elements(); ++i) {
        if (number != hints_.number.end())
            t.set_real(i, number->second == 0 && draw_.chance(30) ? -0.0 : number->second);
        if (hints_.powers_of_two.contains(slot)) t.set_real(i, draw_.pick({1.0, 2.0, 0.5, 4.0, -2.0, 0.125}));
        if (hints_.nonzero.contains(slot) && t.real_at(i) == 0) t.set_real(i, 3);
    }
}

Value* SampleBuilder::fresh(Draft& draft, size_t i, int slot, bool constant) {
    const RuleVariable* variable = slot >= 0 ? &rule_.variables[static_cast<size_t>(slot)] : nullptr;
    auto proposal = propose(draft, i, slot);
    if (!proposal) return nullptr;
    auto dtype = element_type(draft, i, variable ? variable->constraint : std::string());
    if (!dtype) return nullptr;
    std::string name = variable ? variable->name : "any";
    if (proposal->contents) {
        Tensor t = *proposal->contents;
        if (t.dtype() != *dtype) {
            if (*dtype == DType::string) return nullptr;
            auto cast = Tensor::zeros(*dtype, t.sizes());
            if (!cast.ok()) return nullptr;
            for (int64_t k = 0; k < t.elements(); ++k) {
                if (is_float(*dtype))
                    cast->set_real(k, t.real_at(k));
                else
                    cast->set_int(k, is_float(t.dtype()) ? static_cast<int64_t>(t.real_at(k)) : t.int_at(k));
            }
            t = std::move(*cast);
        }
        if (constant || !draw_.chance(kRunTime)) return graph().constant(std::move(t), name);
        Value* v = graph().add_input(name, Type(t.dtype(), Shape(t.sizes())));
        sample_.fixed[v->name()] = std::move(t);
        return v;
    }
    const Type type(*dtype, Shape(proposal->sizes));
    if (!constant && draw_.chance(kAlias)) {
        std::vector<Value*> same;
        for (const auto& v : graph().inputs())
            if (v->type() == type) same.push_back(v.get());
        if (!same.empty()) return draw_.pick(same);
    }
    if (constant || (draw_.chance(kConstant) && !hints_.variable.contains(slot))) {
        Tensor t = random_constant(*dtype, proposal->sizes, proposal->positive, draw_, options_);
        if (draw_.chance(90)) fulfil(t, slot);
        return graph().constant(std::move(t), name);
    }
    Value* v = graph().add_input(name, type);
    if (proposal->positive) sample_.positive.insert(v->name());
    return v;
}

// A number of the pattern: a constant with that value in every element.
Value* SampleBuilder::number(Draft& draft, size_t i, const Term& literal) {
    // One with a point is no integer.
    auto dtype = element_type(draft, i, literal.has_point ? "float" : "");
    if (!dtype || *dtype == DType::string) return nullptr;
    Sizes sizes;
    if (draw_.chance(40)) {
        auto proposal = propose_input(draft, i, pool_);
        if (proposal && !proposal->contents) sizes = proposal->sizes;
    } else if (draw_.chance(20)) {
        sizes = {1};
    }
    auto t = tensor_of(literal, *dtype, sizes);
    if (!t.ok()) return nullptr;
    if (is_float(*dtype)) draw_stand_ins(*t, literal.number, literal.has_point);
    return graph().constant(std::move(*t));
}

// The engine takes either zero for 0, and for a number that f32 does not have what is rounded to it.
void SampleBuilder::draw_stand_ins(Tensor& t, double value, bool point) {
    const bool signs = value == 0 && !point;
    const bool rounded = options_.literals && point && static_cast<double>(static_cast<float>(value)) != value;
    if ((!signs && !rounded) || !draw_.chance(50)) return;
    const bool all = draw_.chance(50);
    for (int64_t i = 0; i < t.elements(); ++i) {
        if (!all && draw_.chance(50)) continue;
        t.set_real(i, signs ? -0.0 : value * (1 + kNearLiteral * (2 * draw_.uniform() - 1)));
    }
}

// What the other inputs, or the op around, ask of an op in input i.
std::optional<Wanted> SampleBuilder::wanted(Draft& draft, size_t i) {
    bool constrained = draft.want.has_value() || needs_shape(*draft.op);
    for (size_t j = 0; j < draft.inputs.size(); ++j) constrained |= draft.has(j);
    if (!constrained || draw_.chance(5)) return std::nullopt;
    auto proposal = propose_input(draft, i, pool_);
    if (!proposal || proposal->contents) return std::nullopt;
    return Wanted{proposal->sizes};
}

// An op in input i. One that is built like another before is often drawn like it too: two slices, two reshapes.
Value* SampleBuilder::alike(const Term& term, Draft& draft, size_t i) {
    auto [before, first] = positions_.emplace(shape_of(term), draw_.position());
    const uint64_t here = draw_.position();
    const bool again = !first && draw_.chance(50);
    if (again) draw_.go_to(before->second);
    std::optional<Wanted> want = wanted(draft, i);
    Value* v = op(term, want, element_type(draft, i, {}));
    if (again) draw_.go_to(std::max(draw_.position(), here) + 1000);
    return v;
}

// The ops of a term, without its variables.
std::string SampleBuilder::shape_of(const Term& term) {
    if (term.form != Term::Form::Op) return term.form == Term::Form::Variable ? "_" : "c";
    std::string text = term.op->name + "(";
    for (const Term& arg : term.args) text += shape_of(arg) + ",";
    return text + ")";
}

bool SampleBuilder::settle(Draft& draft, size_t i, const Term& term) {
    draft.settled[i] = true;
    switch (term.form) {
        case Term::Form::Op: {
            Value* v = alike(term, draft, i);
            draft.inputs[i] = v;
            return v;
        }
        case Term::Form::Number: return (draft.inputs[i] = number(draft, i, term));
        case Term::Form::List: {
            auto ints = literal(term, AttrKind::Ints);
            if (!ints) return (draft.inputs[i] = fresh(draft, i, -1, true));
            return (draft.inputs[i] = graph().constant(Tensor::ints(std::get<std::vector<int64_t>>(*ints))));
        }
        case Term::Form::Variable: break;
        default: return (draft.inputs[i] = fresh(draft, i, -1, true));
    }
    const bool named = term.slot >= 0;
    Value* v = fresh(draft, i, term.slot, named && hints_.constants.contains(term.slot));
    draft.inputs[i] = v;
    if (named && !term.list) bound_[term.slot] = {true, {v}, {}, {}};
    if (named && term.list) bound_[term.slot].values.push_back(v);
    return v;
}

// Terms that ask for several outputs of one node differ in nothing else.
std::string SampleBuilder::without_output(Term term) const {
    term.output = 0;
    term.bound_slot = -1;
    return to_string(term, rule_);
}

void SampleBuilder::count_outputs(const Term& term) {
    if (term.form == Term::Form::Op && term.op->outputs.size() + term.op->outputs.back().variadic > 1) {
        int& most = outputs_[without_output(term)];
        most = std::max(most, term.output + 1);
    }
    for (const Term& arg : term.args) count_outputs(arg);
}

Value* SampleBuilder::op(const Term& term, std::optional<Wanted> want, std::optional<DType> dtype) {
    if (term.form != Term::Form::Op) return nullptr;
    std::string key = outputs_.empty() ? std::string() : without_output(term);
    auto twin = outputs_.find(key);
    if (auto made = nodes_.find(key); twin != outputs_.end() && made != nodes_.end()) {
        Value* out = made->second->output(static_cast<size_t>(term.output));
        if (term.bound_slot >= 0) bound_[term.bound_slot] = {true, {out}, {}, {}};
        return out;
    }
    Draft draft;
    draft.op = term.op;
    draft.want = std::move(want);
    draft.want_dtype = dtype;
    draft.outputs = static_cast<size_t>(twin != outputs_.end() ? twin->second : 1);
    for (size_t k = 0; k < draft.op->outputs.size(); ++k)
        if (!draft.op->outputs[k].optional && !draft.op->outputs[k].variadic)
            draft.outputs = std::max(draft.outputs, k + 1);
    if (draft.op->outputs.back().variadic) draft.outputs = std::max<size_t>(draft.outputs, size_t(draw_.between(1, 3)));
    if (!settle_attrs(term, draft)) return nullptr;

    // The inputs: those that are bound, then ops and lists, then variables, then numbers.
    std::vector<const Term*> places;
    std::vector<int> lists;
    for (const Term& arg : term.args) {
        const Binding* binding = arg.form == Term::Form::Variable && arg.slot >= 0 ? &bound_[arg.slot] : nullptr;
        if (binding && binding->done) {
            for (Value* v : binding->values) {
                draft.inputs.push_back(v);
                draft.settled.push_back(true);
                places.push_back(&arg);
            }
            if (arg.optional && binding->values.empty()) {
                draft.inputs.push_back(nullptr);
                draft.settled.push_back(true);
                places.push_back(&arg);
            }
            continue;
        }
        int64_t count = arg.list ? draw_.pick<int64_t>({0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5}) : 1;
        const bool left_out =
            arg.optional && !hints_.given.contains(arg.slot) && (hints_.missing.contains(arg.slot) || draw_.chance(40));
        if (arg.list && arg.slot >= 0) lists.push_back(arg.slot);
        for (int64_t k = 0; k < count; ++k) {
            draft.inputs.push_back(nullptr);
            draft.settled.push_back(left_out);
            places.push_back(&arg);
        }
        if (left_out && arg.slot >= 0) bound_[arg.slot].done = true;
    }
    draw_open(draft, false);
    auto rank_of = [](const Term& t) {
        return t.form == Term::Form::Op || t.form == Term::Form::List ? 0 : t.form == Term::Form::Variable ? 1 : 2;
    };
    for (int pass = 0; pass < 3; ++pass)
        for (size_t i = 0; i < places.size(); ++i) {
            if (draft.settled[i] || rank_of(*places[i]) != pass) continue;
            // The variable may have been met inside an op of an earlier pass.
            const Term& arg = *places[i];
            if (arg.form == Term::Form::Variable && arg.slot >= 0 && !arg.list && bound_[arg.slot].done) {
                draft.settled[i] = true;
                draft.inputs[i] = bound_[arg.slot].values.empty() ? nullptr : bound_[arg.slot].values[0];
                continue;
            }
            if (!settle(draft, i, arg)) return nullptr;
            draw_open(draft, false);
        }
    for (int slot : lists) bound_[slot].done = true;
    draw_open(draft, true);
    for (const auto& [name, slot] : draft.slots) {
        auto it = draft.attrs.find(name);
        const AttrDef* def = draft.op->attr(name);
        bound_[slot].done = true;
        bound_[slot].attr = it != draft.attrs.end() ? std::optional(it->second) : def->fallback;
    }
    if (term.rest_slot >= 0 && !bound_[term.rest_slot].done) {
        Binding& rest = bound_[term.rest_slot];
        rest.done = true;
        for (const auto& [name, value] : draft.attrs)
            if (std::none_of(term.attrs.begin(), term.attrs.end(), [&](const auto& a) { return a.first == name; }))
                rest.rest[name] = value;
    }
    while (!draft.inputs.empty() && !draft.inputs.back()) draft.inputs.pop_back();
    // The engine tries both orders.
    if (draft.op->has(Trait::Commutative) && draft.inputs.size() == 2 && draw_.chance(kSwapped))
        std::swap(draft.inputs[0], draft.inputs[1]);
    auto node = graph().add({.op = draft.op, .inputs = draft.inputs, .attrs = draft.attrs, .outputs = draft.outputs});
    if (!node.ok() || static_cast<size_t>(term.output) >= (*node)->output_count()) return nullptr;
    if (twin != outputs_.end()) nodes_[key] = *node;
    Value* out = (*node)->output(static_cast<size_t>(term.output));
    if (term.bound_slot >= 0) bound_[term.bound_slot] = {true, {out}, {}, {}};
    return out;
}

// The same symbol for equal sizes. Where inference then fails, the sizes stay as they are.
void SampleBuilder::make_symbolic() {
    std::unique_ptr<Graph> copy = graph().clone();
    std::map<int64_t, bool> chosen;
    bool any = false;
    for (const auto& v : copy->inputs()) {
        if (sample_.fixed.contains(v->name())) continue;
        TensorType t = v->type().tensor();
        for (int64_t d = 0; d < t.rank(); ++d) {
            int64_t n = *t.dim(d).as_int();
            auto [it, fresh] = chosen.emplace(n, false);
            if (fresh) it->second = draw_.chance(n > 1 ? 60 : 10);
            if (!it->second) continue;
            t.shape[d] = symbol(fmt::format("N{}", n));
            any = true;
        }
        v->set_type(Type(std::move(t)));
    }
    if (any && copy->infer_again().ok()) sample_.graph = std::move(copy);
}

}  // namespace

Sampler::Sampler(const Rule& rule) : rule_(&rule), hints_(hints_of(rule)) {}

std::optional<Sample> Sampler::draw(Draw& draw, const SampleOptions& options) const {
    std::optional<Sample> sample = SampleBuilder(*rule_, hints_, draw, options).build();
    if (!sample) return sample;
    sample->numbers = sample->numbers_of_rule = hints_.numbers;
    for (const auto& node : sample->graph->nodes())
        for (const AttrDef& def : node->op().attrs) {
            auto given = node->attrs().find(def.name);
            const Attr* attr = given != node->attrs().end() ? &given->second : def.fallback ? &*def.fallback : nullptr;
            if (auto* x = attr ? std::get_if<float>(attr) : nullptr) sample->numbers_of_rule.push_back(*x);
        }
    for (const auto& v : sample->graph->constants()) {
        const Tensor& t = *v->tensor();
        if (!is_float(t.dtype()) && !is_int(t.dtype())) continue;
        for (int64_t i = 0; i < std::min<int64_t>(t.elements(), 4); ++i) sample->numbers.push_back(t.real_at(i));
    }
    return sample;
}

}  // namespace tessera
