#include <algorithm>

#include "kernel/analyse/stages.h"

namespace tessera {

std::vector<PhasedAxis> find_phases(const Stage& stage, int64_t most, bool innermost) {
    constexpr int64_t kMostPhases = 10;
    std::vector<PhasedAxis> found;
    int64_t copies = 1;
    auto add = [&](size_t axis, int64_t count) {
        for (const PhasedAxis& p : found)
            if (p.axis == axis) return;
        if (count < 2 || count > kMostPhases || copies * count > most) return;
        found.push_back({axis, count});
        copies *= count;
    };
    visit(stage.value, [&](const Expr& e) {
        if (!e.is(ExprKind::Select) || !e.arg(0).is(ExprKind::Eq)) return;
        for (size_t side : {0, 1}) {
            const Expr &what = e.arg(0).arg(side), &number = e.arg(0).arg(1 - side);
            if (!number.as_int()) continue;
            for (size_t i = 0; i + (innermost ? 0 : 1) < stage.axes.size(); ++i) {
                const Expr& var = stage.axes[i].var;
                if (what == var) add(i, stage.axes[i].extent.as_int().value_or(0));
                if (what.is(ExprKind::Mod) && what.arg(0) == var) add(i, what.arg(1).as_int().value_or(0));
            }
        }
    });
    return found;
}

}  // namespace tessera
