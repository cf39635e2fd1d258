// A transposed convolution as one of stride 1: with strides s, outputs whose position has the same remainder by s (a
// phase) take the same part of the kernel. conv_transpose(x, w) is join_phases(conv(x, phase_weight(w))), where the
// channels of the convolution are those of all phases: channel (g * phases + phase) * O + o is channel o of group g.
// Or as products alone, where phases would take many zeros along, or windows would be read many times: the products of
// all taps are channels, (g * taps + tap) * O + o, and join_taps adds up those that meet in an output. Where phases
// would take zeros along and too many taps meet in an output, each phase is a convolution of its own.
#include <numeric>

#include "graph/builder.h"
#include "graph/ops/common.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

constexpr int64_t kMostTaps = 1 << 14;  // of all phases, for two channels

int64_t product_of(const std::vector<int64_t>& list) {
    int64_t n = 1;
    for (int64_t i : list) n *= i;
    return n;
}

Status check_phases(const OpView& op, std::initializer_list<const char*> lists, int64_t low) {
    if (op.rank(0) < 3) return op.shape_error("needs [N, C, D1, ...], has {}", op.shape(0));
    if (op.integer("group") < 1) return op.error(Code::E0212, "group is {}", op.integer("group"));
    for (const char* name : lists) {
        const auto& list = op.ints(name);
        if (int64_t(list.size()) != op.rank(0) - 2 ||
            std::any_of(list.begin(), list.end(), [&](int64_t n) { return n < low || n > (1 << 20); }))
            return op.error(Code::E0212, "{} must have {} entries of {} or more", name, op.rank(0) - 2, low);
    }
    return {};
}

const OpDef kPhaseWeight{
    .name = "phase_weight",
    .inputs = {"w: T"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("dilations").required(), int_attr("group", 1), ints_attr("strides").required()},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_phases(op, {"strides", "dilations"}, 1));
        const Shape& w = op.shape(0);
        const auto &strides = op.ints("strides"), &dilations = op.ints("dilations");
        Shape y{w[1] * op.integer("group") * product_of(strides), floor_div(w[0], op.integer("group"))};
        for (int64_t i = 0; i + 2 < w.rank(); ++i)
            y.push_back(ceil_div((w[i + 2] - 1) * dilations[size_t(i)] + 1, strides[size_t(i)]));
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto w = op.in(0);
            const auto &strides = op.ints("strides"), &dilations = op.ints("dilations");
            const int64_t phases = product_of(strides);
            Expr phase = mod(floor_div(o[0], w.dim(1)), phases);
            Expr channel = floor_div(o[0], w.dim(1) * phases) * op.out().dim(1) + o[1];
            Indices at{channel, mod(o[0], w.dim(1))};
            Expr there = int_const(1, DType::boolean);
            int64_t inner = phases;
            for (size_t i = 0; i < strides.size(); ++i) {
                inner /= strides[i];
                Expr own = mod(floor_div(phase, inner), strides[i]);
                // The convolution goes forwards over inputs, and so backwards over the kernel.
                Expr reach = own + (op.out().dim(int64_t(i) + 2) - 1 - o[int64_t(i) + 2]) * strides[i];
                Expr tap = floor_div(reach, dilations[i]);
                there =
                    logical_and(there, logical_and(eq(mod(reach, dilations[i]), 0), lt(tap, w.dim(int64_t(i) + 2))));
                at = at + Indices{min(tap, w.dim(int64_t(i) + 2) - 1)};
            }
            return select(there, w.at(at), like(op, 0));
        },
};

const OpDef kJoinPhases{
    .name = "join_phases",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("begins").required(), ints_attr("ends").required(), int_attr("group", 1),
              ints_attr("strides").required()},  // begins and ends: what is cut off there
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_phases(op, {"strides"}, 1));
        TRY(check_phases(op, {"begins", "ends"}, 0));
        const Shape& x = op.shape(0);
        const auto &strides = op.ints("strides"), &begins = op.ints("begins"), &ends = op.ints("ends");
        Shape y{x[0], floor_div(x[1], product_of(strides))};
        for (size_t i = 0; i < strides.size(); ++i) y.push_back(x[int64_t(i) + 2] * strides[i] - begins[i] - ends[i]);
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto x = op.in(0);
            const auto &strides = op.ints("strides"), &begins = op.ints("begins");
            Expr phase = 0;
            std::vector<Expr> places;
            for (size_t i = 0; i < strides.size(); ++i) {
                Expr at = o[int64_t(i) + 2] + begins[i];
                phase = phase * strides[i] + mod(at, strides[i]);
                places.push_back(floor_div(at, strides[i]));
            }
            const Expr each = floor_div(op.out().dim(1), op.integer("group"));
            Expr channel = phase * each + o[1];
            if (op.integer("group") != 1)
                channel = (floor_div(o[1], each) * product_of(strides) + phase) * each + mod(o[1], each);
            return x.at(Indices{o[0], channel} + Indices(places));
        },
    .layout = Layout::ChannelsLast,
};

