// Matrix products: matmul, gemm, einsum and their like.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/einsum.h"
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
        return op.shape_error("inner extents differ: {} vs {}, in {} times {}", to_string(inner_a), to_string(inner_b),
                              a, b);
    auto batch =
        broadcast(a.slice(0, std::max<int64_t>(a.rank() - 2, 0)), b.slice(0, std::max<int64_t>(b.rank() - 2, 0)));
    if (!batch) return op.shape_error("batch extents of {} and {} do not broadcast", a, b);
    MatmulShape shape{*batch, {}, {}};
    if (a.rank() > 1) shape.rows = a[-2];
    if (b.rank() > 1) shape.columns = b[-1];
    return shape;
}

Expr matrix_at(const TensorRef& x, const Indices& at) {
    std::vector<Expr> own(static_cast<size_t>(x.rank()));
    for (int64_t d = 1; d <= x.rank(); ++d)
        own[static_cast<size_t>(x.rank() - d)] = d <= 2 ? at[-d] : select(eq(x.dim(-d), 1), 0, at[-d]);
    return x.at(std::move(own));
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

// The last two dimensions swapped.
Value* with_swapped_rows(Builder& b, Value* x) {
    if (b.failed()) return nullptr;
    std::vector<int64_t> perm(static_cast<size_t>(x->type().tensor().rank()));
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return b.transpose(x, perm);
}

// The gradient of a matrix that multiplies matrices of more dimensions: one product over all of their rows, which a
// product for each matrix and the sum of those would round and move once for each.
Value* gradient_of_shared_matrix(const Backward& r) {
    const Shape& own = r.in[1]->type().tensor().shape;
    const auto inner = own[0].as_int(), columns = own[1].as_int();
    if (r.rank(0) < 3 || own.rank() != 2 || !inner || !columns || *inner < 1 || *columns < 1) return nullptr;
    Value* rows = r.b.reshape(r.in[0], {-1, *inner});
    return r.b.matmul(with_swapped_rows(r.b, rows), r.b.reshape(r.g, {-1, *columns}));
}

const OpDef kMatmul{
    .name = "matmul",
    .inputs = {"a: T", "b: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("halvings").hint()},
    .types = {{"T", kNumbers}},
    .traits = {Trait::Pure, Trait::Bilinear},
    .onnx = "MatMul",
    .infer = [](const OpView& op) -> Result<Types> { return op.like(0, TRY(matmul_shape(op, 0, 1)).full()); },
    .body =
        [](const OpView& op, const Indices& o) {
            auto k = op.reduce(op.in(0).dim(-1));
            auto value = [&](size_t i, const Indices& at) { return matrix_at(op.in(i), at); };
            return sum({k}, matmul_term(op, 0, 1, o, k.var, value));
        },
    .gradient = [](const Backward& r) -> Gradients {
        if (r.rank(0) < 2 || r.rank(1) < 2) return {};
        Value* by_b = r.wants(1) ? gradient_of_shared_matrix(r) : nullptr;
        if (r.wants(1) && !by_b) by_b = r.b.matmul(with_swapped_rows(r.b, r.in[0]), r.g);
        return {r.wants(0) ? r.b.matmul(r.g, with_swapped_rows(r.b, r.in[1])) : nullptr, by_b};
    },
};

// x scaled by an attribute, which is 1 most of the time; integers through f64.
Expr scaled(const Expr& x, double by) {
    if (by == 1) return x;
    if (is_float(x.dtype())) return x * constant(by, x.dtype());
    return cast(cast(x, DType::f64) * real_const(by), x.dtype());
}

const OpDef kGemm{
    .name = "gemm",
    .inputs = {"a: T", "b: T", "c?: T"},
    .outputs = {"y: T"},
    .attrs = {float_attr("alpha", 1), float_attr("beta", 1), int_attr("transA", 0), int_attr("transB", 0),
              int_attr("halvings").hint()},
    .types = {{"T", kNumbers}},
    .onnx = {"Gemm",
             {attr_dropped(7, "broadcast"),
              {11, [](OnnxCall&) -> Status { return {}; },
               [](OnnxCall& call) -> Status {
                   if (!call.has(2) && call.has(0)) call.set_input(2, call.build.scalar_like(0, call.inputs[0]));
                   return call.build.status();
               }}}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &a = op.shape(0), &b = op.shape(1);
        if (a.rank() != 2 || b.rank() != 2) return op.shape_error("needs two matrices, has {} and {}", a, b);
        bool trans_a = op.integer("transA") != 0, trans_b = op.integer("transB") != 0;
        const Dim &inner_a = a[trans_a ? 0 : 1], &inner_b = b[trans_b ? 1 : 0];
        if (inner_a.as_int() && inner_b.as_int() && inner_a != inner_b)
            return op.shape_error("inner extents differ: {} vs {}, in {} times {} (transA={}, transB={})",
                                  to_string(inner_a), to_string(inner_b), a, b, trans_a, trans_b);
        Shape y{a[trans_a ? 1 : 0], b[trans_b ? 0 : 1]};
        if (op.has(2)) {
            auto both = broadcast(y, op.shape(2));
            bool grows = !both || both->rank() != 2;
            for (int64_t i = 0; !grows && i < 2; ++i)
                grows = y[i].as_int() && (*both)[i].as_int() && y[i] != (*both)[i];
            if (grows) return op.shape_error("c {} does not broadcast to {}", op.shape(2), y);
        }
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto a = op.in(0), b = op.in(1);
            bool trans_a = op.integer("transA") != 0, trans_b = op.integer("transB") != 0;
            auto k = op.reduce(a.dim(trans_a ? 0 : 1));
            Expr left = trans_a ? a.at({k.var, o[0]}) : a.at({o[0], k.var});
            Expr right = trans_b ? b.at({o[1], k.var}) : b.at({k.var, o[1]});
            Expr y = scaled(sum({k}, left * right), op.real("alpha"));
            return op.has(2) ? y + scaled(op.broadcast_in(2, o), op.real("beta")) : y;
        },
};

// The determinant by elimination with row exchanges; `m` is used up.
double determinant(std::vector<double>& m, size_t n) {
    double det = 1;
    for (size_t c = 0; c < n; ++c) {
        size_t pivot = c;
        for (size_t r = c + 1; r < n; ++r)
            if (std::abs(m[r * n + c]) > std::abs(m[pivot * n + c])) pivot = r;
        if (pivot != c) {
            std::swap_ranges(&m[pivot * n], &m[pivot * n] + n, &m[c * n]);
            det = -det;
        }
        det *= m[c * n + c];
        if (m[c * n + c] == 0) return det;
        for (size_t r = c + 1; r < n; ++r) {
            double factor = m[r * n + c] / m[c * n + c];
            for (size_t j = c; j < n; ++j) m[r * n + j] -= factor * m[c * n + j];
        }
    }
    return det;
}

const OpDef kDet{
    .name = "det",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .types = {{"T", kWideFloats}},
    .onnx = "Det",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        if (x.rank() < 2 || (x[-1].as_int() && x[-2].as_int() && x[-1] != x[-2]))
            return op.shape_error("needs square matrices, has {}", x);
        return op.like(0, x.slice(0, x.rank() - 2));
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        Tensor y = TRY(Tensor::zeros(x.dtype(), TRY(op.out_sizes())));
        int64_t n = x.size(-1);
        for (int64_t i = 0; i < y.elements(); ++i) {
            TRY(ctx.spend(n * n * n + 1));
            std::vector<double> matrix(size_t(n * n));
            for (int64_t j = 0; j < n * n; ++j) matrix[size_t(j)] = x.real_at(i * n * n + j);
            y.set_real(i, determinant(matrix, size_t(n)));
        }
        return std::vector<Datum>{y};
    },
    .gradient = [](const Backward& r) -> Gradients {  // of matrices that have an inverse
        const int64_t outer = r.rank(0) - 2;
        Value* scale = r.b.unsqueeze(r.b.mul(r.g, r.out), {outer, outer + 1});
        return {r.b.mul(scale, with_swapped_rows(r.b, r.b.op("matrix_inverse", {r.in[0]})))};
    },
};

// By elimination with pivots, in doubles; what has none comes out infinite or not a number.
void invert(std::vector<double>& a, std::vector<double>& inverse, size_t n) {
    inverse.assign(n * n, 0);
    for (size_t i = 0; i < n; ++i) inverse[i * n + i] = 1;
    for (size_t k = 0; k < n; ++k) {
        size_t pivot = k;
        for (size_t i = k + 1; i < n; ++i)
            if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
        for (size_t j = 0; j < n && pivot != k; ++j) {
            std::swap(a[k * n + j], a[pivot * n + j]);
            std::swap(inverse[k * n + j], inverse[pivot * n + j]);
        }
        const double by = a[k * n + k];
        for (size_t j = 0; j < n; ++j) {
            a[k * n + j] /= by;
            inverse[k * n + j] /= by;
        }
        for (size_t i = 0; i < n; ++i) {
            const double times = a[i * n + k];
            for (size_t j = 0; i != k && j < n; ++j) {
                a[i * n + j] -= times * a[k * n + j];
                inverse[i * n + j] -= times * inverse[k * n + j];
            }
        }
    }
}

OnnxForm inverse_form() {
    OnnxForm form("Inverse");
    form.domain = "com.microsoft";
    return form;
}

const OpDef kInverse{
    .name = "matrix_inverse",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .types = {{"T", kWideFloats}},
    .onnx = inverse_form(),
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        if (x.rank() < 2 || (x[-1].as_int() && x[-2].as_int() && x[-1] != x[-2]))
            return op.shape_error("needs square matrices, has {}", x);
        return op.same(0);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        Tensor y = TRY(Tensor::zeros(x.dtype(), TRY(op.out_sizes())));
        const int64_t n = x.size(-1), all = n * n;
        std::vector<double> matrix(static_cast<size_t>(all)), inverse;
        for (int64_t i = 0; n > 0 && i < y.elements(); i += all) {
            TRY(ctx.spend(2 * n * all + 1));
            for (int64_t j = 0; j < all; ++j) matrix[size_t(j)] = x.real_at(i + j);
            invert(matrix, inverse, size_t(n));
            for (int64_t j = 0; j < all; ++j) y.set_real(i + j, inverse[size_t(j)]);
        }
        return std::vector<Datum>{y};
    },
    .gradient = [](const Backward& r) -> Gradients {
        Value* y = with_swapped_rows(r.b, r.out);
        return {r.b.op("neg", {r.b.matmul(y, r.b.matmul(r.g, y))})};
    },
    .no_kernel = "eliminates with pivots",
};

}  // namespace

std::vector<OpDef> contraction_ops() { return {kMatmul, kGemm, einsum_op(), kDet, kInverse}; }

}  // namespace tessera
