// Convolutions in all forms.
#include "graph/builder.h"
#include "graph/ops/common.h"
#include "graph/ops/conv_window.h"
#include "graph/ops/families.h"
#include "graph/ops/for_kernels.h"
#include "graph/ops/interpolate.h"

namespace tessera {
namespace {

// A convolution's bias, a vector with one entry for each of `channels`.
Status check_bias(const OpView& op, size_t input, const Dim& channels) {
    if (!op.has(input)) return {};
    const Shape& b = op.shape(input);
    if (b.rank() != 1 || (b[0].as_int() && channels.as_int() && b[0] != channels))
        return op.shape_error("the bias {} does not have one entry for each of {} channels", b, to_string(channels));
    return {};
}

Expr with_bias(const OpView& op, size_t input, const Indices& o, const Expr& y) {
    return op.has(input) ? y + op.in(input).at({o[1]}) : y;
}

// The gradient by x: the transposed convolution, which lowers to dense convolutions (phases.cpp), where the body would
// test for each tap whether the stride divides. Null where the sizes are not known.
Value* transposed_conv(const Backward& r) {
    const OpView op = r.node.view();
    const Result<ConvWindow> window = weight_window(op, 0, 1);
    AttrMap attrs{{"group", Attr(op.integer("group"))}};
    std::vector<int64_t> strides, dilations, pads, ends, rest;
    if (!window.ok()) return nullptr;
    for (const WindowAxis& axis : window->axes) {
        const auto input = axis.input.as_int(), output = axis.output.as_int(), extent = axis.extent().as_int();
        const auto stride = axis.stride.as_int(), dilation = axis.dilation.as_int();
        const auto begin = axis.pad_begin.as_int(), end = axis.pad_end.as_int();
        if (!input || !output || !extent || !stride || !dilation || !begin || !end || *output < 1) return nullptr;
        strides.push_back(*stride);
        dilations.push_back(*dilation);
        pads.push_back(*begin);
        // Where the end of the input is not covered by whole strides, less is cut off there.
        const int64_t whole = (*output - 1) * *stride + *extent - *begin - *end, more = *input - whole;
        ends.push_back(*end);
        rest.push_back(more);
        if (*begin < 0 || *end < 0 || more < 0 || more >= std::max(*stride, *dilation)) return nullptr;
    }
    pads.insert(pads.end(), ends.begin(), ends.end());
    attrs.insert({{"strides", Attr(strides)},
                  {"dilations", Attr(dilations)},
                  {"pads", Attr(pads)},
                  {"output_padding", Attr(rest)}});
    return r.b.op("conv_transpose", {r.g, r.in[1]}, attrs);
}

Gradients back_through_conv(const Backward& r) {
    std::vector<bool> wanted = r.wanted;
    Value* by_x = r.wants(0) ? transposed_conv(r) : nullptr;
    if (by_x) wanted[0] = false;
    const OpView op = r.node.view();
    Gradients result = gradients_by_body(r, r.in, wanted, [&](const Indices& o) { return r.node.op().body(op, o); });
    if (by_x) result[0] = by_x;
    return result;
}

const OpDef kConv{
    .name = "conv",
    .inputs = {"x: T", "w: T", "b?: T"},
    .outputs = {"y: T"},
    .attrs = {auto_pad_attr(), ints_attr("dilations"), int_attr("group", 1), ints_attr("kernel_shape"),
              ints_attr("pads"), ints_attr("strides"), int_attr("halvings").hint(),
              ints_attr("tiles").hint()},  // outputs computed together along each axis; all 1: each by itself
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = "Conv",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = TRY(conv_shape(op, 0, 1));
        TRY(check_bias(op, 2, y[1]));
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto product = [](const Expr& x, const Expr& w) { return x * w; };
            return with_bias(op, 2, o, conv_sum(op, 0, 1, o, like(op, 0), product));
        },
    .canonical = [](const OpView& op, AttrMap& attrs) { canonical_conv(op, attrs, 1); },
    .gradient = back_through_conv,
    .layout = Layout::ChannelsLast,
};

// Where an output element takes window offset k of an input position: at input position `at`, if `hit`.
struct Source {
    Expr at;
    std::optional<Expr> hit;  // always, where not given
};

Source source_of(const WindowAxis& axis, const Expr& o, const Expr& k) {
    Expr reach = o + axis.pad_begin - k * axis.dilation;
    if (axis.stride == 1) return {reach, {}};
    return {floor_div(reach, axis.stride), eq(mod(reach, axis.stride), 0)};
}

Expr hits_only(const std::vector<Source>& sources, Expr value) {
    Expr zero = constant(0, value.dtype());
    for (const Source& s : sources)
        if (s.hit) value = select(*s.hit, value, zero);
    return value;
}

const OpDef kConvTranspose{
    .name = "conv_transpose",
    .inputs = {"x: T", "w: T", "b?: T"},
    .outputs = {"y: T"},
    .attrs = {auto_pad_attr(), ints_attr("dilations"), int_attr("group", 1), ints_attr("kernel_shape"),
              ints_attr("output_padding"), ints_attr("output_shape"), ints_attr("pads"), ints_attr("strides")},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = "ConvTranspose",
    .infer = [](const OpView& op) -> Result<Types> {
        ConvWindow window = TRY(transposed_window(op));
        const Shape &x = op.shape(0), &w = op.shape(1);
        int64_t group = op.integer("group");
        if (group < 1 || group > (1 << 30)) return op.error(Code::E0212, "group is {}", group);
        if (x[1].as_int() && (*x[1].as_int() % group != 0 || (w[0].as_int() && x[1] != w[0])))
            return op.shape_error("the input {} and the weight {} in {} groups differ in channels", x, w, group);
        Shape y{x[0], w[1] * group};
        TRY(check_bias(op, 2, y[1]));
        for (const WindowAxis& axis : window.axes) y.push_back(axis.input);
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            ConvWindow window = *transposed_window(op);
            auto x = op.in(0), w = op.in(1);
            int64_t group = op.integer("group");
            ReduceAxis c = op.reduce(floor_div(x.dim(1), group));
            std::vector<ReduceAxis> axes{c}, k = window.offsets(op);
            axes.insert(axes.end(), k.begin(), k.end());
            Expr channel = c.var, filter = o[1];
            if (group != 1) {
                channel = floor_div(o[1], w.dim(1)) * c.extent + c.var;
                filter = mod(o[1], w.dim(1));
            }
            std::vector<Source> sources;
            Indices at{o[0], channel};
            for (size_t i = 0; i < k.size(); ++i) {
                sources.push_back(source_of(window.axes[i], o[int64_t(i) + 2], k[i].var));
                at = at + Indices{sources.back().at};
            }
            Expr read = hits_only(sources, x.at_or(at, like(op, 0), 2));
            return with_bias(op, 2, o, sum(axes, read * w.at(Indices{channel, filter} + vars(k))));
        },
    .layout = Layout::ChannelsLast,
};

const OpDef kDeformConv{
    .name = "deform_conv",
    .inputs = {"x: T", "w: T", "offset: T", "b?: T", "mask?: T"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("dilations"), int_attr("group", 1), ints_attr("kernel_shape"), int_attr("offset_group", 1),
              ints_attr("pads"), ints_attr("strides")},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = "DeformConv",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = TRY(conv_shape(op, 0, 1));
        TRY(check_bias(op, 3, y[1]));
        int64_t spatial = y.rank() - 2, groups = op.integer("offset_group");
        if (groups < 1 || groups > (1 << 30)) return op.error(Code::E0212, "offset_group is {}", groups);
        if (auto c = op.shape(0)[1].as_int(); c && *c % groups != 0)
            return op.shape_error("{} channels do not divide into {} offset groups", *c, groups);
        Dim taps = op.shape(1).slice(2, y.rank()).elements() * groups;
        auto fits = [&](size_t input, const Dim& channels) -> Status {
            if (!op.has(input)) return {};
            Shape needed = Shape{y[0], channels} + y.slice(2, y.rank());
            const Shape& given = op.shape(input);
            for (int64_t i = 0; i < needed.rank(); ++i)
                if (given.rank() != needed.rank() || (given[i].as_int() && needed[i].as_int() && given[i] != needed[i]))
                    return op.shape_error("{} must have another shape: has {}, needs {}",
                                          input == 2 ? "offset" : "mask", given, needed);
            return {};
        };
        TRY(fits(2, taps * spatial));
        TRY(fits(4, taps));
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            ConvWindow window = *weight_window(op, 0, 1);
            auto x = op.in(0), w = op.in(1), offset = op.in(2);
            ReduceAxis c = op.reduce(w.dim(1));
            std::vector<ReduceAxis> axes{c}, k = window.offsets(op);
            axes.insert(axes.end(), k.begin(), k.end());
            Expr channel = c.var;
            if (int64_t group = op.integer("group"); group != 1)
                channel = floor_div(o[1], floor_div(w.dim(0), group)) * w.dim(1) + c.var;
            Expr tap = 0;
            if (int64_t groups = op.integer("offset_group"); groups != 1)
                tap = floor_div(channel, floor_div(x.dim(1), groups));
            for (size_t i = 0; i < k.size(); ++i) tap = tap * k[i].extent + k[i].var;
            Indices at = o.slice(2, o.rank()), plain = window.positions(at, k), read{o[0], channel};
            Expr weight = f64(w.at(Indices{o[1], c.var} + vars(k)));
            for (int64_t i = 0; i < plain.rank(); ++i) {
                Expr moved = f64(offset.at(Indices{o[0], tap * plain.rank() + i} + at));
                Taps taps = taps_around(op, f64(plain[i]) + moved, 2);
                axes.push_back(taps.axis);
                weight = weight * linear_weight(taps.distance);
                read = read + Indices{taps.element};
            }
            Expr term = weight * f64(x.at_or(read, like(op, 0), 2));
            if (op.has(4)) term = term * f64(op.in(4).at(Indices{o[0], tap} + at));
            return with_bias(op, 3, o, cast(sum(axes, term), op.dtype(0)));
        },
    .layout = Layout::ChannelsLast,
};

