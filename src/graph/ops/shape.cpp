// Ops that give the same elements another shape, and those that give a shape: reshape, flatten, squeeze, unsqueeze,
// identity, shape, size.
#include <algorithm>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/parameter.h"

namespace tessera {
namespace {

// The next dimensions of `a` from `i` on and of `b` from `j` on that have as many elements together, as few as
// possible; all that are left where there are no such.
std::pair<int64_t, int64_t> matching_dims(const Shape& a, int64_t i, const Shape& b, int64_t j) {
    const int64_t left_a = a.rank() - i, left_b = b.rank() - j;
    for (int64_t total = 1; total < left_a + left_b; ++total)
        for (int64_t n = std::max<int64_t>(total - left_b, 0); n <= std::min(total, left_a); ++n)
            if (a.slice(i, i + n).elements() == b.slice(j, j + total - n).elements()) return {n, total - n};
    return {left_a, left_b};
}

// The indices into `from` of the element that stands at `o` in `to`, both row-major over the same elements. Dimensions
// that match are taken by themselves, so that one of a symbolic size is not divided.
Indices reindex(const Indices& o, const Shape& to, const Shape& from) {
    std::vector<Expr> at(from.rank());
    for (int64_t i = 0, j = 0; i < to.rank() || j < from.rank();) {
        auto [n, m] = matching_dims(to, i, from, j);
        Expr flat = 0;
        for (int64_t k = i; k < i + n; ++k) flat = flat * to[k] + o[k];
        for (int64_t k = j + m - 1; k >= j; --k) {
            at[k] = k == j ? flat : mod(flat, from[k]);
            flat = floor_div(flat, from[k]);
        }
        i += n, j += m;
    }
    return at;
}

void collect_factors(const Dim& d, std::vector<Dim>& symbolic, int64_t& constant) {
    if (auto n = d.as_int())
        constant = int64_t(uint64_t(constant) * uint64_t(*n));
    else if (d.is(ExprKind::Mul))
        for (const Expr& a : d.args()) collect_factors(a, symbolic, constant);
    else
        symbolic.push_back(d);
}

// The product of `dims` divided by `divisor`, after cancelling what both have as a factor: [N,3,4] by N is 12, since a
// size that is inferred assumes that the others are not 0.
Dim quotient(const Shape& dims, const std::vector<Dim>& divisor) {
    std::vector<Dim> above, below, kept;
    int64_t times = 1, by = 1;
    for (const Dim& d : dims) collect_factors(d, above, times);
    for (const Dim& d : divisor) collect_factors(d, below, by);
    for (const Dim& d : above) {
        auto same = std::find(below.begin(), below.end(), d);
        if (same == below.end())
            kept.push_back(d);
        else
            below.erase(same);
    }
    if (by > 0 && times % by == 0) times /= by, by = 1;
    Dim over = times, under = by;
    for (const Dim& d : kept) over = over * d;
    for (const Dim& d : below) under = under * d;
    return floor_div(over, under);
}

// The same elements in another shape: so is the gradient.
Gradients back_to_shape(const Backward& r) {
    return {r.b.op("reshape", {r.g, r.shape_of(0)}, {{"allowzero", Attr(int64_t{1})}})};
}

// 0 where a size is that of the input's dimension in the same place, -1 for one that is left. (With -1 beside a size of
// 0 there is no telling what it stands for: an empty tensor is the one input for which this says less than the sizes
// did.)
std::optional<std::vector<int64_t>> reshape_constants(const OpView& op, size_t input, AttrMap& attrs) {
    if (input != 1) return std::nullopt;
    const Shape &x = op.shape(0), &y = op.out().shape;
    if (!x.ranked() || !y.ranked() || int64_t(op.contents(1)->size()) != y.rank()) return std::nullopt;
    std::vector<int64_t> constants;
    bool open = false;
    for (int64_t d = 0; d < y.rank(); ++d) {
        auto n = y[d].as_int();
        if (n && *n == 0) return std::nullopt;  // 0 would be read as a copy
        if (n) {
            constants.push_back(*n);
        } else if (d < x.rank() && x[d] == y[d]) {
            constants.push_back(0);
        } else if (!open) {
            constants.push_back(-1);
            open = true;
        } else {
            return std::nullopt;
        }
    }
    attrs.erase("allowzero");
    return constants;
}

const OpDef kReshape{
    .name = "reshape",
    .inputs = {"x: T", "shape: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("allowzero", 0)},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement, Trait::SameOrder},
    .onnx = {"Reshape", {attr_to_input(5, "shape", 1), attr_added(14, "allowzero", Attr(int64_t{0}))}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(1) != 1) return op.shape_error("shape must be a vector, is {}", op.shape(1));
        auto wanted = op.contents(1);
        if (!wanted) {
            auto length = op.shape(1)[0].as_int();
            return op.like(0, length ? fresh_shape(op, 0, *length) : Shape::unknown());
        }
        const Shape& x = op.shape(0);
        Shape y;
        Dim known = 1;
        int64_t inferred = -1;
        for (int64_t i = 0; i < int64_t(wanted->size()); ++i) {
            Dim d = (*wanted)[i];
            if (d.is_int(0) && !op.integer("allowzero")) {
                if (i >= x.rank())
                    return op.shape_error("the shape copies dimension {} of {}, which does not exist", i, x);
                d = x[i];
            }
            if (d.is_int(-1)) {
                if (inferred >= 0) return op.error(Code::E0212, "shape has -1 more than once");
                inferred = i;
                d = 1;
            } else if (auto n = d.as_int(); n && *n < 0) {
                return op.error(Code::E0212, "shape has {} at position {}", *n, i);
            }
            known = known * d;
            y.push_back(d);
        }
        Dim total = x.elements();
        if (known.as_int().value_or(0) < 0 || total.as_int().value_or(0) < 0)
            return op.error(Code::E0108, "{} or {} has more elements than can be counted", x, y);
        if (inferred >= 0) {
            if (known.as_int() && total.as_int() &&
                (known.is_int(0) ? !total.is_int(0) : *total.as_int() % *known.as_int() != 0))
                return op.shape_error("{} elements of {} do not divide into {}", *total.as_int(), x, y);
            std::vector<Dim> others = y.dims();
            others.erase(others.begin() + inferred);
            y[inferred] = known.is_int(0) ? Dim(0) : quotient(x, others);
        } else if (known.as_int() && total.as_int() && known != total) {
            return op.shape_error("{} has {} elements, but {} has {}", x, *total.as_int(), y, *known.as_int());
        }
        return op.like(0, y);
    },
    .body = [](const OpView& op,
               const Indices& o) { return op.in(0).at(reindex(o, op.out().shape, op.in(0).shape())); },
    .constant_operand = reshape_constants,
    .gradient = back_to_shape,
};

const OpDef kFlatten{
    .name = "flatten",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", 1)},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement, Trait::SameOrder},
    .onnx = "Flatten",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        int64_t axis = op.integer("axis");
        if (axis < -x.rank() || axis > x.rank())
            return op.error(Code::E0212, "axis {} is outside [{}, {}] for {}", axis, -x.rank(), x.rank(), x);
        if (axis < 0) axis += x.rank();
        return op.like(0, {x.slice(0, axis).elements(), x.slice(axis, x.rank()).elements()});
    },
    .body = [](const OpView& op,
               const Indices& o) { return op.in(0).at(reindex(o, op.out().shape, op.in(0).shape())); },
    .gradient = back_to_shape,
};

// The axes that squeeze drops; nothing where they are only known at run time.
Result<std::optional<std::vector<int64_t>>> squeezed_axes(const OpView& op) {
    const Shape& x = op.shape(0);
    if (op.has(1)) {
        auto given = op.constant_ints(1);
        if (!given) return std::optional<std::vector<int64_t>>{};
        auto axes = TRY(op.axes(*given, x.rank()));
        for (int64_t a : axes)
            if (x[a].as_int() && !x[a].is_int(1)) return op.shape_error("dimension {} of {} is not 1", a, x);
        return std::optional(axes);
    }
    std::vector<int64_t> axes;
    for (int64_t d = 0; d < x.rank(); ++d) {
        if (!x[d].as_int() && bounds(x[d]).low.value_or(0) < 2) return std::optional<std::vector<int64_t>>{};
        if (x[d].is_int(1)) axes.push_back(d);
    }
    return std::optional(axes);
}

const OpDef kSqueeze{
    .name = "squeeze",
    .inputs = {"x: T", "axes?: i64"},
    .outputs = {"y: T"},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement, Trait::SameOrder},
    .onnx = {"Squeeze", {attr_to_input(13, "axes", 1)}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.has(1) && op.rank(1) > 1) return op.shape_error("axes must be a vector, is {}", op.shape(1));
        auto axes = TRY(squeezed_axes(op));
        if (!axes) {
            auto dropped = op.has(1) ? parameter_length(op, 1) : std::nullopt;
            if (!dropped) return op.like(0, Shape::unknown());
            if (*dropped > op.rank(0)) return op.shape_error("cannot remove {} axes from {}", *dropped, op.shape(0));
            return op.like(0, fresh_shape(op, 0, op.rank(0) - *dropped));
        }
        Shape y;
        for (int64_t d = 0; d < op.rank(0); ++d)
            if (!contains(*axes, d)) y.push_back(op.shape(0)[d]);
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto axes = squeezed_axes(op);
            CHECK(axes.ok() && *axes, "squeeze without its axes");
            std::vector<Expr> at;
            int64_t next = 0;
            for (int64_t d = 0; d < op.rank(0); ++d) at.push_back(contains(**axes, d) ? Expr(0) : o[next++]);
            return op.in(0).at(at);
        },
    .body_applies =
        [](const OpView& op) {
            auto axes = squeezed_axes(op);
            return axes.ok() && axes->has_value();
        },
    .gradient = back_to_shape,
};