// An axis of join_taps: what is added up for output t, of taps stride apart.
struct TapsOfAxis {
    int64_t kernel, stride, dilation, begin;
    int64_t count() const { return ((kernel - 1) * dilation + stride) / stride; }
};

std::vector<TapsOfAxis> taps_of(const OpView& op) {
    std::vector<TapsOfAxis> axes;
    const auto &kernel = op.ints("kernel_shape"), &strides = op.ints("strides");
    for (size_t i = 0; i < strides.size(); ++i)
        axes.push_back({kernel[i], strides[i], op.ints("dilations")[i], op.ints("begins")[i]});
    return axes;
}

const OpDef kJoinTaps{
    .name = "join_taps",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("begins").required(), ints_attr("dilations").required(), ints_attr("ends").required(),
              int_attr("group", 1), ints_attr("kernel_shape").required(),
              ints_attr("strides").required()},  // begins and ends: what is cut off there, or put there
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_phases(op, {"strides", "dilations", "kernel_shape"}, 1));
        TRY(check_phases(op, {"begins"}, 0));
        TRY(check_phases(op, {"ends"}, -(1 << 20)));
        const Shape& x = op.shape(0);
        Shape y{x[0], floor_div(x[1], product_of(op.ints("kernel_shape")))};
        int64_t i = 0;
        for (const TapsOfAxis& axis : taps_of(op)) {
            y.push_back((x[i + 2] - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1 - axis.begin -
                        op.ints("ends")[size_t(i)]);
            ++i;
        }
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto x = op.in(0);
            struct Term {
                Expr there, tap;
                Indices at;
            };
            std::vector<Term> terms{{int_const(1, DType::boolean), 0, {}}};
            int64_t i = 2;
            for (const TapsOfAxis& axis : taps_of(op)) {
                const Expr at = o[i] + axis.begin % axis.stride, phase = mod(at, axis.stride);
                const Expr place = floor_div(at, axis.stride) + axis.begin / axis.stride;
                std::vector<Term> more;
                for (const Term& term : terms)
                    for (int64_t j = 0; j < axis.count(); ++j) {
                        const Expr reach = phase + j * axis.stride, tap = floor_div(reach, axis.dilation);
                        Expr there = logical_and(ge(place, j), lt(place - j, x.dim(i)));
                        there = logical_and(there, lt(tap, axis.kernel));
                        there = logical_and(there, eq(mod(reach, axis.dilation), 0));
                        more.push_back({logical_and(term.there, there), term.tap * axis.kernel + tap,
                                        term.at + Indices{place - j}});
                    }
                terms = std::move(more);
                ++i;
            }
            const Expr each = floor_div(op.out().dim(1), op.integer("group"));
            const Expr first = floor_div(o[1], each) * product_of(op.ints("kernel_shape"));
            std::optional<Expr> sum;
            for (const Term& term : terms) {
                const Expr channel = (first + term.tap) * each + mod(o[1], each);
                const Expr product = select(term.there, x.at(Indices{o[0], channel} + term.at), like(op, 0));
                sum = sum ? *sum + product : product;
            }
            return *sum;
        },
    .layout = Layout::ChannelsLast,
};

// Whether phases have taps that the kernel has not. Their weights are zeros, and zero times NaN is NaN.
bool has_holes(const std::vector<TapsOfAxis>& axes) {
    return std::any_of(axes.begin(), axes.end(),
                       [](const TapsOfAxis& axis) { return axis.count() * axis.stride != axis.kernel; });
}

constexpr int64_t kMostTerms = 32;  // of an output of join_taps, which spells them out

// Products of all taps, where that takes less time than all phases at once: in cycles for each place of the input; or
// where phases have holes.
bool worth_taps(const std::vector<TapsOfAxis>& axes, int64_t inputs, int64_t outputs) {
    constexpr double kMultiply = 0.04, kPackWindow = 0.25, kPack = 0.15, kJoin = 0.4;
    constexpr int64_t kFewOutputs = 8;
    int64_t taps = 1, terms = 1, phases = 1;
    for (const TapsOfAxis& axis : axes) taps *= axis.kernel, terms *= axis.count(), phases *= axis.stride;
    if (terms <= kMostTerms && has_holes(axes)) return true;
    if (terms == 1 || terms > kMostTerms || (phases == 1 && outputs > kFewOutputs)) return false;
    const double by_phases = double(inputs * terms) * (kMultiply * double(outputs * phases) + kPackWindow);
    const double by_taps =
        double(inputs) * (kMultiply * double(outputs * taps) + kPack) + kJoin * double(outputs * taps);
    return by_taps < 0.95 * by_phases;
}

