// Pooling: over windows, over everything, and over regions of interest.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/conv_window.h"
#include "graph/ops/families.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

Result<ConvWindow> pool_window(const OpView& op) {
    const Shape& x = op.shape(0);
    if (x.rank() < 3) return op.shape_error("needs [N, C, D1, ...], has {}", x);
    return conv_window(op, x.slice(2, x.rank()), Shape(op.ints("kernel_shape")));
}

Result<Shape> pool_shape(const OpView& op) {
    ConvWindow window = TRY(pool_window(op));
    return op.shape(0).slice(0, 2) + window.output();
}

Result<Types> infer_pool(const OpView& op) { return op.like(0, TRY(pool_shape(op))); }

std::vector<AttrDef> pool_attrs(std::vector<AttrDef> more) {
    std::vector<AttrDef> attrs = {auto_pad_attr(),        int_attr("ceil_mode", 0),
                                  ints_attr("dilations"), ints_attr("kernel_shape").required(),
                                  ints_attr("pads"),      ints_attr("strides")};
    for (AttrDef& a : more) attrs.push_back(std::move(a));
    return attrs;
}

// Before `opset` there were no dilations: going down, they must all be 1.
OnnxChange unit_dilations_before(int opset) {
    return {
        opset,
        [](OnnxCall&) -> Status { return {}; },
        [opset](OnnxCall& call) -> Status {
            auto it = call.attrs.find("dilations");
            if (it == call.attrs.end()) return {};
            for (int64_t d : std::get<std::vector<int64_t>>(it->second))
                if (d != 1)
                    return Error(Code::E0214, "{}: dilations do not exist before opset {}", call.op_type, opset);
            call.attrs.erase(it);
            return {};
        },
    };
}

// One output element's window over input 0.
struct Pooled {
    ConvWindow window;
    std::vector<ReduceAxis> k;
    Indices at;
    Pooled(const OpView& op, const Indices& o)
        : window(*pool_window(op)),
          k(window.offsets(op)),
          at(o.slice(0, 2) + window.positions(o.slice(2, o.rank()), k)) {}
};

// How many of the window's positions along an axis are inside the input, or inside its padding too.
Expr covered(const WindowAxis& axis, const Expr& o, bool with_padding) {
    Expr start = o * axis.stride - axis.pad_begin;
    Expr end = with_padding ? axis.input + axis.pad_end : axis.input;
    Expr last = min(axis.kernel, ceil_div(end - start, axis.dilation));
    return with_padding ? last : last - max(ceil_div(-start, axis.dilation), 0);
}

const OpDef kAveragePool{
    .name = "average_pool",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = pool_attrs({int_attr("count_include_pad", 0)}),
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Window},
    .onnx = {"AveragePool",
             {attr_added(7, "count_include_pad", Attr(int64_t{0})), attr_added(10, "ceil_mode", Attr(int64_t{0})),
              unit_dilations_before(19)}},
    .infer = infer_pool,
    .body =
        [](const OpView& op, const Indices& o) {
            Pooled p(op, o);
            bool with_padding = op.integer("count_include_pad") != 0;
            Expr count = 1;
            for (size_t i = 0; i < p.k.size(); ++i) {
                const WindowAxis& axis = p.window.axes[i];
                bool whole = axis.fits() && !op.integer("ceil_mode") &&
                             (with_padding || (axis.pad_begin.is_int(0) && axis.pad_end.is_int(0)));
                count = count * (whole ? axis.kernel : covered(axis, o[int64_t(i) + 2], with_padding));
            }
            return sum(p.k, op.in(0).at_or(p.at, like(op, 0), 2)) / cast(count, op.dtype(0));
        },
    .canonical = canonical_pool,
    .layout = Layout::ChannelsLast,
};