Result<std::vector<int64_t>> unsqueezed_axes(const OpView& op, const std::vector<int64_t>& given) {
    auto axes = TRY(op.axes(given, op.rank(0) + int64_t(given.size())));
    std::sort(axes.begin(), axes.end());
    return axes;
}

const OpDef kUnsqueeze{
    .name = "unsqueeze",
    .inputs = {"x: T", "axes: i64"},
    .outputs = {"y: T"},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement, Trait::SameOrder},
    .onnx = {"Unsqueeze", {attr_to_input(13, "axes", 1)}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(1) > 1) return op.shape_error("axes must be a vector, is {}", op.shape(1));
        constexpr int64_t kMostAxes = 1024;
        auto count = parameter_length(op, 1);
        if (count && *count > kMostAxes) return op.error(Code::E0212, "{} axes are too many", *count);
        auto given = op.constant_ints(1);
        if (!given) return op.like(0, count ? fresh_shape(op, 0, op.rank(0) + *count) : Shape::unknown());
        std::vector<Dim> y = op.shape(0).dims();
        for (int64_t a : TRY(unsqueezed_axes(op, *given))) y.insert(y.begin() + a, Dim(1));
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto axes = unsqueezed_axes(op, *op.constant_ints(1));
            CHECK(axes.ok(), "unsqueeze without its axes");
            std::vector<Expr> at;
            for (int64_t d = 0; d < o.rank(); ++d)
                if (!contains(*axes, d)) at.push_back(o[d]);
            return op.in(0).at(at);
        },
    .body_applies = [](const OpView& op) { return op.constant_ints(1).has_value(); },
    .gradient = back_to_shape,
};

