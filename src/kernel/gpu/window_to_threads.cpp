// Reductions of few elements for each of many: windows of pools and of convolutions whose channels are apart.
#include <algorithm>

#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/prepare_operand.h"

namespace tessera {
namespace {

constexpr int64_t kMostTaps = 64;      // of a window
constexpr int64_t kUnrolledTaps = 16;  // that are read before the first is used

// The reduction of few elements that a map reads at its own place, and nobody else reads; empty: none.
std::string window_of(const Schedule& s, const Stage& map) {
    std::string found;
    for (const Expr& load : loads_of(map)) {
        const Stage* from = writer_of(s, load.node().slot);
        if (!from || from->name == found) continue;
        const auto taps = elements_of(from->reduce).as_int();
        if (!found.empty() || from->reduce.empty() || from->fold || !taps || *taps > kMostTaps) return {};
        if (from->axes.size() != map.axes.size() || readers_of(s, from->buffer).size() != 1) return {};
        for (size_t i = 0; i < map.axes.size(); ++i)
            if (!(load.arg(i) == map.axes[i].var) || !(from->store[i] == from->axes[i].var)) return {};
        found = from->name;
    }
    return found;
}

}  // namespace

Result<std::vector<std::string>> window_to_threads(Schedule& s, const std::string& map) {
    const Stage out = find_stage(s, map);
    const std::string window = out.reduce.empty() && !out.axes.empty() ? window_of(s, out) : "";
    if (window.empty()) return std::vector<std::string>();
    Schedule before = s;
    auto applied = [&]() -> Status {
        const Stage sum = find_stage(s, window);
        const int64_t width =
            std::min(access_width(s, out, out.axes.back(), {sum.buffer}), access_width(s, sum, sum.axes.back()));
        std::vector<Loop> loops = s.loops(map);
        if (width > 1) {
            auto [vectors, lane] = TRY(s.split(loops.back(), width));
            TRY(s.vectorize(lane));
            loops.back() = vectors;
        }
        Loop thread = loops[0];
        for (size_t i = 1; i < loops.size(); ++i) thread = TRY(s.fuse(thread, loops[i]));
        TRY(s.parallel(thread));
        TRY(s.compute_at(window, thread));
        TRY(s.set_scope(window, Scope::Register));
        std::vector<Loop> order;
        std::optional<Loop> lane;
        for (const Loop& l : s.loops(window)) {
            if (s.reduces(l))
                order.push_back(l);
            else
                lane = l;  // the innermost of those that are left
        }
        const bool few = *elements_of(sum.reduce).as_int() <= kUnrolledTaps;
        const std::vector<Loop> taps = order;
        if (width > 1) {
            order.push_back(*lane);
            TRY(s.reorder(order));
            TRY(s.vectorize(*lane));
        }
        for (const Loop& l : taps)
            if (few) TRY(s.unroll(l));
        return few ? Status() : s.annotate(taps.back(), "unroll", 4);
    }();
    if (!applied.ok()) {
        s = std::move(before);
        return std::vector<std::string>();
    }
    return std::vector<std::string>{window};
}

std::optional<PreparedOperand> prepare_window(Compute& compute) {
    if (compute.stages.empty() || compute.stages.size() > 2) return {};
    const Stage sum = compute.stages[0];
    const auto taps = elements_of(sum.reduce).as_int();
    if (sum.reduce.empty() || sum.axes.empty() || !taps || *taps > kMostTaps || !sum.value.is(ExprKind::Mul)) return {};
    const Schedule s(compute);
    const Expr& along = sum.axes.back().var;
    auto lies = [&](const Expr& operand) {
        bool all = true;
        visit(operand, [&](const Expr& x) {
            if (!x.is(ExprKind::Load)) return;
            auto step = stride_of(s, x, along);
            all &= step && (step->is_int(0) || step->is_int(1));
        });
        return all;
    };
    for (size_t i : {0, 1}) {
        if (lies(sum.value.arg(i)) || !lies(sum.value.arg(1 - i))) continue;
        std::vector<ReduceAxis> order(sum.axes.begin(), sum.axes.end() - 1);
        order.insert(order.end(), sum.reduce.begin(), sum.reduce.end());
        order.push_back(sum.axes.back());
        return prepare_operand(compute, sum.value.arg(i), order);
    }
    return {};
}

}  // namespace tessera
