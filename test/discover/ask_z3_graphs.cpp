// Z3 on a graph and what a rule makes of it, at small sizes: every element as a term, from the bodies and expansions of
// the ops. Floats are exact reals, integers are bit-vectors, functions such as exp are unknown functions: where one of
// those takes part, a difference is no counterexample.
#include "base/numeric.h"
#include "discover/oracles.h"
#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "graph/infer.h"

#ifdef TESSERA_TEST_Z3
#include <z3++.h>
#endif

namespace tessera {

#ifndef TESSERA_TEST_Z3
SecondOpinion ask_z3(const Graph&, const Graph&, const std::map<std::string, Sizes>&,
                     const std::map<std::string, Tensor>&) {
    return {};
}
#else
namespace {

constexpr unsigned kGraphMilliseconds = 250;
constexpr int64_t kMostElements = 40;  // of an output
constexpr int64_t kBudget = 60'000;    // steps of bodies
constexpr int kMaxDepth = 20;          // of expansions in one another

struct NotSaid {
    std::string why;
};

// An element: a whole number that is known, or a term.
struct Item {
    std::optional<int64_t> whole = {};
    std::optional<z3::expr> term = {};
};

struct Items {
    DType dtype = DType::f32;
    Sizes sizes = {};
    std::vector<Item> elements = {};
    std::optional<Tensor> tensor = {};  // where all of it is known
};

class ElementTerms {
  public:
    explicit ElementTerms(z3::context& c) : c(c), demands(c) {}

    z3::context& c;
    z3::expr_vector demands;  // what must hold for the side to be a number
    bool unknown_functions = false;
    int64_t budget = kBudget;

    z3::expr term(const Item& item, DType dtype) {
        if (item.term) return *item.term;
        if (dtype == DType::boolean) return c.bool_val(*item.whole != 0);
        return c.bv_val(*item.whole, static_cast<unsigned>(dtype_bits(dtype)));
    }

    Item real(double value) {
        int64_t below = 1;
        while (value != static_cast<double>(static_cast<int64_t>(value)) && below < (int64_t{1} << 30))
            value *= 2, below *= 2;
        if (!(std::abs(value) < 0x1p50) || value != static_cast<double>(static_cast<int64_t>(value)))
            throw NotSaid{"a constant"};
        return {{}, c.real_val(static_cast<int64_t>(value)) / c.real_val(below)};
    }

    Items from(const Tensor& t) {
        if (t.dtype() == DType::string || is_complex(t.dtype())) throw NotSaid{"an element type"};
        Items out{t.dtype(), t.sizes(), {}, t};
        for (int64_t i = 0; i < t.elements(); ++i)
            out.elements.push_back(is_float(t.dtype()) ? real(t.real_at(i)) : Item{t.int_at(i), {}});
        return out;
    }
};

z3::expr smaller_of(const z3::expr& a, const z3::expr& b) { return z3::ite(a <= b, a, b); }
z3::expr larger_of(const z3::expr& a, const z3::expr& b) { return z3::ite(a >= b, a, b); }

// One body, an element at a time.
class BodyTerms {
  public:
    BodyTerms(ElementTerms& terms, const std::vector<const Items*>& inputs) : t_(terms), c_(terms.c), inputs_(inputs) {}

    Items fill(const Expr& body, DType dtype, const Sizes& sizes) {
        Items out{dtype, sizes, {}, {}};
        const int64_t n = element_count(sizes).value();
        for (int64_t flat = 0; flat < n; ++flat) {
            int64_t rest = flat;
            for (size_t d = sizes.size(); d-- > 0;) {
                bound_[fmt::format("i{}", d)] = rest % sizes[d];
                rest /= sizes[d];
            }
            out.elements.push_back(value(body));
        }
        return out;
    }

  private:
    ElementTerms& t_;
    z3::context& c_;
    const std::vector<const Items*>& inputs_;
    std::map<std::string, int64_t> bound_;
    std::vector<z3::expr> path_;

    z3::expr term(const Expr& e) { return t_.term(value(e), e.dtype()); }

    void demand(const z3::expr& what) {
        z3::expr here = c_.bool_val(true);
        for (const z3::expr& p : path_) here = here && p;
        t_.demands.push_back(z3::implies(here, what));
    }

