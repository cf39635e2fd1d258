#include <algorithm>
#include <numeric>

#include "graph/gradient/gradient.h"
#include "graph/gradient/tensor_expression.h"
#include "graph/gradient/transpose_body.h"

namespace tessera {
namespace {

const TensorType& type_of_value(const Value* v) { return v->type().tensor(); }

std::vector<ReduceAxis> axes_named(const char* name, const Shape& shape) {
    std::vector<ReduceAxis> axes;
    for (const Dim& d : shape) axes.push_back({index_var(name + std::to_string(axes.size()), d.as_int()), d});
    return axes;
}

std::vector<Expr> vars_of(const std::vector<ReduceAxis>& axes) {
    std::vector<Expr> vars;
    for (const ReduceAxis& axis : axes) vars.push_back(axis.var);
    return vars;
}

Value* sum_of(Builder& b, Value* a, Value* c) { return !a ? c : !c ? a : b.add(a, c); }

// Whether reading it again is cheaper than computing it again.
bool worth_reading(const Expr& body) {
    bool worth = false;
    visit(body, [&](const Expr& e) {
        worth |= e.is(ExprKind::Call) || e.is(ExprKind::Reduce) || e.is(ExprKind::Div) || e.is(ExprKind::Pow);
    });
    return worth;
}

// A tensor like `x` with these parts added to zeros, in an order that does not depend on threads.
Value* scattered(Builder& b, const std::vector<Value*>& inputs, Value* x, const Scattered& s) {
    const TensorType& type = type_of_value(x);
    std::vector<int64_t> order(s.dims.begin(), s.dims.end());
    for (int64_t d = 0; d < type.rank(); ++d)
        if (std::find(order.begin(), order.end(), d) == order.end()) order.push_back(d);
    std::vector<ReduceAxis> all = s.over, places = s.over;
    all.insert(all.end(), s.whole.begin(), s.whole.end());
    Value* updates = tensor_expression(b, inputs, s.value, all);
    const Expr which = index_var("which", int64_t(s.dims.size()));
    Expr at = s.at.back();
    for (size_t k = s.at.size() - 1; k-- > 0;) at = select(eq(which, int64_t(k)), s.at[k], at);
    places.push_back({which, Expr(int64_t(s.dims.size()))});
    Value* indices = tensor_expression(b, inputs, at, places);
    Value* shape = b.op("shape", {x});
    const bool moved = !std::is_sorted(order.begin(), order.end());
    if (moved) shape = b.op("gather", {shape, b.ints(order)});
    Value* zeros = b.op("expand", {b.scalar(0, type.dtype), shape});
    Value* sum = b.op("scatter_nd", {zeros, indices, updates}, {{"reduction", Attr(std::string("add"))}});
    if (!moved) return sum;
    std::vector<int64_t> inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i) inverse[size_t(order[i])] = int64_t(i);
    return b.transpose(sum, inverse);
}

Value* gradient_of_slot(const Backward& r, const std::vector<Value*>& inputs, size_t slot,
                        const std::vector<Reached>& reached, const std::vector<ReduceAxis>& outputs) {
    std::vector<Reached> parts;
    for (const Reached& part : reached)
        if (size_t(part.load.node().slot) == slot) parts.push_back(part);
    Value* x = inputs[slot];
    const std::vector<ReduceAxis> axes = axes_named("j", type_of_value(x).shape);
    const Transposed t = transpose_body(parts, outputs, vars_of(axes), type_of_value(x).shape.dims());
    Value* gradient = nullptr;
    if (t.gathered) gradient = tensor_expression(r.b, inputs, *t.gathered, axes);
    for (const Scattered& s : t.scattered) gradient = sum_of(r.b, gradient, scattered(r.b, inputs, x, s));
    return gradient;
}

// Computes reductions once for each output element that they depend on, as tensors of their own; otherwise turning a
// derivative around could repeat them for every element that they reach.
class Hoisting {
  public:
    Hoisting(Builder& b, std::vector<Value*>& inputs, std::vector<ReduceAxis> axes)
        : b_(b), inputs_(inputs), axes_(std::move(axes)) {}

