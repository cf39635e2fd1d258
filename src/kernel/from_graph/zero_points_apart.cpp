// Sums of products of bytes less zero points, as sums of the products of the bytes alone: instructions multiply those.
#include <algorithm>

#include "kernel/analyse/byte_sums.h"
#include "kernel/from_graph/definitions.h"
#include "kernel/ir/compute.h"

namespace tessera {
namespace {

constexpr int64_t kFewestSide = 16;  // of a product that is worth it
constexpr int64_t kOpenSide = 64;    // what a size is taken for that is not known

// How many neighbours along an axis an operand is the same for: in groups of channels, those of one.
int64_t same_along(const Expr& operand, const ReduceAxis& axis) {
    int64_t same = 0;
    const Expr rest = rewrite(operand, [&](const Expr& e) -> Expr {
        const bool group = e.is(ExprKind::FloorDiv) && e.arg(0) == axis.var && e.arg(1).as_int();
        if (!group) return e;
        same = same ? std::min(same, *e.arg(1).as_int()) : *e.arg(1).as_int();
        return Expr(0);
    });
    return same && !depends_on(rest, axis.var) ? same : 1;
}

// Whether both have sides of their own, and what is added up in common.
bool is_product_of_matrices(const Definition& d, const Expr& a, const Expr& b) {
    for (const ReduceAxis& r : d.reduce)
        if (!depends_on(a, r.var) || !depends_on(b, r.var)) return false;
    int64_t rows = 1, columns = 1;
    for (const ReduceAxis& axis : d.axes()) {
        const bool in_a = depends_on(a, axis.var), in_b = depends_on(b, axis.var);
        const int64_t size = axis.extent.as_int().value_or(kOpenSide);
        if (in_a && !in_b) rows *= size;
        if (in_b && !in_a) columns *= size;
        if (in_a && in_b) rows *= same_along(b, axis), columns *= same_along(a, axis);
    }
    return rows >= kFewestSide && columns >= kFewestSide;
}

bool is_no_zero_point(const Expr& e) { return e.is(ExprKind::Const) && e.node().integer == 0; }

bool changes_in_sum(const Expr& e, const Definition& d) {
    return std::any_of(d.reduce.begin(), d.reduce.end(), [&](const ReduceAxis& r) { return depends_on(e, r.var); });
}

// The sum of an operand, over the axes that it has.
Expr sum_of(const Definition& product, const Expr& body, const AddReduction& add) {
    Definition d;
    d.kind = Definition::Kind::Reduction;
    d.dtype = product.dtype;
    d.reduce = product.reduce;
    std::vector<Expr> at;
    Bindings own;
    for (const ReduceAxis& axis : product.axes()) {
        if (!depends_on(body, axis.var)) continue;
        own.emplace(axis.var.node().name, index_var(fmt::format("%i{}", at.size()), axis.extent.as_int()));
        at.push_back(axis.var);
        d.shape.push_back(axis.extent);
    }
    d.body = substitute(body, own);
    return load(add(std::move(d)), product.dtype, std::move(at));
}

}  // namespace

int add_zero_points_apart(Definition d, const AddReduction& add) {
    const bool sum = d.kind == Definition::Kind::Reduction && d.combine == ReduceOp::Sum && d.dtype == DType::i32;
    if (!sum || !d.body.is(ExprKind::Mul)) return add(std::move(d));
    const auto a = match_centered(d.body.arg(0)), b = match_centered(d.body.arg(1));
    if (!a || !b || (is_no_zero_point(a->zero) && is_no_zero_point(b->zero))) return add(std::move(d));
    if (changes_in_sum(a->zero, d) || changes_in_sum(b->zero, d)) return add(std::move(d));
    if (!is_product_of_matrices(d, a->byte, b->byte)) return add(std::move(d));
    const Expr x = cast(a->byte, DType::i32), y = cast(b->byte, DType::i32);
    Definition product = d;
    product.body = x * y;
    Definition whole;
    whole.kind = Definition::Kind::Map;
    whole.dtype = d.dtype;
    whole.shape = d.shape;
    whole.body = load(add(std::move(product)), d.dtype, index_vars(d.shape));
    if (!is_no_zero_point(a->zero))
        whole.body = whole.body - a->zero * sum_of(d, is_no_zero_point(b->zero) ? y : y - b->zero, add);
    if (!is_no_zero_point(b->zero)) whole.body = whole.body - b->zero * sum_of(d, x, add);
    return add(std::move(whole));
}

}  // namespace tessera
