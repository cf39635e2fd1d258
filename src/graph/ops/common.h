// Shared by several op families: changes of ONNX forms between opsets, and helpers for inference and bodies.
#pragma once

#include <algorithm>

#include "graph/builder.h"
#include "graph/gradient/gradient.h"
#include "graph/op_def.h"

namespace tessera {

// ONNX moved an attribute to an input at `opset`: attr_to_input(13, "axes", 1).
OnnxChange attr_to_input(int opset, std::string attr, size_t input);

// ONNX added an attribute at `opset` whose default is the old behaviour; exports to older opsets require it.
OnnxChange attr_added(int opset, std::string attr, Attr neutral);

// An attribute of forms before `opset` that does not affect the result; the import drops it.
OnnxChange attr_dropped(int opset, std::string attr);

// Before opset 7, the attributes `broadcast` and `axis` aligned the second operand of a binary op.
OnnxChange numpy_broadcast_from_7();

// The axes of a reduction-like op as non-negative numbers, from an attribute or an input; if absent, all axes (or none,
// with `noop_when_empty`). nullopt if they are only known at run time.
Result<std::optional<std::vector<int64_t>>> axes_from_input(const OpView& op, size_t input, int64_t rank,
                                                            bool noop_when_empty = false);

inline bool contains(const std::vector<int64_t>& axes, int64_t axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// OpDef::canonical for ops whose attribute "axis" is an axis of their first input: a default axis is removed, and a
// negative one is made non-negative.
void axis_from_front(const OpView& op, AttrMap& attrs);

// The op with a gradient function.
inline OpDef differentiable(OpDef def, Gradients (*rule)(const Backward&)) {
    def.gradient = rule;
    return def;
}

// The op marked as not differentiable.
inline OpDef without_gradient(OpDef def, const char* why) {
    def.gradient = NoGradient{why};
    return def;
}

// Attributes for element types ("to", "dtype", "output_dtype") have ONNX's numbers. dtype_attr reads one (E0213 if the
// type is not supported), dtype_attr_value(DType::f32) makes one.
Result<DType> dtype_attr(const OpView& op, std::string_view name);
Attr dtype_attr_value(DType t);

// Whether `from` broadcasts to exactly `to`, as far as the sizes are known.
bool broadcasts_to(const Shape& from, const Shape& to);

// A shape of `count` new dynamic dimensions.
Shape fresh_shape(const OpView& op, size_t output, int64_t count);

inline Expr f64(const Expr& e) { return cast(e, DType::f64); }

// A constant of input 0's element type, not saturated.
inline Expr like(const OpView& op, double v) { return constant(v, op.dtype(0)); }

}  // namespace tessera
