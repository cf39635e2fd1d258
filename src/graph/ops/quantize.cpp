// Quantization: to and from integers and narrow floats by scale and zero point, per tensor, axis or block.
#include "base/numeric.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

constexpr DTypes kEightBitFloats{DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz};
constexpr DTypes kQuantized = kEightBitFloats | DTypes{DType::f4e2m1, DType::i16, DType::u16, DType::i8, DType::u8,
                                                       DType::i4,     DType::u4,  DType::i2,  DType::u2};

bool one_element(const Shape& s) {
    for (const Dim& d : s)
        if (!d.is_int(1)) return false;
    return true;
}

// An input of rank 1 has one axis, whatever the attribute's default says.
Result<int64_t> quantized_axis(const OpView& op) {
    return op.rank(0) == 1 ? Result<int64_t>(0) : op.axis(op.integer("axis"), op.rank(0));
}

// Scale and zero point: scalars, one for each position along the axis, or one for each block along it.
Status check_granularity(const OpView& op) {
    const Shape &x = op.shape(0), &scale = op.shape(1);
    bool scalars = one_element(scale) && (!op.has(2) || one_element(op.shape(2)));
    if (op.has(2) && !scalars && (op.rank(2) != scale.rank() || !broadcast(op.shape(2), scale)))
        return op.shape_error("zero point {} and scale {} must have the same shape", op.shape(2), scale);
    int64_t block = op.integer("block_size");
    if (block < 0) return op.error(Code::E0212, "block_size is {}", block);
    if (scalars) return {};
    int64_t axis = TRY(quantized_axis(op));
    if (block == 0) {
        if (scale.rank() != 1) return op.shape_error("scale {} of {} must be a scalar or a vector", scale, x);
        if (scale[0].as_int() && x[axis].as_int() && scale[0] != x[axis])
            return op.shape_error("scale {} must have one element for each position on axis {} of {}", scale, axis, x);
        return {};
    }
    bool fits = scale.rank() == x.rank();
    for (int64_t d = 0; fits && d < x.rank(); ++d) {
        Dim wanted = d == axis ? ceil_div(x[d], block) : x[d];
        fits = !wanted.as_int() || !scale[d].as_int() || wanted == scale[d];
    }
    if (!fits)
        return op.shape_error("scale {} is incompatible with {} in blocks of {} along axis {}", scale, x, block, axis);
    return {};
}

// The scale's or zero point's element for the input's element at o.
Expr granular(const OpView& op, size_t input, const Indices& o) {
    TensorRef s = op.in(input);
    if (one_element(s.shape())) return only_element(s);
    int64_t axis = *quantized_axis(op);
    int64_t block = op.integer("block_size");
    if (block == 0) return s.at({o[axis]});
    return s.at(o.with(axis, floor_div(o[axis], block)));
}

// In the type's integers, or rounded and saturated as a narrow float. Sums of integers that do not saturate are exact
// in f32.
Expr quantized(const Expr& quotient, const Expr& zero_point, DType to, bool saturate) {
    const DType t = is_int(to) && quotient.dtype() != DType::f64 ? DType::f32 : DType::f64;
    Expr zero = cast(zero_point, t), q = cast(quotient, t);
    if (is_int(to)) return cast_saturate(call(Fn::Round, {q}) + zero, to);
    return saturate || to == DType::f4e2m1 ? cast_saturate(q + zero, to) : cast(q + zero, to);
}

// a / b as a type of that precision has it: the double quotient, rounded to it.
Expr divided(const Expr& a, const Expr& b, DType precision) {
    return cast(cast(a, DType::f64) / cast(b, DType::f64), precision);
}

Result<DType> quantized_type(const OpView& op) {
    DType t = DType::u8;
    if (op.integer("output_dtype")) t = TRY(dtype_attr(op, "output_dtype"));
    if (op.has(2)) {
        if (op.integer("output_dtype") && op.dtype(2) != t)
            return op.error(Code::E0208, "output_dtype is {}, but the zero point is {}", dtype_name(t),
                            dtype_name(op.dtype(2)));
        t = op.dtype(2);
    }
    if (!kQuantized.has(t)) return op.error(Code::E0213, "cannot quantize to {}", dtype_name(t));
    return t;
}

Result<DType> division_type(const OpView& op) {
    if (!op.integer("precision")) return op.dtype(1);
    DType t = TRY(dtype_attr(op, "precision"));
    if (!kWideFloats.has(t)) return op.error(Code::E0212, "precision is {}, not a float type", dtype_name(t));
    return t;
}

OnnxChange int_added(int opset, const char* attr, int64_t neutral) { return attr_added(opset, attr, Attr(neutral)); }

