#include "graph/builder.h"

#include "onnx/dtypes.h"

namespace tessera {

std::vector<Value*> Builder::ops(std::string_view name, std::vector<Value*> inputs, AttrMap attrs, size_t outputs) {
    std::vector<Value*> none(outputs, nullptr);
    if (failed()) return none;
    const OpDef* def = find_op(name);
    if (!def) {
        fail(Error(Code::E0201, "there is no op \"{}\"", name));
        return none;
    }
    auto node = graph_->add({.op = def, .inputs = std::move(inputs), .attrs = std::move(attrs), .outputs = outputs});
    if (!node.ok()) {
        fail(std::move(node).error());
        return none;
    }
    std::vector<Value*> out;
    for (size_t i = 0; i < outputs; ++i) out.push_back((*node)->output(i));
    return out;
}

Value* Builder::op(std::string_view name, std::vector<Value*> inputs, AttrMap attrs) {
    return ops(name, std::move(inputs), std::move(attrs), 1)[0];
}

Value* Builder::scalar(double v, DType dtype) {
    if (failed()) return nullptr;
    auto t = Tensor::filled(dtype, {}, v);
    if (t.ok()) return constant(std::move(*t));
    fail(std::move(t).error());
    return nullptr;
}

// What is asked of a value's element type must have one.
bool Builder::is_tensor(const Value* x) {
    if (!failed() && !(x && x->type().is_tensor()))
        fail(x ? Error(Code::E0208, "\"{}\" must be a tensor, is {}", x->name(), x->type())
               : Error(Code::E0207, "an input is missing"));
    return !failed();
}

Value* Builder::scalar_like(double v, Value* x) { return is_tensor(x) ? scalar(v, x->type().tensor().dtype) : nullptr; }

Value* Builder::cast(Value* x, DType to) {
    if (!is_tensor(x) || x->type().tensor().dtype == to) return x;
    return op("cast", {x}, {{"to", Attr(int64_t{onnx::dtype_to_onnx(to)})}});
}

Value* Builder::slice(Value* x, std::vector<int64_t> starts, std::vector<int64_t> ends, std::vector<int64_t> axes) {
    return op("slice", {x, ints(starts), ints(ends), ints(axes)});
}

Value* Builder::reduce(std::string_view name, Value* x, const std::vector<int64_t>& axes, bool keepdims) {
    return op(name, {x, ints(axes)}, {{"keepdims", Attr(int64_t{keepdims})}});
}

void Builder::fail(Error error) {
    if (failed()) return;
    if (!where_.empty()) error.at(where_);
    error_ = std::move(error);
}

Result<std::vector<Value*>> Builder::finish(std::vector<Value*> values) {
    if (error_) return *error_;
    return values;
}

Status Builder::status() const {
    if (error_) return *error_;
    return {};
}

}  // namespace tessera
