// Ops that write elements at computed positions: scatter_elements, scatter_nd, tensor_scatter.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/numeric.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/indices.h"
#include "graph/ops/tensor_slices.h"

namespace tessera {
namespace {

// Writes updates into a copy of the data, combining as `reduction` says. Sums and products are rounded once, at the
// end.
class Scatter {
  public:
    static Result<Scatter> into(const OpView& op, const Tensor& data) {
        const std::string& name = op.string("reduction");
        Scatter s;
        s.reduction_ = name == "add"   ? Kind::Add
                       : name == "mul" ? Kind::Mul
                       : name == "max" ? Kind::Max
                       : name == "min" ? Kind::Min
                                       : Kind::None;
        s.out_ = TRY(Tensor::zeros(data.dtype(), data.sizes()));
        copy_elements(data, 0, s.out_, 0, data.elements());
        if (s.reduction_ == Kind::None || !is_float(data.dtype())) return s;
        s.reals_.resize(data.elements());
        for (int64_t i = 0; i < data.elements(); ++i) s.reals_[i] = data.real_at(i);
        return s;
    }

    void write(int64_t to, const Tensor& updates, int64_t from, int64_t count) {
        if (reduction_ == Kind::None) return copy_elements(updates, from, out_, to, count);
        for (int64_t i = 0; i < count; ++i) {
            if (!reals_.empty())
                reals_[to + i] = combine(reals_[to + i], updates.real_at(from + i));
            else
                out_.set_int(to + i, combine(out_.int_at(to + i), updates.int_at(from + i)));
        }
    }

    Tensor finish() {
        for (size_t i = 0; i < reals_.size(); ++i) out_.set_real(i, reals_[i]);
        return out_;
    }

  private:
    enum class Kind { None, Add, Mul, Max, Min };

    double combine(double a, double b) const {
        switch (reduction_) {
            case Kind::Add: return a + b;
            case Kind::Mul: return a * b;
            case Kind::Max: return std::isnan(a) || a > b ? a : b;
            default: return std::isnan(a) || a < b ? a : b;
        }
    }
    int64_t combine(int64_t a, int64_t b) const {
        bool less = out_.dtype() == DType::u64 ? uint64_t(a) < uint64_t(b) : a < b;
        switch (reduction_) {
            case Kind::Add: return int64_t(uint64_t(a) + uint64_t(b));
            case Kind::Mul: return int64_t(uint64_t(a) * uint64_t(b));
            case Kind::Max: return less ? b : a;
            default: return less ? a : b;
        }
    }

