// Constants that only say where they are: counts, and masks that are one number up to a diagonal and another after it.
// What reads them then need not read memory, and can tell which parts of a mask are all the same.
#include <map>

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

// The same of a vector that repeats each of them some times: the heads of keys that heads of queries share.
std::optional<Expr> repeated(const Tensor& t, const std::vector<Expr>& vars) {
    if (t.dtype() != DType::i64 || vars.size() != 1 || t.elements() < 2) return {};
    int64_t times = 1;
    while (times < t.elements() && t.int_at(times) == t.int_at(0)) ++times;
    if (times == 1 || t.elements() % times) return {};
    const int64_t first = t.int_at(0), step = times < t.elements() ? t.int_at(times) - first : 0;
    for (int64_t i = 0; i < t.elements(); ++i)
        if (t.int_at(i) != first + i / times * step) return {};
    return floor_div(vars[0], times) * step + first;
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
    std::map<int, Expr> indices;
    for (size_t n = 0; n < all.list.size(); ++n) {
        Definition& d = all.list[n];
        // What is read at such a place is read at a formula.
        if (d.has_body() && !indices.empty())
            d.body = map_loads(d.body, [&](const Expr& x) -> Expr {
                auto at = indices.find(x.node().slot);
                return at == indices.end() ? x : substitute(at->second, {{"%i0", x.arg(0)}});
            });
        if (d.kind != Definition::Kind::Given || !d.value || !d.value->is_constant() || !d.value->tensor()) continue;
        const Tensor& t = *d.value->tensor();
        if (t.sizes().size() != d.shape.size()) continue;
        const std::vector<Expr> vars = index_vars(d.shape);
        std::optional<Expr> body = repeated(t, vars);
        if (body) indices.emplace(int(n), *body);
        if (!body && t.elements() < kFewest) continue;
        if (!body) body = counted(t, vars);
        if (!body) body = up_to_diagonal(t, vars);
        if (!body) continue;
        d.kind = Definition::Kind::Map;
        d.body = *body;
    }
}

}  // namespace tessera
