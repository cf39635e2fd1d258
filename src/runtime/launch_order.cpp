#include <algorithm>

#include "runtime/run_plan.h"

namespace tessera {
namespace {

constexpr int kArena = -1, kScratch = -2;

// Bytes of the arena; or all of another memory, by its root.
struct Touched {
    int memory;
    int64_t begin, end;
    bool writes;
};

std::vector<Touched> touched_by(const KernelStep& step, const ProgramLayout& layout, const RunPlan& plan,
                                const BoundStep& bound) {
    std::vector<Touched> all;
    const KernelAccess& access = layout.access[step.kernel];
    for (size_t k = 0; k < step.args.size(); ++k) {
        const auto root = static_cast<size_t>(layout.root[static_cast<size_t>(step.args[k])]);
        const Home home = layout.home[root];
        if (!access.uses(k) || home == Home::Constant || home == Home::Prepared) continue;
        const int64_t at = plan.offsets[root];
        const bool writes = access.writes[k];
        if (at >= 0)
            all.push_back({kArena, at, at + plan.bytes[root], writes});
        else
            all.push_back({static_cast<int>(root), 0, 1, writes});
        for (const auto& [to, from] : plan.overwrites)
            if (writes && to == static_cast<int>(root)) all.push_back({from, 0, 1, true});
    }
    if (most_local_bytes(bound.launches) > 0) all.push_back({kScratch, 0, 1, true});
    return all;
}

bool conflict(const std::vector<Touched>& one, const std::vector<Touched>& other) {
    for (const Touched& a : one)
        for (const Touched& b : other)
            if (a.memory == b.memory && (a.writes || b.writes) && a.begin < b.end && b.begin < a.end) return true;
    return false;
}

}  // namespace

std::optional<size_t> last_launch(const BoundStep& step) {
    for (size_t i = step.launches.size(); i-- > 0;) {
        const LaunchExtents& grid = step.launches[i].grid;
        if (grid.x > 0 && grid.y > 0 && grid.z > 0) return i;
    }
    return {};
}

std::vector<std::vector<size_t>> steps_before(const Program& program, const ProgramLayout& layout,
                                              const RunPlan& plan) {
    const size_t count = program.steps.size();
    std::vector<std::vector<Touched>> touched(count);
    std::vector<std::vector<bool>> waited(count, std::vector<bool>(count));  // for which, at last
    std::vector<std::vector<size_t>> before(count);
    for (size_t i = 0; i < count; ++i) {
        const auto* kernel = std::get_if<KernelStep>(&program.steps[i]);
        if (!kernel || !last_launch(plan.steps[i])) continue;
        touched[i] = touched_by(*kernel, layout, plan, plan.steps[i]);
        for (size_t j = i; j-- > 0;) {
            if (waited[i][j] || !conflict(touched[i], touched[j])) continue;
            before[i].push_back(j);
            waited[i][j] = true;
            for (size_t k = 0; k < j; ++k) waited[i][k] = waited[i][k] || waited[j][k];
        }
    }
    return before;
}

std::vector<size_t> last_steps(const RunPlan& plan, const std::vector<std::vector<size_t>>& before) {
    std::vector<bool> waited(before.size());
    for (const auto& steps : before)
        for (size_t j : steps) waited[j] = true;
    std::vector<size_t> last;
    for (size_t i = 0; i < before.size(); ++i)
        if (!waited[i] && last_launch(plan.steps[i])) last.push_back(i);
    return last;
}

}  // namespace tessera
