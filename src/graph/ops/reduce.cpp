// Reductions: sum, mean, max, min, prod, the norms, and sums under a logarithm.
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

Result<std::optional<std::vector<int64_t>>> reduced_axes(const OpView& op) {
    return axes_from_input(op, 1, op.rank(0), op.integer("noop_with_empty_axes"));
}

Result<Types> infer_reduction(const OpView& op) {
    if (op.has(1) && op.rank(1) != 1) return op.shape_error("axes must be a vector, is {}", op.shape(1));
    const Shape& x = op.shape(0);
    bool keep = op.integer("keepdims");
    auto axes = TRY(reduced_axes(op));
    if (!axes) {
        auto count = op.shape(1)[0].as_int();
        if (keep) return op.like(0, fresh_shape(op, 0, x.rank()));
        if (!count || *count == 0) return op.like(0, Shape::unknown());
        if (*count > x.rank()) return op.shape_error("{} axes of {}", *count, x);
        return op.like(0, fresh_shape(op, 0, x.rank() - *count));
    }
    Shape y;
    for (int64_t d = 0; d < x.rank(); ++d) {
        if (!contains(*axes, d))
            y.push_back(x[d]);
        else if (keep)
            y.push_back(1);
    }
    return op.like(0, y);
}

// What a reduction runs over for one output element.
struct Reduced {
    std::vector<ReduceAxis> axes;
    Expr element;
    Dim count = 1;

    Expr over(ReduceOp op, const Expr& v) const { return axes.empty() ? v : reduce(op, axes, v); }
    Expr sum(const Expr& v) const { return over(ReduceOp::Sum, v); }
};

Reduced reduced(const OpView& op, const Indices& o) {
    TensorRef x = op.in(0);
    std::vector<int64_t> reduced = **reduced_axes(op);
    bool keep = op.integer("keepdims");
    Reduced r;
    std::vector<Expr> at;
    int64_t next = 0;
    for (int64_t d = 0; d < x.rank(); ++d) {
        bool gone = contains(reduced, d);
        if (gone) {
            r.axes.push_back(op.reduce(x.dim(d)));
            r.count = r.count * x.dim(d);
            at.push_back(r.axes.back().var);
        }
        if (gone && !keep) continue;
        if (!gone) at.push_back(o[next]);
        ++next;
    }
    r.element = x.at(std::move(at));
    return r;
}

using ReduceBody = Expr (*)(const Reduced&);

// The axes were an attribute before the opset at which they became an input.
OpDef reduction(std::string name, const char* onnx, DTypes types, ReduceBody f, std::vector<Trait> traits = {},
                int axes_input_since = 18) {
    traits.push_back(Trait::Pure);
    return {
        .name = std::move(name),
        .inputs = {"x: T", "axes?: i64"},
        .outputs = {"y: T"},
        .attrs = {int_attr("keepdims", 1), int_attr("noop_with_empty_axes", 0)},
        .types = {{"T", types}},
        .traits = std::move(traits),
        .onnx = {onnx,
                 {attr_to_input(axes_input_since, "axes", 1),
                  attr_added(axes_input_since, "noop_with_empty_axes", Attr(int64_t{0}))}},
        .infer = infer_reduction,
        .body = [f](const OpView& op, const Indices& o) { return f(reduced(op, o)); },
        .body_applies =
            [](const OpView& op) {
                auto axes = reduced_axes(op);
                return axes.ok() && axes->has_value();
            },
    };
}

// f of a sum of reals, for integer elements too.
Expr of_sum(const Reduced& r, const std::function<Expr(const Expr&)>& term, const std::function<Expr(const Expr&)>& f) {
    DType t = r.element.dtype();
    if (is_float(t)) return f(r.sum(term(r.element)));
    return cast(f(r.sum(term(cast(r.element, DType::f64)))), t);
}

Expr mean(const Reduced& r) {
    DType t = r.element.dtype();
    if (is_float(t)) return r.sum(r.element) / cast(r.count, t);
    DType wide = is_unsigned_int(t) ? DType::u64 : DType::i64;
    return cast(r.sum(cast(r.element, wide)) / cast(r.count, wide), t);
}

Expr absolute(const Expr& x) { return call(Fn::Abs, {x}); }
Expr square(const Expr& x) { return x * x; }
Expr itself(const Expr& x) { return x; }
Expr root(const Expr& x) { return call(Fn::Sqrt, {x}); }
Expr logarithm(const Expr& x) { return call(Fn::Log, {x}); }

