// Ops that make tensors from a size or a rule: constant_of_shape, eye_like, range, one_hot.
#include <cmath>

#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/parameter.h"

namespace tessera {
namespace {

const OpDef kConstantOfShape{
    .name = "constant_of_shape",
    .inputs = {"shape: i64"},
    .outputs = {"y: *"},
    .attrs = {tensor_attr("value")},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "ConstantOfShape",
    .infer = [](const OpView& op) -> Result<Types> {
        DType dtype = DType::f32;
        if (op.has_attr("value")) {
            const Tensor& value = op.tensor_attr("value");
            dtype = value.dtype();
            if (value.elements() != 1)
                return op.error(Code::E0212, "value must have one element, is {}", to_string(value.sizes()));
            if (!kBodyTypes.has(dtype)) return op.error(Code::E0213, "cannot fill with {}", dtype_name(dtype));
        }
        if (!op.shape(0).ranked()) return Type(dtype, Shape::unknown());
        if (op.rank(0) != 1) return op.shape_error("shape must be a vector, is {}", op.shape(0));
        auto dims = op.contents(0);
        if (!dims) {
            auto length = op.shape(0)[0].as_int();
            return Type(dtype, length ? fresh_shape(op, 0, *length) : Shape::unknown());
        }
        for (const Expr& d : *dims)
            if (auto n = d.as_int(); n && *n < 0) return op.error(Code::E0212, "shape has {}", *n);
        return Type(dtype, Shape(*dims));
    },
    .body =
        [](const OpView& op, const Indices&) {
            if (!op.has_attr("value")) return constant(0, DType::f32);
            const Tensor& value = op.tensor_attr("value");
            return is_float(value.dtype()) ? constant(value.real_at(0), value.dtype())
                                           : int_const(value.int_at(0), value.dtype());
        },
};

const OpDef kEyeLike{
    .name = "eye_like",
    .inputs = {"x: T"},
    .outputs = {"y: *"},
    .attrs = {int_attr("dtype"), int_attr("k", 0)},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "EyeLike",
    .infer = [](const OpView& op) -> Result<Types> {
        DType dtype = op.has_attr("dtype") ? TRY(dtype_attr(op, "dtype")) : op.dtype(0);
        if (!kBodyTypes.has(dtype)) return op.error(Code::E0213, "cannot be filled with {}", dtype_name(dtype));
        if (!op.shape(0).ranked()) return Type(dtype, fresh_shape(op, 0, 2));
        if (op.rank(0) != 2) return op.shape_error("needs a matrix, has {}", op.shape(0));
        return Type(dtype, op.shape(0));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            DType t = op.out().dtype;
            return select(eq(o[1] - o[0], op.integer("k")), constant(1, t), constant(0, t));
        },
};

// How many steps of a range there are; nothing before its inputs are known.
Result<std::optional<Dim>> range_extent(const OpView& op) {
    const Tensor *start = op.value(0), *limit = op.value(1), *delta = op.value(2);
    bool known = start && limit && delta && start->elements() == 1 && limit->elements() == 1 && delta->elements() == 1;
    if (is_float(op.dtype(0))) {
        if (!known) return std::optional<Dim>{};
        double step = delta->real_at(0), count = std::ceil((limit->real_at(0) - start->real_at(0)) / step);
        if (step == 0 || std::isnan(count) || count > double(int64_t{1} << 48))
            return op.error(Code::E0407, "the range from {} to {} in steps of {} is infinite", start->real_at(0),
                            limit->real_at(0), step);
        return std::optional<Dim>(Dim(count > 0 ? int64_t(count) : 0));
    }
    auto a = op.contents(0), b = op.contents(1), c = op.contents(2);
    if (c && c->size() == 1 && (*c)[0].is_int(0)) return op.error(Code::E0407, "delta is 0");
    if (known) {
        int64_t from = start->int_at(0), to = limit->int_at(0), step = delta->int_at(0);
        if (step > 0 ? from >= to : from <= to) return std::optional<Dim>(Dim(0));
        uint64_t span = step > 0 ? uint64_t(to) - uint64_t(from) : uint64_t(from) - uint64_t(to);
        uint64_t by = step > 0 ? uint64_t(step) : -uint64_t(step);
        uint64_t count = (span - 1) / by + 1;
        if (count > uint64_t(INT64_MAX)) return op.error(Code::E0407, "{} elements are too many", count);
        return std::optional<Dim>(Dim(int64_t(count)));
    }
    if (!a || !b || !c || a->size() != 1 || b->size() != 1 || c->size() != 1) return std::optional<Dim>{};
    auto step = (*c)[0].as_int();
    constexpr int64_t kMostStep = int64_t{1} << 48;
    if (!step || *step > kMostStep || *step < -kMostStep) return std::optional<Dim>{};
    Dim span = *step > 0 ? (*b)[0] - (*a)[0] : (*a)[0] - (*b)[0];
    return std::optional<Dim>(max(ceil_div(span, std::abs(*step)), 0));
}

const OpDef kRange{
    .name = "range",
    .inputs = {"start: T", "limit: T", "delta: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("stash_type", 1)},
    .types = {{"T", kWideFloats | DTypes{DType::i16, DType::i32, DType::i64}}},
    .onnx = {"Range", {attr_added(27, "stash_type", Attr(int64_t{1}))}},
    .infer = [](const OpView& op) -> Result<Types> {
        for (size_t i = 0; i < 3; ++i)
            if (op.shape(i).elements().as_int().value_or(1) != 1 || op.rank(i) > 1)
                return op.shape_error("input {} must be a scalar, is {}", i, op.shape(i));
        auto extent = TRY(range_extent(op));
        return op.like(0, {extent ? *extent : op.fresh(0, 0)});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto scalar = [&](size_t i) { return op.in(i).at(std::vector<Expr>(op.rank(i), Expr(0))); };
            return scalar(0) + cast(o[0], op.dtype(0)) * scalar(2);
        },
};

const OpDef kOneHot{
    .name = "one_hot",
    .inputs = {"indices: I", "depth: D", "values: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", -1)},
    .types = {{"I", kNumbers}, {"D", kNumbers}, {"T", kAllTypes}},
    .onnx = "OneHot",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.shape(1).elements().as_int().value_or(1) != 1)
            return op.shape_error("depth must be one number, is {}", op.shape(1));
        if (op.rank(2) != 1 || op.shape(2)[0].as_int().value_or(2) != 2)
            return op.shape_error("values must be [off, on], is {}", op.shape(2));
        int64_t axis = TRY(op.axis(op.integer("axis"), op.rank(0) + 1));
        Dim depth = op.fresh(0, axis);
        if (const Tensor* t = op.value(1); t && is_float(t->dtype()) && t->elements() == 1) {
            double n = t->real_at(0);
            if (!(n >= 0 && n < double(int64_t{1} << 48))) return op.error(Code::E0407, "depth is {}", n);
            depth = int64_t(n);
        } else if (auto known = op.contents(1); known && known->size() == 1) {
            depth = (*known)[0];
        }
        if (auto n = depth.as_int(); n && *n < 0) return op.error(Code::E0407, "depth is {}", *n);
        std::vector<Dim> y = op.shape(0).dims();
        y.insert(y.begin() + axis, depth);
        return op.like(2, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t axis = op.integer("axis") < 0 ? op.integer("axis") + o.rank() : op.integer("axis");
            Expr hot = wrap_index(op.in(0).at(o.without(axis)), op.out().shape[axis]);
            return select(eq(o[axis], hot), op.in(2).at({1}), op.in(2).at({0}));
        },
};

}  // namespace

std::vector<OpDef> constant_ops() {
    return {kConstantOfShape, kEyeLike, without_gradient(kRange, "how long it is depends on its inputs"), kOneHot};
}

}  // namespace tessera