const OpDef kIdentity{
    .name = "identity",
    .inputs = {"x: *"},
    .outputs = {"y: *"},
    .traits = {Trait::Pure, Trait::Linear, Trait::Elementwise, Trait::InfersUnranked, Trait::Movement},
    .onnx = "Identity",
    .infer = [](const OpView& op) -> Result<Types> { return op.same(0); },
    .body = [](const OpView& op, const Indices& o) { return op.in(0).at(o); },
    // Sequences and optionals have no elements for a body to speak of.
    .evaluate = [](const OpView&, EvalContext& ctx) -> Result<std::vector<Datum>> { return std::vector{ctx.in(0)}; },
    .body_applies = [](const OpView& op) { return op.type(0).is_tensor(); },
    .gradient = [](const Backward& r) -> Gradients { return {r.g}; },
    .layout = Layout::AsInputs,
};

// The dimensions that shape gives: [start, end), clamped as in Python.
std::vector<Dim> told_dims(const OpView& op) {
    int64_t rank = op.rank(0);
    auto clamped = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
    int64_t start = clamped(op.integer("start")), end = op.has_attr("end") ? clamped(op.integer("end")) : rank;
    return op.shape(0).slice(start, std::max(start, end)).dims();
}

const OpDef kShape{
    .name = "shape",
    .inputs = {"x: T"},
    .outputs = {"y: i64"},
    .attrs = {int_attr("start", 0), int_attr("end")},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::InfersUnranked, Trait::Movement},
    .onnx = {"Shape", {attr_added(15, "start", Attr(int64_t{0})), attr_added(15, "end", Attr(int64_t{INT64_MAX}))}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (!op.shape(0).ranked()) return Type(DType::i64, {op.fresh(0, 0)});
        return Type(DType::i64, {Dim(int64_t(told_dims(op).size()))});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto dims = told_dims(op);
            Expr y = dims.empty() ? Dim(0) : dims.back();
            for (int64_t d = int64_t(dims.size()) - 2; d >= 0; --d) y = select(eq(o[0], d), dims[d], y);
            return y;
        },
    .contents = [](const OpView& op) -> std::optional<std::vector<Expr>> {
        if (!op.shape(0).ranked()) return std::nullopt;
        return told_dims(op);
    },
    .body_applies = [](const OpView& op) { return op.shape(0).ranked(); },
};

const OpDef kSize{
    .name = "size",
    .inputs = {"x: T"},
    .outputs = {"y: i64"},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "Size",
    .infer = [](const OpView&) -> Result<Types> { return Type(DType::i64, Shape{}); },
    .body = [](const OpView& op, const Indices&) { return op.shape(0).elements(); },
    .contents = [](const OpView& op) -> std::optional<std::vector<Expr>> {
        if (!op.shape(0).ranked()) return std::nullopt;
        return std::vector<Expr>{op.shape(0).elements()};
    },
    .body_applies = [](const OpView& op) { return op.shape(0).ranked(); },
};

}  // namespace

std::vector<OpDef> shape_ops() { return {kReshape, kFlatten, kSqueeze, kUnsqueeze, kIdentity, kShape, kSize}; }

}  // namespace tessera
