#include "kernel/from_graph/run_contents.h"

#include <algorithm>

#include "graph/infer.h"

namespace tessera {
namespace {

std::string positive(const Value& value, int64_t i) { return fmt::format("{}.p{}", value.name(), i); }
std::string negative(const Value& value, int64_t i) { return fmt::format("{}.n{}", value.name(), i); }

}  // namespace

std::optional<std::vector<Expr>> run_contents(const Value& value) {
    if (!value.type().is_tensor()) return {};
    const TensorType& type = value.type().tensor();
    if (!type.shape.ranked() || !is_int(type.dtype)) return {};
    auto count = type.shape.elements().as_int();
    if (!count || *count > kMaxContents) return {};
    std::vector<Expr> contents;
    for (int64_t i = 0; i < *count; ++i) contents.push_back(symbol(positive(value, i)) - symbol(negative(value, i)));
    return contents;
}

void define_contents(const Value& value, const Tensor& tensor, SymbolValues& symbols) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
        const int64_t n = std::max(tensor.int_at(i), -INT64_MAX);
        symbols[positive(value, i)] = std::max<int64_t>(n, 0);
        symbols[negative(value, i)] = std::max<int64_t>(-n, 0);
    }
}

}  // namespace tessera
