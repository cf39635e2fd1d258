// Ops that read elements at computed positions: gather, gather_elements, gather_nd, compress.
#include <numeric>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/indices.h"
#include "graph/ops/parameter.h"
#include "graph/ops/tensor_slices.h"

namespace tessera {
namespace {

const TypeVar kIndex{"I", {DType::i32, DType::i64}};

int64_t axis_of(const OpView& op, int64_t rank) {
    int64_t axis = op.integer("axis");
    return axis < 0 ? axis + rank : axis;
}

// Indices into [-extent, extent), those from `first` on with a distance of `step`; where they and the extent are known.
Status check_indices(const OpView& op, const Tensor* indices, const Dim& extent, int64_t axis, int64_t first = 0,
                     int64_t step = 1) {
    auto size = extent.as_int();
    if (!indices || !size) return {};
    if (all_indices_within(*indices, *size, first, step)) return {};
    for (int64_t i = first; i < indices->elements(); i += step)
        if (int64_t at = indices->int_at(i); at < -*size || at >= *size)
            return op.error(Code::E0406, "index {} is outside [{}, {}) in dimension {} of {}", at, -*size, *size, axis,
                            op.shape(0));
    return {};
}

const OpDef kGather{
    .name = "gather",
    .inputs = {"x: T", "indices: I"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", 0)},
    .types = {{"T", kAllTypes}, kIndex},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .onnx = "Gather",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        int64_t axis = TRY(op.axis(op.integer("axis"), x.rank()));
        return op.like(0, x.slice(0, axis) + op.shape(1) + x.slice(axis + 1, x.rank()));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t axis = axis_of(op, op.rank(0)), end = axis + op.rank(1);
            Expr i = op.in(1).at(o.slice(axis, end));
            return op.in(0).at(o.slice(0, axis) + Indices{wrap_index(i, op.shape(0)[axis])} + o.slice(end, o.rank()));
        },
    .check = [](const OpView& op) -> Status {
        int64_t axis = axis_of(op, op.rank(0));
        return check_indices(op, op.value(1), op.shape(0)[axis], axis);
    },
    .canonical = axis_from_front,
    .indexed_axes = [](const OpView& op) { return std::vector{axis_of(op, op.rank(0))}; },
    .layout = Layout::AsInputs,
};

const OpDef kGatherElements{
    .name = "gather_elements",
    .inputs = {"x: T", "indices: I"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", 0)},
    .types = {{"T", kAllTypes}, kIndex},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = "GatherElements",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &indices = op.shape(1);
        if (x.rank() != indices.rank()) return op.shape_error("data and indices have ranks {} and {}", x, indices);
        int64_t axis = TRY(op.axis(op.integer("axis"), x.rank()));
        for (int64_t d = 0; d < x.rank(); ++d)
            if (d != axis && x[d].as_int() && indices[d].as_int() && *indices[d].as_int() > *x[d].as_int())
                return op.shape_error("indices {} exceed {} in a dimension other than axis {}", indices, x, axis);
        return op.like(0, indices);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t axis = axis_of(op, o.rank());
            return op.in(0).at(o.with(axis, wrap_index(op.in(1).at(o), op.shape(0)[axis])));
        },
    .check = [](const OpView& op) -> Status {
        int64_t axis = axis_of(op, op.rank(0));
        return check_indices(op, op.value(1), op.shape(0)[axis], axis);
    },
    .canonical = axis_from_front,
    .indexed_axes = [](const OpView& op) { return std::vector{axis_of(op, op.rank(0))}; },
};

const OpDef kGatherNd{
    .name = "gather_nd",
    .inputs = {"x: T", "indices: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("batch_dims", 0)},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = {"GatherND", {attr_added(12, "batch_dims", Attr(int64_t{0}))}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &indices = op.shape(1);
        int64_t batch = op.integer("batch_dims");
        if (x.rank() < 1 || indices.rank() < 1) return op.shape_error("needs no scalars, has {} and {}", x, indices);
        if (batch < 0 || batch >= indices.rank() || batch >= x.rank())
            return op.error(Code::E0212, "batch_dims {} is outside {} and {}", batch, x, indices);
        for (int64_t d = 0; d < batch; ++d)
            if (x[d].as_int() && indices[d].as_int() && x[d] != indices[d])
                return op.shape_error("the batch dimensions of {} and {} differ", x, indices);
        auto depth = indices[-1].as_int();
        if (!depth) return op.like(0, Shape::unknown());
        if (*depth < 1 || *depth > x.rank() - batch)
            return op.shape_error("indices {} have {} positions each, {} has {} dimensions to index", indices, *depth,
                                  x, x.rank() - batch);
        return op.like(0, indices.slice(0, indices.rank() - 1) + x.slice(batch + *depth, x.rank()));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t batch = op.integer("batch_dims"), depth = *op.shape(1)[-1].as_int(), outer = op.rank(1) - 1;
            Indices at = o.slice(0, batch);
            for (int64_t k = 0; k < depth; ++k) {
                Expr i = op.in(1).at(o.slice(0, outer) + Indices{k});
                at = at + Indices{wrap_index(i, op.shape(0)[batch + k])};
            }
            return op.in(0).at(at + o.slice(outer, o.rank()));
        },
    .check = [](const OpView& op) -> Status {
        auto depth = op.shape(1)[-1].as_int();
        int64_t batch = op.integer("batch_dims");
        for (int64_t k = 0; depth && k < *depth; ++k)
            TRY(check_indices(op, op.value(1), op.shape(0)[batch + k], batch + k, k, *depth));
        return {};
    },
    .body_applies = [](const OpView& op) { return op.shape(1).ranked() && op.rank(1) > 0 && op.shape(1)[-1].as_int(); },
    .indexed_axes =
        [](const OpView& op) {
            std::vector<int64_t> axes(size_t(op.shape(1)[-1].as_int().value_or(0)));
            std::iota(axes.begin(), axes.end(), op.integer("batch_dims"));
            return axes;
        },
};

// Rows of zeros with the gradient's rows where the condition holds; the axis comes first meanwhile.
Gradients back_through_compress(const Backward& r) {
    Builder& b = r.b;
    const OpView op = r.node.view();
    const bool flat = !op.has_attr("axis");
    const int64_t axis = flat ? 0 : axis_of(op, r.rank(0));
    Value *g = r.g, *like = flat ? b.reshape(r.in[0], {-1}) : r.in[0];
    std::vector<int64_t> order(flat ? 1 : size_t(r.rank(0)));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[0], order[size_t(axis)]);
    Value* shape = b.op("gather", {b.op("shape", {like}), b.ints(order)});
    Value* kept = b.transpose(b.op("non_zero", {r.in[1]}), {1, 0});
    Value* zeros = b.op("expand", {r.number(0), shape});
    Value* all = b.transpose(b.op("scatter_nd", {zeros, kept, b.transpose(g, order)}), order);
    return {b.op("reshape", {all, r.shape_of(0)}, {{"allowzero", Attr(int64_t{1})}}), nullptr};
}

const OpDef kCompress{
    .name = "compress",
    .inputs = {"x: T", "condition: bool"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis")},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = "Compress",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(1) != 1) return op.shape_error("condition must be a vector, is {}", op.shape(1));
        if (!op.has_attr("axis")) return op.like(0, {op.fresh(0, 0)});
        int64_t axis = TRY(op.axis(op.integer("axis"), op.rank(0)));
        Shape y = op.shape(0);
        y[axis] = op.fresh(0, axis);
        return op.like(0, y);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        Tensor x = ctx.tensor(0);
        const Tensor& condition = ctx.tensor(1);
        int64_t axis = 0;
        if (op.has_attr("axis"))
            axis = axis_of(op, x.rank());
        else
            x = x.reshaped({x.elements()});
        std::vector<int64_t> kept;
        for (int64_t i = 0; i < condition.elements(); ++i)
            if (condition.int_at(i)) kept.push_back(i);
        return std::vector<Datum>{TRY(pick(x, axis, kept))};
    },
    .check = [](const OpView& op) -> Status {
        Shape x = op.has_attr("axis") ? op.shape(0) : Shape{op.shape(0).elements()};
        int64_t axis = op.has_attr("axis") ? axis_of(op, x.rank()) : 0;
        auto size = x[axis].as_int();
        for (int64_t i = size.value_or(0); size && op.value(1) && i < op.value(1)->elements(); ++i)
            if (op.value(1)->int_at(i))
                return op.error(Code::E0406, "condition is true at {}, beyond the end of axis {} of {}", i, axis, x);
        return {};
    },
    .gradient = back_through_compress,
};

}  // namespace

std::vector<OpDef> gather_ops() { return {kGather, kGatherElements, kGatherNd, kCompress}; }

}  // namespace tessera