// The position of the largest element in the whole of x, the first of equals; in column-major order of the spatial
// dimensions where storage_order says so.
Expr max_index(const OpView& op, const Indices& o) {
    auto x = op.in(0);
    Pooled p(op, o), q(op, o);
    Expr largest = reduce_max(p.k, x.at_or(p.at, infinity(x.dtype(), true), 2));
    Expr value = x.at_or(q.at, infinity(x.dtype(), true), 2), here = 0, inside = int_const(1, DType::boolean);
    for (int64_t i = 0; i < x.rank(); ++i) {
        here = here * x.dim(i) + q.at[i];
        if (i >= 2) inside = logical_and(inside, logical_and(ge(q.at[i], 0), lt(q.at[i], x.dim(i))));
    }
    Expr found = eq(value, largest);
    if (is_float(x.dtype()))
        found = logical_or(found, logical_and(call(Fn::IsNan, {value}), call(Fn::IsNan, {largest})));
    Expr none = infinity(DType::i64);
    Expr first = reduce_min(q.k, select(logical_and(inside, found), here, none));
    if (op.integer("storage_order") == 0) return first;
    Expr spatial = x.shape().slice(2, x.rank()).elements(), rest = mod(first, spatial), stride = spatial, flipped = 0;
    for (int64_t i = x.rank() - 1; i >= 2; --i) {
        stride = floor_div(stride, x.dim(i));
        flipped = flipped + mod(rest, x.dim(i)) * stride;
        rest = floor_div(rest, x.dim(i));
    }
    return floor_div(first, spatial) * spatial + flipped;
}

// The first of the largest elements of a window gets all: a sum over the window in which one element is chosen.
Gradients back_through_max_pool(const Backward& r) {
    AttrMap attrs = r.node.attrs();
    attrs.erase("storage_order");
    Value* chosen = r.b.ops("max_pool", r.in, attrs, 2)[1];
    if (r.b.failed()) return {};
    const OpView op = r.node.view();
    return gradients_by_body(r, {r.in[0], chosen}, {true, false}, [&](const Indices& o) {
        Pooled p(op, o);
        auto x = op.in(0);
        Expr here = 0;
        for (int64_t i = 0; i < x.rank(); ++i) here = here * x.dim(i) + p.at[i];
        const Expr value = x.at_or(p.at, like(op, 0), 2);
        return sum(p.k, select(eq(load(1, DType::i64, o.list()), here), value, like(op, 0)));
    });
}

const OpDef kMaxPool{
    .name = "max_pool",
    .inputs = {"x: T"},
    .outputs = {"y: T", "indices?: i64"},
    .attrs = pool_attrs({int_attr("storage_order", 0)}),
    .types = {{"T", kWideFloats | DTypes{DType::i8, DType::u8}}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = {"MaxPool",
             {attr_added(8, "storage_order", Attr(int64_t{0})), attr_added(10, "ceil_mode", Attr(int64_t{0})),
              unit_dilations_before(10)}},
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = TRY(pool_shape(op));
        return Types{Type(op.dtype(0), y), Type(DType::i64, y)};
    },
    .body =
        [](const OpView& op, const Indices& o) {
            if (op.output() == 1) return max_index(op, o);
            Pooled p(op, o);
            return reduce_max(p.k, op.in(0).at_or(p.at, infinity(op.dtype(0), true), 2));
        },
    .canonical = canonical_pool,
    .gradient = back_through_max_pool,
    .layout = Layout::ChannelsLast,
};

// The p-norm of x's elements along `axes`.
Expr norm(int64_t p, const std::vector<ReduceAxis>& axes, const Expr& x) {
    if (p == 1) return sum(axes, call(Fn::Abs, {x}));
    if (p == 2) return call(Fn::Sqrt, {sum(axes, x * x)});
    return pow(sum(axes, pow(call(Fn::Abs, {x}), constant(double(p), x.dtype()))),
               constant(1.0 / double(p), x.dtype()));
}

Status check_p(const OpView& op) {
    if (op.integer("p") < 1) return op.error(Code::E0212, "p is {}", op.integer("p"));
    return {};
}

