#include "kernel/analyse/contraction.h"

#include <algorithm>

#include "expr/simplify.h"
#include "kernel/analyse/byte_sums.h"

namespace tessera {

namespace {

// How far apart in memory, in elements, a load's neighbours along var lie; -1 where that is no constant. What is the
// same for all rows, a factor for each channel, counts only where nothing else is loaded.
int64_t stride_along(const Stage& stage, const std::vector<int>& rows, const Expr& operand, const Expr& var,
                     bool words) {
    auto reads_along = [&](const Expr& x, int row) {
        const ReduceAxis& axis = stage.axes[size_t(row)];
        return !axis.extent.is_int(1) && depends_on(x, axis.var);
    };
    auto of_rows = [&](const Expr& x) {
        return x.is(ExprKind::Load) && std::any_of(rows.begin(), rows.end(), [&](int i) { return reads_along(x, i); });
    };
    bool some = false;
    visit(operand, [&](const Expr& x) { some |= of_rows(x); });
    int64_t worst = 0;
    visit(operand, [&](const Expr& x) {
        if (!x.is(ExprKind::Load) || (some && !of_rows(x))) return;
        for (size_t d = 0; d < x.args().size(); ++d) {
            auto step = step_of(x.arg(d), var);
            int64_t here = !step                                                                                ? -1
                           : step->is_int(0)                                                                    ? 0
                           : d + 1 == x.args().size() && step->is_int(words && x.dtype() != DType::i32 ? 4 : 1) ? 1
                                                                                                                : 2;
            if (here < 0 || worst < 0)
                worst = -1;
            else
                worst = std::max(worst, here);
        }
    });
    return worst;
}

}  // namespace

Expr extent_of(const std::vector<ReduceAxis>& axes, const std::vector<int>& which) {
    Expr p = 1;
    for (int i : which) p = p * axes[size_t(i)].extent;
    return p;
}

Expr rows_of(const Stage& stage, const Contraction& c) { return extent_of(stage.axes, c.rows); }

std::optional<Contraction> match_contraction(const Stage& stage) {
    if (stage.reduce.empty() || stage.combine != ReduceOp::Sum || stage.axes.empty()) return std::nullopt;
    if (!is_product(stage.value)) return std::nullopt;
    const Expr &x = stage.value.arg(0), &y = stage.value.arg(1);
    Contraction c;
    for (const ReduceAxis& r : stage.reduce)
        if (!depends_on(x, r.var) || !depends_on(y, r.var)) return std::nullopt;
    std::vector<int> only_x, only_y, neither;
    for (size_t i = 0; i < stage.axes.size(); ++i) {
        bool in_x = depends_on(x, stage.axes[i].var), in_y = depends_on(y, stage.axes[i].var);
        (in_x && in_y ? c.batch : in_x ? only_x : in_y ? only_y : neither).push_back(int(i));
    }
    // An axis of one element that nobody reads along belongs to the rows.
    for (int i : neither)
        if (!stage.axes[size_t(i)].extent.is_int(1)) return std::nullopt;
    // The innermost axis that is not a single element is a column's.
    int inner = -1;
    for (size_t i = 0; i < stage.axes.size(); ++i)
        if (!stage.axes[i].extent.is_int(1)) inner = int(i);
    auto holds = [](const std::vector<int>& list, int i) { return std::count(list.begin(), list.end(), i) > 0; };
    if (holds(c.batch, inner)) return std::nullopt;
    bool swap = inner < 0 ? only_y.empty() : holds(only_x, inner);
    if (swap) c.a = 1, c.b = 0;
    c.rows = swap ? only_y : only_x;
    c.columns = swap ? only_x : only_y;
    if (c.columns.empty()) return std::nullopt;
    c.rows.insert(c.rows.end(), neither.begin(), neither.end());
    std::sort(c.rows.begin(), c.rows.end());
    // A is packed along k: the axis along which it is contiguous goes last.
    const Expr& a = swap ? y : x;
    for (size_t i = 0; i < stage.reduce.size(); ++i) c.depth.push_back(int(i));
    const bool words = sums_words(stage);
    auto contiguous = std::find_if(c.depth.begin(), c.depth.end(), [&](int i) {
        return stride_along(stage, c.rows, a, stage.reduce[size_t(i)].var, words) == 1;
    });
    if (contiguous != c.depth.end()) std::rotate(contiguous, contiguous + 1, c.depth.end());
    return c;
}

}  // namespace tessera
