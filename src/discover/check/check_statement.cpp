#include "discover/check/check_statement.h"

#include <algorithm>
#include <set>

#include "base/random.h"
#include "graph/expand_node.h"
#include "graph/graph.h"
#include "graph/ops/conv_window.h"
#include "rewrite/rules/match.h"

namespace tessera::checker {
namespace {

constexpr int64_t kLargestNumber = int64_t{1} << 29;  // of an attribute; larger ones stand for symbols

Error no_meaning(std::string why) { return Error(Code::E0303, "{}", why); }

// The terms of a rule as values of one graph, at given sizes or at symbolic ones.
class Reader {
  public:
    Reader(const Claim& claim, const Bindings& sizes)
        : rule_(claim.rule), graph_(claim.rule.name), bound_(rule_.variables.size()) {
        for (size_t i = 0; i < bound_.size(); ++i) {
            const std::string& name = rule_.variables[i].name;
            if (auto shape = claim.shapes.find(name); shape != claim.shapes.end())
                bound_[i] = graph_.add_input(name, Type(element_type(rule_, rule_.variables[i]).value_or(DType::f32),
                                                        Shape(at(shape->second.dims(), sizes))));
            else if (auto value = claim.values.find(name); value != claim.values.end())
                if (auto* list = std::get_if<std::vector<Expr>>(&value->second)) bound_[i] = at(*list, sizes);
        }
    }

    Graph& graph() { return graph_; }

    Result<std::vector<Value*>> left() { return results(rule_.pattern, rule_.pattern.size()); }

    Result<std::vector<Value*>> right() {
        for (const auto& [slot, term] : rule_.lets) bound_[static_cast<size_t>(slot)] = TRY(read(term));
        return results(rule_.replacement, rule_.pattern.size());
    }

  private:
    const Rule& rule_;
    Graph graph_;
    std::vector<RuleValue> bound_;  // by variable

    static std::vector<Expr> at(const std::vector<Expr>& list, const Bindings& sizes) {
        std::vector<Expr> out;
        for (const Expr& e : list) out.push_back(substitute(e, sizes));
        return out;
    }

    Result<std::vector<Value*>> results(const std::vector<Term>& terms, size_t count) {
        std::vector<Value*> out;
        if (terms.size() < count) {  // one op with several results
            if (terms.size() != 1 || terms[0].form != Term::Form::Op) return no_meaning("there are too few results");
            Node* node = TRY(apply(terms[0], count));
            for (size_t i = 0; i < count; ++i) out.push_back(node->output(i));
            return out;
        }
        for (const Term& term : terms) {
            Value* v = TRY(tensor(term));
            out.push_back(v);
        }
        return out;
    }

    // A tensor, or whatever else the language of rules computes.
    Result<RuleValue> read(const Term& term) {
        if (term.form == Term::Form::Op) {
            const size_t output = static_cast<size_t>(term.output);
            Node* node = TRY(apply(term, output + 1));
            if (term.bound_slot >= 0) bound_[static_cast<size_t>(term.bound_slot)] = node->output(output);
            return RuleValue(node->output(output));
        }
        if (term.form == Term::Form::Variable && (term.slot < 0 || term.list || term.optional))
            return no_meaning("a variable that is not one tensor");
        std::optional<RuleValue> value = evaluate_term(term, bound_);
        if (!value || std::holds_alternative<std::monostate>(*value))
            return no_meaning(fmt::format("{} has no value", to_string(term, rule_)));
        return *value;
    }

