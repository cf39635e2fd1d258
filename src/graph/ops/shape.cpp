// Ops that move elements without computing: reshape, transpose, concat, split, slice, pad, expand and their like.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// The indices into `from` of the element that stands at `o` in `to`, both row-major over the same elements.
Indices reindex(const Indices& o, const Shape& to, const Shape& from) {
    Expr flat = 0;
    for (int64_t i = 0; i < to.rank(); ++i) flat = flat * to[i] + o[i];
    std::vector<Expr> at(from.rank());
    for (int64_t i = from.rank() - 1; i >= 0; --i) {
        at[i] = i == 0 ? flat : mod(flat, from[i]);
        flat = floor_div(flat, from[i]);
    }
    return at;
}

const OpDef kReshape{
    .name = "reshape",
    .inputs = {"x: T", "shape: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("allowzero", 0)},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
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
                if (i >= x.rank()) return op.shape_error("dimension {} of {} does not exist to be copied", i, x);
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
        if (inferred >= 0) {
            if (known.as_int() && total.as_int() && (known.is_int(0) ? !total.is_int(0) : *total.as_int() % *known.as_int() != 0))
                return op.shape_error("{} elements of {} do not divide into {}", *total.as_int(), x, y);
            y[inferred] = known.is_int(0) ? Dim(0) : floor_div(total, known);
        } else if (known.as_int() && total.as_int() && known != total) {
            return op.shape_error("{} has {} elements, {} has {}", x, *total.as_int(), y, *known.as_int());
        }
        return op.like(0, y);
    },
    .body = [](const OpView& op,
               const Indices& o) { return op.in(0).at(reindex(o, op.out().shape, op.in(0).shape())); },
};

}  // namespace

std::vector<OpDef> shape_ops() { return {kReshape}; }

}  // namespace tessera