    Kind reduction_ = Kind::None;
    Tensor out_;
    std::vector<double> reals_;  // of floats, where they are combined
};

Status check_reduction(const OpView& op) {
    const std::string& name = op.string("reduction");
    if (name != "none" && !kBodyTypes.has(op.dtype(0)))
        return op.error(Code::E0208, "cannot {} elements of {}", name, dtype_name(op.dtype(0)));
    return {};
}

// Positions may count from the end.
Status in_range(const OpView& op, int64_t i, int64_t extent) {
    if (i < -extent || i >= extent) return op.error(Code::E0406, "index {} is outside [{}, {})", i, -extent, extent);
    return {};
}
int64_t from_start(int64_t i, int64_t extent) { return i < 0 ? i + extent : i; }

OnnxChange reduction_added(int opset) { return attr_added(opset, "reduction", Attr(std::string("none"))); }

// What was written gathers its gradient, and what was overwritten gets none; a sum hands it on to all; the largest or
// smallest shares it among those that are equal to it. `gather` reads a tensor where the op writes, `write` is the op
// on other data and updates.
Gradients back_through_scatter(const Backward& r, const std::function<Value*(Value*)>& gather,
                               const std::function<Value*(Value* data, Value* updates)>& write) {
    Builder& b = r.b;
    const std::string reduction = r.node.view().string("reduction");
    Value *zero = r.number(0), *one = r.number(1);
    if (reduction == "add") return {r.g, nullptr, gather(r.g)};
    if (reduction == "none") return {write(r.g, b.mul(r.in[2], zero)), nullptr, gather(r.g)};
    if (reduction == "mul") {
        b.fail(Error(Code::E0202, "Gradient: {} multiplies, which has no supported derivative, {}", r.node.op().name,
                     r.node.where()));
        return {};
    }
    auto equal = [&](Value* x, Value* y) { return b.op("where", {b.op("equal", {x, y}), one, zero}); };
    Value *in_data = equal(r.in[0], r.out), *in_updates = equal(r.in[2], gather(r.out));
    AttrMap adding = r.node.attrs();
    adding["reduction"] = std::string("add");
    Value* ties = b.op(r.node.op().name, {in_data, r.in[1], in_updates}, adding);
    Value* share = b.div(r.g, b.op("max", {ties, one}));
    return {b.mul(share, in_data), nullptr, b.mul(gather(share), in_updates)};
}

const OpDef kScatterElements{
    .name = "scatter_elements",
    .inputs = {"x: T", "indices: I", "updates: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", 0), string_attr("reduction", "none").one_of({"none", "add", "mul", "max", "min"})},
    .types = {{"T", kAllTypes}, {"I", {DType::i32, DType::i64}}},
    .onnx = {"ScatterElements", {reduction_added(16)}, {"Scatter"}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &indices = op.shape(1), &updates = op.shape(2);
        TRY(check_reduction(op));
        if (x.rank() != indices.rank() || x.rank() != updates.rank())
            return op.shape_error("data, indices and updates have ranks {}, {} and {}", x, indices, updates);
        TRY(op.axis(op.integer("axis"), x.rank()));
        for (int64_t d = 0; d < x.rank(); ++d)
            if (indices[d].as_int() && updates[d].as_int() && indices[d] != updates[d])
                return op.shape_error("indices {} and updates {} differ", indices, updates);
        return op.same(0);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor &x = ctx.tensor(0), &indices = ctx.tensor(1), &updates = ctx.tensor(2);
        int64_t rank = x.rank(), axis = op.integer("axis") < 0 ? op.integer("axis") + rank : op.integer("axis");
        TRY(ctx.spend(indices.elements() * (rank + 1)));
        Scatter scatter = TRY(Scatter::into(op, x));
        Sizes at(rank, 0);
        for (int64_t i = 0; i < indices.elements(); ++i) {
            int64_t to = 0;
            for (int64_t d = 0; d < rank; ++d)
                to = to * x.size(d) + (d == axis ? from_start(indices.int_at(i), x.size(d)) : at[d]);
            scatter.write(to, updates, i, 1);
            for (int64_t d = rank - 1; d >= 0 && ++at[d] == indices.size(d); --d) at[d] = 0;
        }
        return std::vector<Datum>{scatter.finish()};
    },
    .check = [](const OpView& op) -> Status {
        auto sizes = op.shape(0).sizes(), given = op.shape(1).sizes();
        if (!given || !sizes) return {};
        int64_t rank = op.rank(0), axis = op.integer("axis") < 0 ? op.integer("axis") + rank : op.integer("axis");
        const bool empty = std::find(given->begin(), given->end(), 0) != given->end();
        for (int64_t d = 0; d < rank && !empty; ++d)
            if (d != axis && (*given)[d] > (*sizes)[d])
                return op.shape_error("indices {} exceed {} in a dimension other than axis {}", to_string(*given),
                                      to_string(*sizes), axis);
        if (!op.value(1)) return {};
        const Tensor& indices = *op.value(1);
        if (all_indices_within(indices, (*sizes)[axis])) return {};
        for (int64_t i = 0; i < indices.elements(); ++i) TRY(in_range(op, indices.int_at(i), (*sizes)[axis]));
        return {};
    },
    .canonical = axis_from_front,
    .indexed_axes =
        [](const OpView& op) {
            const int64_t axis = op.integer("axis");
            return std::vector{axis < 0 ? axis + op.rank(0) : axis};
        },
    .gradient = [](const Backward& r) -> Gradients {
        const Attr axis(r.node.view().integer("axis"));
        return back_through_scatter(
            r,
            [&](Value* x) {
                return r.b.op("gather_elements", {x, r.in[1]}, {{"axis", axis}});
            },
            [&](Value* data, Value* updates) {
                return r.b.op("scatter_elements", {data, r.in[1], updates}, {{"axis", axis}});
            });
    },
};

const OpDef kScatterNd{
    .name = "scatter_nd",
    .inputs = {"x: T", "indices: i64", "updates: T"},
    .outputs = {"y: T"},
    .attrs = {string_attr("reduction", "none").one_of({"none", "add", "mul", "max", "min"})},
    .types = {{"T", kAllTypes}},
    .onnx = {"ScatterND", {reduction_added(16)}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &indices = op.shape(1), &updates = op.shape(2);
        TRY(check_reduction(op));
        if (x.rank() < 1 || indices.rank() < 1) return op.shape_error("needs no scalars, has {} and {}", x, indices);
        auto depth = indices[-1].as_int();
        if (!depth) return op.same(0);
        if (*depth < 0 || *depth > x.rank())
            return op.shape_error("indices {} have {} positions each, data is {}", indices, *depth, x);
        Shape wanted = indices.slice(0, indices.rank() - 1) + x.slice(*depth, x.rank());
        bool fits = wanted.rank() == updates.rank();
        for (int64_t d = 0; fits && d < wanted.rank(); ++d)
            fits = !wanted[d].as_int() || !updates[d].as_int() || wanted[d] == updates[d];
        if (!fits) return op.shape_error("updates must be {}, are {}", wanted, updates);
        return op.same(0);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor &x = ctx.tensor(0), &indices = ctx.tensor(1), &updates = ctx.tensor(2);
        int64_t depth = indices.size(-1), inner = 1, count = 1;
        for (int64_t d = depth; d < x.rank(); ++d) inner *= x.size(d);
        for (int64_t d = 0; d < indices.rank() - 1; ++d) count *= indices.size(d);
        TRY(ctx.spend(indices.elements() + updates.elements()));
        Scatter scatter = TRY(Scatter::into(op, x));
        for (int64_t i = 0; i < count; ++i) {
            int64_t to = 0;
            for (int64_t k = 0; k < depth; ++k)
                to = to * x.size(k) + from_start(indices.int_at(i * depth + k), x.size(k));
            scatter.write(to * inner, updates, i * inner, inner);
        }
        return std::vector<Datum>{scatter.finish()};
    },
    .check = [](const OpView& op) -> Status {
        auto sizes = op.shape(0).sizes();
        if (!op.value(1) || !sizes) return {};
        const Tensor& indices = *op.value(1);
        int64_t depth = indices.size(-1);
        for (int64_t i = 0; i < indices.elements(); ++i) TRY(in_range(op, indices.int_at(i), (*sizes)[i % depth]));
        return {};
    },
    .indexed_axes =
        [](const OpView& op) {
            std::vector<int64_t> axes(size_t(op.shape(1)[-1].as_int().value_or(0)));
            std::iota(axes.begin(), axes.end(), 0);
            return axes;
        },
    .gradient = [](const Backward& r) -> Gradients {
        return back_through_scatter(
            r,
            [&](Value* x) {
                return r.b.op("gather_nd", {x, r.in[1]});
            },
            [&](Value* data, Value* updates) {
                return r.b.op("scatter_nd", {data, r.in[1], updates});
            });
    },
};

const OpDef kTensorScatter{
    .name = "tensor_scatter",
    .inputs = {"past: T", "update: T", "write_indices?: i64"},
    .outputs = {"present: T"},
    .attrs = {int_attr("axis", -2), string_attr("mode", "linear").one_of({"linear", "circular"})},
    .types = {{"T", kAllTypes}},
    .onnx = "TensorScatter",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &past = op.shape(0), &update = op.shape(1);
        if (past.rank() != update.rank()) return op.shape_error("past and update have ranks {} and {}", past, update);
        int64_t axis = TRY(op.axis(op.integer("axis"), past.rank()));
        if (axis == 0) return op.error(Code::E0212, "axis 0 is the batch");
        for (int64_t d = 0; d < past.rank(); ++d) {
            auto have = past[d].as_int(), get = update[d].as_int();
            if (have && get && (d == axis ? *get > *have : *get != *have))
                return op.shape_error("update {} is incompatible with past {}", update, past);
        }
        if (op.has(2) &&
            (op.rank(2) != 1 || (op.shape(2)[0].as_int() && past[0].as_int() && op.shape(2)[0] != past[0])))
            return op.shape_error("write_indices must be [{}], are {}", to_string(past[0]), op.shape(2));
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t axis = op.integer("axis") < 0 ? op.integer("axis") + o.rank() : op.integer("axis");
            Expr at = op.has(2) ? o[axis] - op.in(2).at({o[0]}) : o[axis];
            if (op.string("mode") == "circular") at = mod(at, op.shape(0)[axis]);
            Expr written = logical_and(ge(at, 0), lt(at, op.shape(1)[axis]));
            return select(written, op.in(1).at(o.with(axis, at)), op.in(0).at(o));
        },
    .check = [](const OpView& op) -> Status {
        if (!op.has(2) || !op.value(2) || op.string("mode") == "circular") return {};
        int64_t axis = op.integer("axis") < 0 ? op.integer("axis") + op.rank(0) : op.integer("axis");
        auto room = op.shape(0)[axis].as_int(), length = op.shape(1)[axis].as_int();
        for (int64_t at : op.value(2)->to_ints())
            if (room && length && (at < 0 || at > *room - *length))
                return op.error(Code::E0406, "{} elements written at {} do not fit {}", *length, at, *room);
        return {};
    },
};

}  // namespace

std::vector<OpDef> scatter_ops() { return {kScatterElements, kScatterNd, kTensorScatter}; }

}  // namespace tessera