// With weights [(g * taps + tap) * O + o, C, 1...].
Value* sum_taps(const OpView& op, const std::vector<Value*>& in, const std::vector<TapsOfAxis>& axes,
                const std::vector<int64_t>& ends, int64_t inputs, int64_t outputs, Builder& b) {
    std::vector<int64_t> kernel, strides, dilations, begins;
    for (const TapsOfAxis& axis : axes) {
        kernel.push_back(axis.kernel);
        strides.push_back(axis.stride);
        dilations.push_back(axis.dilation);
        begins.push_back(axis.begin);
    }
    const int64_t group = op.integer("group"), taps = product_of(kernel);
    std::vector<int64_t> shape{group * taps * outputs, inputs};
    shape.resize(axes.size() + 2, 1);
    Value* w = b.transpose(b.reshape(in[1], {group, inputs, outputs, taps}), {0, 3, 2, 1});
    Value* products = b.op("conv", {in[0], b.reshape(w, shape)}, {{"group", Attr(group)}});
    Value* y = b.op("join_taps", {products},
                    {{"kernel_shape", kernel},
                     {"strides", strides},
                     {"dilations", dilations},
                     {"begins", begins},
                     {"ends", ends},
                     {"group", Attr(group)}});
    if (in.size() < 3 || !in[2]) return y;
    shape.assign(axes.size() + 1, 1);
    shape[0] = group * outputs;
    return b.add(y, b.reshape(in[2], shape));
}

// The taps of one phase of an axis: every `step`-th from `first` on. They are `dilation` inputs apart.
struct PhaseOfAxis {
    int64_t first, step, dilation, pad_begin, pad_end;
};

// `pad_end` is that of a phase whose first tap is at no distance. Nothing where the phase has no tap, or pads would be
// negative.
std::optional<PhaseOfAxis> phase_of(const TapsOfAxis& axis, int64_t phase, int64_t pad_end) {
    const int64_t common = std::gcd(axis.stride, axis.dilation);
    PhaseOfAxis own{0, axis.stride / common, axis.dilation / common, 0, 0};
    while (own.first < axis.kernel && (own.first * axis.dilation - phase) % axis.stride != 0) ++own.first;
    if (own.first == axis.kernel) return {};
    const int64_t taps = (axis.kernel - own.first - 1) / own.step + 1;
    const int64_t distance = (own.first * axis.dilation - phase) / axis.stride;
    own.pad_begin = (taps - 1) * own.dilation + distance - axis.begin / axis.stride;
    own.pad_end = pad_end - distance;
    if (distance < 0 || own.pad_begin < 0 || own.pad_end < 0) return {};
    return own;
}

constexpr int64_t kMostPhases = 16;  // that are convolutions of their own

// One convolution for each phase, with the taps that it has; null where that is not possible.
Value* conv_of_each_phase(const OpView& op, const std::vector<Value*>& in, const std::vector<TapsOfAxis>& axes,
                          const std::vector<int64_t>& pads_end, Builder& b) {
    int64_t phases = 1;
    for (const TapsOfAxis& axis : axes) phases *= axis.stride;
    const Attr group(op.integer("group"));
    if (phases > kMostPhases || (phases > 1 && op.integer("group") > 1)) return nullptr;
    std::vector<std::vector<PhaseOfAxis>> all;
    for (int64_t phase = 0; phase < phases; ++phase) {
        std::vector<PhaseOfAxis>& own = all.emplace_back(axes.size());
        int64_t rest = phase;
        for (size_t i = axes.size(); i-- > 0; rest /= axes[i].stride) {
            auto found = phase_of(axes[i], rest % axes[i].stride, pads_end[i]);
            if (!found) return nullptr;
            own[i] = *found;
        }
    }
    std::vector<Value*> results;
    std::vector<int64_t> dims(axes.size()), ones(axes.size(), 1);
    std::iota(dims.begin(), dims.end(), 2);
    for (const std::vector<PhaseOfAxis>& own : all) {
        std::vector<int64_t> firsts, kernel, steps, dilations, pads(2 * axes.size());
        for (size_t i = 0; i < axes.size(); ++i) {
            firsts.push_back(own[i].first);
            kernel.push_back(axes[i].kernel);
            steps.push_back(own[i].step);
            dilations.push_back(own[i].dilation);
            pads[i] = own[i].pad_begin;
            pads[i + axes.size()] = own[i].pad_end;
        }
        Value* taps = b.op("slice", {in[1], b.ints(firsts), b.ints(kernel), b.ints(dims), b.ints(steps)});
        Value* w = b.op("phase_weight", {taps}, {{"strides", ones}, {"dilations", ones}, {"group", group}});
        results.push_back(b.op("conv", {in[0], w, in.size() > 2 ? in[2] : nullptr},
                               {{"pads", pads}, {"dilations", dilations}, {"group", group}}));
    }
    return results.size() == 1 ? results[0] : b.concat(results, 1);
}

}  // namespace

