// Matrix products: matmul, gemm, einsum and their like.
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/matmul_term.h"

namespace tessera {

Shape MatmulShape::full() const {
    Shape s = batch;
    if (rows) s.push_back(*rows);
    if (columns) s.push_back(*columns);
    return s;
}

Result<MatmulShape> matmul_shape(const OpView& op, size_t left, size_t right) {
    const Shape &a = op.shape(left), &b = op.shape(right);
    if (a.rank() == 0 || b.rank() == 0) return op.shape_error("needs matrices or vectors, has {} and {}", a, b);
    const Dim &inner_a = a[-1], &inner_b = b.rank() == 1 ? b[0] : b[-2];
    if (inner_a.as_int() && inner_b.as_int() && inner_a != inner_b)
        return op.shape_error("inner extents differ: {} vs {}, in {} times {}", to_string(inner_a), to_string(inner_b), a, b);
    auto batch = broadcast(a.slice(0, std::max<int64_t>(a.rank() - 2, 0)), b.slice(0, std::max<int64_t>(b.rank() - 2, 0)));
    if (!batch) return op.shape_error("batch extents of {} and {} do not broadcast", a, b);
    MatmulShape shape{*batch, {}, {}};
    if (a.rank() > 1) shape.rows = a[-2];
    if (b.rank() > 1) shape.columns = b[-1];
    return shape;
}

Expr matmul_term(const OpView& op, size_t left, size_t right, const Indices& o, const Expr& k,
                 const std::function<Expr(size_t, const Indices&)>& value) {
    auto a = op.in(left), b = op.in(right);
    int64_t used = (a.rank() > 1) + (b.rank() > 1);
    Indices batch = o.slice(0, o.rank() - used);
    Indices rest = o.slice(o.rank() - used, o.rank());
    Indices at_a = batch, at_b = batch;
    if (a.rank() > 1) at_a = at_a + Indices{rest[0]};
    at_a = at_a + Indices{k};
    at_b = at_b + Indices{k};
    if (b.rank() > 1) at_b = at_b + Indices{rest[-1]};
    return value(left, at_a) * value(right, at_b);
}

namespace {

const OpDef kMatmul{
    .name = "matmul",
    .inputs = {"a: T", "b: T"},
    .outputs = {"y: T"},
    .types = {{"T", kNumbers}},
    .traits = {Trait::Pure, Trait::Bilinear},
    .onnx = "MatMul",
    .infer = [](const OpView& op) -> Result<Types> { return op.like(0, TRY(matmul_shape(op, 0, 1)).full()); },
    .body =
        [](const OpView& op, const Indices& o) {
            auto k = op.reduce(op.in(0).dim(-1));
            auto value = [&](size_t i, const Indices& at) { return op.in(i).broadcast_at(at); };
            return sum({k}, matmul_term(op, 0, 1, o, k.var, value));
        },
};

}  // namespace

std::vector<OpDef> contraction_ops() { return {kMatmul}; }

}  // namespace tessera