// p was a float in opset 1.
OnnxChange whole_p_from_2() {
    return {
        2,
        [](OnnxCall& call) -> Status {
            auto it = call.attrs.find("p");
            if (it == call.attrs.end()) return {};
            auto* p = std::get_if<float>(&it->second);
            if (!p || *p != std::floor(*p) || std::abs(*p) > 1e6f)
                return Error(Code::E0212, "{}: p must be a whole number", call.op_type);
            it->second = int64_t(*p);
            return {};
        },
        [](OnnxCall& call) -> Status {
            if (auto it = call.attrs.find("p"); it != call.attrs.end())
                it->second = float(std::get<int64_t>(it->second));
            return {};
        },
    };
}

const OpDef kLpPool{
    .name = "lp_pool",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = pool_attrs({int_attr("p", 2)}),
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Window},
    .onnx = {"LpPool", {whole_p_from_2(), attr_added(18, "ceil_mode", Attr(int64_t{0})), unit_dilations_before(18)}},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_p(op));
        return infer_pool(op);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Pooled p(op, o);
            return norm(op.integer("p"), p.k, op.in(0).at_or(p.at, like(op, 0), 2));
        },
    .canonical = canonical_pool,
    .layout = Layout::ChannelsLast,
};

// Pooling over all spatial dimensions: `f` of the reduction axes and the element under them.
OpDef global_pool(std::string name, OnnxForm onnx, std::vector<AttrDef> attrs, std::vector<Trait> traits,
                  std::function<Expr(const OpView&, const std::vector<ReduceAxis>&, const Expr&)> f) {
    traits.push_back(Trait::Window);
    return {
        .name = std::move(name),
        .inputs = {"x: T"},
        .outputs = {"y: T"},
        .attrs = std::move(attrs),
        .types = {{"T", kWideFloats}},
        .traits = std::move(traits),
        .onnx = std::move(onnx),
        .infer = [](const OpView& op) -> Result<Types> {
            const Shape& x = op.shape(0);
            if (x.rank() < 3) return op.shape_error("needs [N, C, D1, ...], has {}", x);
            if (op.def().attr("p")) TRY(check_p(op));
            Shape y = x;
            for (int64_t i = 2; i < y.rank(); ++i) y[i] = 1;
            return op.like(0, y);
        },
        .body =
            [f](const OpView& op, const Indices& o) {
                std::vector<ReduceAxis> k;
                for (int64_t i = 2; i < op.rank(0); ++i) k.push_back(op.reduce(op.shape(0)[i]));
                return f(op, k, op.in(0).at(o.slice(0, 2) + vars(k)));
            },
        .layout = Layout::ChannelsLast,
    };
}

// The shape that pooling came from.
Result<Shape> unpooled_shape(const OpView& op) {
    const Shape& x = op.shape(0);
    size_t spatial = size_t(x.rank()) - 2;
    auto kernel = TRY(window_ints(op, "kernel_shape", spatial, 1, 1));
    auto strides = TRY(window_ints(op, "strides", spatial, 1, 1));
    auto pads = TRY(window_ints(op, "pads", 2 * spatial, 0, 0));
    Shape y = x.slice(0, 2);
    for (size_t i = 0; i < spatial; ++i)
        y.push_back(max((x[int64_t(i) + 2] - 1) * strides[i] - pads[i] - pads[spatial + i] + kernel[i], 0));
    return y;
}