    // A number has the element type of what it stands beside.
    Result<Value*> tensor(const Term& term, DType like = DType::f32) {
        if (term.form == Term::Form::Number) return graph_.constant(TRY(Tensor::filled(like, {}, term.number)));
        RuleValue value = TRY(read(term));
        if (auto* v = std::get_if<Value*>(&value)) return *v;
        if (auto* number = std::get_if<double>(&value)) return graph_.constant(TRY(Tensor::filled(like, {}, *number)));
        const auto* list = std::get_if<std::vector<Expr>>(&value);
        const auto* one = std::get_if<Expr>(&value);
        if (!list && !one) return no_meaning(fmt::format("{} is no tensor", to_string(term, rule_)));
        const std::vector<Expr> sizes = list ? *list : std::vector<Expr>{*one};
        if (auto numbers = numbers_of(sizes))
            return graph_.constant(list ? Tensor::ints(*numbers) : Tensor::scalar((*numbers)[0]));
        Value* input =
            graph_.add_input("sizes", Type(DType::i64, list ? Shape{static_cast<int64_t>(sizes.size())} : Shape{}));
        input->set_contents(sizes);
        return input;
    }

    Result<Attr> attribute(const Term& term, AttrKind kind) {
        const RuleValue value = TRY(read(term));
        const auto* whole = std::get_if<Expr>(&value);
        const auto* real = std::get_if<double>(&value);
        if (kind == AttrKind::Int && whole && whole->as_int()) return Attr(*whole->as_int());
        if (kind == AttrKind::Float && real) return Attr(static_cast<float>(*real));
        if (kind == AttrKind::Float && whole && whole->as_int()) return Attr(static_cast<float>(*whole->as_int()));
        if (const auto* text = std::get_if<std::string>(&value); text && kind == AttrKind::String) return Attr(*text);
        if (const auto* list = std::get_if<std::vector<Expr>>(&value); list && kind == AttrKind::Ints) {
            std::vector<int64_t> numbers;
            for (const Expr& e : *list) {  // a symbol by a number that stands for it
                if (e.as_int() && std::abs(*e.as_int()) > kLargestNumber) return no_meaning("a number is too large");
                numbers.push_back(e.as_int() ? *e.as_int() : SymbolicWindows::current()->add(e));
            }
            return Attr(numbers);
        }
        return no_meaning(fmt::format("{} is no such attribute", to_string(term, rule_)));
    }

    Result<Node*> apply(const Term& term, size_t outputs) {
        if (term.rest_slot >= 0) return no_meaning("attributes that are not named");
        if (!term.op->has(Trait::Pure)) return no_meaning(fmt::format("{} is no function", term.op->name));
        std::vector<Value*> inputs(term.args.size());
        std::optional<DType> like;
        for (bool numbers : {false, true})
            for (size_t i = 0; i < term.args.size(); ++i) {
                const Term& arg = term.args[i];
                if ((arg.form == Term::Form::Number || arg.kind == TermKind::Float) != numbers) continue;
                inputs[i] = TRY(tensor(arg, like.value_or(DType::f32)));
                const DType type = inputs[i]->type().is_tensor() ? inputs[i]->type().tensor().dtype : DType::boolean;
                if (!like && is_float(type)) like = type;
            }
        AttrMap attrs;
        for (const auto& [name, value] : term.attrs) {
            Attr attr = TRY(attribute(value, term.op->attr(name)->kind));
            attrs.insert_or_assign(name, std::move(attr));
        }
        if (term.op->count_outputs) {
            std::vector<Type> types;
            for (const Value* v : inputs) types.push_back(v ? v->type() : Type());
            auto told = term.op->count_outputs(OpView(*term.op, attrs, std::move(types), outputs));
            outputs = std::max(outputs, told.value_or(0));
        }
        return graph_.add({term.op, std::move(inputs), std::move(attrs), outputs});
    }
};

Status same_types(const std::vector<Value*>& left, const std::vector<Value*>& right) {
    for (size_t i = 0; i < left.size(); ++i) {
        const Type &l = left[i]->type(), &r = right[i]->type();
        if (!(l == r)) return no_meaning(fmt::format("the left side is a {}, the right side a {}", l, r));
        if (!l.is_tensor() || !l.tensor().shape.ranked() || !is_float(l.tensor().dtype))
            return no_meaning("a result is no tensor of floats");
    }
    return {};
}

Result<Expr> size_in(const std::vector<Expr>& list, const std::vector<Expr>& at) {
    const std::optional<int64_t> i = at.empty() ? 0 : at[0].as_int();
    if (at.size() > 1 || !i || *i < 0 || *i >= static_cast<int64_t>(list.size()))
        return no_meaning("sizes are read at a computed place");
    return list[static_cast<size_t>(*i)];
}

Result<Expr> constant_at(const Tensor& t, const std::vector<Expr>& at) {
    const bool whole = is_int(t.dtype()) || t.dtype() == DType::boolean;
    if (!(whole || is_float(t.dtype())) || t.elements() == 0) return no_meaning("a constant that is no number");
    auto element = [&](int64_t i) {
        return whole ? int_const(t.int_at(i), t.dtype()) : real_const(t.real_at(i), t.dtype());
    };
    bool uniform = true;
    for (int64_t i = 1; uniform && i < t.elements(); ++i) uniform = element(i) == element(0);
    if (uniform) return element(0);
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) {
        if (!at[d].as_int()) return no_meaning("a constant with elements that differ");
        place = place * t.size(static_cast<int64_t>(d)) + *at[d].as_int();
    }
    return element(place);
}

// Elements of a graph's values. Bodies number what they sum over from 0 each; here every sum has names of its own.
class Elements {
  public:
    explicit Elements(Graph& graph) : graph_(graph) {}

