// Fourier transforms, and what goes with them: windows and mel filters.
#include <cmath>
#include <numbers>

#include "graph/builder.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

constexpr DTypes kLengths{DType::i32, DType::i64};

// An input of one element, whatever its rank.
Expr scalar_in(const OpView& op, size_t i) { return op.in(i).at(std::vector<Expr>(size_t(op.rank(i)), Expr(0))); }

// What is known of an integer input of one element.
Result<std::optional<Dim>> known_scalar(const OpView& op, size_t input, int64_t low) {
    auto list = op.contents(input);
    if (!list) return std::optional<Dim>{};
    const std::string& name = op.def().inputs[input].name;
    if (list->size() != 1) return op.shape_error("{} must be one number, is {}", name, op.shape(input));
    if (auto n = (*list)[0].as_int(); n && *n < low) return op.error(Code::E0212, "{} is {}", name, *n);
    return std::optional((*list)[0]);
}

// Part `part` (0: real, 1: imaginary) of (re + i im) e^(i turns 2 pi).
Expr rotated(const Expr& re, const std::optional<Expr>& im, const Expr& turns, const Expr& part) {
    Expr angle = turns * real_const(2 * std::numbers::pi);
    Expr c = call(Fn::Cos, {angle}), s = call(Fn::Sin, {angle});
    Expr real = im ? re * c - *im * s : re * c, imaginary = im ? re * s + *im * c : re * s;
    return select(eq(part, 0), real, imaginary);
}

// k n / length as a fraction of a turn, reduced while it is still exact.
Expr turns_of(const Expr& k, const Expr& n, const Expr& length) { return f64(mod(k * n, length)) / f64(length); }

Result<std::optional<int64_t>> dft_axis(const OpView& op) {
    int64_t rank = op.rank(0), axis = -2;
    if (op.has(2)) {
        auto given = op.constant_ints(2);
        if (!given) return std::optional<int64_t>{};
        if (given->size() != 1) return op.shape_error("axis must be one number, is {}", op.shape(2));
        axis = (*given)[0];
    }
    axis = TRY(op.axis(axis, rank));
    if (axis == rank - 1) return op.error(Code::E0212, "axis {} is the one of the real and imaginary parts", axis);
    return std::optional(axis);
}

Result<std::optional<Dim>> dft_length(const OpView& op, int64_t axis) {
    if (op.has(1)) return known_scalar(op, 1, 1);
    const Dim& size = op.shape(0)[axis];
    return std::optional(op.integer("onesided") && op.integer("inverse") ? (size - 1) * 2 : size);
}

Result<Types> infer_dft(const OpView& op) {
    const Shape& x = op.shape(0);
    if (x.rank() < 2) return op.shape_error("needs a signal and a last dimension of 1 or 2, has {}", x);
    bool onesided = op.integer("onesided") != 0, inverse = op.integer("inverse") != 0;
    auto parts = x[-1].as_int();
    if (parts && *parts != 1 && *parts != 2) return op.shape_error("the last dimension of {} is not 1 or 2", x);
    if (onesided && !inverse && parts == 2)
        return op.shape_error("a one-sided transform needs a real signal, not {}", x);
    auto axis = TRY(dft_axis(op));
    if (!axis) return op.like(0, fresh_shape(op, 0, x.rank()));
    auto length = TRY(dft_length(op, *axis));
    Shape y = x;
    if (!length)
        y[*axis] = op.fresh(0, size_t(*axis));
    else if (onesided && !inverse)
        y[*axis] = floor_div(*length, 2) + 1;
    else
        y[*axis] = max(*length, 0);
    y[-1] = onesided && inverse ? 1 : 2;
    return op.like(0, y);
}

Expr dft_body(const OpView& op, const Indices& o) {
    auto x = op.in(0);
    bool onesided = op.integer("onesided") != 0, inverse = op.integer("inverse") != 0;
    int64_t axis = **dft_axis(op);
    Expr length = **dft_length(op, axis);
    // Of a one-sided spectrum, the other side mirrors the first: all but its ends count twice.
    bool mirrored = onesided && inverse;
    ReduceAxis n = op.reduce(min(x.dim(axis), mirrored ? floor_div(length, 2) + 1 : length));
    Indices at = o.with(axis, n.var);
    Expr re = f64(x.at(at.with(-1, 0)));
    std::optional<Expr> im;
    if (!x.dim(-1).is_int(1)) im = f64(x.at(at.with(-1, 1)));
    Expr turns = turns_of(o[axis], n.var, length);
    Expr term = rotated(re, im, inverse ? turns : -turns, mirrored ? Expr(0) : o[-1]);
    if (mirrored) term = select(logical_or(eq(n.var, 0), eq(n.var * 2, length)), term, term * real_const(2));
    Expr y = sum({n}, term);
    return cast(inverse ? y / f64(length) : y, op.dtype(0));
}