    Item value(const Expr& e) {
        if (--t_.budget < 0) throw NotSaid{"too large"};
        switch (e.kind()) {
            case ExprKind::Const: return is_float(e.dtype()) ? t_.real(e.node().real) : Item{e.node().integer, {}};
            case ExprKind::Var: {
                auto bound = bound_.find(e.node().name);
                if (bound == bound_.end()) throw NotSaid{"a size that is not known"};
                return {bound->second, {}};
            }
            case ExprKind::Load: return load(e);
            case ExprKind::Select: return select(e);
            case ExprKind::Reduce: return reduction(e);
            case ExprKind::Cast: return cast(e);
            case ExprKind::CastSaturate: throw NotSaid{"a cast that saturates"};
            default: break;
        }
        if (!e.args().empty() && is_float(e.arg(0).dtype())) return of_reals(e);
        return of_wholes(e);
    }

    Item load(const Expr& e) {
        const Items& from = *inputs_[static_cast<size_t>(e.node().slot)];
        int64_t flat = 0;
        for (size_t d = 0; d < e.args().size(); ++d) {
            const Item at = value(e.arg(d));
            if (!at.whole) throw NotSaid{"an index that is computed"};
            if (*at.whole < 0 || *at.whole >= from.sizes[d]) throw NotSaid{"an index out of bounds"};
            flat = flat * from.sizes[d] + *at.whole;
        }
        return from.elements[static_cast<size_t>(flat)];
    }

    Item select(const Expr& e) {
        const Item condition = value(e.arg(0));
        if (condition.whole) return value(e.arg(*condition.whole ? 1 : 2));
        path_.push_back(*condition.term);
        const z3::expr then = term(e.arg(1));
        path_.back() = !*condition.term;
        const z3::expr otherwise = term(e.arg(2));
        path_.pop_back();
        return {{}, z3::ite(*condition.term, then, otherwise)};
    }

    Item cast(const Expr& e) {
        const DType from = e.arg(0).dtype(), to = e.dtype();
        const Item x = value(e.arg(0));
        if (is_float(from) && is_float(to)) return x;
        if (is_float(from)) {
            if (to == DType::boolean) return {{}, *x.term != 0};
            throw NotSaid{"a cast to integers"};
        }
        if (x.whole) return is_float(to) ? t_.real(static_cast<double>(*x.whole)) : Item{int_wrap(to, *x.whole), {}};
        if (is_float(to)) {
            if (from == DType::boolean) return {{}, z3::ite(*x.term, c_.real_val(1), c_.real_val(0))};
            throw NotSaid{"a cast to floats"};
        }
        const auto bits = static_cast<unsigned>(dtype_bits(to)), has = static_cast<unsigned>(dtype_bits(from));
        if (from == DType::boolean) {
            if (to == from) return x;
            return {{}, z3::ite(*x.term, c_.bv_val(1, bits), c_.bv_val(0, bits))};
        }
        if (to == DType::boolean) return {{}, *x.term != c_.bv_val(0, has)};
        if (bits <= has) return {{}, x.term->extract(bits - 1, 0)};
        return {{}, is_signed_int(from) ? z3::sext(*x.term, bits - has) : z3::zext(*x.term, bits - has)};
    }

    z3::expr function(const std::string& name, const std::vector<z3::expr>& args, const z3::sort& gives) {
        t_.unknown_functions = true;
        z3::sort_vector sorts(c_);
        z3::expr_vector at(c_);
        for (const z3::expr& a : args) sorts.push_back(a.get_sort()), at.push_back(a);
        return c_.function(name.c_str(), sorts, gives)(at);
    }

    Item of_reals(const Expr& e) {
        std::vector<z3::expr> a;
        for (const Expr& arg : e.args()) a.push_back(term(arg));
        auto made = [](const z3::expr& x) { return Item{{}, x}; };
        switch (e.kind()) {
            case ExprKind::Add: return made(a[0] + a[1]);
            case ExprKind::Sub: return made(a[0] - a[1]);
            case ExprKind::Mul: return made(a[0] * a[1]);
            case ExprKind::Neg: return made(-a[0]);
            case ExprKind::Div: demand(a[1] != 0); return made(a[0] / a[1]);
            case ExprKind::Min: return made(smaller_of(a[0], a[1]));
            case ExprKind::Max: return made(larger_of(a[0], a[1]));
            case ExprKind::Lt: return made(a[0] < a[1]);
            case ExprKind::Le: return made(a[0] <= a[1]);
            case ExprKind::Eq: return made(a[0] == a[1]);
            case ExprKind::Ne: return made(a[0] != a[1]);
            case ExprKind::Call:
                if (e.node().fn == Fn::Abs) return made(z3::ite(a[0] >= 0, a[0], -a[0]));
                if (e.node().fn == Fn::Sign)
                    return made(z3::ite(a[0] > 0, c_.real_val(1), z3::ite(a[0] < 0, c_.real_val(-1), c_.real_val(0))));
                if (e.node().fn == Fn::IsNan || e.node().fn == Fn::IsInf) return {0, {}};
                return made(function(std::string(fn_name(e.node().fn)), a, c_.real_sort()));
            case ExprKind::Pow: return made(function("pow", a, c_.real_sort()));
            case ExprKind::Mod: return made(function("mod", a, c_.real_sort()));
            case ExprKind::Rem: return made(function("rem", a, c_.real_sort()));
            default: throw NotSaid{"an operation on floats"};
        }
    }

