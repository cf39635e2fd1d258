// Comparisons, logic, and the choice between two tensors.
#include "graph/evaluate/evaluate.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// Strings have no scalar expressions: their elements are compared here.
Result<std::vector<Datum>> equal_strings(const OpView& op, EvalContext& context) {
    const Tensor &a = context.tensor(0), &b = context.tensor(1);
    Sizes sizes = TRY(op.out_sizes());
    Tensor y = TRY(Tensor::zeros(DType::boolean, sizes));
    TRY(context.spend(y.elements()));
    auto position = [&](const Tensor& t, int64_t flat) {
        int64_t at = 0, step = 1;
        for (int64_t d = 1; d <= int64_t(sizes.size()); ++d) {
            int64_t size = sizes[sizes.size() - d], i = flat % size;
            flat /= size;
            if (d > t.rank() || t.size(-d) == 1) continue;
            at += i * step;
            step *= size;
        }
        return at;
    };
    for (int64_t i = 0; i < y.elements(); ++i)
        y.set_int(i, a.as_strings()[position(a, i)] == b.as_strings()[position(b, i)]);
    return std::vector<Datum>{std::move(y)};
}

OpDef comparison(std::string name, const char* onnx, Expr (*f)(const Expr&, const Expr&)) {
    return binary(std::move(name), onnx, kNumbers, "bool", {}, f);
}

OpDef equality() {
    OpDef def = binary("equal", "Equal", kAllTypes.without(kComplex), "bool", {Trait::Commutative}, eq);
    def.body_applies = [](const OpView& op) { return op.dtype(0) != DType::string; };
    def.evaluate = equal_strings;
    return def;
}

OpDef logical(std::string name, const char* onnx, Expr (*f)(const Expr&, const Expr&)) {
    return binary(std::move(name), onnx, DType::boolean, "bool", {Trait::Commutative}, f);
}

const OpDef kWhere{
    .name = "where",
    .inputs = {"condition: bool", "x: T", "y: T"},
    .outputs = {"z: T"},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = "Where",
    .body =
        [](const OpView& op, const Indices& o) {
            return select(op.broadcast_in(0, o), op.broadcast_in(1, o), op.broadcast_in(2, o));
        },
    .gradient = [](const Backward& r) -> Gradients {
        return {nullptr, r.b.op("where", {r.in[0], r.g, r.number(0)}), r.b.op("where", {r.in[0], r.number(0), r.g})};
    },
    .layout = Layout::AsInputs,
};

}  // namespace

std::vector<OpDef> compare_ops() {
    return {
        equality(),
        comparison("less", "Less", lt),
        comparison("less_or_equal", "LessOrEqual", le),
        comparison("greater", "Greater", gt),
        comparison("greater_or_equal", "GreaterOrEqual", ge),
        logical("and", "And", logical_and),
        logical("or", "Or", logical_or),
        logical("xor", "Xor", ne),
        unary("not", "Not", DType::boolean, logical_not),
        kWhere,
    };
}

}  // namespace tessera
