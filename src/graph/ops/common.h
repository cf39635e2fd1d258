// What several families share: version changes of ONNX forms, and small pieces of inference and bodies.
#pragma once

#include <algorithm>

#include "graph/builder.h"
#include "graph/gradient/gradient.h"
#include "graph/op_def.h"

namespace tessera {

// ONNX moved an attribute to an input at `opset`: attr_to_input(13, "axes", 1).
OnnxChange attr_to_input(int opset, std::string attr, size_t input);

// A form that gained an attribute at `opset` whose default keeps the old meaning: going down, it must have its default.
OnnxChange attr_added(int opset, std::string attr, Attr neutral);

// Before `opset` the attribute did not exist or has no effect on what we compute; dropped on the way up.
OnnxChange attr_dropped(int opset, std::string attr);

// Before opset 7, the second operand of a binary op was placed by `broadcast` and `axis` attributes.
OnnxChange numpy_broadcast_from_7();

// The axes of a reduction-like op as non-negative numbers: from attribute or input contents; all of them where absent
// (or none, if `noop_when_empty`). nullopt where they are only known at run time.
Result<std::optional<std::vector<int64_t>>> axes_from_input(const OpView& op, size_t input, int64_t rank,
                                                            bool noop_when_empty = false);

inline bool contains(const std::vector<int64_t>& axes, int64_t axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// As OpDef::canonical of an op whose attribute "axis" counts the dimensions of its first input: left out where it is
// the default's, otherwise counted from the front.
void axis_from_front(const OpView& op, AttrMap& attrs);

// The same op with the rule of its gradient.
inline OpDef differentiable(OpDef def, Gradients (*rule)(const Backward&)) {
    def.gradient = rule;
    return def;
}

// The same op, refused on the way of a gradient.
inline OpDef without_gradient(OpDef def, const char* why) {
    def.gradient = NoGradient{why};
    return def;
}

// An attribute that holds an element type has ONNX's number for it ("to", "dtype", "output_dtype"); E0213 where it is
// not one of ours. Into such an attribute: dtype_attr_value(DType::f32).
Result<DType> dtype_attr(const OpView& op, std::string_view name);
Attr dtype_attr_value(DType t);

// Whether `from` can be broadcast to `to` without changing it, as far as the sizes are known.
bool broadcasts_to(const Shape& from, const Shape& to);

// `count` dimensions known only at run time.
Shape fresh_shape(const OpView& op, size_t output, int64_t count);

inline Expr f64(const Expr& e) { return cast(e, DType::f64); }

// An unsaturated constant of the view's input 0 element type.
inline Expr like(const OpView& op, double v) { return constant(v, op.dtype(0)); }

}  // namespace tessera