    // Integers and booleans; those that are known are computed, as sizes and indices are.
    Item of_wholes(const Expr& e) {
        std::vector<Item> items;
        bool known = true;
        for (const Expr& arg : e.args()) {
            items.push_back(value(arg));
            known &= items.back().whole.has_value();
        }
        const DType dtype = e.args().empty() ? e.dtype() : e.arg(0).dtype();
        if (known && !items.empty())
            if (auto n = small(e, items)) return {*n, {}};
        std::vector<z3::expr> a;
        for (const Item& i : items) a.push_back(t_.term(i, dtype));
        z3::expr out = dtype == DType::boolean ? of_truths(e, a) : a[0];
        if (dtype != DType::boolean)
            for (size_t i = 1; i < std::max<size_t>(a.size(), 2); ++i)
                out = of_bits(e, out, i < a.size() ? a[i] : out, dtype);
        return {{}, out};
    }

    static std::optional<int64_t> small(const Expr& e, const std::vector<Item>& items) {
        std::vector<Expr> args;
        for (size_t i = 0; i < items.size(); ++i) args.push_back(int_const(*items[i].whole, e.arg(i).dtype()));
        const Expr folded = with_args(e, std::move(args));
        if (folded.is(ExprKind::Const) && !is_float(folded.dtype())) return folded.node().integer;
        return std::nullopt;
    }

    z3::expr of_truths(const Expr& e, const std::vector<z3::expr>& a) {
        switch (e.kind()) {
            case ExprKind::Not: return !a[0];
            case ExprKind::And:
            case ExprKind::Min:
            case ExprKind::Mul:
            case ExprKind::BitAnd: return a[0] && a[1];
            case ExprKind::Or:
            case ExprKind::Max:
            case ExprKind::BitOr: return a[0] || a[1];
            case ExprKind::Eq: return a[0] == a[1];
            case ExprKind::Ne:
            case ExprKind::BitXor: return a[0] != a[1];
            default: throw NotSaid{"an operation on booleans"};
        }
    }

    z3::expr of_bits(const Expr& e, const z3::expr& a, const z3::expr& b, DType dtype) {
        const bool has_sign = is_signed_int(dtype);
        const z3::expr zero = c_.bv_val(0, a.get_sort().bv_size());
        auto below = [&](const z3::expr& x, const z3::expr& y) { return has_sign ? z3::slt(x, y) : z3::ult(x, y); };
        switch (e.kind()) {
            case ExprKind::Add: return a + b;
            case ExprKind::Sub: return a - b;
            case ExprKind::Mul: return a * b;
            case ExprKind::Neg: return -a;
            case ExprKind::BitNot: return ~a;
            case ExprKind::BitAnd: return a & b;
            case ExprKind::BitOr: return a | b;
            case ExprKind::BitXor: return a ^ b;
            case ExprKind::Min: return z3::ite(below(b, a), b, a);
            case ExprKind::Max: return z3::ite(below(a, b), b, a);
            case ExprKind::Lt: return below(a, b);
            case ExprKind::Le: return !below(b, a);
            case ExprKind::Eq: return a == b;
            case ExprKind::Ne: return a != b;
            case ExprKind::Div: return z3::ite(b == zero, zero, has_sign ? a / b : z3::udiv(a, b));
            case ExprKind::Call:
                if (e.node().fn == Fn::Abs) return z3::ite(below(a, zero), -a, a);
                throw NotSaid{"a function of integers"};
            default: throw NotSaid{"an operation on integers"};
        }
    }

    Item reduction(const Expr& e) {
        std::vector<int64_t> extents;
        int64_t points = 1;
        for (const ReduceAxis& axis : e.node().axes) {
            const Item n = value(axis.extent);
            if (!n.whole) throw NotSaid{"a size that is computed"};
            extents.push_back(*n.whole);
            points *= std::max<int64_t>(*n.whole, 0);
        }
        const DType dtype = e.arg(0).dtype();
        const ReduceOp op = e.node().reduce_op;
        std::optional<z3::expr> out;
        for (int64_t p = 0; p < points; ++p) {
            int64_t rest = p;
            for (size_t i = extents.size(); i-- > 0;) {
                bound_[e.node().axes[i].var.node().name] = rest % extents[i];
                rest /= extents[i];
            }
            const z3::expr x = term(e.arg(0));
            out = out ? joined(op, *out, x, dtype) : x;
        }
        for (const ReduceAxis& axis : e.node().axes) bound_.erase(axis.var.node().name);
        if (out) return {{}, *out};
        if (op == ReduceOp::Min || op == ReduceOp::Max) throw NotSaid{"a maximum of nothing"};
        if (is_float(dtype)) return t_.real(op == ReduceOp::Prod);
        return {op == ReduceOp::Prod, {}};
    }