    Result<Expr> of(Value* v, const std::vector<Expr>& at) {
        if (std::optional<Result<Expr>> known = known_element(v, at)) return *known;
        if (v->kind() == Value::Kind::Input) return load(static_cast<int>(v->index()), v->type().tensor().dtype, at);
        Node& node = *v->node();
        const OpDef& op = node.op();
        if (!op.body || (op.body_applies && !op.body_applies(node.view()))) {
            Value* written_out = TRY(expansion(node, v->index()));
            return of(written_out, at);
        }
        OpView view = node.view();
        view.for_output(v->index());
        return compose(op.body(view, Indices(at)), node, {});
    }

  private:
    Graph& graph_;
    std::map<const Node*, std::vector<Value*>> expansions_;
    int sums_ = 0;
    int64_t composed_ = 0;

    Result<Value*> expansion(Node& node, size_t output) {
        auto known = expansions_.find(&node);
        if (known == expansions_.end()) {
            Builder build(graph_);
            known = expansions_.emplace(&node, expand_node(node, build).value_or(std::vector<Value*>())).first;
        }
        if (output >= known->second.size() || !known->second[output])
            return no_meaning(fmt::format("{} has no body and cannot be written out", node.op().name));
        return known->second[output];
    }

    Result<Expr> compose(const Expr& e, Node& node, const Bindings& names) {
        constexpr int64_t kMost = 200'000;
        if (++composed_ > kMost) return no_meaning("its expressions are too large");
        if (e.is(ExprKind::Var)) return substitute(e, names);
        if (e.is(ExprKind::Reduce)) {
            Bindings inner = names;
            std::vector<ReduceAxis> axes;
            for (const ReduceAxis& axis : e.node().axes) {
                Expr extent = TRY(compose(axis.extent, node, names));
                Expr variable = index_var(fmt::format("_r{}", ++sums_), extent.as_int());
                inner.insert_or_assign(axis.var.node().name, variable);
                axes.push_back({std::move(variable), std::move(extent)});
            }
            Expr value = TRY(compose(e.arg(0), node, inner));
            return reduce(e.node().reduce_op, std::move(axes), value);
        }
        if (e.args().empty() && !e.is(ExprKind::Load)) return e;
        std::vector<Expr> args;
        for (const Expr& arg : e.args()) {
            Expr a = TRY(compose(arg, node, names));
            args.push_back(std::move(a));
        }
        if (e.is(ExprKind::Load)) return of(node.input(static_cast<size_t>(e.node().slot)), args);
        return with_args(e, std::move(args));
    }
};

// Sizes and attributes that are symbols, by name.
void symbols_in(const std::vector<Expr>& list, std::set<std::string>& names) {
    for (const Expr& e : list)
        for (const std::string& s : free_symbols(e)) names.insert(s);
}

// With numbers for the symbols inference leaves nothing open. First no two sizes are the same, so that nothing fits by
// chance; then some are, or are 1, for sides that make sense only so (broadcasting, kernels that keep a size).
Status fits(const Claim& claim, const std::set<std::string>& sizes, const std::set<std::string>& of_attributes) {
    constexpr int kDistinct = 20, kRounds = 600, kEnough = 3;
    RandomStream random(43, "checked sizes");
    uint64_t drawn = 0;
    int accepted = 0;
    Status refused;
    for (int round = 0; round < kRounds && accepted < kEnough; ++round) {
        Bindings numbers;
        std::vector<int64_t> used;
        for (const std::string& s : of_attributes) numbers.emplace(s, static_cast<int64_t>(random.bits(drawn++) % 3));
        for (const std::string& s : sizes) {
            if (of_attributes.contains(s)) continue;
            const uint64_t kind = random.bits(drawn++) % 4;
            auto n = static_cast<int64_t>(random.bits(drawn++) % (kind == 0 ? 500 : 12));
            while (std::find(used.begin(), used.end(), n) != used.end()) ++n;
            if (round >= kDistinct && kind == 1) n = 1;
            if (round >= kDistinct && kind == 2 && !used.empty()) n = used[random.bits(drawn++) % used.size()];
            used.push_back(n);
            numbers.emplace(s, n);
        }
        SymbolicWindows windows;
        Reader reader(claim, numbers);
        Result<std::vector<Value*>> left = reader.left();
        if (!left.ok()) {
            refused = left.error();
            continue;
        }
        const std::vector<Value*> right = TRY(reader.right());
        TRY(same_types(*left, right));
        ++accepted;
    }
    return accepted == 0 ? refused : Status();
}

}  // namespace

