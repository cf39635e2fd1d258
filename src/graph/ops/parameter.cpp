#include "graph/ops/parameter.h"

namespace tessera {

std::optional<int64_t> parameter_length(const OpView& op, size_t input) {
    if (!op.shape(input).ranked() || op.rank(input) > 1) return std::nullopt;
    return op.rank(input) == 0 ? 1 : op.shape(input)[0].as_int();
}

std::optional<std::vector<Expr>> parameter(const OpView& op, size_t input) {
    if (auto known = op.contents(input)) return known;
    auto length = parameter_length(op, input);
    constexpr int64_t kMost = 1024;  // parameters have one element a dimension, or a few
    if (!length || *length > kMost) return std::nullopt;
    std::vector<Expr> out;
    for (int64_t k = 0; k < *length; ++k)
        out.push_back(cast(op.in(input).at(op.rank(input) == 0 ? Indices{} : Indices{k}), DType::i64));
    return out;
}

bool has_parameters(const OpView& op, std::initializer_list<size_t> inputs) {
    for (size_t i : inputs)
        if (op.has(i) && !op.contents(i) && !parameter_length(op, i)) return false;
    return true;
}

Expr listed_for(const std::vector<Expr>& values, const std::optional<std::vector<Expr>>& axes, int64_t d, int64_t rank,
                const Expr& fallback) {
    if (!axes) return d < int64_t(values.size()) ? values[d] : fallback;
    Expr found = fallback;
    for (size_t k = 0; k < std::min(values.size(), axes->size()); ++k)
        found = select(eq(wrap_index((*axes)[k], rank), d), values[k], found);
    return found;
}

Expr wrap_index(const Expr& index, const Dim& extent) {
    Expr i = cast(index, DType::i64);
    if (bounds(i).low.value_or(-1) >= 0) return i;
    return select(lt(i, 0), i + extent, i);
}

}  // namespace tessera