// Fourier transforms by products with constant matrices, for kernels. A long one takes two steps (Cooley and Tukey):
// with N = A * B, n = B * n1 + n2 and k = k1 + A * k2, transforms over n1 of length A, then for each k1 one over n2
// whose matrix has the factors in between.
struct Transform {
    int64_t inputs, length, outputs;  // elements given, of the transform, and wanted
    int64_t parts;                    // of the input: 1 where it is real
    bool inverse = false, mirrored = false;
    DType dtype = DType::f32;
};

constexpr int64_t kMostMatrix = 1 << 22, kOneStep = 96;  // elements; length

// Rows (n, part) and columns (k, part) for the angle of `turn(n, k)` turns of `length`, and one matrix for each
// `batch`.
template <typename Turn>
Value* fourier_matrix(const Transform& t, int64_t batch, int64_t rows, int64_t parts, int64_t columns, Turn turn,
                      Builder& b) {
    const int64_t out = t.mirrored ? 1 : 2;
    std::vector<double> m(size_t(batch * rows * parts * columns * out));
    size_t at = 0;
    for (int64_t i = 0; i < batch; ++i)
        for (int64_t n = 0; n < rows; ++n)
            for (int64_t p = 0; p < parts; ++p)
                for (int64_t k = 0; k < columns; ++k)
                    for (int64_t q = 0; q < out; ++q) {
                        const double angle = 2 * std::numbers::pi * turn(i, n, k) * (t.inverse ? 1 : -1);
                        const double c = std::cos(angle), s = std::sin(angle);
                        double value = p == q ? c : q == 1 ? s : -s;
                        if (t.mirrored && n != 0 && 2 * n != t.length) value *= 2;
                        m[at++] = value;
                    }
    std::vector<int64_t> shape{rows * parts, columns * out};
    if (batch > 1) shape.insert(shape.begin(), batch);
    return b.cast(b.constant(Tensor::of<double>(shape, m)), t.dtype);
}

// v is [lead..., inputs, parts]; gives [lead..., outputs, 2 or 1].
Value* transformed(Value* v, size_t lead, const Transform& t, Builder& b) {
    const int64_t out = t.mirrored ? 1 : 2;
    auto shape = [&](std::initializer_list<int64_t> last) {
        std::vector<int64_t> dims(lead, 0);
        dims.insert(dims.end(), last);
        return dims;
    };
    auto order = [&](std::initializer_list<int64_t> last) {
        std::vector<int64_t> perm;
        for (size_t i = 0; i < lead; ++i) perm.push_back(int64_t(i));
        for (int64_t i : last) perm.push_back(int64_t(lead) + i);
        return perm;
    };
    int64_t first = 1;  // the divisor next to the root
    for (int64_t d = 2; d * d <= t.length; ++d)
        if (t.length % d == 0) first = d;
    const double scale = t.inverse ? 1.0 / double(t.length) : 1.0;
    Value* y = nullptr;
    if (t.length <= kOneStep || first < 4 || t.mirrored || t.inputs != t.length) {
        Value* m = fourier_matrix(
            t, 1, t.inputs, t.parts, t.outputs,
            [&](int64_t, int64_t n, int64_t k) { return double(n * k % t.length) / double(t.length); }, b);
        y = b.reshape(b.matmul(b.reshape(v, shape({t.inputs * t.parts})), m), shape({t.outputs, out}));
    } else {
        const int64_t a = first, c = t.length / first, used = (t.outputs + a - 1) / a;
        Value* one = fourier_matrix(
            t, 1, a, t.parts, a, [&](int64_t, int64_t n, int64_t k) { return double(n * k % a) / double(a); }, b);
        Value* two = fourier_matrix(
            t, a, c, 2, used,
            [&](int64_t i, int64_t n, int64_t k) { return double(n * (i + a * k) % t.length) / double(t.length); }, b);
        Value* x = b.transpose(b.reshape(v, shape({a, c, t.parts})), order({1, 0, 2}));
        x = b.matmul(b.reshape(x, shape({c, a * t.parts})), one);
        x = b.transpose(b.reshape(x, shape({c, a, 2})), order({1, 0, 2}));
        x = b.matmul(b.reshape(x, shape({a, 1, 2 * c})), two);
        x = b.transpose(b.reshape(x, shape({a, used, 2})), order({1, 0, 2}));
        y = b.reshape(x, shape({a * used, 2}));
        if (a * used > t.outputs) y = b.slice(y, {0}, {t.outputs}, {int64_t(lead)});
    }
    return scale == 1.0 ? y : b.mul(y, b.scalar(scale, t.dtype));
}

