#include "graph/ops/elementwise.h"

namespace tessera {

OpDef unary_with(std::string name, const char* onnx, DTypes types, std::vector<AttrDef> attrs,
                 std::function<Expr(const OpView&, const Expr&)> f) {
    return {
        .name = std::move(name),
        .inputs = {"x: T"},
        .outputs = {"y: T"},
        .attrs = std::move(attrs),
        .types = {{"T", types}},
        .traits = {Trait::Pure, Trait::Elementwise},
        .onnx = {onnx, {without_consumed_inputs()}},
        .body = [f = std::move(f)](const OpView& op, const Indices& o) { return f(op, op.in(0).at(o)); },
    };
}

OpDef unary(std::string name, const char* onnx, DTypes types, std::function<Expr(const Expr&)> f) {
    return unary_with(std::move(name), onnx, types, {},
                      [f = std::move(f)](const OpView&, const Expr& x) { return f(x); });
}

OpDef binary(std::string name, const char* onnx, DTypes types, const char* result, std::vector<Trait> traits,
             std::function<Expr(const Expr&, const Expr&)> f) {
    traits.push_back(Trait::Pure);
    traits.push_back(Trait::Elementwise);
    return {
        .name = std::move(name),
        .inputs = {"a: T", "b: T"},
        .outputs = {fmt::format("y: {}", result).c_str()},
        .types = {{"T", types}},
        .traits = std::move(traits),
        .onnx = {onnx, {numpy_broadcast_from_7()}},
        .body = [f = std::move(f)](const OpView& op,
                                   const Indices& o) { return f(op.broadcast_in(0, o), op.broadcast_in(1, o)); },
    };
}

Expr in_reals(const Expr& x, const std::function<Expr(const Expr&)>& f) {
    return is_float(x.dtype()) ? f(x) : cast(f(cast(x, DType::f64)), x.dtype());
}

Expr only_element(const TensorRef& x) { return x.at(std::vector<Expr>(x.rank(), Expr(0))); }

}  // namespace tessera