const OpDef kQuantizeLinear{
    .name = "quantize_linear",
    .inputs = {"x: T", "scale: S", "zero_point?: Q"},
    .outputs = {"y: *"},
    .attrs = {int_attr("axis", 1), int_attr("block_size", 0), int_attr("output_dtype", 0), int_attr("precision", 0),
              int_attr("saturate", 1)},
    .types = {{"T", kWideFloats | DTypes{DType::i32}},
              {"S", kWideFloats | DTypes{DType::i32, DType::f8e8m0}},
              {"Q", kQuantized}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = {"QuantizeLinear",
             {int_added(13, "axis", 1), int_added(19, "saturate", 1), int_added(21, "block_size", 0),
              int_added(21, "output_dtype", 0), int_added(23, "precision", 0)}},
    .infer = [](const OpView& op) -> Result<Types> {
        DType t = TRY(quantized_type(op));
        TRY(division_type(op));
        bool ranked = op.shape(0).ranked() && op.shape(1).ranked() && (!op.has(2) || op.shape(2).ranked());
        if (ranked) TRY(check_granularity(op));
        return Types(Type(t, op.shape(0)));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            DType t = op.out().dtype, precision = *division_type(op);
            if (!kWideFloats.has(precision)) precision = DType::f32;
            Expr q = divided(op.in(0).at(o), granular(op, 1, o), precision);
            return quantized(q, op.has(2) ? granular(op, 2, o) : constant(0, t), t, op.integer("saturate"));
        },
    .layout = Layout::AsInputs,
};

const OpDef kDequantizeLinear{
    .name = "dequantize_linear",
    .inputs = {"x: Q", "scale: S", "zero_point?: Q"},
    .outputs = {"y: *"},
    .attrs = {int_attr("axis", 1), int_attr("block_size", 0), int_attr("output_dtype", 0)},
    .types = {{"Q", kQuantized | DTypes{DType::i32}}, {"S", kWideFloats | DTypes{DType::f8e8m0}}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = {"DequantizeLinear",
             {int_added(13, "axis", 1), int_added(21, "block_size", 0), int_added(23, "output_dtype", 0)}},
    .infer = [](const OpView& op) -> Result<Types> {
        DType t = op.integer("output_dtype") ? TRY(dtype_attr(op, "output_dtype")) : op.dtype(1);
        if (!kWideFloats.has(t)) return op.error(Code::E0213, "cannot dequantize to {}", dtype_name(t));
        bool ranked = op.shape(0).ranked() && op.shape(1).ranked() && (!op.has(2) || op.shape(2).ranked());
        if (ranked) TRY(check_granularity(op));
        return Types(Type(t, op.shape(0)));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            // Differences of 16 bits are exact in f32, and their product is rounded once.
            const bool narrow = is_int(op.dtype(0)) && dtype_bits(op.dtype(0)) <= 16 && op.out().dtype == DType::f32 &&
                                op.dtype(1) != DType::f64;
            const DType t = narrow ? DType::f32 : DType::f64;
            Expr x = cast(op.in(0).at(o), t);
            if (op.has(2)) x = x - cast(granular(op, 2, o), t);
            return cast(x * cast(granular(op, 1, o), t), op.out().dtype);
        },
    .layout = Layout::AsInputs,
};

// The scale and zero point that map the input's range, widened to hold zero, onto [0, 255].
const OpDef kDynamicQuantizeLinear{
    .name = "dynamic_quantize_linear",
    .inputs = {"x: f32"},
    .outputs = {"y: u8", "scale: f32", "zero_point: u8"},
    .onnx = "DynamicQuantizeLinear",
    .infer = [](const OpView& op) -> Result<Types> {
        return Types{Type(DType::u8, op.shape(0)), Type(DType::f32, Shape()), Type(DType::u8, Shape())};
    },
    .expand = [](const OpView&, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        Value *zero = b.scalar(0, DType::f32), *top = b.scalar(255, DType::f32);
        auto all = [&](const char* name) { return b.op(name, {in[0]}, {{"keepdims", Attr(int64_t{0})}}); };
        Value* high = b.op("max", {all("reduce_max"), zero});
        Value* low = b.op("min", {all("reduce_min"), zero});
        Value* extent = b.sub(high, low);
        Value* flat = b.op("equal", {extent, zero});
        Value* scale = b.div(b.op("where", {flat, b.scalar(1, DType::f32), extent}), top);
        Value* shift = b.op("round", {b.op("clip", {b.sub(zero, b.div(low, scale)), zero, top})});
        Value* zero_point = b.cast(shift, DType::u8);
        return b.finish({b.op("quantize_linear", {in[0], scale, zero_point}), scale, zero_point});
    },
};

}  // namespace

std::vector<OpDef> quantize_ops() {
    return {kQuantizeLinear, kDequantizeLinear, without_gradient(kDynamicQuantizeLinear, "it rounds to bytes")};
}

}  // namespace tessera
