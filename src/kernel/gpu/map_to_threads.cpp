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
constexpr int64_t kReadAtOnce = 16, kFewestReads = 8;           // elements of a sum, by one thread; vectors of them
constexpr int64_t kResidentShare = 2;  // of the threads that a GPU has at once, half carry out a reduction
constexpr int64_t kFullShare = 4;      // and a quarter suffice, where each adds up several columns

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

// Neighbouring columns that a thread adds up at once, by loads of up to 16 bytes. What is the same for all rows is read
// once, however wide it is.
int64_t columns_at_once(const Schedule& s, const Stage& stage, const ReduceAxis& column) {
    std::set<int> once;
    for (const Expr& load : loads_of(stage))
        if (std::none_of(stage.reduce.begin(), stage.reduce.end(),
                         [&](const ReduceAxis& row) { return depends_on(load, row.var); }))
            once.insert(load.node().slot);
    return access_width(s, stage, column, once);
}

// Neighbours in memory are those along the axes before the last.
Status store_last_outside(Schedule& s, const std::string& name) {
    IndexMap map;
    for (const ReduceAxis& axis : find_stage(s, name).axes) {
        map.vars.push_back(axis.var);
        map.indices.push_back(axis.var);
        map.shape.push_back(axis.extent);
    }
    std::rotate(map.indices.begin(), map.indices.end() - 1, map.indices.end());
    std::rotate(map.shape.begin(), map.shape.end() - 1, map.shape.end());
    return s.transform_layout(name, map);
}

// One thread for each element, or for so many neighbours along the last of these axes; `last_outside`: neighbours are
// those along the axes before the last, which is that of parts.
Status reduce_alone(Schedule& s, const std::string& name, bool last_outside, int64_t lanes = 1) {
    const std::string out = TRY(s.cache_write(name, Scope::Register));
    std::vector<Loop> loops = s.loops(out);
    if (loops.empty()) return {};
    if (last_outside && loops.size() > 1) {
        std::rotate(loops.begin(), loops.end() - 1, loops.end());
        TRY(s.reorder(loops));
        TRY(store_last_outside(s, out));
    }
    if (lanes > 1) {
        auto [vectors, lane] = TRY(s.split(loops.back(), lanes));
        TRY(s.vectorize(lane));
        loops.back() = vectors;
    }
    const Loop thread = TRY(fused(s, loops));
    TRY(s.parallel(thread));
    TRY(s.compute_at(name, thread));
    if (lanes > 1) {
        std::vector<Loop> kept, order;
        for (const Loop& l : s.loops(name)) (s.reduces(l) ? order : kept).push_back(l);
        const size_t column = kept.size() - (last_outside ? 2 : 1);
        auto [vector, lane] = TRY(s.split(kept[column], lanes));
        kept[column] = vector;
        order.insert(order.begin(), kept.begin(), kept.end());
        order.push_back(lane);
        TRY(s.reorder(order));
        TRY(s.vectorize(lane));
        return s.annotate(order[order.size() - 2], "unroll", std::max(kReadAtOnce / lanes, kFewestReads));
    }
    return s.annotate(s.loops(name).back(), "unroll", kReadAtOnce);
}

// Parts of a long reduction of few elements, so that there are threads enough; 1: it stays whole.
int64_t parts_of(const Stage& stage, int64_t lanes, const Machine& machine) {
    const auto elements = elements_of(stage.axes).as_int(), length = elements_of(stage.reduce).as_int();
    if (!elements || !length || stage.fold || *elements >= kFewElements) return 1;
    const int64_t vectors = std::max<int64_t>(*elements / lanes, 1);
    const int64_t threads = divide_up(device_threads(machine), kResidentShare * vectors);
    return std::clamp<int64_t>(*length / std::max(kShortestShare / lanes, kFewestReads), 1,
                               std::clamp(threads, kCombined, kCombined * kCombined));
}

// The parts of a reduction, each by a thread of its own for each element, or vector of them; `name` combines them.
Status reduce_parts(Schedule& s, const std::string& name, int64_t parts, int64_t lanes) {
    std::vector<Loop> reduced;
    for (const Loop& l : s.loops(name))
        if (s.reduces(l)) reduced.push_back(l);
    auto [part, inside] = TRY(s.split_parts(TRY(fused(s, reduced)), parts));
    return reduce_alone(s, TRY(s.rfactor(part)), true, lanes);
}

}  // namespace

Status reduce_by_threads(Schedule& s, const std::string& name, const Machine& machine) {
    const Stage stage = find_stage(s, name);
    const int64_t lanes = stage.axes.empty() || stage.fold ? 1 : columns_at_once(s, stage, stage.axes.back());
    const int64_t parts = parts_of(stage, lanes, machine);
    if (parts > 1) TRY(reduce_parts(s, name, parts, lanes));
    if (parts > kCombined) TRY(reduce_parts(s, name, divide_up(parts, kCombined), 1));
    const auto elements = elements_of(stage.axes).as_int();
    const bool fills = parts == 1 && elements && *elements / lanes >= device_threads(machine) / kFullShare;
    return reduce_alone(s, name, false, fills ? lanes : 1);
}

}  // namespace tessera
