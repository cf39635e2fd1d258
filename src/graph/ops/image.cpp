// Resizing: each output element is an average of the input elements around the place it came from.
#include <algorithm>
#include <cmath>

#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/for_kernels.h"
#include "graph/ops/image_decoder.h"
#include "graph/ops/interpolate.h"

namespace tessera {
namespace {

constexpr size_t kRoi = 1, kScales = 2, kSizes = 3;

bool given(const OpView& op, size_t input) {
    return op.has(input) && !(op.rank(input) == 1 && op.shape(input)[0].is_int(0));  // empty is not given
}

bool crops(const OpView& op) { return op.string("coordinate_transformation_mode") == "tf_crop_and_resize"; }

// One axis of the input that is resized. Scale and region are f64.
struct ResizedAxis {
    int64_t axis, position;  // `position`: in roi, scales and sizes
    Dim input, output;
    Expr scale, width;                  // width: of the output before rounding
    std::optional<double> known_scale;  // where it is a constant
};

struct ResizePlan {
    std::vector<ResizedAxis> axes;
};

// The product is one of f32, as scales are: 10 times 0.7f is 7.
Dim scaled_size(const OpView& op, const ResizedAxis& a) {
    if (!a.known_scale) return op.fresh(0, size_t(a.axis));
    if (auto n = a.input.as_int()) return Dim(int64_t(std::floor(float(*n) * float(*a.known_scale))));
    double part = *a.known_scale * 1024;  // a symbolic size: exact where the scale is a short binary fraction
    if (part != std::floor(part) || part > 1e6) return op.fresh(0, size_t(a.axis));
    return floor_div(a.input * int64_t(part), 1024);
}

// The common scale of all axes under a policy that keeps the aspect ratio.
void keep_aspect_ratio(const OpView& op, ResizePlan& plan, const std::string& policy) {
    Expr scale = plan.axes[0].scale;
    std::optional<double> known = plan.axes[0].known_scale;
    for (const ResizedAxis& a : plan.axes) {
        bool larger = policy == "not_smaller";
        scale = larger ? max(scale, a.scale) : min(scale, a.scale);
        if (known && a.known_scale)
            known = larger ? std::max(*known, *a.known_scale) : std::min(*known, *a.known_scale);
        else
            known.reset();
    }
    for (ResizedAxis& a : plan.axes) {
        a.scale = known ? real_const(*known) : scale;
        a.known_scale = known;
        a.width = a.scale * f64(a.input);
        auto n = a.input.as_int();
        a.output = n && known ? Dim(int64_t(std::floor(*known * double(*n) + 0.5))) : op.fresh(0, size_t(a.axis));
    }
}

Result<ResizePlan> resize_plan(const OpView& op) {
    const Shape& x = op.shape(0);
    std::vector<int64_t> axes;
    if (op.has_attr("axes") && !op.ints("axes").empty())
        axes = TRY(op.axes(op.ints("axes"), x.rank()));
    else
        for (int64_t i = 0; i < x.rank(); ++i) axes.push_back(i);
    bool by_scales = given(op, kScales), by_sizes = given(op, kSizes);
    if (by_scales && by_sizes && op.concrete()) return op.error(Code::E0207, "has both scales and sizes");
    if (!by_scales && !by_sizes && !axes.empty()) return op.error(Code::E0207, "has neither scales nor sizes");
    size_t input = by_sizes ? kSizes : kScales;
    if (!axes.empty() &&
        (op.rank(input) != 1 || (op.shape(input)[0].as_int() && *op.shape(input)[0].as_int() != int64_t(axes.size()))))
        return op.shape_error("{} {} for {} axes of {}", by_sizes ? "sizes" : "scales", op.shape(input), axes.size(),
                              x);
    ResizePlan plan;
    auto sizes = by_sizes ? op.contents(kSizes) : std::nullopt;
    for (size_t i = 0; i < axes.size(); ++i) {
        ResizedAxis a{axes[i], int64_t(i), x[axes[i]], 0, real_const(1), real_const(1), {}};
        if (by_sizes) {
            a.output = sizes ? (*sizes)[i] : op.fresh(0, size_t(axes[i]));
            if (auto n = a.output.as_int(); n && *n < 0) return op.error(Code::E0212, "sizes has {}", *n);
            a.scale = f64(a.output) / f64(a.input);
            if (a.output.as_int() && a.input.as_int() && *a.input.as_int() > 0) {
                a.known_scale = double(*a.output.as_int()) / double(*a.input.as_int());
                a.scale = real_const(*a.known_scale);
            }
            a.width = f64(a.output);
        } else {
            if (const Tensor* t = op.value(kScales)) {
                a.known_scale = t->real_at(int64_t(i));
                if (!(*a.known_scale > 0) || *a.known_scale > 1e9)
                    return op.error(Code::E0212, "scales has {}", *a.known_scale);
            }
            a.scale = a.known_scale ? real_const(*a.known_scale) : f64(op.in(kScales).at({int64_t(i)}));
            a.width = a.scale * f64(a.input);
            a.output = scaled_size(op, a);
        }
        plan.axes.push_back(a);
    }
    const std::string& policy = op.string("keep_aspect_ratio_policy");
    if (by_sizes && policy != "stretch" && !plan.axes.empty()) keep_aspect_ratio(op, plan, policy);
    return plan;
}

// The input position (f64) that an output position came from.
Expr origin(const OpView& op, const ResizedAxis& a, const Expr& o, int64_t axes) {
    const std::string& mode = op.string("coordinate_transformation_mode");
    Expr half = real_const(0.5), at = f64(o), last = f64(a.input - 1);
    Expr centred = (at + half) / a.scale - half;
    Expr one_wide = eq(a.width, real_const(1));
    if (mode == "asymmetric") return at / a.scale;
    if (mode == "tf_half_pixel_for_nn") return (at + half) / a.scale;
    if (mode == "align_corners") return select(one_wide, real_const(0), at * last / (a.width - real_const(1)));
    if (mode == "pytorch_half_pixel") return select(one_wide, -half, centred);
    if (mode == "half_pixel_symmetric")
        return f64(a.input) * half * (real_const(1) - f64(op.out().shape[a.axis]) / a.width) + centred;
    if (mode == "tf_crop_and_resize") {
        Expr start = f64(op.in(kRoi).at({a.position})), end = f64(op.in(kRoi).at({a.position + axes}));
        Expr along = select(one_wide, half, at / (a.width - real_const(1)));
        return start * last + along * (end - start) * last;
    }
    return centred;
}

Expr nearest(const std::string& mode, const Expr& at) {
    if (mode == "floor") return call(Fn::Floor, {at});
    if (mode == "ceil") return call(Fn::Ceil, {at});
    if (mode == "round_prefer_ceil") return call(Fn::Floor, {at + real_const(0.5)});
    return call(Fn::Ceil, {at - real_const(0.5)});
}

// The same for a known scale that is a short binary fraction, from whole numbers alone: floor(n / d) is the element.
struct WholePlace {
    Expr n, d;
};
std::optional<WholePlace> whole_origin(const OpView& op, const ResizedAxis& a, const Expr& o) {
    constexpr int64_t kParts = 1024;
    const std::string& mode = op.string("coordinate_transformation_mode");
    const double part = a.known_scale.value_or(0) * kParts;
    if (part != std::floor(part) || part < 1 || part > double(kParts * kParts)) return std::nullopt;
    int64_t p = int64_t(part), q = kParts;  // the scale is p / q
    for (; p % 2 == 0 && q > 1; q /= 2) p /= 2;
    const int64_t one_wide = q % p == 0 ? q / p : 0;  // the size whose result is one element wide
    const auto input = a.input.as_int();
    if (mode == "asymmetric") return WholePlace{o * q, p};
    if (mode == "tf_half_pixel_for_nn") return WholePlace{(2 * o + 1) * q, 2 * p};
    const WholePlace centred{(2 * o + 1) * q - p, 2 * p};
    if (mode == "half_pixel") return centred;
    if (mode == "pytorch_half_pixel" && (p >= q || (input && *input != one_wide))) return centred;
    if (mode != "align_corners" || !input || *input > kParts * kParts || p * *input <= q) return std::nullopt;
    return WholePlace{o * ((*input - 1) * q), p * *input - q};
}

Expr nearest_whole(const std::string& mode, const WholePlace& at) {
    if (mode == "floor") return floor_div(at.n, at.d);
    if (mode == "ceil") return floor_div(at.n + at.d - 1, at.d);
    return floor_div(2 * at.n + at.d - (mode == "round_prefer_ceil" ? 0 : 1), 2 * at.d);
}

// The element of an axis that is nearest to where an element of the output came from.
Expr nearest_element(const OpView& op, const ResizedAxis& a, const Expr& o, const Expr& from) {
    const std::string& mode = op.string("nearest_mode");
    const Expr last = a.input - 1;
    const auto whole = whole_origin(op, a, o);
    if (!whole) return clamp(cast(nearest(mode, from), DType::i64), 0, last);
    const Expr at = nearest_whole(mode, *whole);
    const Expr beside = select(lt(at, 0), 0, last);
    return select(logical_and(ge(at, 0), le(at, last)), at, beside);
}

// An axis that stays as it is.
bool untouched(const OpView& op, const ResizedAxis& a) {
    return !crops(op) && a.known_scale == 1.0 && a.input == a.output;
}

// How far the filter reaches, stretched where it is antialiased.
double reach(const OpView& op, const ResizedAxis& a) {
    double radius = op.string("mode") == "cubic" ? 2 : 1;
    return op.integer("antialias") && a.known_scale ? radius / std::min(*a.known_scale, 1.0) : radius;
}

Status check_resize_attrs(const OpView& op) {
    if (op.integer("antialias") && op.string("mode") == "nearest")
        return op.error(Code::E0212, "antialias cannot be used with mode nearest");
    if ((op.string("mode") != "nearest" || crops(op)) && !kBodyTypes.has(op.dtype(0)))
        return op.error(Code::E0208, "{} elements can only be resized with mode nearest", dtype_name(op.dtype(0)));
    return {};
}

Result<Types> infer_resize(const OpView& op) {
    TRY(check_resize_attrs(op));
    ResizePlan plan = TRY(resize_plan(op));
    if (crops(op)) {
        if (!given(op, kRoi) && op.concrete()) return op.error(Code::E0207, "has no roi, which cropping requires");
        if (given(op, kRoi) && (op.rank(kRoi) != 1 || (op.shape(kRoi)[0].as_int() &&
                                                       *op.shape(kRoi)[0].as_int() != 2 * int64_t(plan.axes.size()))))
            return op.shape_error("roi {} for {} axes", op.shape(kRoi), plan.axes.size());
    }
    Shape y = op.shape(0);
    for (const ResizedAxis& a : plan.axes) {
        if (reach(op, a) > 1e9) return op.error(Code::E0212, "a scale of {} to antialias", *a.known_scale);
        y[a.axis] = a.output;
    }
    return op.like(0, y);
}

// Moves one element: for every element type.
Expr nearest_body(const OpView& op, const ResizePlan& plan, Indices at) {
    Expr outside = int_const(0, DType::boolean);
    for (const ResizedAxis& a : plan.axes) {
        if (untouched(op, a)) continue;
        Expr from = origin(op, a, at[a.axis], int64_t(plan.axes.size()));
        outside = logical_or(outside, logical_or(lt(from, real_const(0)), gt(from, f64(a.input - 1))));
        at[a.axis] = nearest_element(op, a, at[a.axis], from);
    }
    Expr y = op.in(0).at(at);
    return crops(op) ? select(outside, like(op, op.real("extrapolation_value")), y) : y;
}

Expr filtered_body(const OpView& op, const ResizePlan& plan, Indices at) {
    bool cubic = op.string("mode") == "cubic", exclude = op.integer("exclude_outside") != 0;
    std::vector<ReduceAxis> axes;
    Expr weight = real_const(1), total = real_const(1), outside = int_const(0, DType::boolean);
    for (const ResizedAxis& a : plan.axes) {
        if (untouched(op, a)) continue;
        Expr from = origin(op, a, at[a.axis], int64_t(plan.axes.size()));
        outside = logical_or(outside, logical_or(lt(from, real_const(0)), gt(from, f64(a.input - 1))));
        double radius = reach(op, a), plain = cubic ? 2 : 1;
        auto weight_of = [&](const Taps& taps) {
            Expr distance = radius == plain ? taps.distance : taps.distance * real_const(plain / radius);
            Expr w = cubic ? cubic_weight(distance, op.real("cubic_coeff_a")) : linear_weight(distance);
            Expr inside = logical_and(ge(taps.element, 0), lt(taps.element, a.input));
            return exclude ? select(inside, w, real_const(0)) : w;
        };
        int64_t count = 2 * int64_t(std::ceil(radius));
        Taps taps = taps_around(op, from, count);
        axes.push_back(taps.axis);
        weight = weight * weight_of(taps);
        if (exclude || radius != plain) {
            Taps all = taps_around(op, from, count);
            total = total * sum({all.axis}, weight_of(all));
        }
        at[a.axis] = clamp(taps.element, 0, a.input - 1);
    }
    if (axes.empty()) return op.in(0).at(at);
    Expr y = sum(axes, weight * f64(op.in(0).at(at))) / total;
    if (crops(op)) y = select(outside, real_const(op.real("extrapolation_value")), y);
    return is_float(op.dtype(0)) ? cast(y, op.dtype(0)) : cast_saturate(call(Fn::Round, {y}), op.dtype(0));
}

// Before opset 11: [x, scales], and positions by plain division.
Status up_to_11(OnnxCall& call) {
    Value* scales = call.has(1) ? call.inputs[1] : nullptr;
    call.inputs.resize(1);
    call.set_input(kScales, scales);
    call.attrs["coordinate_transformation_mode"] = std::string("asymmetric");
    call.attrs["nearest_mode"] = std::string("floor");
    return {};
}

Status down_from_11(OnnxCall& call) {
    auto text = [&](const char* name, const char* fallback) {
        auto it = call.attrs.find(name);
        return it == call.attrs.end() ? fallback : std::get<std::string>(it->second);
    };
    std::string mode = text("mode", "nearest");
    if (text("coordinate_transformation_mode", "half_pixel") != "asymmetric" || mode == "cubic" || !call.has(kScales) ||
        (mode == "nearest" && text("nearest_mode", "round_prefer_floor") != "floor"))
        return Error(Code::E0214, "{}: this way of resizing does not exist before opset 11", call.op_type);
    Value* scales = call.inputs[kScales];
    call.inputs.resize(1);
    call.set_input(1, scales);
    call.attrs = {{"mode", Attr(mode)}};
    return {};
}

// Roi and scales had to be given, empty where they mean nothing.
Status down_from_13(OnnxCall& call) {
    for (size_t i : {kRoi, kScales})
        if (!call.has(i)) call.set_input(i, call.build.constant(Tensor::of<float>({0}, {})));
    return call.build.status();
}

Status keep(OnnxCall&) { return {}; }

// Resize was Upsample before opset 10, and that had its scales in two attributes before opset 7.
Status up_to_7(OnnxCall& call) {
    if (auto mode = call.attrs.find("mode"); mode != call.attrs.end() && mode->second == Attr(std::string("bilinear")))
        mode->second = std::string("linear");
    auto height = call.attrs.find("height_scale"), width = call.attrs.find("width_scale");
    if (height == call.attrs.end() || width == call.attrs.end()) return {};
    auto *h = std::get_if<float>(&height->second), *w = std::get_if<float>(&width->second);
    if (!h || !w) return Error(Code::E0206, "{}: height_scale and width_scale must be floats", call.op_type);
    call.attrs["scales"] = std::vector<float>{1, 1, *h, *w};
    call.attrs.erase("height_scale");
    call.attrs.erase("width_scale");
    return {};
}

Status down_from_7(OnnxCall& call) {
    auto it = call.attrs.find("scales");
    auto* scales = it == call.attrs.end() ? nullptr : std::get_if<std::vector<float>>(&it->second);
    if (!scales || scales->size() != 4 || (*scales)[0] != 1 || (*scales)[1] != 1)
        return Error(Code::E0214, "{}: only height and width can be resized before opset 7", call.op_type);
    call.attrs["height_scale"] = (*scales)[2];
    call.attrs["width_scale"] = (*scales)[3];
    call.attrs.erase("scales");
    if (auto mode = call.attrs.find("mode"); mode != call.attrs.end() && mode->second == Attr(std::string("linear")))
        mode->second = std::string("bilinear");
    return {};
}

Status down_to_upsample(OnnxCall& call) {
    call.op_type = "Upsample";
    return {};
}

OnnxForm resize_form() {
    OnnxForm form{"Resize",
                  {{7, up_to_7, down_from_7},
                   attr_to_input(9, "scales", 1),
                   {10, keep, down_to_upsample},
                   {11, up_to_11, down_from_11},
                   {13, keep, down_from_13},
                   attr_added(18, "antialias", Attr(int64_t{0})),
                   attr_added(18, "axes", Attr(std::vector<int64_t>{})),
                   attr_added(18, "keep_aspect_ratio_policy", Attr(std::string("stretch")))}};
    form.aliases = {"Upsample"};
    return form;
}

const OpDef kResize{
    .name = "resize",
    .inputs = {"x: T", "roi?: R", "scales?: f32", "sizes?: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("antialias", 0), ints_attr("axes"),
              string_attr("coordinate_transformation_mode", "half_pixel")
                  .one_of({"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                           "tf_crop_and_resize", "tf_half_pixel_for_nn"}),
              float_attr("cubic_coeff_a", -0.75f), int_attr("exclude_outside", 0), float_attr("extrapolation_value", 0),
              string_attr("keep_aspect_ratio_policy", "stretch").one_of({"stretch", "not_larger", "not_smaller"}),
              string_attr("mode", "nearest").one_of({"nearest", "linear", "cubic"}),
              string_attr("nearest_mode", "round_prefer_floor")
                  .one_of({"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})},
    .types = {{"T", kAllTypes}, {"R", kWideFloats}},
    .onnx = resize_form(),
    .infer = infer_resize,
    .body =
        [](const OpView& op, const Indices& o) {
            ResizePlan plan = *resize_plan(op);
            return op.string("mode") == "nearest" ? nearest_body(op, plan, o) : filtered_body(op, plan, o);
        },
    // The filter's width is part of the body where it is antialiased.
    .body_applies =
        [](const OpView& op) {
            if (crops(op) && !given(op, kRoi)) return false;
            return !op.integer("antialias") || op.value(kScales) || op.constant_ints(kSizes);
        },
    .layout = Layout::ChannelsLast,
};

bool is_known(const ResizedAxis& a) { return a.known_scale && a.input.as_int() && a.output.as_int(); }

// The place in the input that each element along an axis comes from: what the op makes of 0, 1, 2, ...
Result<std::vector<double>> places_along(const OpView& op, const ResizedAxis& a) {
    const int64_t size = *a.input.as_int();
    std::vector<double> ramp;
    for (int64_t i = 0; i < size; ++i) ramp.push_back(double(i));
    std::vector<std::optional<Datum>> inputs(4);
    inputs[0] = Datum(Tensor::of<double>({size}, ramp));
    if (given(op, kSizes))
        inputs[kSizes] = Datum(Tensor::ints({*a.output.as_int()}));
    else
        inputs[kScales] = Datum(Tensor::of<float>({1}, {float(*a.known_scale)}));
    AttrMap attrs;
    for (const char* name : {"coordinate_transformation_mode", "mode", "nearest_mode"})
        attrs[name] = Attr(op.string(name));
    attrs["exclude_outside"] = Attr(op.integer("exclude_outside"));
    const auto results = TRY(evaluate_op(kResize, inputs, attrs, 1, {}));
    std::vector<double> places;
    for (int64_t i = 0; i < results[0].tensor().elements(); ++i) places.push_back(results[0].tensor().real_at(i));
    return places;
}

// Neighbours along an axis, and what they weigh (f64), for each element of the result.
struct Neighbours {
    Value *low, *high, *below, *above;
};

Neighbours known_neighbours(const ResizedAxis& a, const std::vector<double>& places, Builder& b) {
    const int64_t last = *a.input.as_int() - 1;
    std::vector<int64_t> low, high;
    std::vector<double> below, above;
    for (double place : places) {
        low.push_back(std::clamp<int64_t>(int64_t(std::floor(place)), 0, last));
        high.push_back(std::min(low.back() + 1, last));
        above.push_back(place - double(low.back()));
        below.push_back(1 - above.back());
    }
    auto numbers = [&](const std::vector<double>& of) {
        return b.constant(Tensor::of<double>({int64_t(of.size())}, of));
    };
    return {b.ints(low), b.ints(high), numbers(below), numbers(above)};
}

// The same for sizes that a run brings.
Neighbours open_neighbours(const OpView& op, const ResizedAxis& a, const std::vector<Value*>& in, Builder& b) {
    Value* size = b.squeeze(b.op("shape", {in[0]}, {{"start", Attr(a.axis)}, {"end", Attr(a.axis + 1)}}), {0});
    auto whole = [&](double v) { return b.scalar(v, DType::i64); };
    Value* ramp = b.cast(b.op("range", {whole(0), size, whole(1)}), DType::f64);
    std::vector<Value*> inputs{ramp, nullptr, nullptr, nullptr};
    const size_t by = given(op, kSizes) ? kSizes : kScales;
    inputs[by] = by == kScales && a.known_scale ? b.constant(Tensor::of<float>({1}, {float(*a.known_scale)}))
                                                : b.slice(in[by], {a.position}, {a.position + 1}, {0});
    AttrMap attrs;
    for (const char* name : {"coordinate_transformation_mode", "mode"}) attrs[name] = Attr(op.string(name));
    attrs["exclude_outside"] = Attr(op.integer("exclude_outside"));
    Value* places = b.op("resize", inputs, attrs);
    Value* last = b.sub(size, whole(1));
    Value* low = b.op("clip", {b.cast(b.op("floor", {places}), DType::i64), whole(0), last});
    Value* high = b.op("min", {b.add(low, whole(1)), last});
    Value* above = b.sub(places, b.cast(low, DType::f64));
    return {low, high, b.sub(b.scalar(1, DType::f64), above), above};
}

// x[.., low, ..] * (1 - w) + x[.., low + 1, ..] * w along an axis.
Value* between_neighbours(Value* x, const ResizedAxis& a, int64_t rank, const Neighbours& n, DType dtype, Builder& b) {
    std::vector<int64_t> shape(size_t(rank - a.axis), 1);
    shape[0] = -1;
    auto weighted = [&](Value* from, Value* weights) {
        return b.mul(b.op("gather", {x, from}, {{"axis", Attr(a.axis)}}), b.reshape(b.cast(weights, dtype), shape));
    };
    return b.add(weighted(n.low, n.below), weighted(n.high, n.above));
}

// To the nearest, to more elements along several axes: what lies along the last axis is picked one by one while there
// is less of it, and then whole rows are. Not where places are quotients by small numbers, which loops take apart.
Result<std::vector<Value*>> nearest_by_axes(const OpView& op, Value* x, Builder& b) {
    const std::vector<Value*> none;
    if (crops(op) || op.string("keep_aspect_ratio_policy") != "stretch") return none;
    ResizePlan plan = TRY(resize_plan(op));
    std::vector<ResizedAxis> axes;
    for (const ResizedAxis& a : plan.axes) {
        if (untouched(op, a)) continue;
        if (!is_known(a) || *a.known_scale < 1 || a.input.is_int(0)) return none;
        axes.push_back(a);
    }
    if (axes.size() < 2 || axes.back().axis != op.rank(0) - 1) return none;
    const ResizedAxis& last = axes.back();
    if (whole_origin(op, last, 0) && op.string("coordinate_transformation_mode") != "align_corners") return none;
    for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
        std::vector<int64_t> from;
        for (double place : TRY(places_along(op, *a))) from.push_back(int64_t(place));
        x = b.op("gather", {x, b.ints(from)}, {{"axis", Attr(a->axis)}});
    }
    return std::vector<Value*>{x};
}

}  // namespace

Result<std::vector<Value*>> resize_by_axes(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    const std::vector<Value*> none;
    if (op.string("mode") == "nearest") return nearest_by_axes(op, in[0], b);
    if (op.string("mode") != "linear" || op.integer("antialias") || crops(op) || !is_float(op.dtype(0))) return none;
    if (op.string("keep_aspect_ratio_policy") != "stretch") return none;
    ResizePlan plan = TRY(resize_plan(op));
    std::vector<ResizedAxis> axes;
    for (const ResizedAxis& a : plan.axes) {
        if (untouched(op, a)) continue;
        if (a.input.is_int(0) || a.output.is_int(0)) return none;
        axes.push_back(a);
    }
    const bool is_ramp = op.rank(0) == 1;  // of places along one axis
    if (axes.empty() || (is_ramp && !is_known(axes[0]))) return none;
    // What lies along the last axis is picked one by one: while there is less of it.
    const bool last_first = axes[0].known_scale.value_or(1) >= 1;
    if (last_first) std::reverse(axes.begin(), axes.end());
    const DType dtype = op.dtype(0) == DType::f64 ? DType::f64 : DType::f32;
    Value* y = b.cast(in[0], dtype);
    for (const ResizedAxis& a : axes) {
        const Neighbours n =
            is_known(a) ? known_neighbours(a, TRY(places_along(op, a)), b) : open_neighbours(op, a, in, b);
        y = between_neighbours(y, a, op.rank(0), n, dtype, b);
    }
    return std::vector<Value*>{b.cast(y, op.dtype(0))};
}

std::vector<OpDef> image_ops() { return {kResize, image_decoder_op()}; }

}  // namespace tessera
