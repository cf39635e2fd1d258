#include "kernel/analyse/inline_maps.h"

#include <algorithm>

#include "kernel/analyse/byte_sums.h"
#include "kernel/analyse/stages.h"

namespace tessera {
namespace {

// Elements are picked by quotients that no loop takes apart, or by floats.
bool picks_by_quotients(const Expr& value) {
    constexpr int64_t kMostPhases = 10;
    bool found = false;
    visit(value, [&](const Expr& x) {
        if (x.is(ExprKind::Cast) && x.dtype() == DType::i64) found |= is_float(x.arg(0).dtype());
        if (!x.is(ExprKind::FloorDiv) || x.arg(1).as_int().value_or(0) <= kMostPhases) return;
        const int64_t divisor = *x.arg(1).as_int();
        for (const Expr& term : x.arg(0).is(ExprKind::Add) ? x.arg(0).args() : std::vector<Expr>{x.arg(0)}) {
            const int64_t c = term.is(ExprKind::Mul) ? term.arg(0).as_int().value_or(1) : 1;
            found |= c != 0 && c % divisor != 0 && divisor % c != 0;
        }
    });
    return found;
}

// Does `reader` ask for each element once, through the one load?
bool reads_once(const Stage& reader, const Expr& load) {
    auto along = [&](const ReduceAxis& axis) {
        if (axis.extent.is_int(1)) return true;
        return std::any_of(load.args().begin(), load.args().end(), [&](const Expr& i) { return i == axis.var; });
    };
    return std::all_of(reader.axes.begin(), reader.axes.end(), along) &&
           std::all_of(reader.reduce.begin(), reader.reduce.end(), along);
}

}  // namespace

Status inline_maps(Schedule& s, const std::function<bool(const Stage&)>& stays) {
    std::vector<std::string> names;
    for (const Stage& stage : s.compute().stages) names.push_back(stage.name);
    for (const std::string& name : names) {
        const Stage& stage = find_stage(s, name);
        const bool is_param = size_t(stage.buffer) < s.compute().params;
        if (!stage.reduce.empty() || is_param || makes_words(s.compute(), stage) || (stays && stays(stage))) continue;
        std::vector<std::string> readers = readers_of(s, stage.buffer);
        bool go = true;
        if (is_costly(stage.value) || picks_by_quotients(stage.value)) {
            go = readers.size() == 1;
            if (go) {
                const Stage& reader = find_stage(s, readers[0]);
                std::vector<Expr> loads = loads_of(reader, stage.buffer);
                go = loads.size() == 1 && reads_once(reader, loads[0]);
            }
        }
        if (go) TRY(s.compute_inline(name));
    }
    return {};
}

}  // namespace tessera