Result<std::vector<Value*>> conv_transpose_by_phases(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    ConvWindow window = TRY(transposed_window(op));
    std::vector<int64_t> strides, dilations, pads_begin, pads_end, begins, ends, cut;
    std::vector<TapsOfAxis> axes;
    int64_t taps = 1;
    for (const WindowAxis& axis : window.axes) {
        auto stride = axis.stride.as_int(), dilation = axis.dilation.as_int(), kernel = axis.kernel.as_int();
        auto pad = axis.pad_begin.as_int();
        if (!stride || !dilation || !kernel || !pad || *pad < 0) return std::vector<Value*>{};
        const int64_t reach = ((*kernel - 1) * *dilation + *stride) / *stride;  // taps of a phase
        // Output t is place (t + pad) / stride of its phase; places from the first to the last are computed.
        const int64_t first = *pad / *stride;
        const Expr last = floor_div(axis.input + *pad - 1, *stride);
        auto pad_end = (last - axis.output + 1).as_int();
        auto end = ((last + 1) * *stride - *pad - axis.input).as_int();
        if (!pad_end || !end || *pad_end < 0 || *end < 0 || reach - 1 < first) return std::vector<Value*>{};
        strides.push_back(*stride);
        dilations.push_back(*dilation);
        pads_begin.push_back(reach - 1 - first);
        pads_end.push_back(*pad_end);
        begins.push_back(*pad - first * *stride);
        ends.push_back(*end);
        taps *= reach * *stride;
        axes.push_back({*kernel, *stride, *dilation, *pad});
        const Expr all = (axis.output - 1) * *stride + (*kernel - 1) * *dilation + 1 - *pad;
        if (auto rest = (all - axis.input).as_int()) cut.push_back(*rest);
    }
    auto channels = op.out().dim(1).as_int(), inputs = op.shape(1)[0].as_int();
    if (taps > kMostTaps || !channels) return std::vector<Value*>{};
    if (inputs && cut.size() == axes.size()) {
        const int64_t group = op.integer("group"), of_group = *inputs / group, each = *channels / group;
        if (worth_taps(axes, of_group, each))
            return std::vector<Value*>{sum_taps(op, in, axes, cut, of_group, each, b)};
    }
    const Attr group(op.integer("group"));
    const int64_t groups = op.integer("group"), phases = product_of(strides), each = *channels / groups;
    auto joined = [&](Value* y) {
        if (phases > 1)
            y = b.op("join_phases", {y}, {{"strides", strides}, {"begins", begins}, {"ends", ends}, {"group", group}});
        return std::vector<Value*>{y};
    };
    if (has_holes(axes)) {
        Value* y = conv_of_each_phase(op, in, axes, pads_end, b);
        return y ? joined(y) : std::vector<Value*>{};
    }
    Value* bias = in.size() > 2 ? in[2] : nullptr;
    if (bias && phases > 1) {
        Value* all = b.op("expand", {b.reshape(bias, {groups, 1, each}), b.ints({groups, phases, each})});
        bias = b.reshape(all, {phases * *channels});
    }
    Value* w = b.op("phase_weight", {in[1]}, {{"strides", strides}, {"dilations", dilations}, {"group", group}});
    pads_begin.insert(pads_begin.end(), pads_end.begin(), pads_end.end());
    return joined(b.op("conv", {in[0], w, bias}, {{"pads", pads_begin}, {"group", group}}));
}

std::vector<OpDef> phase_ops() {
    constexpr const char* kWhy = "it is made when a graph is lowered, after its gradients are taken";
    return {without_gradient(kPhaseWeight, kWhy), without_gradient(kJoinPhases, kWhy),
            without_gradient(kJoinTaps, kWhy)};
}

}  // namespace tessera
