#include <algorithm>

#include "kernel/analyse/merge_dense_axes.h"
#include "kernel/gpu/device_size.h"
#include "kernel/gpu/gpu_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kAccessBytes = 16, kMostLanes = 8;
constexpr int64_t kSharedLookups = 4, kManyLookups = 1 << 19;
constexpr int64_t kFewElements = 1 << 15, kShortestShare = 64;  // of reductions that are cut
constexpr int64_t kCombined = 64;                               // parts that one thread combines
constexpr int64_t kReadAtOnce = 16;                             // elements of a sum, by one thread
constexpr int64_t kResidentShare = 2;  // of the threads that a GPU has at once, half carry out a reduction

// Whether an expression over a variable differs from lane to lane of a vector.
bool differs_in_vector(const Expr& e, const Expr& var, int64_t width) {
    if (!depends_on(e, var)) return false;
    const Expr lane = index_var("%lane", width), vector = index_var("%vector", {});
    return depends_on(substitute(e, {{var.node().name, vector * width + lane}}), lane);
}

// A load in a branch whose condition differs from lane to lane of a vector: lanes cannot be read together.
bool guards_lanes(const Expr& value, const Expr& var, int64_t width) {
    bool found = false;
    visit(value, [&](const Expr& e) {
        if (found || !e.is(ExprKind::Select)) return;
        if (e.arg(1).node().reads || e.arg(2).node().reads) found = differs_in_vector(e.arg(0), var, width);
    });
    return found;
}

Result<Loop> fused(Schedule& s, const std::vector<Loop>& loops) {
    Loop all = loops[0];
    for (size_t i = 1; i < loops.size(); ++i) all = TRY(s.fuse(all, loops[i]));
    return all;
}

}  // namespace

int64_t access_width(const Schedule& s, const Stage& stage, const ReduceAxis& along, const std::set<int>& own) {
    const auto extent = along.extent.as_int();
    if (!extent) return 1;
    int64_t widest = 1;
    bool regular = true, contiguous = false;
    auto look = [&](int buffer, const std::vector<Expr>& indices) {
        auto step = stride_of(s, buffer, indices, along.var);
        if (!step && std::none_of(indices.begin(), indices.end(),
                                  [&](const Expr& at) { return differs_in_vector(at, along.var, kMostLanes); }))
            return;  // the same for all lanes
        regular &= step && (step->is_int(0) || step->is_int(1));
        if (!step || !step->is_int(1) || own.contains(buffer)) return;
        contiguous = true;
        widest = std::max(widest, int64_t(dtype_bytes(s.compute().buffers[size_t(buffer)].dtype)));
    };
    if (stage.reduce.empty()) look(stage.buffer, stage.store);
    for (const Expr& load : loads_of(stage)) look(load.node().slot, load.args());
    if (!regular || !contiguous) return 1;
    int64_t width = std::min(kMostLanes, kAccessBytes / widest);
    while (width > 1 && (*extent % width || guards_lanes(stage.value, along.var, width))) width /= 2;
    return width;
}

Expr bounds_in_vectors(const Expr& value, const Expr& var) {
    auto compared = [&](const Expr& limit) -> std::optional<Expr> {  // var < limit
        const auto number = limit.as_int();
        if (!number || *number <= 0) return {};
        int64_t whole = kMostLanes;
        while (*number % whole) whole /= 2;
        if (whole == 1) return {};
        return lt(floor_div(var, whole), *number / whole);
    };
    return rewrite(value, [&](const Expr& e) -> Expr {
        if (e.is(ExprKind::Lt) && e.arg(0) == var) return compared(e.arg(1)).value_or(e);
        if (e.is(ExprKind::Le) && e.arg(0) == var) return compared(e.arg(1) + 1).value_or(e);
        auto above = [&](const Expr& first) {
            const auto below = compared(first);
            return below ? logical_not(*below) : e;
        };
        if (e.is(ExprKind::Le) && e.arg(1) == var) return above(e.arg(0));
        if (e.is(ExprKind::Lt) && e.arg(1) == var) return above(e.arg(0) + 1);
        return e;
    });
}