// The window of which col2im's columns are the blocks: from image_shape and block_shape, where they are known.
Result<std::optional<ConvWindow>> block_window(const OpView& op) {
    if (op.rank(1) != 1 || op.rank(2) != 1)
        return op.shape_error("image_shape and block_shape must be vectors, are {} and {}", op.shape(1), op.shape(2));
    auto image = op.contents(1), block = op.contents(2);
    if (!image || !block) return std::optional<ConvWindow>{};
    for (const Dim& d : *image)
        if (d.as_int() && *d.as_int() < 0) return op.error(Code::E0212, "image_shape has {}", *d.as_int());
    return std::optional(TRY(conv_window(op, Shape(*image), Shape(*block))));
}

const OpDef kCol2im{
    .name = "col2im",
    .inputs = {"x: T", "image_shape: i64", "block_shape: i64"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("dilations"), ints_attr("pads"), ints_attr("strides")},
    .types = {{"T", kNumbers}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = "Col2Im",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        if (x.rank() != 3) return op.shape_error("needs [N, C * block, blocks], has {}", x);
        auto window = TRY(block_window(op));
        if (!window) {
            auto spatial = op.shape(1)[0].as_int();
            if (!spatial) return op.like(0, Shape::unknown());
            return op.like(0, Shape{x[0]} + fresh_shape(op, 0, *spatial + 2).slice(1, *spatial + 2));
        }
        Dim block = 1, blocks = window->output().elements();
        for (const WindowAxis& axis : window->axes) block = block * axis.kernel;
        if (auto c = x[1].as_int(), b = block.as_int(); c && b && *c % *b != 0)
            return op.shape_error("{} rows of {} are not a multiple of the block's {} elements", *c, x, *b);
        if (auto n = x[2].as_int(); n && blocks.as_int() && x[2] != blocks)
            return op.shape_error("{} has {} blocks, but the image has {}", x, *n, to_string(blocks));
        Shape y{x[0], floor_div(x[1], block)};
        for (const WindowAxis& axis : window->axes) y.push_back(axis.input);
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            ConvWindow window = **block_window(op);
            std::vector<ReduceAxis> k = window.offsets(op);
            std::vector<Source> sources;
            Expr row = o[1], column = 0, inside = int_const(1, DType::boolean);
            for (size_t i = 0; i < k.size(); ++i) {
                const WindowAxis& axis = window.axes[i];
                sources.push_back(source_of(axis, o[int64_t(i) + 2], k[i].var));
                const Expr& at = sources.back().at;
                inside = logical_and(inside, logical_and(ge(at, 0), lt(at, axis.output)));
                row = row * axis.kernel + k[i].var;
                column = column * axis.output + at;
            }
            Expr read = select(inside, op.in(0).at({o[0], row, column}), like(op, 0));
            return sum(k, hits_only(sources, read));
        },
    .body_applies = [](const OpView& op) { return op.contents(1) && op.contents(2); },
    .layout = Layout::ChannelsLast,
};

