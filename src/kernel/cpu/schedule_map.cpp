// Maps: axes that lie densely in all that is read and written become one; the innermost in vectors; tasks of some size.
#include <algorithm>
#include <functional>
#include <set>

#include "base/check.h"
#include "kernel/cpu/padding.h"
#include "kernel/cpu/schedule_kinds.h"

namespace tessera {

int lanes_of(const Schedule& s, const Stage& stage, const Machine& machine) {
    // The widest type that takes part decides. Places that are the same for all lanes take no part.
    size_t bytes = std::max<size_t>(1, dtype_bytes(s.compute().buffers[size_t(stage.buffer)].dtype));
    std::set<std::pair<const ExprNode*, bool>> seen;
    std::function<void(const Expr&, bool)> look = [&](const Expr& x, bool place) {
        if (!seen.insert({&x.node(), place}).second) return;
        const bool alike = place && (stage.axes.empty() || !depends_on(x, stage.axes.back().var));
        if ((x.is(ExprKind::Load) || is_float(x.dtype())) && !alike) bytes = std::max(bytes, dtype_bytes(x.dtype()));
        for (const Expr& a : x.args()) look(a, place || x.is(ExprKind::Load));
    };
    look(stage.value, false);
    if (is_float(stage.value.dtype())) bytes = std::max<size_t>(bytes, 4);
    return std::max(1, machine.vector_bytes / int(bytes));
}

namespace {

// An axis other than the innermost along which something is read without gaps: a transposition.
std::optional<size_t> crossing_axis(const Schedule& s, const Stage& stage) {
    const Expr& inner = stage.axes.back().var;
    for (const Expr& load : loads_of(stage)) {
        auto along = stride_of(s, load, inner);
        if (along && (along->is_int(0) || along->is_int(1))) continue;
        for (size_t i = 0; i + 1 < stage.axes.size(); ++i) {
            auto step = stride_of(s, load, stage.axes[i].var);
            if (step && step->is_int(1) && !stage.axes[i].extent.is_int(1)) return i;
        }
    }
    return std::nullopt;
}

constexpr int64_t kMostPhases = 10, kMostCopies = 64, kLongMappedRow = 64;

}  // namespace

namespace {

// All phases at once, lane by lane: what their expressions share is computed once.
Status schedule_phases(Schedule& s, const std::string& name, const std::vector<PhasedAxis>& phases, double element,
                       const CpuScheduleOptions& options) {
    const int64_t lanes = lanes_of(s, find_stage(s, name), options.machine);
    std::vector<Loop> loops = s.loops(name), outer, unrolled;
    int64_t copies = 1;
    for (size_t i = 0; i + 1 < loops.size(); ++i) {
        auto p = std::find_if(phases.begin(), phases.end(), [&](const PhasedAxis& p) { return p.axis == i; });
        if (p == phases.end()) {
            outer.push_back(loops[i]);
            continue;
        }
        copies *= p->count;
        auto extent = s.extent(loops[i]).as_int();
        if (extent == p->count) {
            unrolled.push_back(loops[i]);
            continue;
        }
        auto [iterations, phase] = TRY(s.split(loops[i], p->count));
        if (!extent || *extent % p->count) TRY(s.loop_partition(iterations));
        outer.push_back(iterations);
        unrolled.push_back(phase);
    }
    auto extent = s.extent(loops.back()).as_int();
    double inner = double(extent.value_or(256) * copies) * element;
    std::vector<Loop> order = outer;
    Loop lane = loops.back();
    const bool vector = lanes > 1 && (!extent || *extent >= lanes);
    if (vector && extent != lanes) {
        auto [iterations, in] = TRY(s.split(lane, lanes));
        if (!extent || *extent % lanes) TRY(s.loop_partition(iterations));
        order.push_back(iterations);
        lane = in;
    } else if (!vector) {
        order.push_back(lane);
    }
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    if (vector) order.push_back(lane);
    TRY(s.reorder(order));
    for (const Loop& l : unrolled) TRY(s.unroll(l));
    if (vector) TRY(s.vectorize(lane));
    (void)TRY(make_tasks(s, name, outer.size(), inner, options));
    return {};
}

// By what the last axis is divided where something is read: its neighbours come from rows of their own.
std::optional<int64_t> interleaved(const Stage& stage) {
    std::optional<int64_t> count;
    for (const Expr& load : loads_of(stage))
        for (const Expr& index : load.args())
            visit(index, [&](const Expr& e) {
                if (!e.is(ExprKind::Mod) && !e.is(ExprKind::FloorDiv)) return;
                auto divisor = e.arg(1).as_int();
                auto step = step_of(e.arg(0), stage.axes.back().var);
                if (!divisor || *divisor < 2 || *divisor > kMostPhases || !step || step->as_int().value_or(0) < 1)
                    return;
                if (step->is_int(1) || e.is(ExprKind::FloorDiv)) count = divisor;
            });
    return count;
}

// Whether all that is read lies at the places of the elements that are made of it: it is there, whatever is chosen.
bool reads_in_place(const Schedule& s, const Stage& stage, const Expr& value) {
    const std::vector<Expr>& shape = s.compute().buffers[size_t(stage.buffer)].shape;
    bool in_place = value.node().reads;
    visit(value, [&](const Expr& e) {
        if (!e.is(ExprKind::Load)) return;
        in_place &= e.args() == stage.store && s.compute().buffers[size_t(e.node().slot)].shape == shape;
    });
    return in_place;
}

// Whether places along an axis decide what is read there: those in the middle of padding are alike.
bool chooses_along(const Schedule& s, const Stage& stage, const Expr& var) {
    bool found = false;
    visit(stage.value, [&](const Expr& e) {
        if (e.is(ExprKind::Select) && !e.arg(0).node().reads && depends_on(e.arg(0), var))
            found |= !reads_in_place(s, stage, e);
    });
    return found;
}

// Vectors along the quotient, one remainder after the other.
Status schedule_interleaved(Schedule& s, const std::string& name, int64_t count, double element,
                            const CpuScheduleOptions& options) {
    std::vector<Loop> loops = s.loops(name);
    const int64_t lanes = lanes_of(s, find_stage(s, name), options.machine);
    auto extent = s.extent(loops.back()).as_int();
    Loop all = loops.back();
    if (loops.size() == 1) all = TRY(cut_tasks(s, {}, all, count * lanes, element, options));
    auto [quotients, phase] = TRY(s.split(all, count));
    auto [outer, lane] = TRY(s.split(quotients, lanes));
    std::vector<Loop> order(loops.begin(), loops.end() - 1);
    order.insert(order.end(), {outer, phase, lane});
    TRY(s.reorder(order));
    TRY(s.unroll(phase));
    TRY(s.vectorize(lane));
    if (!extent || *extent % (count * lanes) ||
        chooses_along(s, find_stage(s, name), find_stage(s, name).axes.back().var))
        TRY(s.loop_partition(outer));
    (void)TRY(make_tasks(s, name, loops.size() - 1, element * double(extent.value_or(256)), options));
    return {};
}

// A few places along the last axis, for each of many along the one before it: vectors along that one.
bool is_few_wide(const Stage& stage, int64_t lanes) {
    if (stage.axes.size() < 2 || lanes < 2) return false;
    auto last = stage.axes.back().extent.as_int(), before = stage.axes[stage.axes.size() - 2].extent.as_int();
    return last && *last >= 2 && *last < lanes && (!before || *before >= lanes);
}

// Pieces of a few elements that lie together, each moved as it is.
bool moves_pieces(const Schedule& s, const Stage& stage) {
    if (!stage.value.is(ExprKind::Load)) return false;
    const Expr& last = stage.axes.back().var;
    auto from = stride_of(s, stage.value, last), to = stride_of(s, stage.buffer, stage.store, last);
    auto next = stride_of(s, stage.value, stage.axes[stage.axes.size() - 2].var);
    return from && from->is_int(1) && to && to->is_int(1) && next && !next->is_int(0);
}

Status schedule_pieces(Schedule& s, const std::string& name, double element, const CpuScheduleOptions& options) {
    const std::vector<Loop> loops = s.loops(name);
    TRY(s.vectorize(loops.back()));
    TRY(s.annotate(loops[loops.size() - 2], "unroll", 4));
    const double piece = element * double(s.extent(loops.back()).as_int().value_or(1));
    const auto pieces = s.extent(loops[loops.size() - 2]).as_int();
    (void)TRY(make_tasks(s, name, loops.size() - 2, piece * double(pieces.value_or(256)), options));
    return {};
}

Status schedule_few_wide(Schedule& s, const std::string& name, double element, const CpuScheduleOptions& options) {
    std::vector<Loop> loops = s.loops(name);
    const Stage stage = find_stage(s, name);
    int64_t lanes = lanes_of(s, stage, options.machine);
    if (is_costly(stage.value)) lanes *= 2;  // long chains of instructions run best side by side
    const Loop few = loops.back();
    Loop many = loops[loops.size() - 2];
    auto extent = s.extent(many).as_int();
    const double place = element * double(s.extent(few).as_int().value_or(1));
    if (loops.size() == 2) many = TRY(cut_tasks(s, {}, many, lanes, place, options));
    auto [outer, lane] = TRY(s.split(many, lanes));
    TRY(s.reorder({outer, few, lane}));
    TRY(s.unroll(few));
    TRY(s.vectorize(lane));
    if (!extent || *extent % lanes || chooses_along(s, stage, stage.axes[loops.size() - 2].var))
        TRY(s.loop_partition(outer));
    (void)TRY(make_tasks(s, name, loops.size() - 2, place * double(extent.value_or(256)), options));
    return {};
}

}  // namespace

Result<std::optional<Loop>> make_tasks(Schedule& s, const std::string& stage, size_t count, double bytes,
                                       const CpuScheduleOptions& options) {
    if (count == 0) return std::optional<Loop>();
    std::vector<Loop> loops = s.loops(stage);
    // One thread needs no tasks: what an outer loop decides stays outside of inner ones.
    if (options.threads < 2) return std::optional<Loop>(loops[count - 1]);
    Loop all = loops[0];
    for (size_t i = 1; i < count; ++i) all = TRY(s.fuse(all, loops[i]));
    auto extent = s.extent(all).as_int();
    const double grain = 16 << 10;
    if (extent && double(*extent) * bytes < 2 * grain) return std::optional<Loop>(all);
    int64_t each = std::max<int64_t>(1, int64_t(grain / std::max(bytes, 1.0)));
    // Enough tasks for threads that are not equally fast, and no more; without a rest where that is close.
    if (extent) {
        each = std::max(each, *extent / (16 * options.threads));
        for (int64_t d = each; d >= std::max<int64_t>(1, each / 2); --d) {
            if (*extent % d) continue;
            each = d;
            break;
        }
    }
    if (each > 1 && (!extent || *extent > each)) {
        auto [task, iteration] = TRY(s.split(all, each));
        TRY(s.parallel(task));
        return std::optional<Loop>(iteration);
    }
    if (extent && *extent <= 1) return std::optional<Loop>(all);
    TRY(s.parallel(all));
    return std::optional<Loop>(all);
}

Result<Loop> cut_tasks(Schedule& s, const std::vector<Loop>& around, const Loop& loop, int64_t multiple, double bytes,
                       const CpuScheduleOptions& options) {
    constexpr double kGrain = 16 << 10;
    auto extent = s.extent(loop).as_int();
    if (options.threads < 2 || (extent && around.empty() && double(*extent) * bytes < 2 * kGrain)) return loop;
    int64_t each = std::max<int64_t>(1, int64_t(kGrain / bytes) / multiple);
    if (extent && around.empty()) each = std::max(each, *extent / (16 * options.threads) / multiple);
    auto [task, inside] = TRY(s.split(loop, each * multiple));
    Loop all = around.empty() ? task : around[0];
    for (size_t i = 1; i < around.size(); ++i) all = TRY(s.fuse(all, around[i]));
    if (!around.empty()) all = TRY(s.fuse(all, task));
    TRY(s.parallel(all));
    return inside;
}

namespace {

// Nothing but elements, each moved from a place that is read.
bool moves_from_read_places(const Stage& stage) {
    if (!stage.value.is(ExprKind::Load)) return false;
    const auto& at = stage.value.args();
    return std::any_of(at.begin(), at.end(),
                       [&](const Expr& e) { return e.node().reads && depends_on(e, stage.axes.back().var); });
}

}  // namespace

Status vectorize_map(Schedule& s, const std::string& name, size_t first, const CpuScheduleOptions& options) {
    const Stage& stage = find_stage(s, name);
    std::vector<Loop> loops = s.loops(name);
    if (loops.size() <= first) return {};
    const Loop inner = loops.back();
    // Where no instruction gathers them, places would go through vectors in vain.
    if (!options.machine.masked && moves_from_read_places(stage)) return s.annotate(inner, "unroll", 4);
    int64_t lanes = lanes_of(s, stage, options.machine);
    auto extent = s.extent(inner).as_int();
    // Long chains of instructions run best side by side: each on several vectors.
    int64_t together = 1;
    if (is_costly(stage.value)) together = 4;
    // Narrow elements are read and stored a vector at a time.
    int64_t bytes = int64_t(dtype_bytes(s.compute().buffers[size_t(stage.buffer)].dtype));
    for (const Expr& load : loads_of(stage))
        if (depends_on(load, stage.axes.back().var)) bytes = std::min(bytes, int64_t(dtype_bytes(load.dtype())));
    const bool narrow = lanes * bytes < options.machine.vector_bytes;
    if (narrow && lanes > 1)
        together = std::clamp<int64_t>(options.machine.vector_bytes / (lanes * bytes), together, 4);
    while (together > 1 && extent && *extent < together * lanes) together /= 2;
    lanes *= together;
    if (lanes < 2 || (extent && *extent < lanes)) {
        if (extent && *extent <= 8) return s.unroll(inner);
        return {};
    }
    if (extent && *extent == lanes) return s.vectorize(inner);
    auto [iterations, vector] = TRY(s.split(inner, lanes));
    // What is left of a row takes single vectors.
    if (together > 1 && is_costly(stage.value) && (!extent || *extent % lanes)) {
        auto [vectors, lane] = TRY(s.split(vector, lanes / together));
        TRY(s.annotate(vectors, "unroll", together));
        TRY(s.vectorize(lane));
        return s.loop_partition(iterations);
    }
    TRY(s.vectorize(vector));
    // Each vector of a short line knows which of its lanes are edges.
    constexpr int64_t kFewVectors = 8;
    if (makes_padding(stage) && extent && *extent <= kFewVectors * lanes) return s.unroll(iterations);
    if (together == 1) TRY(s.annotate(iterations, "unroll", 4));
    if (!extent || *extent % lanes || chooses_along(s, find_stage(s, name), stage.axes.back().var))
        TRY(s.loop_partition(iterations));
    return {};
}

namespace {

// All loops but the last: too few for the threads, as far as that is known?
bool rows_may_be_few(const Schedule& s, const std::vector<Loop>& loops, const CpuScheduleOptions& options) {
    int64_t least = 1;
    for (size_t i = 0; i + 1 < loops.size(); ++i) least *= s.extent(loops[i]).as_int().value_or(1);
    return least < 4 * options.threads;
}

// Rows of unknown length, which may be few: tasks are parts of rows.
Status cut_rows(Schedule& s, const std::string& name, const std::vector<Loop>& loops, double element,
                const CpuScheduleOptions& options) {
    auto [part, inside] = TRY(s.split(loops.back(), std::max<int64_t>(64, int64_t((16 << 10) / element) / 64 * 64)));
    Loop all = loops[0];
    for (size_t i = 1; i + 1 < loops.size(); ++i) all = TRY(s.fuse(all, loops[i]));
    all = TRY(s.fuse(all, part));
    TRY(s.parallel(all));
    return vectorize_map(s, name, 1, options);
}

// A transposition to short lines: vectors along what lies without gaps, whose elements are stored one by one.
Status schedule_short_lines(Schedule& s, const std::string& name, size_t crossing, int64_t lanes, double element,
                            const CpuScheduleOptions& options) {
    constexpr int64_t kBlock = 64;
    std::vector<Loop> loops = s.loops(name);
    auto [blocks, inside] = TRY(s.split(loops[crossing], kBlock));
    auto [vectors, lane] = TRY(s.split(inside, lanes));
    std::vector<Loop> order;
    for (size_t i = 0; i + 1 < loops.size(); ++i)
        if (i != crossing) order.push_back(loops[i]);
    order.insert(order.end(), {blocks, loops.back(), vectors, lane});
    TRY(s.reorder(order));
    TRY(s.loop_partition(blocks));
    TRY(s.loop_partition(vectors));
    TRY(s.vectorize(lane));
    (void)TRY(make_tasks(s, name, order.size() - 3, element * double(kBlock), options));
    return {};
}

}  // namespace

Status schedule_map(Schedule& s, const std::string& name, const CpuScheduleOptions& options) {
    TRY(merge_dense_axes(s, name));
    const Stage stage = find_stage(s, name);
    if (stage.axes.empty()) return {};
    std::vector<Loop> loops = s.loops(name);
    double element = double(dtype_bytes(s.compute().buffers[size_t(stage.buffer)].dtype));
    for (const Expr& load : loads_of(stage)) element += double(dtype_bytes(load.dtype()));
    if (auto phases = find_phases(stage, kMostCopies); !phases.empty())
        return schedule_phases(s, name, phases, element, options);
    const int64_t lanes = lanes_of(s, stage, options.machine);
    if (auto count = interleaved(stage);
        count && lanes > 1 && stage.axes.back().extent.as_int().value_or(*count * lanes) >= *count * lanes)
        return schedule_interleaved(s, name, *count, element, options);
    if (is_few_wide(stage, lanes) && moves_pieces(s, stage)) return schedule_pieces(s, name, element, options);
    if (is_few_wide(stage, lanes)) return schedule_few_wide(s, name, element, options);
    if (auto crossing = crossing_axis(s, stage); crossing && lanes > 1) {
        if (options.short_rows && !s.extent(loops.back()).as_int())
            return schedule_short_lines(s, name, *crossing, lanes, element, options);
        // As much as a cache line of what is read, and a vector of what is written: squares, turned in registers.
        const int64_t side = std::max<int64_t>(lanes, 64 / std::max(1, int(element / 2)));
        Loop across = loops[*crossing], along = loops.back();
        auto within = [&](const Loop& l, int64_t most) { return s.extent(l).as_int().value_or(most + 1) <= most; };
        size_t outer = loops.size() - 1;
        std::vector<Loop> order(loops.begin(), loops.end() - 1);
        Loop inner_across = across;
        std::optional<Loop> small;
        if (!within(across, side)) {
            const bool open = !s.extent(across).as_int();
            auto [o, i] = TRY(s.split(across, side));
            order[*crossing] = o;
            inner_across = i;
            TRY(s.loop_partition(o));
            // What an open size leaves is turned in smaller squares.
            if (open && side > lanes) {
                auto [squares, in_square] = TRY(s.split(i, lanes));
                TRY(s.loop_partition(squares));
                small = squares;
                inner_across = in_square;
            }
        } else {
            order.erase(order.begin() + std::ptrdiff_t(*crossing));
            --outer;
        }
        if (!within(along, lanes)) {
            auto [o, i] = TRY(s.split(along, lanes));
            order.push_back(o);
            ++outer;
            TRY(s.loop_partition(o));
            along = i;
        }
        if (small) order.push_back(*small);
        order.insert(order.end(), {inner_across, along});
        TRY(s.reorder(order));
        TRY(vectorize_map(s, name, outer + (small ? 2 : 1), options));
        (void)TRY(make_tasks(s, name, outer, element * double(side * lanes), options));
        return {};
    }
    // Tasks are cut from the outer loops, or from the only one.
    if (loops.size() == 1) {
        int64_t chunk = std::max<int64_t>(lanes, int64_t((16 << 10) / element) / lanes * lanes);
        auto extent = s.extent(loops[0]).as_int();
        if (options.threads < 2 || (extent && *extent <= 2 * chunk)) return vectorize_map(s, name, 0, options);
        if (extent) chunk = std::max(chunk, *extent / (16 * options.threads) / lanes * lanes);
        auto [task, inside] = TRY(s.split(loops[0], chunk));
        TRY(s.parallel(task));
        TRY(s.loop_partition(task));
        return vectorize_map(s, name, 1, options);
    }
    if (options.threads > 1 && !s.extent(loops.back()).as_int() && rows_may_be_few(s, loops, options))
        return cut_rows(s, name, loops, element, options);
    double row = element * double(stage.axes.back().extent.as_int().value_or(256));
    // What is decided for each row costs as much as a few elements of it.
    const size_t before = loops.size() - 2;
    if (stage.axes.back().extent.as_int().value_or(kLongMappedRow) < kLongMappedRow &&
        chooses_along(s, stage, stage.axes[before].var))
        TRY(s.loop_partition(loops[before]));
    TRY(vectorize_map(s, name, loops.size() - 1, options));
    (void)TRY(make_tasks(s, name, loops.size() - 1, row, options));
    return {};
}

}  // namespace tessera
