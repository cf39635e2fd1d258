// One step of an optimizer (ai.onnx.preview.training): adagrad, adam, momentum.
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// The inputs after the learning rate and the update count come in `parts` lists of equal length: the tensors, their
// gradients, and what the optimizer remembers of them. The outputs are all of these but the gradients.
struct Step {
    const OpView& op;
    size_t parts, count;
    Step(const OpView& op, size_t parts) : op(op), parts(parts), count((op.input_count() - 2) / parts) {}

    size_t tensor() const { return op.output() % count; }  // which of the tensors the output belongs to
    size_t result() const { return op.output() / count; }  // 0: the tensor itself, 1...: what is remembered
    DType dtype() const { return op.dtype(2 + tensor()); }
    Expr number(std::string_view attr) const { return constant(op.real(attr), dtype()); }
    Expr one() const { return constant(1, dtype()); }
    Expr rate() const { return cast(only_element(op.in(0)), dtype()); }
    Expr updates() const { return only_element(op.in(1)); }
    Expr part(size_t p, const Indices& o) const { return cast(op.in(2 + p * count + tensor()).at(o), dtype()); }
    Expr gradient(const Indices& o) const { return number("norm_coefficient") * part(0, o) + part(1, o); }
};

Result<Types> infer_step(const OpView& op, size_t parts) {
    for (size_t i : {0, 1})
        if (op.shape(i).ranked() && !broadcasts_to(op.shape(i), Shape(std::vector<Dim>(op.rank(i), Dim(1)))))
            return op.shape_error("{} must be a scalar, is {}", op.def().inputs[i].name, op.shape(i));
    size_t given = op.input_count() - 2;
    if (given == 0 || given % parts != 0)
        return op.error(Code::E0207, "needs {} tensors for each optimized tensor, but has {} in all", parts, given);
    size_t count = given / parts;
    if (op.output_count() > count * (parts - 1))
        return op.error(Code::E0207, "has {} outputs, but the node has {}", count * (parts - 1), op.output_count());
    Types types;
    for (size_t i = 2; i < op.input_count(); ++i)
        if (!op.has(i)) return op.error(Code::E0207, "input {} is missing", i);
    for (size_t i = 0; i < given; ++i) {
        const Shape &x = op.shape(2 + i % count), &y = op.shape(2 + i);
        if (x.ranked() && y.ranked() && (x.rank() != y.rank() || !broadcast(x, y)))
            return op.shape_error("input {} must have the shape {} of input {}, but is {}", 2 + i, x, 2 + i % count, y);
        if (i / count != 1) types.push_back(op.type(2 + i % count));
    }
    return types;
}

OpDef optimizer(std::string name, const char* onnx, size_t parts, std::vector<AttrDef> attrs,
                Expr (*body)(const Step&, const Indices&)) {
    OpDef def{
        .name = std::move(name),
        .inputs = {"rate: R", "updates: i64", "tensors...: T"},
        .outputs = {"results...: T"},
        .attrs = std::move(attrs),
        .types = {{"R", {DType::f32, DType::f64}}, {"T", {DType::f32, DType::f64}}},
        .traits = {Trait::Pure, Trait::InfersUnranked},
        .onnx = onnx,
        .infer = [parts](const OpView& op) { return infer_step(op, parts); },
        .body = [parts, body](const OpView& op, const Indices& o) { return body(Step(op, parts), o); },
    };
    def.onnx.domain = "ai.onnx.preview.training";
    return def;
}

Expr adagrad(const Step& s, const Indices& o) {
    Expr g = s.gradient(o), h = s.part(2, o) + g * g;
    if (s.result() == 1) return h;
    Expr rate = s.rate() / (s.one() + cast(s.updates(), s.dtype()) * s.number("decay_factor"));
    return s.part(0, o) - rate * g / (call(Fn::Sqrt, {h}) + s.number("epsilon"));
}

Expr adam(const Step& s, const Indices& o) {
    Expr alpha = s.number("alpha"), beta = s.number("beta"), g = s.gradient(o);
    Expr v = alpha * s.part(2, o) + (s.one() - alpha) * g;
    if (s.result() == 1) return v;
    Expr h = beta * s.part(3, o) + (s.one() - beta) * g * g;
    if (s.result() == 2) return h;
    Expr t = cast(s.updates(), s.dtype());
    Expr adjusted = s.rate() * call(Fn::Sqrt, {s.one() - pow(beta, t)}) / (s.one() - pow(alpha, t));
    Expr rate = select(gt(s.updates(), 0), adjusted, s.rate());
    Expr x = s.part(0, o) - rate * v / (call(Fn::Sqrt, {h}) + s.number("epsilon"));
    return (s.one() - s.number("norm_coefficient_post")) * x;
}

Expr momentum(const Step& s, const Indices& o) {
    Expr g = s.gradient(o), alpha = s.number("alpha");
    Expr beta = select(gt(s.updates(), 0), s.number("beta"), s.one());
    Expr v = alpha * s.part(2, o) + beta * g;
    if (s.result() == 1) return v;
    bool nesterov = s.op.string("mode") == "nesterov";
    return s.part(0, o) - s.rate() * (nesterov ? g + alpha * v : v);
}

OpDef momentum_op() {
    OpDef def = optimizer(
        "momentum", "Momentum", 3,
        {float_attr("alpha").required(), float_attr("beta").required(),
         string_attr("mode").one_of({"standard", "nesterov"}).required(), float_attr("norm_coefficient").required()},
        momentum);
    def.infer = [](const OpView& op) { return infer_step(op, 3); };
    return def;
}

}  // namespace

std::vector<OpDef> training_ops() {
    return {
        optimizer(
            "adagrad", "Adagrad", 3,
            {float_attr("decay_factor", 0.0f), float_attr("epsilon", 1e-6f), float_attr("norm_coefficient", 0.0f)},
            adagrad),
        optimizer("adam", "Adam", 4,
                  {float_attr("alpha", 0.9f), float_attr("beta", 0.999f), float_attr("epsilon", 1e-6f),
                   float_attr("norm_coefficient", 0.0f), float_attr("norm_coefficient_post", 0.0f)},
                  adam),
        momentum_op(),
    };
}

}  // namespace tessera