const OpDef kCausalConvWithState{
    .name = "causal_conv_with_state",
    .inputs = {"x: T", "w: T", "b?: T", "past_state?: T"},
    .outputs = {"y: T", "present_state: T"},
    .attrs = {string_attr("activation", "none").one_of({"none", "silu", "swish"})},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = "CausalConvWithState",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &w = op.shape(1);
        if (x.rank() != 3 || w.rank() != 3) return op.shape_error("needs [N, C, L] and [C, 1, K], has {} and {}", x, w);
        if ((x[1].as_int() && w[0].as_int() && x[1] != w[0]) || (w[1].as_int() && !w[1].is_int(1)) || w[2].is_int(0))
            return op.shape_error("the weight {} is not [C, 1, K] for an input {}", w, x);
        TRY(check_bias(op, 2, x[1]));
        Shape state{x[0], x[1], w[2] - 1};
        if (op.has(3)) {
            const Shape& past = op.shape(3);
            for (int64_t i = 0; i < 3; ++i)
                if (past.rank() != 3 || (past[i].as_int() && state[i].as_int() && past[i] != state[i]))
                    return op.shape_error("past_state has the shape {}, but must have {}", past, state);
        }
        return Types{Type(op.dtype(0), x), Type(op.dtype(0), state)};
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto x = op.in(0), w = op.in(1);
            auto padded = [&](const Expr& at) {  // position `at` of the input, its past before 0
                Indices here{o[0], o[1], at};
                if (!op.has(3)) return x.at_or(here, like(op, 0), 2);
                return select(lt(at, 0), op.in(3).at(here.with(2, at + (w.dim(2) - 1))), x.at(here));
            };
            if (op.output() == 1) return padded(x.dim(2) - (w.dim(2) - 1) + o[2]);
            ReduceAxis k = op.reduce(w.dim(2));
            Expr y = sum({k}, padded(o[2] + k.var - (w.dim(2) - 1)) * w.at({o[1], 0, k.var}));
            y = with_bias(op, 2, o, y);
            return op.string("activation") == "none" ? y : y / (like(op, 1) + call(Fn::Exp, {-y}));
        },
};