// The largest element is taken out of the sum, so that exponentials do not overflow.
OpDef reduce_log_sum_exp() {
    OpDef def = reduction("reduce_log_sum_exp", "ReduceLogSumExp", kNumbers, nullptr);
    def.body = {};
    def.body_applies = {};
    def.expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        Value* axes = in.size() > 1 ? in[1] : nullptr;
        auto over = [&](const char* name, Value* x, int64_t keepdims) {
            return b.op(
                name, {x, axes},
                {{"keepdims", Attr(keepdims)}, {"noop_with_empty_axes", Attr(op.integer("noop_with_empty_axes"))}});
        };
        int64_t keep = op.integer("keepdims");
        DType t = op.dtype(0), wide = is_int(t) || t == DType::f64 ? DType::f64 : DType::f32;
        Value* x = b.cast(in[0], wide);
        auto largest = [&](int64_t keepdims) {
            Value* m = over("reduce_max", x, keepdims);
            return b.op("where", {b.op("is_inf", {m}), b.scalar(0, wide), m});
        };
        Value* total = over("reduce_sum", b.op("exp", {b.sub(x, largest(1))}), keep);
        return b.finish({b.cast(b.add(b.op("log", {total}), largest(keep)), t)});
    };
    return def;
}

// A value of the output's shape, spread over what was reduced.
Value* spread(const Backward& r, Value* g) {
    OpView view = r.node.view();
    if (!view.integer("keepdims")) {
        auto axes = reduced_axes(view);
        if (!axes.ok() || !*axes) {
            r.b.fail(Error(Code::E0202, "Gradient: the axes of {} are not constant", r.node.where()));
            return nullptr;
        }
        if (!(*axes)->empty()) g = r.b.unsqueeze(g, **axes);
    }
    return r.b.op("expand", {g, r.shape_of(0)});
}

Gradients back_through_mean(const Backward& r) {
    DType t = r.out->type().tensor().dtype;
    Value* in = r.b.cast(r.b.op("size", {r.in[0]}), t);
    Value* out = r.b.cast(r.b.op("size", {r.out}), t);
    return {r.b.mul(spread(r, r.g), r.b.div(out, in))};
}

Gradients back_through_max(const Backward& r) {  // ties share
    DType t = r.out->type().tensor().dtype;
    Value* largest = r.b.cast(r.b.op("equal", {r.in[0], spread(r, r.out)}), t);
    Value* axes = r.in.size() > 1 ? r.in[1] : nullptr;
    Value* ties = r.b.op("reduce_sum", {largest, axes}, r.node.attrs());
    return {r.b.mul(largest, spread(r, r.b.div(r.g, ties)))};
}

Gradients back_through_l2(const Backward& r) {  // 0 at 0
    Value* zero = r.number(0);
    Value* unit = r.b.op("where", {r.b.op("equal", {r.out, zero}), zero, r.b.div(r.g, r.out)});
    return {r.b.mul(r.in[0], spread(r, unit))};
}

OpDef lying_as_input(OpDef def) {
    def.layout = Layout::AsInputs;
    return def;
}

}  // namespace

std::vector<OpDef> reduce_ops() {
    auto total = [](const Reduced& r) { return r.sum(r.element); };
    auto largest = [](const Reduced& r) { return r.over(ReduceOp::Max, r.element); };
    return {
        differentiable(lying_as_input(reduction("reduce_sum", "ReduceSum", kNumbers, total, {Trait::Linear}, 13)),
                       [](const Backward& r) -> Gradients { return {spread(r, r.g)}; }),
        differentiable(lying_as_input(reduction("reduce_mean", "ReduceMean", kNumbers, mean, {Trait::Linear})),
                       back_through_mean),
        differentiable(lying_as_input(reduction("reduce_max", "ReduceMax", kBodyTypes, largest)), back_through_max),
        reduction("reduce_min", "ReduceMin", kBodyTypes,
                  [](const Reduced& r) { return r.over(ReduceOp::Min, r.element); }),
        reduction("reduce_prod", "ReduceProd", kNumbers,
                  [](const Reduced& r) { return r.over(ReduceOp::Prod, r.element); }),
        reduction("reduce_l1", "ReduceL1", kNumbers, [](const Reduced& r) { return r.sum(absolute(r.element)); }),
        differentiable(
            reduction("reduce_l2", "ReduceL2", kNumbers, [](const Reduced& r) { return of_sum(r, square, root); }),
            back_through_l2),
        reduction("reduce_log_sum", "ReduceLogSum", kNumbers,
                  [](const Reduced& r) { return of_sum(r, itself, logarithm); }),
        reduction("reduce_sum_square", "ReduceSumSquare", kNumbers,
                  [](const Reduced& r) { return r.sum(square(r.element)); }),
        reduce_log_sum_exp(),
    };
}

}  // namespace tessera