// Scatters x to where `indices` say in the unpooled shape, which is then the corner of `output_shape`.
const OpDef kMaxUnpool{
    .name = "max_unpool",
    .inputs = {"x: T", "indices: i64", "output_shape?: i64"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("kernel_shape").required(), ints_attr("pads"), ints_attr("strides")},
    .types = {{"T", kWideFloats}},
    .onnx = "MaxUnpool",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &indices = op.shape(1);
        if (x.rank() < 3) return op.shape_error("needs [N, C, D1, ...], has {}", x);
        for (int64_t i = 0; i < x.rank(); ++i)
            if (indices.rank() != x.rank() || (x[i].as_int() && indices[i].as_int() && x[i] != indices[i]))
                return op.shape_error("x and indices differ: {} and {}", x, indices);
        Shape unpooled = TRY(unpooled_shape(op));
        if (op.has(2)) {
            auto wanted = op.contents(2);
            if (!wanted) return op.like(0, fresh_shape(op, 0, x.rank()));
            if (int64_t(wanted->size()) != x.rank())
                return op.shape_error("output_shape has {} entries for an input {}", wanted->size(), x);
            for (const Dim& d : *wanted)
                if (d.as_int() && *d.as_int() < 0) return op.error(Code::E0212, "output_shape has {}", *d.as_int());
            return op.like(0, Shape(*wanted));
        }
        return op.like(0, unpooled);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor &x = ctx.tensor(0), &indices = ctx.tensor(1);
        Sizes sizes = TRY(op.out_sizes());
        auto corner = TRY(unpooled_shape(op)).sizes();
        if (!corner) return op.error(Code::E0108, "the unpooled shape of {} is too large", op.shape(0));
        const Sizes& from = *corner;
        Tensor y = TRY(Tensor::zeros(x.dtype(), sizes));
        TRY(ctx.spend(x.elements() * x.rank()));
        for (int64_t i = 0; i < x.elements(); ++i) {
            int64_t at = indices.int_at(i), to = 0, stride = 1;
            bool inside = true;
            for (size_t d = from.size(); d-- > 0;) {
                int64_t position = at % from[d];
                at /= from[d];
                inside = inside && position < sizes[d];
                to += position * stride;
                stride *= sizes[d];
            }
            if (inside) y.set_real(to, x.real_at(i));
        }
        return std::vector<Datum>{y};
    },
    .check = [](const OpView& op) -> Status {
        auto corner = TRY(unpooled_shape(op)).sizes();
        if (!corner || !op.value(1)) return {};
        int64_t count = TRY(element_count(*corner));
        for (int64_t i = 0; i < op.value(1)->elements(); ++i)
            if (int64_t at = op.value(1)->int_at(i); at < 0 || at >= count)
                return op.error(Code::E0406, "index {} of an unpooled shape {}", at, to_string(*corner));
        return {};
    },
    .gradient = [](const Backward& r) -> Gradients {
        if (r.in.size() > 2 && r.in[2]) {
            r.b.fail(Error(Code::E0202, "Gradient: {} unpools into another shape", r.node.where()));
            return {};
        }
        return {r.b.op("gather", {r.b.reshape(r.g, {-1}), r.in[1]}), nullptr};
    },
};

}  // namespace

namespace {

// Does it come from outside, changed by nothing but ops that leave it in its order? Then the last axis lies in lanes.
bool lies_in_lines(const Value* x) {
    while (x && x->kind() == Value::Kind::Result) {
        const Node& from = *x->node();
        if (from.inputs().empty() ||
            !(from.is(Trait::Elementwise) || (from.is(Trait::Window) && from.inputs().size() == 1)))
            return false;
        x = from.inputs()[0];
    }
    return x != nullptr;
}

}  // namespace