    static z3::expr joined(ReduceOp op, const z3::expr& a, const z3::expr& b, DType dtype) {
        if (dtype == DType::boolean) return op == ReduceOp::Max || op == ReduceOp::Sum ? a || b : a && b;
        if (op == ReduceOp::Sum) return a + b;
        if (op == ReduceOp::Prod) return a * b;
        const z3::expr below = is_float(dtype) ? a < b : is_signed_int(dtype) ? z3::slt(a, b) : z3::ult(a, b);
        return (op == ReduceOp::Max) ? z3::ite(below, b, a) : z3::ite(below, a, b);
    }
};

// One side, op by op.
class GraphTerms {
  public:
    explicit GraphTerms(ElementTerms& terms) : t_(terms) {}

    using Values = std::map<const Value*, Items>;
    std::vector<Items> walk(const Graph& graph, Values values) {
        if (++depth_ > kMaxDepth) throw NotSaid{"graphs that nest too deeply"};
        for (const auto& node : graph.nodes()) {
            std::vector<const Items*> inputs;
            for (const Value* v : node->inputs()) inputs.push_back(v ? &find(v, values) : nullptr);
            std::vector<Items> outputs = call(*node, inputs);
            for (size_t i = 0; i < node->output_count() && i < outputs.size(); ++i)
                values[node->output(i)] = std::move(outputs[i]);
        }
        std::vector<Items> outputs;
        for (const Value* v : graph.outputs()) outputs.push_back(find(v, values));
        --depth_;
        return outputs;
    }

  private:
    ElementTerms& t_;
    int depth_ = 0;

    template <typename T>
    static T take(Result<T> result) {
        if (!result.ok()) throw NotSaid{result.error().message()};
        return std::move(result).value();
    }

    const Items& find(const Value* v, Values& values) {
        if (auto it = values.find(v); it != values.end()) return it->second;
        if (!v->tensor()) throw NotSaid{"a value of a graph around"};
        return values[v] = t_.from(*v->tensor());
    }

    std::vector<Items> call(const Node& node, const std::vector<const Items*>& inputs) {
        const OpDef& op = node.op();
        if (op.has(Trait::Random)) throw NotSaid{"random numbers"};
        std::vector<Type> types;
        std::vector<const Tensor*> tensors;
        bool all_known = true;
        for (const Items* x : inputs) {
            types.push_back(x ? Type(x->dtype, Shape(x->sizes)) : Type());
            tensors.push_back(x && x->tensor ? &*x->tensor : nullptr);
            all_known &= !x || x->tensor;
        }
        if (all_known) return known(node, tensors);
        OpView view(op, node.attrs(), std::move(types), node.output_count());
        std::vector<bool> wanted;
        for (size_t i = 0; i < node.output_count(); ++i)
            wanted.push_back(node.output_given(i) && !node.output(i)->uses().empty());
        view.with_values(tensors).with_wanted(wanted).made_concrete();
        std::vector<Items> results(wanted.size());
        auto missing = view.asks_unknown([&] {
            view.with_outputs(take(infer_types(view)));
            if (op.body && (!op.body_applies || op.body_applies(view))) {
                for (size_t i = 0; i < wanted.size(); ++i) {
                    if (!wanted[i]) continue;
                    view.for_output(i);
                    const Sizes sizes = take(view.out_sizes(i));
                    const Expr body = op.body(view, output_indices(view.out(i).shape));
                    results[i] = BodyTerms(t_, inputs).fill(body, view.out(i).dtype, sizes);
                }
            } else if (op.expand) {
                results = expanded(view, inputs, wanted);
            } else {
                throw NotSaid{"an op without body or expansion"};
            }
        });
        if (missing) throw NotSaid{"an op that needs to know its inputs"};
        return results;
    }