constexpr int64_t kFewChannels = 4, kMostColumns = 64, kColumnsAtOnce = 8;
constexpr int64_t kFewestSummed = 16, kFewestPlaces = 4096;

}  // namespace

// One product makes a column for each tap of each output channel from each place of the image, read once; the output
// sums columns of neighbouring places. Sums stay in f32, as those of a convolution do.
Result<std::vector<Value*>> conv_of_few_channels(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    const std::vector<Value*> as_it_is;
    const DType dtype = op.dtype(0);
    if ((dtype != DType::f16 && dtype != DType::bf16) || op.rank(0) != 4 || op.integer("group") != 1) return as_it_is;
    const Result<ConvWindow> window = weight_window(op, 0, 1);
    const auto outputs = op.shape(1)[0].as_int(), channels = op.shape(1)[1].as_int();
    if (!window.ok() || !outputs || !channels || *outputs > kFewChannels || *channels < kFewestSummed) return as_it_is;
    std::vector<int64_t> sizes, kernel, dilations, begin, end;
    int64_t taps = 1, places = op.shape(0)[0].as_int().value_or(1);
    for (const WindowAxis& axis : window->axes) {
        const auto output = axis.output.as_int(), own = axis.kernel.as_int(), dilation = axis.dilation.as_int();
        const auto before = axis.pad_begin.as_int(), after = axis.pad_end.as_int();
        if (!axis.stride.is_int(1) || !output || !own || !dilation || !before || !after) return as_it_is;
        if (*before < 0 || *after < 0) return as_it_is;
        sizes.push_back(*output), kernel.push_back(*own), dilations.push_back(*dilation);
        begin.push_back(*before), end.push_back(*after);
        taps *= *own, places *= *output;
    }
    const int64_t used = taps * *outputs, more = (kColumnsAtOnce - used % kColumnsAtOnce) % kColumnsAtOnce;
    if (taps < 2 || used > kMostColumns || places < kFewestPlaces) return as_it_is;

    Value* columns = b.reshape(b.transpose(in[1], {2, 3, 0, 1}), {used, *channels, 1, 1});
    if (more > 0) columns = b.op("pad", {columns, b.ints({0, 0, 0, 0, more, 0, 0, 0})});
    Value* made = b.op("conv", {b.cast(in[0], DType::f32), b.cast(columns, DType::f32)});
    made = b.op("pad", {made, b.ints({0, 0, begin[0], begin[1], 0, 0, end[0], end[1]})});
    Value* sum = nullptr;
    for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t y = tap / kernel[1] * dilations[0], x = tap % kernel[1] * dilations[1];
        Value* own =
            b.slice(made, {tap * *outputs, y, x}, {(tap + 1) * *outputs, y + sizes[0], x + sizes[1]}, {1, 2, 3});
        sum = sum ? b.add(sum, own) : own;
    }
    if (op.has(2)) sum = b.add(sum, b.reshape(b.cast(in[2], DType::f32), {*outputs, 1, 1}));
    return std::vector<Value*>{b.cast(sum, dtype)};
}