// The largest of a window is that of the largest along one axis. Elements that are compared for each output: all of the
// window's, or those along the axis, in the lines that no stride along the others has left out yet, and the others'.
Result<std::vector<Value*>> max_pool_by_axes(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    constexpr int64_t kWorthIt = 2, kStore = 3;  // times as many; what is stored and read again counts as so many
    const std::vector<int64_t> kernel = op.ints("kernel_shape");
    const size_t rank = kernel.size();
    const std::vector<int64_t> ones(rank, 1), strides = op.ints_or("strides", ones),
                                              dilations = op.ints_or("dilations", ones),
                                              pads = op.ints_or("pads", std::vector<int64_t>(2 * rank, 0));
    if (op.wants(1) || op.string("auto_pad") != "NOTSET") return std::vector<Value*>{};
    std::vector<bool> open(rank, true);
    auto compared = [&](size_t apart) {  // along an axis by itself, then along the others that are open
        int64_t lines = 1, others = 1;
        for (size_t d = 0; d < rank; ++d)
            if (open[d] && d != apart) lines *= strides[d], others *= kernel[d];
        return lines * (kernel[apart] + kStore) + others;
    };
    auto pool = [&](Value* x, const std::vector<bool>& along) {
        std::vector<int64_t> k = ones, s = ones, e = ones, p(2 * rank, 0);
        for (size_t d = 0; d < rank; ++d)
            if (along[d])
                k[d] = kernel[d], s[d] = strides[d], e[d] = dilations[d], p[d] = pads[d], p[rank + d] = pads[rank + d];
        return b.op("max_pool", {x},
                    {{"kernel_shape", k},
                     {"strides", s},
                     {"dilations", e},
                     {"pads", p},
                     {"ceil_mode", Attr(op.integer("ceil_mode"))}});
    };
    Value* y = in[0];
    // Lines are compared with each other in whole vectors, unlike neighbours in one. That comes first, or last where
    // only then all of them are needed.
    constexpr int64_t kFewCompared = 4, kOfNeighbours = 3, kOfLines = 2;  // the costs of which are as those
    const std::vector<bool> last_alone = [&] {
        std::vector<bool> along(rank, false);
        along.back() = true;
        return along;
    }();
    int64_t lines = 1, lines_left_out = 1;
    for (size_t d = 0; d + 1 < rank; ++d) lines *= kernel[d], lines_left_out *= strides[d];
    const bool apart = lines > 1 && kernel.back() > 1 && lines * kernel.back() > kFewCompared && lies_in_lines(in[0]);
    const bool lines_last = kOfNeighbours * (lines_left_out * (kernel.back() + kStore) + lines) <
                            kOfLines * (strides.back() * (lines + kStore) + kernel.back());
    if (apart) open.back() = false;
    if (apart && lines_last) y = pool(y, last_alone);
    for (size_t left = apart ? rank - 1 : rank; left > 1; --left) {
        int64_t window = 1;
        size_t best = rank;
        for (size_t d = 0; d < rank; ++d) {
            if (!open[d]) continue;
            window *= kernel[d];
            if (best == rank || compared(d) < compared(best)) best = d;
        }
        if (window < kWorthIt * compared(best)) break;
        std::vector<bool> along(rank, false);
        along[best] = true, open[best] = false;
        y = pool(y, along);
    }
    if (y == in[0] && !apart) return std::vector<Value*>{};
    y = pool(y, open);
    return std::vector<Value*>{apart && !lines_last ? pool(y, last_alone) : y};
}

Result<std::vector<Value*>> large_max_pool_by_axes(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    constexpr int64_t kLarge = 50;
    int64_t elements = 1;
    for (int64_t k : op.ints("kernel_shape")) elements *= k;
    if (elements < kLarge) return std::vector<Value*>{};
    return max_pool_by_axes(op, in, b);
}

std::vector<OpDef> pool_ops() {
    std::vector<Trait> pure{Trait::Pure}, linear{Trait::Pure, Trait::Linear};
    return {
        kAveragePool,
        kMaxPool,
        kLpPool,
        global_pool("global_average_pool", "GlobalAveragePool", {}, linear,
                    [](const OpView& op, const std::vector<ReduceAxis>& k, const Expr& x) {
                        Expr count = op.shape(0).slice(2, op.rank(0)).elements();
                        return sum(k, x) / cast(count, x.dtype());
                    }),
        global_pool("global_max_pool", "GlobalMaxPool", {}, pure,
                    [](const OpView&, const std::vector<ReduceAxis>& k, const Expr& x) { return reduce_max(k, x); }),
        global_pool("global_lp_pool", {"GlobalLpPool", {whole_p_from_2()}}, {int_attr("p", 2)}, pure,
                    [](const OpView& op, const std::vector<ReduceAxis>& k, const Expr& x) {
                        return norm(op.integer("p"), k, x);
                    }),
        kMaxUnpool,
    };
}

}  // namespace tessera