std::optional<size_t> axis_of_lookups(const Stage& stage) {
    std::vector<Expr> lookups;
    for (const Expr& load : loads_of(stage))
        for (const Expr& index : load.args())
            if (index.node().reads) lookups.push_back(index);
    if (lookups.empty() || elements_of(stage.axes).as_int().value_or(kManyLookups) < kManyLookups) return {};
    for (size_t i = 0; i + 1 < stage.axes.size(); ++i) {
        const ReduceAxis& axis = stage.axes[i];
        if (axis.extent.as_int().value_or(1) % kSharedLookups) continue;
        if (std::none_of(lookups.begin(), lookups.end(), [&](const Expr& e) { return depends_on(e, axis.var); }))
            return i;
    }
    return {};
}

Status map_to_threads(Schedule& s, const std::string& name, bool share_squares) {
    TRY(merge_dense_axes(s, name));
    if (share_squares) {
        Schedule before = s;
        auto transposed = transpose_to_blocks(s, name);
        if (transposed.ok() && *transposed) return {};
        s = std::move(before);
    }
    const Stage stage = find_stage(s, name);
    if (stage.axes.empty()) return {};
    std::vector<Loop> loops = s.loops(name);
    const int64_t width = access_width(s, stage, stage.axes.back());
    if (width > 1) {
        auto [vectors, lane] = TRY(s.split(loops.back(), width));
        TRY(s.vectorize(lane));
        loops.back() = vectors;
    } else if (const auto shared = axis_of_lookups(stage)) {
        auto [outer, inner] = TRY(s.split(loops[*shared], kSharedLookups));
        loops[*shared] = outer;
        std::vector<Loop> order = loops;
        order.push_back(inner);
        TRY(s.reorder(order));
        TRY(s.unroll(inner));
    }
    return s.parallel(TRY(fused(s, loops)));
}

namespace {

// One thread for each element; `last_outside`: neighbours are those along the other axes.
Status reduce_alone(Schedule& s, const std::string& name, bool last_outside) {
    const std::string out = TRY(s.cache_write(name, Scope::Register));
    std::vector<Loop> loops = s.loops(out);
    if (loops.empty()) return {};
    if (last_outside && loops.size() > 1) {
        std::rotate(loops.begin(), loops.end() - 1, loops.end());
        TRY(s.reorder(loops));
    }
    const Loop thread = TRY(fused(s, loops));
    TRY(s.parallel(thread));
    TRY(s.compute_at(name, thread));
    return s.annotate(s.loops(name).back(), "unroll", kReadAtOnce);
}

// Parts of a long reduction of few elements, so that there are threads enough; 1: it stays whole.
int64_t parts_of(const Stage& stage, const Machine& machine) {
    const auto elements = elements_of(stage.axes).as_int(), length = elements_of(stage.reduce).as_int();
    if (!elements || !length || stage.fold || *elements >= kFewElements) return 1;
    const int64_t threads = divide_up(device_threads(machine), kResidentShare * std::max<int64_t>(*elements, 1));
    return std::clamp<int64_t>(*length / kShortestShare, 1, std::clamp(threads, kCombined, kCombined * kCombined));
}

// The parts of a reduction, each by a thread of its own for each element; `name` combines them.
Status reduce_parts(Schedule& s, const std::string& name, int64_t parts) {
    std::vector<Loop> reduced;
    for (const Loop& l : s.loops(name))
        if (s.reduces(l)) reduced.push_back(l);
    auto [part, inside] = TRY(s.split_parts(TRY(fused(s, reduced)), parts));
    return reduce_alone(s, TRY(s.rfactor(part)), true);
}

}  // namespace

Status reduce_by_threads(Schedule& s, const std::string& name, const Machine& machine) {
    const int64_t parts = parts_of(find_stage(s, name), machine);
    if (parts > 1) TRY(reduce_parts(s, name, parts));
    if (parts > kCombined) TRY(reduce_parts(s, name, divide_up(parts, kCombined)));
    return reduce_alone(s, name, false);
}

}  // namespace tessera
