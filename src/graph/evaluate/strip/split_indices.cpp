#include <algorithm>

#include "graph/evaluate/strip/plan.h"

namespace tessera::strip {
namespace {

constexpr int kRounds = 6;

struct Split {
    size_t dim;
    int64_t divisor;
};

// The first quotient or remainder of an index variable by a proper divisor of its extent.
std::optional<Split> find_split(const Expr& body, const std::vector<std::string>& indices, const Sizes& sizes) {
    std::optional<Split> found;
    visit(body, [&](const Expr& e) {
        if (found || (!e.is(ExprKind::FloorDiv) && !e.is(ExprKind::Mod))) return;
        if (e.dtype() != DType::i64 || !e.arg(0).is(ExprKind::Var) || !e.arg(1).as_int()) return;
        auto at = std::find(indices.begin(), indices.end(), e.arg(0).node().name);
        if (at == indices.end()) return;
        const size_t dim = static_cast<size_t>(at - indices.begin());
        const int64_t divisor = *e.arg(1).as_int();
        if (divisor > 1 && divisor < sizes[dim] && sizes[dim] % divisor == 0) found = Split{dim, divisor};
    });
    return found;
}

}  // namespace

void split_indices(Expr& body, std::vector<std::string>& indices, Sizes& sizes) {
    for (int round = 0; round < kRounds; ++round) {
        auto split = find_split(body, indices, sizes);
        if (!split) return;
        const std::string name = indices[split->dim];
        const int64_t outer = sizes[split->dim] / split->divisor;
        const std::string high = name + "/", low = name + "%";
        body = substitute(body, {{name, index_var(high, outer) * split->divisor + index_var(low, split->divisor)}});
        const int64_t at = static_cast<int64_t>(split->dim);
        indices[split->dim] = high;
        indices.insert(indices.begin() + at + 1, low);
        sizes[split->dim] = outer;
        sizes.insert(sizes.begin() + at + 1, split->divisor);
    }
}

}  // namespace tessera::strip
