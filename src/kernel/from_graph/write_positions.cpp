// Constants that only say where they are: counts, and masks that are one number up to a diagonal and another after it.
// What reads them then need not read memory, and can tell which parts of a mask are all the same.
#include "base/dtype.h"
#include "kernel/from_graph/definitions.h"

namespace tessera {
namespace {

constexpr int64_t kFewest = 16;  // elements

// The last index, where that is what each element is; also of [n, 1, ...], the only index that there is.
std::optional<Expr> counted(const Tensor& t, const std::vector<Expr>& vars) {
    if (t.dtype() != DType::i64) return {};
    std::optional<size_t> along;
    for (size_t d = 0; d < vars.size(); ++d) {
        if (t.sizes()[d] == 1) continue;
        if (along) return {};
        along = d;
    }
    if (!along) return {};
    const int64_t first = t.int_at(0), step = t.int_at(1) - first;
    for (int64_t i = 0; i < t.elements(); ++i)
        if (t.int_at(i) != first + i * step) return {};
    return vars[*along] * step + first;
}

// select(column <= row + c, before, after), c at least 0.
std::optional<Expr> up_to_diagonal(const Tensor& t, const std::vector<Expr>& vars) {
    if (vars.size() < 2 || (t.dtype() != DType::boolean && !kWideFloats.has(t.dtype()))) return {};
    const int64_t rows = t.sizes()[vars.size() - 2], columns = t.sizes().back();
    if (rows * columns != t.elements()) return {};
    const double before = t.real_at(0), after = t.real_at(columns - 1);
    if (!(before != after) || before != before || after != after) return {};
    int64_t last = 0;
    while (t.real_at(last + 1) == before) ++last;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
            if (t.real_at(i * columns + j) != (j <= i + last ? before : after)) return {};
    const Expr seen = le(vars.back(), vars[vars.size() - 2] + last);
    if (t.dtype() == DType::boolean) return before != 0 ? seen : logical_not(seen);
    const DType wide = t.dtype() == DType::f64 ? DType::f64 : DType::f32;
    return cast(select(seen, constant(before, wide), constant(after, wide)), t.dtype());
}

}  // namespace

void write_positions(Definitions& all) {
    for (Definition& d : all.list) {
        if (d.kind != Definition::Kind::Given || !d.value || !d.value->is_constant() || !d.value->tensor()) continue;
        const Tensor& t = *d.value->tensor();
        if (t.elements() < kFewest || t.sizes().size() != d.shape.size()) continue;
        const std::vector<Expr> vars = index_vars(d.shape);
        std::optional<Expr> body = counted(t, vars);
        if (!body) body = up_to_diagonal(t, vars);
        if (!body) continue;
        d.kind = Definition::Kind::Map;
        d.body = *body;
    }
}

}  // namespace tessera
