// Positions of extremes (arg_max, arg_min), and running sums and products along an axis.
#include "base/numeric.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

Result<Types> infer_position(const OpView& op) {
    const Shape& x = op.shape(0);
    int64_t axis = TRY(op.axis(op.integer("axis"), x.rank()));
    if (x[axis].is_int(0)) return op.shape_error("{} is empty along axis {}", x, axis);
    Shape y = x.slice(0, axis);
    if (op.integer("keepdims")) y.push_back(1);
    return Types(Type(DType::i64, y + x.slice(axis + 1, x.rank())));
}

// The first (or last) position whose element equals the extreme; a NaN counts as one.
OpDef position(std::string name, const char* onnx, ReduceOp extreme) {
    return {
        .name = std::move(name),
        .inputs = {"x: T"},
        .outputs = {"y: i64"},
        .attrs = {int_attr("axis", 0), int_attr("keepdims", 1), int_attr("select_last_index", 0)},
        .types = {{"T", kNumbers}},
        .onnx = {onnx, {attr_added(12, "select_last_index", Attr(int64_t{0}))}},
        .infer = infer_position,
        .body =
            [extreme](const OpView& op, const Indices& o) {
                TensorRef x = op.in(0);
                int64_t axis = op.integer("axis");
                if (axis < 0) axis += x.rank();
                auto element = [&](const Expr& k) {
                    return x.at(op.integer("keepdims") ? o.with(axis, k) : o.inserted(axis, k));
                };
                auto j = op.reduce(x.dim(axis)), k = op.reduce(x.dim(axis));
                Expr here = element(k.var), best = reduce(extreme, {j}, element(j.var));
                Expr found = eq(here, best);
                if (is_float(x.dtype())) found = logical_or(found, call(Fn::IsNan, {here}));
                // Places that fit are numbers of 32 bits: twice as many are compared at once.
                const auto size = x.dim(axis).as_int();
                const DType places = size && *size <= INT32_MAX ? DType::i32 : DType::i64;
                auto place = [&](const Expr& e) { return cast(e, places); };
                const bool last = op.integer("select_last_index") != 0;
                const Expr chosen = select(found, place(k.var), place(last ? Expr(-1) : x.dim(axis)));
                return cast(last ? reduce_max({k}, chosen) : reduce_min({k}, chosen), DType::i64);
            },
        .canonical = axis_from_front,
    };
}

// A running sum's gradient runs the other way.
Gradients back_through_running_sum(const Backward& r) {
    const OpView op = r.node.view();
    return {r.b.op("cum_sum", {r.g, r.in[1]},
                   {{"exclusive", Attr(op.integer("exclusive"))}, {"reverse", Attr(int64_t{!op.integer("reverse")})}}),
            nullptr};
}

// A running product as one for each element: right where an element is 0, at the price of a square.
Gradients back_through_running_product(const Backward& r) {
    const OpView op = r.node.view();
    auto given = op.constant_ints(1);
    if (!given || given->size() != 1) {
        r.b.fail(Error(Code::E0202, "Gradient: the axis of {} is not constant", r.node.where()));
        return {};
    }
    const int64_t axis = (*given)[0] < 0 ? (*given)[0] + r.rank(0) : (*given)[0];
    return gradients_by_body(r, r.in, r.wanted, [&](const Indices& o) {
        const ReduceAxis k = op.reduce(op.shape(0)[axis]);
        const Expr from = op.integer("reverse") ? o[axis] : k.var, to = op.integer("reverse") ? k.var : o[axis];
        const Expr taken = op.integer("exclusive") ? lt(from, to) : le(from, to);
        return prod({k}, select(taken, op.in(0).at(o.with(axis, k.var)), like(op, 1)));
    });
}

OpDef running(std::string name, const char* onnx, bool product) {
    return {
        .name = std::move(name),
        .inputs = {"x: T", "axis: I"},
        .outputs = {"y: T"},
        .attrs = {int_attr("exclusive", 0), int_attr("reverse", 0)},
        .types = {{"T", kNumbers}, {"I", {DType::i32, DType::i64}}},
        .traits = product ? std::vector{Trait::Pure} : std::vector{Trait::Pure, Trait::Linear},
        .onnx = onnx,
        .infer = [](const OpView& op) -> Result<Types> {
            auto axis = op.constant_ints(1);
            if (op.rank(1) > 1 || (axis && axis->size() != 1))
                return op.shape_error("axis must be a scalar, is {}", op.shape(1));
            if (axis) TRY(op.axis((*axis)[0], op.rank(0)));
            return op.same(0);
        },
        .evaluate = [product](const OpView& op, EvalContext& context) -> Result<std::vector<Datum>> {
            const Tensor& x = context.tensor(0);
            if (context.tensor(1).elements() != 1) return op.shape_error("axis must be a scalar, is {}", op.shape(1));
            int64_t axis = TRY(op.axis(context.tensor(1).int_at(0), x.rank()));
            Tensor y = TRY(Tensor::zeros(x.dtype(), x.sizes()));
            TRY(context.spend(x.elements()));
            if (x.elements() == 0) return std::vector<Datum>{std::move(y)};
            bool exclusive = op.integer("exclusive"), reverse = op.integer("reverse"), real = is_float(x.dtype());
            int64_t count = x.size(axis), step = 1;
            for (int64_t d = axis + 1; d < x.rank(); ++d) step *= x.size(d);
            for (int64_t line = 0; line < x.elements() / count; ++line) {
                int64_t start = line / step * step * count + line % step;
                double sum = product ? 1 : 0;
                uint64_t whole = product ? 1 : 0;
                for (int64_t k = 0; k < count; ++k) {
                    int64_t i = start + (reverse ? count - 1 - k : k) * step;
                    auto write = [&] {
                        if (real)
                            y.set_real(i, sum);
                        else
                            y.set_int(i, int64_t(whole));
                    };
                    if (exclusive) write();
                    if (real)
                        sum = product ? sum * x.real_at(i) : sum + x.real_at(i);
                    else
                        whole = product ? whole * uint64_t(x.int_at(i)) : whole + uint64_t(x.int_at(i));
                    if (!exclusive) write();
                }
            }
            return std::vector<Datum>{std::move(y)};
        },
    };
}

}  // namespace

std::vector<OpDef> arg_reduce_ops() {
    return {
        position("arg_max", "ArgMax", ReduceOp::Max),
        position("arg_min", "ArgMin", ReduceOp::Min),
        differentiable(running("cum_sum", "CumSum", false), back_through_running_sum),
        differentiable(running("cum_prod", "CumProd", true), back_through_running_product),
    };
}

}  // namespace tessera