    std::vector<Items> known(const Node& node, const std::vector<const Tensor*>& tensors) {
        std::vector<std::optional<Datum>> inputs;
        for (const Tensor* t : tensors) inputs.push_back(t ? std::optional<Datum>(*t) : std::nullopt);
        std::vector<Items> out;
        for (const Datum& d : take(evaluate_op(node.op(), inputs, node.attrs(), node.output_count()))) {
            if (!d.is_tensor()) throw NotSaid{"what is no tensor"};
            out.push_back(t_.from(d.tensor()));
        }
        return out;
    }

    std::vector<Items> expanded(const OpView& view, const std::vector<const Items*>& inputs,
                                const std::vector<bool>& wanted) {
        Graph graph(view.def().name);
        Values values;
        std::vector<Value*> given;
        for (size_t i = 0; i < inputs.size(); ++i) {
            if (!inputs[i]) {
                given.push_back(nullptr);
            } else if (inputs[i]->tensor) {
                given.push_back(graph.constant(*inputs[i]->tensor));
            } else {
                given.push_back(graph.add_input(fmt::format("x{}", i), view.type(i)));
                values[given.back()] = *inputs[i];
            }
        }
        Builder build(graph);
        std::vector<Value*> results = take(build.finish(take(view.def().expand(view, given, build))));
        std::vector<size_t> places;
        for (size_t i = 0; i < results.size() && i < wanted.size(); ++i) {
            if (!results[i] || !wanted[i]) continue;
            places.push_back(i);
            graph.add_output(results[i]);
        }
        std::vector<Items> out(wanted.size()), computed = walk(graph, std::move(values));
        for (size_t i = 0; i < places.size(); ++i) out[places[i]] = std::move(computed[i]);
        return out;
    }
};

// Unknowns for what is not fixed, the same ones on both sides.
GraphTerms::Values unknowns(const Graph& graph, ElementTerms& terms, const std::map<std::string, Sizes>& sizes,
                            const std::map<std::string, Tensor>& fixed) {
    GraphTerms::Values values;
    for (const auto& v : graph.inputs()) {
        if (auto known = fixed.find(v->name()); known != fixed.end()) {
            values[v.get()] = terms.from(known->second);
            continue;
        }
        const DType dtype = v->type().tensor().dtype;
        if (dtype == DType::string || is_complex(dtype)) throw NotSaid{"an element type"};
        Items items{dtype, sizes.at(v->name()), {}, {}};
        for (int64_t i = 0; i < element_count(items.sizes).value(); ++i) {
            const std::string name = fmt::format("{}.{}", v->name(), i);
            const auto bits = static_cast<unsigned>(dtype_bits(dtype));
            items.elements.push_back({{},
                                      is_float(dtype)           ? terms.c.real_const(name.c_str())
                                      : dtype == DType::boolean ? terms.c.bool_const(name.c_str())
                                                                : terms.c.bv_const(name.c_str(), bits)});
        }
        values[v.get()] = std::move(items);
    }
    return values;
}

}  // namespace

SecondOpinion ask_z3(const Graph& left, const Graph& right, const std::map<std::string, Sizes>& sizes,
                     const std::map<std::string, Tensor>& fixed) {
    try {
        z3::context context;
        z3::solver solver(context);
        z3::params params(context);
        params.set("timeout", kGraphMilliseconds);
        solver.set(params);
        ElementTerms l(context), r(context);
        const std::vector<Items> a = GraphTerms(l).walk(left, unknowns(left, l, sizes, fixed));
        const std::vector<Items> b = GraphTerms(r).walk(right, unknowns(right, r, sizes, fixed));
        z3::expr differ = context.bool_val(false);
        for (size_t k = 0; k < a.size(); ++k) {
            if (a[k].sizes != b[k].sizes || a[k].dtype != b[k].dtype) return {Opinion::Disagrees, "other types"};
            if (int64_t(a[k].elements.size()) > kMostElements) throw NotSaid{"too large"};
            for (size_t i = 0; i < a[k].elements.size(); ++i)
                differ = differ || l.term(a[k].elements[i], a[k].dtype) != r.term(b[k].elements[i], b[k].dtype);
        }
        solver.add(l.demands);
        solver.add(differ || !z3::mk_and(r.demands));
        switch (solver.check()) {
            case z3::unsat: return {Opinion::Agrees};
            case z3::sat: {
                if (l.unknown_functions || r.unknown_functions) return {Opinion::None, "a function"};
                return {Opinion::Disagrees, fmt::format("{}", Z3_model_to_string(context, solver.get_model()))};
            }
            default: return {Opinion::None, "Z3 does not know"};
        }
    } catch (const NotSaid& beyond) {
        return {Opinion::None, beyond.why};
    } catch (const z3::exception& e) {
        return {Opinion::None, e.msg()};
    }
}
#endif

}  // namespace tessera
