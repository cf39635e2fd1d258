// Short sums whose factors stand in a small constant table, written out with the factors as numbers. Where the table's row depends on an index, there is one sum for each row, chosen by a Select.
#include <optional>

#include "kernel/from_graph/definitions.h"

namespace tessera {
namespace {

constexpr int64_t kMostElements = 100, kMostTerms = 10, kMostRows = 10;

std::optional<int64_t> offset(const Tensor& t, const std::vector<Expr>& at) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) {
        auto i = at[d].as_int();
        if (!i || *i < 0 || *i >= t.size(int64_t(d))) return std::nullopt;
        place = place * t.size(int64_t(d)) + *i;
    }
    return place;
}

// The product's factors, as numbers where they come from the table: nothing for a zero that is dropped.
std::optional<Expr> times_known(const Expr& term, const KnownTensor& known, bool drop_zeros) {
    if (!term.is(ExprKind::Mul)) return term;
    for (int side : {0, 1}) {
        const Expr& factor = term.arg(size_t(side));
        const Tensor* t = factor.is(ExprKind::Load) ? known(factor.node().slot) : nullptr;
        auto at = t ? offset(*t, factor.args()) : std::nullopt;
        if (!at) continue;
        double value = t->real_at(*at);
        const Expr& other = term.arg(size_t(1 - side));
        if (value == 0 && drop_zeros) return std::nullopt;
        if (value == 1) return other;
        return real_const(value, term.dtype()) * other;
    }
    return term;
}

Expr spell_out(const Expr& sum, const KnownTensor& known, bool drop_zeros) {
    if (!sum.is(ExprKind::Reduce) || sum.node().reduce_op != ReduceOp::Sum || sum.node().axes.size() != 1) return sum;
    const ReduceAxis& axis = sum.node().axes[0];
    auto terms = axis.extent.as_int();
    if (!terms || *terms < 1 || *terms > kMostTerms || !is_float(sum.dtype())) return sum;
    const Expr& term = sum.arg(0);
    if (!term.is(ExprKind::Mul)) return sum;
    // The table: [row, place of the sum].
    std::optional<Expr> row;
    int64_t rows = 0;
    for (const Expr& factor : term.args()) {
        if (!factor.is(ExprKind::Load) || factor.args().size() != 2 || !(factor.arg(1) == axis.var)) continue;
        const Tensor* t = known(factor.node().slot);
        if (!t || t->elements() > kMostElements || t->size(0) > kMostRows) continue;
        row = factor.arg(0);
        rows = t->size(0);
        break;
    }
    if (!row) return sum;
    std::optional<Expr> chosen;
    for (int64_t r = rows; r-- > 0;) {
        std::optional<Expr> total;
        for (int64_t k = 0; k < *terms; ++k) {
            Expr at = substitute(term, {{axis.var.node().name, Expr(k)}});
            Expr fixed = rewrite(at, [&](const Expr& e) {
                if (!e.is(ExprKind::Load) || !known(e.node().slot) || !(e.arg(0) == *row)) return e;
                return load(e.node().slot, e.dtype(), {Expr(r), e.arg(1)});
            });
            auto part = times_known(fixed, known, drop_zeros);
            if (part) total = total ? *total + *part : *part;
        }
        Expr of_row = total ? *total : constant(0, sum.dtype());
        chosen = chosen ? select(eq(*row, r), of_row, *chosen) : of_row;
    }
    return *chosen;
}

}  // namespace

Expr spell_out_sums(const Expr& body, const KnownTensor& known, bool drop_zeros) {
    return rewrite(body, [&](const Expr& e) { return spell_out(e, known, drop_zeros); });
}

}  // namespace tessera
