// Products and convolutions of quantized tensors: matmul_integer, conv_integer and their rescaled forms.
#include "graph/ops/conv_window.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"
#include "graph/ops/matmul_term.h"

namespace tessera {
namespace {

constexpr DTypes kBytes{DType::i8, DType::u8};
constexpr DTypes kProductTypes = kBytes | DTypes{DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz};

// --- matrix products

// A scale or zero point of a matrix: a scalar, a vector with one for each row (of a) or column (of b), or a tensor that
// broadcasts against the matrix.
Expr by_line(const TensorRef& s, const Indices& at, bool rows) {
    if (s.rank() == 0) return s.at();
    if (s.rank() == 1 && s.dim(0).is_int(1)) return s.at({Expr(0)});
    if (s.rank() == 1 && rows && at.rank() > 1) return s.at({at[-2]});
    return s.broadcast_at(at);
}

Status check_lines(const OpView& op, size_t matrix, size_t i, bool rows) {
    if (!op.has(i)) return {};
    const Shape &m = op.shape(matrix), &s = op.shape(i);
    bool fits = s.rank() <= 1 || broadcasts_to(s, m);
    if (s.rank() == 1 && s[0].as_int() && !s[0].is_int(1)) {
        const Dim& lines = rows && m.rank() > 1 ? m[-2] : m[-1];
        fits = !lines.as_int() || lines == s[0];
    }
    if (!fits) return op.shape_error("{} {} does not fit {}", op.def().inputs[i].name, s, m);
    return {};
}

// The matrix element at `at` less its zero point (input `zero`, where it is given).
Expr centered(const OpView& op, size_t matrix, size_t zero, const Indices& at, bool rows) {
    DType t = is_int(op.dtype(matrix)) ? DType::i32 : DType::f32;
    Expr x = cast(matrix_at(op.in(matrix), at), t);
    return op.has(zero) ? x - cast(by_line(op.in(zero), at, rows), t) : x;
}

const OpDef kMatmulInteger{
    .name = "matmul_integer",
    .inputs = {"a: A", "b: B", "a_zero_point?: A", "b_zero_point?: B"},
    .outputs = {"y: i32"},
    .types = {{"A", kBytes}, {"B", kBytes}},
    .onnx = "MatMulInteger",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = TRY(matmul_shape(op, 0, 1)).full();
        TRY(check_lines(op, 0, 2, true));
        TRY(check_lines(op, 1, 3, false));
        return Types(Type(DType::i32, y));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto k = op.reduce(op.in(0).dim(-1));
            auto value = [&](size_t i, const Indices& at) { return centered(op, i, i + 2, at, i == 0); };
            return sum({k}, matmul_term(op, 0, 1, o, k.var, value));
        },
};

// The sum in integers, times the scales, rounded to even, plus the zero point, saturated: in f32, as everybody has it,
// where the sum is one of integers.
Expr requantized(const Expr& total, const Expr& scale, const Expr& zero_point, DType to) {
    Expr y = cast(total, scale.dtype()) * scale;
    if (is_int(to)) y = call(Fn::Round, {y});
    return cast_saturate(y + cast(zero_point, scale.dtype()), to);
}

Expr rescaling(const Expr& a, const Expr& b, const Expr& y, DType t) { return cast(a, t) * cast(b, t) / cast(y, t); }

const OpDef kQLinearMatmul{
    .name = "qlinear_matmul",
    .inputs = {"a: A", "a_scale: S", "a_zero_point: A", "b: B", "b_scale: S", "b_zero_point: B", "y_scale: S",
               "y_zero_point: Y"},
    .outputs = {"y: Y"},
    .types = {{"A", kProductTypes}, {"B", kProductTypes}, {"Y", kProductTypes}, {"S", kWideFloats}},
    .onnx = "QLinearMatMul",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = TRY(matmul_shape(op, 0, 3)).full();
        for (size_t i : {1, 2}) TRY(check_lines(op, 0, i, true));
        for (size_t i : {4, 5}) TRY(check_lines(op, 3, i, false));
        for (size_t i : {6, 7})
            if (!broadcasts_to(op.shape(i), y) && op.rank(i) > 1)
                return op.shape_error("{} {} does not fit {}", op.def().inputs[i].name, op.shape(i), y);
        return Types(Type(op.dtype(7), y));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto k = op.reduce(op.in(0).dim(-1));
            auto value = [&](size_t i, const Indices& at) { return centered(op, i, i + 2, at, i == 0); };
            Expr total = sum({k}, matmul_term(op, 0, 3, o, k.var, value));
            // Scales are constant along k: read them at the output's row and column.
            int64_t used = (op.rank(0) > 1) + (op.rank(3) > 1);
            Indices batch = o.slice(0, o.rank() - used);
            Indices at_a = op.rank(0) > 1 ? batch + Indices{o[-used], Expr(0)} : batch + Indices{Expr(0)};
            Indices at_b = op.rank(3) > 1 ? batch + Indices{Expr(0), o[-1]} : batch + Indices{Expr(0)};
            const bool in_f32 = is_int(op.dtype(0)) && is_int(op.out().dtype) && op.dtype(1) != DType::f64;
            Expr scale = rescaling(by_line(op.in(1), at_a, true), by_line(op.in(4), at_b, false),
                                   by_line(op.in(6), o, true), in_f32 ? DType::f32 : DType::f64);
            return requantized(total, scale, by_line(op.in(7), o, true), op.out().dtype);
        },
};

