#include <algorithm>
#include <cstring>

#include "graph/evaluate/strip/loops.h"
#include "graph/evaluate/strip/program.h"

namespace tessera::strip {
namespace {

int64_t floor_divide(int64_t a, int64_t b) {  // b > 0
    return a / b - (a % b < 0);
}

}  // namespace

// Leaves the lanes of [begin, end) where the test holds.
void Program::narrow(const PlanNode& test, int lane, int64_t& begin, int64_t& end) const {
    const int64_t base = value_at(test.affine), step = lane < 0 ? 0 : test.affine.factor(lane);
    if (step == 0) {
        if (test.equals ? base != 0 : base < 0) end = begin;
    } else if (test.equals) {
        const int64_t at = -base / step;
        const bool hit = base % step == 0;
        begin = hit ? std::max(begin, at) : begin;
        end = hit ? std::max(begin, std::min(end, at + 1)) : begin;
    } else if (step > 0) {
        begin = std::min(end, std::max(begin, -floor_divide(base, step)));
    } else {
        end = std::max(begin, std::min(end, floor_divide(base, -step) + 1));
    }
}

bool Program::take_branch(RunNode& n, int branch, const Range& r) {
    if (r.begin >= r.end) return true;
    const int id = n.args[branch];
    RunNode& from = nodes_[id];
    if (r.mask.lanes && from.plan->fallible) {
        bool any = false;
        for (int64_t i = r.begin; i < r.end && !any; ++i) any = r.mask.lanes[i];
        if (!any) return true;
    }
    if (!eval(id, r)) return false;
    if (from.lane < 0)
        std::fill(n.integer + r.begin, n.integer + r.end, *from.integer);
    else
        std::memcpy(n.integer + r.begin, from.integer + r.begin, sizeof(int64_t) * (r.end - r.begin));
    return true;
}

bool Program::select(RunNode& n, const Range& r) {
    int64_t begin = r.begin, end = r.end;
    for (int t : n.plan->tests) narrow(plan_.nodes[t], n.lane, begin, end);
    if (begin >= end) return take_branch(n, 1, r);
    if (!take_branch(n, 1, {r.begin, begin, r.mask}) || !take_branch(n, 1, {end, r.end, r.mask})) return false;
    if (n.args[2] < 0) return take_branch(n, 0, {begin, end, r.mask});
    return blend(n, {begin, end, r.mask});
}

bool Program::blend(RunNode& n, const Range& r) {
    if (r.mask.lanes && nodes_[n.args[2]].plan->fallible) {
        bool any = false;
        for (int64_t i = r.begin; i < r.end && !any; ++i) any = r.mask.lanes[i];
        if (!any) return true;
    }
    if (!eval(n.args[2], r)) return false;
    const RunNode& condition = nodes_[n.args[2]];
    if (condition.lane < 0) return take_branch(n, *condition.integer ? 0 : 1, r);
    int64_t *taken = n.scratch, *other = n.scratch2;
    int64_t wanted = 0, active = 0;
    for (int64_t i = r.begin; i < r.end; ++i) {
        const int64_t in = r.mask.lanes ? r.mask.lanes[i] : 1;
        taken[i] = in & condition.integer[i];
        other[i] = in & ~condition.integer[i];
        wanted += taken[i];
        active += in;
    }
    if (wanted == active) return take_branch(n, 0, r);
    if (wanted == 0) return take_branch(n, 1, r);
    const int then = n.args[0], otherwise = n.args[1];
    if (!eval(then, {r.begin, r.end, {taken, ++masks_}})) return false;
    if (!eval(otherwise, {r.begin, r.end, {other, ++masks_}})) return false;
    const RunNode &a = nodes_[then], &b = nodes_[otherwise];
    for (int64_t i = r.begin; i < r.end; ++i)
        n.integer[i] = taken[i] ? a.integer[a.lane < 0 ? 0 : i] : b.integer[b.lane < 0 ? 0 : i];
    return true;
}

void Program::start_accumulating(RunNode& n, int64_t* acc, int64_t begin, int64_t end) {
    const PlanNode& p = *n.plan;
    if (p.real_valued())
        std::fill(reinterpret_cast<double*>(acc) + begin, reinterpret_cast<double*>(acc) + end,
                  real_identity(p.reduce_op));
    else
        std::fill(acc + begin, acc + end, int_identity(p.reduce_op, p.dtype));
    if (p.compensated) std::fill(n.scratch2 + begin, n.scratch2 + end, 0);
}

void Program::accumulate_into(RunNode& n, int64_t* acc, int64_t begin, int64_t end) {
    const PlanNode& p = *n.plan;
    const RunNode& v = nodes_[n.args[0]];
    const int64_t from = v.lane < 0 ? 0 : begin, count = end - begin;
    double* reals = reinterpret_cast<double*>(acc) + begin;
    if (p.compensated)
        accumulate_compensated({v.real() + from, v.lane < 0}, count, reals,
                               reinterpret_cast<double*>(n.scratch2) + begin);
    else if (p.real_valued())
        accumulate(p.reduce_op, {v.real() + from, v.lane < 0}, count, reals);
    else
        accumulate(p.reduce_op, p.dtype, {v.integer + from, v.lane < 0}, count, acc + begin);
}

bool Program::advance(const std::vector<int>& loops) {
    for (size_t i = loops.size(); i-- > 0;) {
        const int v = loops[i];
        if (current_[v] + 1 < plan_.extents[v]) {
            set(v, current_[v] + 1);
            return true;
        }
        set(v, 0);
    }
    return false;
}

// The lanes are different outputs: every value adds to its own.
bool Program::reduce_lanes(RunNode& n, const Range& r) {
    start_accumulating(n, n.scratch, r.begin, r.end);
    for (int v : n.loops) set(v, 0);
    do {
        if (!eval(n.args[0], r)) return false;
        accumulate_into(n, n.scratch, r.begin, r.end);
    } while (advance(n.loops));
    std::memcpy(n.integer + r.begin, n.scratch + r.begin, sizeof(int64_t) * (r.end - r.begin));
    if (n.plan->compensated)
        for (int64_t i = r.begin; i < r.end; ++i) n.real()[i] += reinterpret_cast<double*>(n.scratch2)[i];
    return true;
}

// The lanes run along an axis: many partial results, put together at the end.
bool Program::reduce_across(RunNode& n) {
    const PlanNode& p = *n.plan;
    const int64_t extent = n.inner_lane < 0 ? 1 : plan_.extents[n.inner_lane], lanes = std::min(extent, kStrip);
    start_accumulating(n, n.scratch, 0, lanes);
    for (int v : n.loops) set(v, 0);
    do {
        for (int64_t at = 0; at < extent; at += kStrip) {
            const int64_t count = std::min(kStrip, extent - at);
            if (n.inner_lane >= 0) set(n.inner_lane, at);
            if (!eval(n.args[0], {0, count, {}})) return false;
            accumulate_into(n, n.scratch, 0, count);
        }
    } while (advance(n.loops));
    const double* partial = reinterpret_cast<const double*>(n.scratch);
    if (p.compensated)
        *n.real() = combine_compensated(partial, reinterpret_cast<const double*>(n.scratch2), lanes);
    else if (p.real_valued())
        *n.real() = combine(p.reduce_op, partial, lanes);
    else
        *n.integer = combine(p.reduce_op, p.dtype, n.scratch, lanes);
    return true;
}

}  // namespace tessera::strip