// Whether the matrices are not too large.
bool takes_products(const Transform& t) {
    if (t.inputs < 1 || t.outputs < 1 || t.length > (1 << 20)) return false;
    return t.inputs * t.parts * t.outputs * 2 <= kMostMatrix || (t.length <= 1 << 14 && t.inputs == t.length);
}

// The axis was an attribute before opset 20, and 1 where it was not given.
OnnxChange axis_input_from_20() {
    OnnxChange change = attr_to_input(20, "axis", 2);
    auto up = change.up, down = change.down;
    change.up = [up](OnnxCall& call) -> Status {
        call.attrs.try_emplace("axis", int64_t{1});
        return up(call);
    };
    change.down = [down](OnnxCall& call) -> Status {
        if (!call.has(2)) {
            call.attrs["axis"] = int64_t{-2};
            return {};
        }
        return down(call);
    };
    return change;
}

const OpDef kDft{
    .name = "dft",
    .inputs = {"x: T", "dft_length?: L", "axis?: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("inverse", 0), int_attr("onesided", 0)},
    .types = {{"T", kWideFloats}, {"L", kLengths}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = {"DFT", {axis_input_from_20()}},
    .infer = infer_dft,
    .body = dft_body,
    .body_applies =
        [](const OpView& op) {
            return op.shape(0)[-1].as_int() && (!op.has(1) || op.contents(1)) && (!op.has(2) || op.constant_ints(2));
        },
};

// The frame's length: as given, the window's, or the whole signal.
Result<std::optional<Dim>> frame_length(const OpView& op) {
    if (op.has(3)) return known_scalar(op, 3, 1);
    return std::optional(op.has(2) && op.rank(2) == 1 ? op.shape(2)[0] : op.shape(0)[1]);
}

// A real signal without the last dimension of 1, as several exporters write it.
OnnxForm stft_form() {
    OnnxForm form("STFT");
    form.accept = [](OnnxCall& call) -> std::string {
        if (!call.has(0) || !call.inputs[0]->type().is_tensor()) return {};
        const Shape& x = call.inputs[0]->type().tensor().shape;
        if (!x.ranked() || x.rank() != 2) return {};
        call.inputs[0] = call.build.unsqueeze(call.inputs[0], {2});
        return fmt::format("the signal {} is taken for one of real numbers, [batch, length, 1]", x);
    };
    return form;
}

// Frames of a signal [B, L, parts] as [B, frames, length, parts].
const OpDef kFrames{
    .name = "frames",
    .inputs = {"signal: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("length").required(), int_attr("step").required()},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        const int64_t length = op.integer("length"), step = op.integer("step");
        if (x.rank() != 3) return op.shape_error("needs [batch, length, parts], has {}", x);
        if (length < 1 || step < 1) return op.error(Code::E0212, "frames of {} every {}", length, step);
        return op.like(0, {x[0], floor_div(x[1] - length, step) + 1, length, x[2]});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            return op.in(0).at({o[0], o[1] * op.integer("step") + o[2], o[3]});
        },
};

const OpDef kStft{
    .name = "stft",
    .inputs = {"signal: T", "frame_step: L", "window?: T", "frame_length?: L"},
    .outputs = {"y: T"},
    .attrs = {int_attr("onesided", 1)},
    .types = {{"T", kWideFloats}, {"L", kLengths}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = stft_form(),
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        auto parts = x.rank() == 3 ? x[2].as_int() : 0;
        if (x.rank() != 3 || (parts && *parts != 1 && *parts != 2))
            return op.shape_error("needs [batch, length, 1 or 2], has {}", x);
        if (op.has(2) && op.rank(2) != 1) return op.shape_error("the window must be a vector, is {}", op.shape(2));
        bool onesided = op.integer("onesided") != 0;
        if (onesided && parts == 2) return op.shape_error("a one-sided transform needs a real signal, not {}", x);
        auto step = TRY(known_scalar(op, 1, 1)), length = TRY(frame_length(op));
        if (length && op.has(2) && length->as_int() && op.shape(2)[0].as_int() && *length != op.shape(2)[0])
            return op.shape_error("the window {} is not as long as the frame, {}", op.shape(2), to_string(*length));
        if (length && length->as_int() && x[1].as_int() &&
            (*length->as_int() > *x[1].as_int() || *length->as_int() < 1))
            return op.shape_error("a frame of {} is longer than the signal {}", *length->as_int(), x);
        Shape y{x[0], op.fresh(0, 1), op.fresh(0, 2), 2};
        if (step && length) y[1] = floor_div(x[1] - *length, *step) + 1;
        if (length) y[2] = onesided ? floor_div(*length, 2) + 1 : *length;
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto x = op.in(0);
            Expr step = **known_scalar(op, 1, 1), length = **frame_length(op);
            ReduceAxis n = op.reduce(length);
            Expr at = o[1] * step + n.var, turns = -turns_of(o[2], n.var, length);
            Expr weight = op.has(2) ? f64(op.in(2).at({n.var})) : real_const(1);
            std::optional<Expr> im;
            if (!x.dim(2).is_int(1)) im = weight * f64(x.at({o[0], at, 1}));
            return cast(sum({n}, rotated(weight * f64(x.at({o[0], at, 0})), im, turns, o[3])), op.dtype(0));
        },
    .body_applies =
        [](const OpView& op) { return op.shape(0)[2].as_int() && op.contents(1) && (!op.has(3) || op.contents(3)); },
};

const OpDef kMelWeightMatrix{
    .name = "mel_weight_matrix",
    .inputs = {"num_mel_bins: L", "dft_length: L", "sample_rate: L", "lower_edge_hertz: F", "upper_edge_hertz: F"},
    .outputs = {"y: *"},
    .attrs = {int_attr("output_datatype", 1)},
    .types = {{"L", kLengths}, {"F", kWideFloats}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "MelWeightMatrix",
    .infer = [](const OpView& op) -> Result<Types> {
        for (size_t i = 0; i < 5; ++i)
            if (auto n = op.shape(i).elements().as_int(); op.shape(i).ranked() && n && *n != 1)
                return op.shape_error("{} must be one number, is {}", op.def().inputs[i].name, op.shape(i));
        auto bins = TRY(known_scalar(op, 0, 0)), length = TRY(known_scalar(op, 1, 0));
        TRY(known_scalar(op, 2, 1));
        return Type(TRY(dtype_attr(op, "output_datatype")),
                    {length ? floor_div(*length, 2) + 1 : op.fresh(0, 0), bins ? *bins : op.fresh(0, 1)});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            constexpr double kMel = 2595 / std::numbers::ln10, kCorner = 700;
            auto mel = [&](size_t edge) {
                return real_const(kMel) * call(Fn::Log1p, {f64(scalar_in(op, edge)) / real_const(kCorner)});
            };
            Expr low = mel(3), step = (mel(4) - low) / (f64(scalar_in(op, 0)) + real_const(2));
            auto bin = [&](const Expr& i) {  // of the spectrum, at the i-th of equally spaced mels
                Expr hertz = real_const(kCorner) * call(Fn::Expm1, {(f64(i) * step + low) / real_const(kMel)});
                Expr at = (f64(scalar_in(op, 1)) + real_const(1)) * hertz / f64(scalar_in(op, 2));
                return call(Fn::Floor, {at});
            };
            Expr at = f64(o[0]), left = bin(o[1]), centre = bin(o[1] + 1), right = bin(o[1] + 2);
            Expr falling = logical_and(le(centre, at), lt(at, right));
            Expr rising = logical_and(le(left, at), le(at, centre));
            Expr rise = select(eq(left, centre), real_const(1), (at - left) / (centre - left));
            Expr y = select(falling, (right - at) / (right - centre), select(rising, rise, real_const(0)));
            return cast(y, op.out().dtype);
        },
};

// a0 - a1 cos t + a2 cos 2t over one turn.
OpDef window(std::string name, const char* onnx, double a0, double a1, double a2) {
    return {
        .name = std::move(name),
        .inputs = {"size: L"},
        .outputs = {"y: *"},
        .attrs = {int_attr("output_datatype", 1), int_attr("periodic", 1)},
        .types = {{"L", kLengths}},
        .traits = {Trait::Pure, Trait::InfersUnranked},
        .onnx = onnx,
        .infer = [](const OpView& op) -> Result<Types> {
            auto size = TRY(known_scalar(op, 0, 0));
            return Type(TRY(dtype_attr(op, "output_datatype")), {size ? *size : op.fresh(0, 0)});
        },
        .body =
            [=](const OpView& op, const Indices& o) {
                Expr size = op.out().dim(0), turn = op.integer("periodic") ? size : max(size - 1, 1);
                Expr angle = f64(o[0]) * real_const(2 * std::numbers::pi) / f64(turn);
                Expr y = real_const(a0) - real_const(a1) * call(Fn::Cos, {angle});
                if (a2 != 0) y = y + real_const(a2) * call(Fn::Cos, {angle * real_const(2)});
                return cast(y, op.out().dtype);
            },
    };
}

}  // namespace

Result<std::vector<Value*>> dft_by_products(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    auto axis = TRY(dft_axis(op));
    if (!axis) return std::vector<Value*>{};
    auto length = TRY(dft_length(op, *axis));
    const Shape& x = op.shape(0);
    auto size = x[*axis].as_int(), parts = x[-1].as_int();
    if (!length || !length->as_int() || !size || !parts) return std::vector<Value*>{};
    const bool onesided = op.integer("onesided") != 0, inverse = op.integer("inverse") != 0;
    Transform t{.inputs = *size, .length = *length->as_int(), .outputs = *length->as_int(), .parts = *parts};
    t.inverse = inverse;
    t.mirrored = onesided && inverse;
    t.inputs = std::min(t.inputs, t.mirrored ? t.length / 2 + 1 : t.length);
    if (onesided && !inverse) t.outputs = t.length / 2 + 1;
    t.dtype = op.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
    if (!takes_products(t)) return std::vector<Value*>{};
    const int64_t rank = x.rank();
    Value* v = b.cast(in[0], t.dtype);
    if (t.inputs < *size) v = b.slice(v, {0}, {t.inputs}, {*axis});
    std::vector<int64_t> there, back;
    for (int64_t i = 0; i < rank; ++i)
        if (i != *axis && i != rank - 1) there.push_back(i);
    there.insert(there.end(), {*axis, rank - 1});
    back.resize(size_t(rank));
    for (size_t i = 0; i < there.size(); ++i) back[size_t(there[i])] = int64_t(i);
    const bool moved = *axis != rank - 2;
    if (moved) v = b.transpose(v, there);
    Value* y = transformed(v, size_t(rank) - 2, t, b);
    if (moved) y = b.transpose(y, back);
    return std::vector<Value*>{b.cast(y, op.dtype(0))};
}

Result<std::vector<Value*>> stft_by_products(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    auto step = TRY(known_scalar(op, 1, 1)), length = TRY(frame_length(op));
    auto parts = op.shape(0)[2].as_int();
    if (!step || !length || !step->as_int() || !length->as_int() || !parts) return std::vector<Value*>{};
    Transform t{
        .inputs = *length->as_int(), .length = *length->as_int(), .outputs = *length->as_int(), .parts = *parts};
    if (op.integer("onesided")) t.outputs = t.length / 2 + 1;
    t.dtype = op.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
    if (!takes_products(t)) return std::vector<Value*>{};
    Value* v = b.op("frames", {b.cast(in[0], t.dtype)}, {{"length", t.length}, {"step", *step->as_int()}});
    if (op.has(2)) v = b.mul(v, b.reshape(b.cast(in[2], t.dtype), {t.length, 1}));
    return std::vector<Value*>{b.cast(transformed(v, 2, t, b), op.dtype(0))};
}

std::vector<OpDef> signal_ops() {
    return {
        kDft,
        kStft,
        kFrames,
        without_gradient(kMelWeightMatrix, "its edges are rounded to whole bins"),
        window("hann_window", "HannWindow", 0.5, 0.5, 0),
        window("hamming_window", "HammingWindow", 25.0 / 46, 21.0 / 46, 0),
        window("blackman_window", "BlackmanWindow", 0.42, 0.5, 0.08),
    };
}

}  // namespace tessera