// --- convolutions

std::vector<AttrDef> conv_attrs() {
    return {auto_pad_attr(),           ints_attr("dilations"), int_attr("group", 1),
            ints_attr("kernel_shape"), ints_attr("pads"),      ints_attr("strides")};
}

// A scalar, or (of the weights) one for each output channel.
Status check_channels(const OpView& op, size_t weights, size_t i, bool by_channel) {
    if (!op.has(i)) return {};
    const Shape &w = op.shape(weights), &s = op.shape(i);
    bool scalar = s.rank() == 0 || (s.rank() == 1 && (!s[0].as_int() || s[0].is_int(1)));
    bool channels = by_channel && s.rank() == 1 && (!s[0].as_int() || !w[0].as_int() || s[0] == w[0]);
    if (!scalar && !channels)
        return op.shape_error("{} {} is incompatible with weights {}", op.def().inputs[i].name, s, w);
    return {};
}

Expr of_channel(const TensorRef& s, const Expr& channel) {
    return s.rank() == 0 || s.dim(0).is_int(1) ? only_element(s) : s.at({channel});
}

// The sum of products of x and w less their zero points (where given), zero in the padding.
Expr integer_conv(const OpView& op, size_t x, size_t w, size_t x_zero, size_t w_zero, const Indices& o) {
    auto zero = [&](size_t i) { return op.has(i) ? of_channel(op.in(i), o[1]) : Expr(); };
    Expr outside = op.has(x_zero) ? zero(x_zero) : constant(0, op.dtype(x));
    return conv_sum(op, x, w, o, outside, [&](const Expr& a, const Expr& b) {
        auto less = [&](const Expr& v, size_t z) {
            return op.has(z) ? cast(v, DType::i32) - cast(zero(z), DType::i32) : cast(v, DType::i32);
        };
        return less(a, x_zero) * less(b, w_zero);
    });
}

const OpDef kConvInteger{
    .name = "conv_integer",
    .inputs = {"x: X", "w: W", "x_zero_point?: X", "w_zero_point?: W"},
    .outputs = {"y: i32"},
    .attrs = conv_attrs(),
    .types = {{"X", kBytes}, {"W", kBytes}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = "ConvInteger",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = TRY(conv_shape(op, 0, 1));
        TRY(check_channels(op, 1, 2, false));
        TRY(check_channels(op, 1, 3, true));
        return Types(Type(DType::i32, y));
    },
    .body = [](const OpView& op, const Indices& o) { return integer_conv(op, 0, 1, 2, 3, o); },
    .canonical = [](const OpView& op, AttrMap& attrs) { canonical_conv(op, attrs, 1); },
    .layout = Layout::ChannelsLast,
};

const OpDef kQLinearConv{
    .name = "qlinear_conv",
    .inputs = {"x: X", "x_scale: f32", "x_zero_point: X", "w: W", "w_scale: f32", "w_zero_point: W", "y_scale: f32",
               "y_zero_point: Y", "bias?: i32"},
    .outputs = {"y: Y"},
    .attrs = conv_attrs(),
    .types = {{"X", kBytes}, {"W", kBytes}, {"Y", kBytes}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = "QLinearConv",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = TRY(conv_shape(op, 0, 3));
        for (size_t i : {1, 2, 6, 7}) TRY(check_channels(op, 3, i, false));
        for (size_t i : {4, 5}) TRY(check_channels(op, 3, i, true));
        if (op.has(8) && (op.rank(8) != 1 || !broadcasts_to(op.shape(8), {op.shape(3)[0]})))
            return op.shape_error("bias {} must be one for each output channel of weights {}", op.shape(8),
                                  op.shape(3));
        return Types(Type(op.dtype(7), y));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Expr total = integer_conv(op, 0, 3, 2, 5, o);
            if (op.has(8)) total = total + op.in(8).at({o[1]});
            Expr scale =
                rescaling(only_element(op.in(1)), of_channel(op.in(4), o[1]), only_element(op.in(6)), DType::f32);
            return requantized(total, scale, only_element(op.in(7)), op.out().dtype);
        },
    .canonical = [](const OpView& op, AttrMap& attrs) { canonical_conv(op, attrs, 3); },
    .layout = Layout::ChannelsLast,
};

}  // namespace

std::vector<OpDef> integer_product_ops() { return {kMatmulInteger, kQLinearMatmul, kConvInteger, kQLinearConv}; }

}  // namespace tessera
