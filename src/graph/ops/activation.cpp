// Activations, and softmax with its relatives.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// Before opset 13, softmax ran over all of the dimensions from `axis` on, flattened.
Status flattened_before_13(OnnxCall& call, const char* name) {
    int64_t axis = 1;
    if (auto it = call.attrs.find("axis"); it != call.attrs.end()) axis = std::get<int64_t>(it->second);
    Builder& b = call.build;
    Value* x = call.inputs.at(0);
    Value* flat = b.op("flatten", {x}, {{"axis", Attr(axis)}});
    Value* y = b.op(name, {flat}, {{"axis", Attr(int64_t{-1})}});
    call.result = {b.op("reshape", {y, b.op("shape", {x})})};
    return b.status();
}

Result<Types> infer_along_axis(const OpView& op) {
    TRY(op.axis(op.integer("axis"), op.rank(0)));
    return op.same(0);
}

const OpDef kSoftmax{
    .name = "softmax",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", -1)},
    .types = {{"T", kWideFloats}},
    .onnx = {"Softmax", {{13, [](OnnxCall& c) { return flattened_before_13(c, "softmax"); }, {}}}},
    .infer = infer_along_axis,
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        int64_t axis = op.integer("axis");
        Value* e = b.op("exp", {b.sub(in[0], b.reduce("reduce_max", in[0], {axis}))});
        return b.finish({b.div(e, b.reduce("reduce_sum", e, {axis}))});
    },
};

}  // namespace

std::vector<OpDef> activation_ops() { return {kSoftmax}; }

}  // namespace tessera