Result<ConvWindow> transposed_window(const OpView& op) {
    const Shape &x = op.shape(0), &w = op.shape(1);
    if (x.rank() < 3 || x.rank() != w.rank())
        return op.shape_error("needs [N, C, D1, ...] and a weight of the same rank, has {} and {}", x, w);
    size_t rank = size_t(x.rank()) - 2;
    auto strides = TRY(window_ints(op, "strides", rank, 1, 1));
    auto dilations = TRY(window_ints(op, "dilations", rank, 1, 1));
    auto pads = TRY(window_ints(op, "pads", 2 * rank, 0, 0));
    auto extra = TRY(window_ints(op, "output_padding", rank, 0, 0));
    auto wanted = TRY(window_ints(op, "output_shape", rank, 0, -1));
    auto stated = TRY(window_ints(op, "kernel_shape", rank, 1, 0));
    const std::string& auto_pad = op.string("auto_pad");
    bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
    ConvWindow window;
    for (size_t i = 0; i < rank; ++i) {
        WindowAxis axis;
        axis.kernel = w[int64_t(i) + 2];
        axis.output = x[int64_t(i) + 2];
        axis.stride = strides[i];
        axis.dilation = dilations[i];
        if (axis.kernel.is_int(0)) return op.error(Code::E0212, "a kernel of size 0");
        if (stated[i] && axis.kernel.as_int() && !axis.kernel.is_int(stated[i]))
            return op.shape_error("kernel_shape has {}, but the weight {} has {}", stated[i], w,
                                  to_string(axis.kernel));
        Dim full = (axis.output - 1) * axis.stride + extra[i] + axis.extent();
        if (same || wanted[i] >= 0) {
            axis.input = wanted[i] >= 0 ? Dim(wanted[i]) : axis.output * axis.stride;
            Expr total = max(full - axis.input, 0);
            Expr half = floor_div(total, 2);
            axis.pad_begin = auto_pad == "SAME_UPPER" ? half : total - half;
        } else {
            bool padded = auto_pad == "NOTSET";
            axis.pad_begin = padded ? pads[i] : 0;
            axis.input = full - axis.pad_begin - (padded ? pads[rank + i] : 0);
        }
        if (auto n = axis.input.as_int(); n && *n < 0)
            return op.shape_error("the pads result in an output size of {} for an input {}", *n, x);
        window.axes.push_back(axis);
    }
    return window;
}

std::vector<OpDef> conv_ops() {
    std::vector<OpDef> ops{kConv, kConvTranspose, kDeformConv, kCol2im, kCausalConvWithState};
    for (OpDef& op : phase_ops()) ops.push_back(std::move(op));
    return ops;
}

}  // namespace tessera
