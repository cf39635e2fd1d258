// A tensor by the expression of its elements, which derivatives are made of (graph/gradient/tensor_expression.h).
#include "graph/gradient/tensor_expression.h"

#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

Result<Types> infer_expression(const OpView& op) {
    const DType dtype = TRY(dtype_attr(op, "dtype"));
    if (!kBodyTypes.has(dtype)) return op.error(Code::E0213, "cannot compute {}", dtype_name(dtype));
    Shape shape;
    std::vector<Expr> at;
    for (const std::string& text : op.strings("shape")) {
        Expr size = TRY(read_tensor_expression(op, text, nullptr));
        if (size.dtype() != DType::i64 || size.node().reads) return op.error(Code::E0212, "\"{}\" is not a size", text);
        if (auto n = size.as_int(); n && *n < 0) return op.error(Code::E0212, "shape has {}", *n);
        at.push_back(index_var(fmt::format("i{}", at.size()), size.as_int()));
        shape.push_back(std::move(size));
    }
    const Indices indices(at);
    const Expr body = TRY(read_tensor_expression(op, op.string("body"), &indices));
    if (body.dtype() != dtype)
        return op.error(Code::E0212, "the body is {}, not {}", dtype_name(body.dtype()), dtype_name(dtype));
    return Types(TensorType{dtype, shape});
}

const OpDef kTensorExpression{
    .name = "tensor_expression",
    .inputs = {"inputs...: *"},
    .outputs = {"y: *"},
    .attrs = {string_attr("body").required(), int_attr("dtype").required(), strings_attr("shape").required()},
    .infer = infer_expression,
    .body = [](const OpView& op, const Indices& o) { return *read_tensor_expression(op, op.string("body"), &o); },
    .layout = Layout::AsInputs,
};

}  // namespace

std::vector<OpDef> expression_ops() { return {kTensorExpression}; }

}  // namespace tessera