    Expr hoist(const Expr& e) {
        if (!e.node().reads || b_.failed()) return e;
        if (e.is(ExprKind::Reduce)) return as_tensor(e);
        std::vector<Expr> args;
        for (size_t i = 0; i < e.args().size(); ++i) {
            const bool branch = e.is(ExprKind::Select) && i > 0;
            if (branch) conditions_.push_back(i == 1 ? e.arg(0) : logical_not(e.arg(0)));
            args.push_back(e.is(ExprKind::Load) ? e.arg(i) : hoist(e.arg(i)));
            if (branch) conditions_.pop_back();
        }
        return with_args(e, std::move(args));
    }

  private:
    bool names_only(const Expr& e, const std::vector<ReduceAxis>& axes) const {
        for (const std::string& name : free_symbols(e)) {
            auto is = [&](const ReduceAxis& axis) { return axis.var.node().name == name; };
            if (std::any_of(axes_.begin(), axes_.end(), is) && std::none_of(axes.begin(), axes.end(), is)) return false;
        }
        return true;
    }

    Expr as_tensor(const Expr& e) {
        const std::vector<std::string> names = free_symbols(e);
        std::vector<ReduceAxis> own;
        for (const ReduceAxis& axis : axes_)
            if (std::binary_search(names.begin(), names.end(), axis.var.node().name)) own.push_back(axis);
        Expr value = e;
        for (const Expr& c : conditions_)
            if (names_only(c, own) && e.node().reduce_op == ReduceOp::Sum)
                value = sum(value.node().axes, select(c, value.arg(0), constant(0, e.dtype())));
        Value* tensor = tensor_expression(b_, inputs_, value, own);
        auto known = std::find(inputs_.begin(), inputs_.end(), tensor);
        if (known == inputs_.end()) known = inputs_.insert(known, tensor);
        return load(int(known - inputs_.begin()), e.dtype(), vars_of(own));
    }

    Builder& b_;
    std::vector<Value*>& inputs_;
    const std::vector<ReduceAxis> axes_;
    std::vector<Expr> conditions_;
};

// By the body of one output, `y`, at which `g` arrives.
Gradients by_one_body(const Backward& r, const std::vector<Value*>& own, const std::vector<bool>& wanted, Value* y,
                      Value* g, const std::function<Expr(const Indices& at)>& body_at) {
    std::vector<Value*> inputs = own;
    const int g_slot = int(inputs.size()), y_slot = g_slot + 1;
    inputs.insert(inputs.end(), {g, y});
    const std::vector<ReduceAxis> outputs = axes_named("o", type_of_value(y).shape);
    const std::vector<Expr> at = vars_of(outputs);
    const Expr body = body_at(Indices(at));
    std::vector<Reached> reached = derive_body(body, load(g_slot, body.dtype(), at), [&](int slot) {
        return size_t(slot) < wanted.size() && wanted[size_t(slot)];
    });
    if (worth_reading(body))
        for (Reached& part : reached)
            part.adjoint =
                rewrite(part.adjoint, [&](const Expr& e) { return e == body ? load(y_slot, body.dtype(), at) : e; });
    for (Reached& part : reached) {
        std::vector<ReduceAxis> axes = outputs;
        axes.insert(axes.end(), part.axes.begin(), part.axes.end());
        part.adjoint = Hoisting(r.b, inputs, std::move(axes)).hoist(part.adjoint);
    }
    Gradients result(own.size(), nullptr);
    for (size_t i = 0; i < own.size() && !r.b.failed(); ++i)
        if (own[i] && i < wanted.size() && wanted[i]) result[i] = gradient_of_slot(r, inputs, i, reached, outputs);
    return result;
}

}  // namespace

Gradients gradients_by_body(const Backward& r, const std::vector<Value*>& inputs, const std::vector<bool>& wanted,
                            const std::function<Expr(const Indices& at)>& body) {
    return by_one_body(r, inputs, wanted, r.out, r.g, body);
}

Gradients gradients_by_body(const Backward& r) {
    Gradients sum(r.in.size(), nullptr);
    OpView view = r.node.view();
    for (size_t i = 0; i < r.outs.size(); ++i) {
        if (!r.gs[i]) continue;
        view.for_output(i);
        const Gradients part = by_one_body(r, r.in, r.wanted, r.outs[i], r.gs[i],
                                           [&](const Indices& at) { return r.node.op().body(view, at); });
        for (size_t k = 0; k < part.size(); ++k) sum[k] = sum_of(r.b, sum[k], part[k]);
    }
    return sum;
}

}  // namespace tessera