Status read_sides(const Claim& claim, const SidesReader& read) {
    std::set<std::string> sizes, of_attributes;
    for (const auto& [name, shape] : claim.shapes) symbols_in(shape.dims(), sizes);
    for (const auto& [name, value] : claim.values)
        if (auto* list = std::get_if<std::vector<Expr>>(&value)) symbols_in(*list, of_attributes);
    TRY(check_names(claim));
    TRY(fits(claim, sizes, of_attributes));

    SymbolicWindows windows;  // also for the bodies
    Reader reader(claim, {});
    const std::vector<Value*> left = TRY(reader.left());
    const std::vector<Value*> right = TRY(reader.right());
    TRY(same_types(left, right));
    return read(reader.graph(), left, right);
}

Result<std::vector<Statement>> statements_of(const Claim& claim) {
    std::vector<Statement> all;
    TRY(read_sides(claim,
                   [&](Graph& graph, const std::vector<Value*>& left, const std::vector<Value*>& right) -> Status {
                       Elements elements(graph);
                       for (size_t i = 0; i < left.size(); ++i) {
                           Statement s{left[i]->type().tensor().shape, {}, {}};
                           const std::vector<Expr> at = output_indices(s.shape);
                           s.left = TRY(elements.of(left[i], at));
                           s.right = TRY(elements.of(right[i], at));
                           all.push_back(std::move(s));
                       }
                       return {};
                   }));
    return all;
}

std::vector<Expr> output_indices(const Shape& shape) {
    std::vector<Expr> at;
    for (int64_t d = 0; d < shape.rank(); ++d) at.push_back(index_var(fmt::format("_o{}", d), shape[d].as_int()));
    return at;
}

std::optional<Result<Expr>> known_element(const Value* v, const std::vector<Expr>& at) {
    if (v->is_constant()) return constant_at(*v->tensor(), at);
    if (v->contents() && v->type().tensor().dtype == DType::i64) return size_in(*v->contents(), at);
    return {};
}

}  // namespace tessera::checker
