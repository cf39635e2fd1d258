#include "graph/ops/flex_attention.h"

#include <cmath>

#include "graph/copy_nodes.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/heads.h"

namespace tessera {
namespace {

// One stretch of the computation between two of the user's graphs, on known tensors.
Result<Tensor> compute(const std::vector<Tensor>& inputs,
                       const std::function<Value*(Builder&, std::vector<Value*>)>& build) {
    Graph graph("flex_attention");
    Builder b(graph);
    std::vector<Value*> values;
    Inputs bound;
    for (size_t i = 0; i < inputs.size(); ++i) {
        std::string name = fmt::format("x{}", i);
        values.push_back(graph.add_input(name, type_of(inputs[i])));
        bound[name] = inputs[i];
    }
    graph.add_output(TRY(b.finish({build(b, values)}))[0]);
    return TRY(evaluate(graph, bound))[0].tensor();
}

Result<Tensor> modify(const OpView& op, EvalContext& ctx, const char* attr, const Tensor& x) {
    if (!op.has_attr(attr)) return x;
    auto out = TRY(ctx.run(op.graph(attr), {x}));
    if (out.size() != 1 || !out[0].is_tensor() || out[0].tensor().sizes() != x.sizes() ||
        out[0].tensor().dtype() != x.dtype())
        return op.error(Code::E0407, "{} must keep shape and element type", attr);
    return out[0].tensor();
}

Result<DType> precision_of(const OpView& op) {
    if (op.has_attr("softmax_precision")) return dtype_attr(op, "softmax_precision");
    return op.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
}

Result<std::vector<Datum>> evaluate_flex_attention(const OpView& op, EvalContext& ctx) {
    const Tensor &q = ctx.tensor(0), &k = ctx.tensor(1), &v = ctx.tensor(2);
    DType t = op.dtype(0), precision = TRY(precision_of(op));
    int64_t group = TRY(head_group(op, op.shape(0)[1], op.shape(1)[1]));
    double scale = op.has_attr("scale") ? op.real("scale") : 1 / std::sqrt(double(q.size(3)));
    TRY(ctx.spend(q.elements() * (k.size(2) + 1) + v.elements() * (q.size(2) + 1)));
    Tensor scores = TRY(compute({q, k}, [&](Builder& b, std::vector<Value*> x) {
        Value *root = b.scalar(std::sqrt(scale), t), *keys = repeat_heads(b, x[1], op.shape(1)[1], group, 1);
        return b.cast(b.matmul(b.mul(x[0], root), b.transpose(b.mul(keys, root), {0, 1, 3, 2})), precision);
    }));
    scores = TRY(modify(op, ctx, "score_mod", scores));
    Tensor weights = TRY(compute({scores}, [](Builder& b, std::vector<Value*> x) {
        return b.op("softmax", {x[0]}, {{"axis", Attr(int64_t{-1})}});
    }));
    weights = TRY(modify(op, ctx, "prob_mod", weights));
    Tensor y = TRY(compute({weights, v}, [&](Builder& b, std::vector<Value*> x) {
        return b.cast(b.matmul(x[0], b.cast(repeat_heads(b, x[1], op.shape(2)[1], group, 1), precision)), t);
    }));
    return std::vector<Datum>{y};
}

// The same in one graph, the user's graphs in their places.
Result<std::vector<Value*>> expand_flex_attention(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    const DType t = op.dtype(0), precision = TRY(precision_of(op));
    const int64_t group = TRY(head_group(op, op.shape(0)[1], op.shape(1)[1]));
    auto width = op.shape(0)[3].as_int();
    if (!op.has_attr("scale") && !width) return op.error(Code::E0214, "the head size must be constant");
    const double scale = op.has_attr("scale") ? op.real("scale") : 1 / std::sqrt(double(*width));
    auto modified = [&](const char* attr, Value* x) -> Result<Value*> {
        if (!op.has_attr(attr)) return x;
        TRY(b.status());
        auto out = TRY(copy_nodes(op.graph(attr), b.graph(), {x}));
        if (out.size() != 1 || !out[0] || !(out[0]->type() == x->type()))
            return op.error(Code::E0407, "{} must keep shape and element type", attr);
        return out[0];
    };
    Value *root = b.scalar(std::sqrt(scale), t), *keys = repeat_heads(b, in[1], op.shape(1)[1], group, 1);
    Value* scores = b.cast(b.matmul(b.mul(in[0], root), b.transpose(b.mul(keys, root), {0, 1, 3, 2})), precision);
    scores = TRY(modified("score_mod", scores));
    Value* weights = b.op("softmax", {scores}, {{"axis", Attr(int64_t{-1})}});
    weights = TRY(modified("prob_mod", weights));
    Value* values = b.cast(repeat_heads(b, in[2], op.shape(2)[1], group, 1), precision);
    return b.finish({b.cast(b.matmul(weights, values), t)});
}

}  // namespace

OpDef flex_attention_op() {
    OnnxForm form("FlexAttention");
    form.domain = "ai.onnx.preview";
    return {
        .name = "flex_attention",
        .inputs = {"q: T", "k: T", "v: T"},
        .outputs = {"y: T"},
        .attrs = {graph_attr("prob_mod"), float_attr("scale"), graph_attr("score_mod"), int_attr("softmax_precision")},
        .types = {{"T", kWideFloats}},
        .onnx = form,
        .infer = [](const OpView& op) -> Result<Types> {
            const Shape &q = op.shape(0), &k = op.shape(1), &v = op.shape(2);
            if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
                return op.shape_error("q, k and v must have 4 dimensions, are {}, {} and {}", q, k, v);
            if (differ(q[0], k[0]) || differ(k[0], v[0]) || differ(q[3], k[3]) || differ(k[1], v[1]) ||
                differ(k[2], v[2]))
                return op.shape_error("q {}, k {} and v {} are incompatible", q, k, v);
            TRY(head_group(op, q[1], k[1]));
            if (!kWideFloats.has(TRY(precision_of(op))))
                return op.error(Code::E0213, "softmax_precision must be a float type");
            return op.like(0, {q[0], q[1], q[2], v[3]});
        },
        .expand = expand_flex_attention,
        .evaluate = evaluate_flex_attention,
    };
}

}  // namespace tessera
