// Windows: reductions whose innermost axis lies in lanes (pooling, depthwise convolution, sums over outer axes). A few
// outputs at a time are summed in registers.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "kernel/cpu/padding.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/ir/regions.h"

namespace tessera {

Status turn_weights(Schedule& s, const std::string& sum, const Expr& channel) {
    const Stage stage = find_stage(s, sum);
    for (const Expr& load : loads_of(stage)) {
        const int slot = load.node().slot;
        auto along = stride_of(s, load, channel);
        if (size_t(slot) >= s.compute().known.size() || !s.compute().known[size_t(slot)]) continue;
        if (!along || along->is_int(0) || along->is_int(1)) continue;
        std::vector<size_t> order, last;
        for (size_t d = 0; d < load.args().size(); ++d) (depends_on(load.arg(d), channel) ? last : order).push_back(d);
        if (last.size() != 1 || loads_of(find_stage(s, sum), slot).empty()) continue;
        order.push_back(last[0]);
        const Buffer& from = s.compute().buffers[size_t(slot)];
        IndexMap map;
        for (size_t d = 0; d < from.shape.size(); ++d)
            map.vars.push_back(index_var("d" + std::to_string(d), from.shape[d].as_int()));
        for (size_t d : order) {
            map.indices.push_back(map.vars[d]);
            map.shape.push_back(from.shape[d]);
        }
        std::string transposed = TRY(s.cache_read(sum, slot, Scope::Global));
        TRY(s.transform_layout(transposed, map));
    }
    return {};
}

const Stage* padded_copy(const Schedule& s, const Stage& stage) {
    for (const Expr& load : loads_of(stage))
        if (const Stage* writer = writer_of(s, load.node().slot); writer && makes_padding(*writer)) return writer;
    return nullptr;
}

namespace {

constexpr int64_t kFewestLanes = 4;  // that are worth a vector

// Axes of one element go into their neighbours: no loop needs them.
Status merge_unit_axes(Schedule& s, const std::string& sum, const std::string& out) {
    const auto& axes = find_stage(s, sum).axes;
    std::vector<std::vector<int>> groups(1);
    for (size_t i = 0; i < axes.size(); ++i) {
        bool all_units = true;
        for (int j : groups.back()) all_units &= axes[size_t(j)].extent.is_int(1);
        if (!groups.back().empty() && !all_units && !axes[i].extent.is_int(1)) groups.emplace_back();
        groups.back().push_back(int(i));
    }
    if (groups.size() == axes.size()) return {};
    const bool alike = find_stage(s, out).axes.size() == axes.size();  // it may have none of one element left
    TRY(s.merge_axes(sum, groups));
    return alike ? s.merge_axes(out, groups) : Status();
}

struct WindowTiles {
    int64_t vectors = 1, pixels = 1;
    int64_t iterations = 1;  // of the last reduction, summed side by side
    int64_t block = 0;       // vectors of a row that are summed in memory, where they are too many for registers
    int64_t taps = 1;
    bool small = true;  // the taps are few and known
};

constexpr int64_t kOpenIterations = 4;  // side by side, where neither rows nor columns are known

int64_t largest_divisor(int64_t n, int64_t most) {
    for (int64_t d = std::min(n, most); d > 1; --d)
        if (n % d == 0) return d;
    return 1;
}

// Parts of so many of n, or down to half as many, that have the least to do again.
int64_t most_even(int64_t n, int64_t most) {
    int64_t best = std::min(n, most);
    for (int64_t p = best; p > 1 && 2 * p >= most; --p)
        if (divide_up(n, p) * p < divide_up(n, best) * best) best = p;
    return best;
}

bool slides_along(const Stage& stage, const Expr& axis) {
    bool found = false;
    for (const Expr& load : loads_of(stage))
        for (const Expr& index : load.args())
            for (const ReduceAxis& r : stage.reduce) found |= depends_on(index, axis) && depends_on(index, r.var);
    return found;
}

// Does the window slide along the axis before the last, so that neighbours there share what they read?
bool slides(const Stage& stage) {
    return stage.axes.size() >= 2 && slides_along(stage, stage.axes[stage.axes.size() - 2].var);
}

// The tile of a window over a padded copy, which may reach beyond the last row and column.
void round_up_tiles(WindowTiles& t, const Stage& stage, int64_t lanes, const CpuScheduleOptions& options) {
    constexpr int64_t kMostPixels = 8, kMostVectors = 6;
    constexpr int64_t kSomeRows = 4, kSomeVectors = 2;  // where the size is open, and may be small
    const int64_t sums = options.machine.vector_registers / 2;
    const bool rows = t.taps > 1 && slides(stage);
    const int64_t height = rows ? stage.axes[stage.axes.size() - 2].extent.as_int().value_or(kSomeRows) : 1;
    const int64_t some = options.tile_columns ? options.tile_columns : kSomeVectors * lanes;
    const int64_t width = divide_up(stage.axes.back().extent.as_int().value_or(some), lanes);
    double least = INFINITY;
    for (int64_t p = 1; p <= std::min(height, kMostPixels); ++p)
        for (int64_t v = 1; v <= std::min({width, kMostVectors, sums / p}); ++v) {
            const double cost = double(divide_up(height, p) * divide_up(width, v)) * double(4 * p * v + p + v + 4);
            if (cost < least) least = cost, t.pixels = p, t.vectors = v;
        }
}

// As many outputs as the registers hold sums for, of sizes that leave no rest where there are such.
WindowTiles choose_window(const Stage& stage, int64_t lanes, bool in_lanes, const CpuScheduleOptions& options) {
    WindowTiles t;
    for (const ReduceAxis& r : stage.reduce) {
        auto e = r.extent.as_int();
        t.small &= e.has_value();
        t.taps *= e.value_or(1);
    }
    // Sums are kept short, for their error; extremes may be long.
    const int64_t most = stage.combine == ReduceOp::Sum ? 192 : 4096;
    t.small &= t.taps <= 49 || (t.taps <= most && (slides(stage) || slides_along(stage, stage.axes.back().var)));
    const int64_t sums = options.machine.vector_registers / 2;
    auto channels = stage.axes.back().extent.as_int();
    if (t.small && t.taps > 1 && slides(stage)) {
        auto width = stage.axes[stage.axes.size() - 2].extent.as_int();
        const int64_t most = std::min<int64_t>(sums / 2, 8);
        t.pixels = width ? largest_divisor(*width, most) : 4;
        // Rather some of them twice than each by itself.
        if (width && 2 * t.pixels<most&& * width> t.pixels) t.pixels = most_even(*width, most);
    }
    if (!in_lanes) return t;
    t.vectors = std::max<int64_t>(1, std::min<int64_t>(4, sums / t.pixels));
    if (!channels && options.tile_columns) t.vectors = std::max<int64_t>(1, options.tile_columns / lanes);
    if (channels && *channels % lanes == 0) {
        // A long sum reads as much of each row as it can, as long as there is something for each thread.
        const int64_t all = *channels / lanes, threads = options.strict ? 1 : options.threads;
        const int64_t most = all / (threads > 1 ? 2 * threads : 1);
        if (!t.small) t.vectors = std::clamp<int64_t>(most, t.vectors, sums / 2);
        if (!t.small && most > 4 * sums && stage.reduce.size() == 1)
            t.block = largest_divisor(all, std::min(most, options.machine.l1_bytes / 4 / options.machine.vector_bytes));
        t.vectors = largest_divisor(*channels / lanes, t.vectors);
    }
    while (t.vectors > 1 && channels && *channels < t.vectors * lanes) --t.vectors;
    // Additions wait for each other: there are enough of them at a time.
    auto last = stage.reduce.back().extent.as_int();
    if (!t.small) t.iterations = std::clamp<int64_t>(sums / 2 / t.vectors, 1, channels ? sums : kOpenIterations);
    while (t.iterations > 1 && last && *last < 4 * t.iterations) t.iterations /= 2;
    return t;
}

// How many tiles of channels to take at once, so that the rows of input that neighbouring rows of output share are
// still in the first cache; 0: all.
int64_t channel_block(const Stage& stage, int64_t channels, int64_t tile, const Machine& machine) {
    if (stage.axes.size() < 3 || stage.reduce.size() < 2) return 0;
    const ReduceAxis &y = stage.axes[stage.axes.size() - 3], &x = stage.axes[stage.axes.size() - 2];
    auto stride_along = [&](const Expr& var) {
        int64_t stride = 1;
        for (const Expr& load : loads_of(stage))
            for (const Expr& index : load.args())
                if (auto step = step_of(index, var)) stride = std::max(stride, step->as_int().value_or(1));
        return stride;
    };
    int64_t row = x.extent.as_int().value_or(64) * stride_along(x.var) * 4;
    int64_t window = stage.reduce[0].extent.as_int().value_or(3);
    if (stride_along(y.var) >= window || !slides_along(stage, y.var)) return 0;  // they share nothing
    int64_t fits = machine.l1_bytes * 3 / 4 / std::max<int64_t>(row * window, 1);
    if (fits >= channels) return 0;
    int64_t whole_lines = std::max<int64_t>(tile, 16);
    return largest_divisor(channels / tile, std::max(fits, whole_lines) / tile);
}

// What is padded along this reduction axis is padded for all places of a tile at once, so that its iterations are left
// out.
bool skips_padding(const Expr& condition, const ReduceAxis& r, const Stage& stage) {
    if (!depends_on(condition, r.var)) return false;
    for (const ReduceAxis& other : stage.reduce)
        if (other.var != r.var && depends_on(condition, other.var)) return false;
    for (size_t i = stage.axes.size() - std::min<size_t>(2, stage.axes.size()); i < stage.axes.size(); ++i)
        if (depends_on(condition, stage.axes[i].var)) return false;
    return true;
}

struct Padding {
    std::vector<bool> skipped;  // by reduction axis
    bool others = false;        // conditions on outer axes that are not of that kind
    bool pixels = false;        // on the axis before the last
    bool lanes = false;         // on the last axis
};

Padding find_padding(const Stage& stage) {
    Padding found{.skipped = std::vector<bool>(stage.reduce.size())};
    const size_t axes = stage.axes.size();
    visit(stage.value, [&](const Expr& e) {
        if (!e.is(ExprKind::Select)) return;
        for (const Expr& c : conjuncts(e.arg(0))) {
            found.lanes |= axes > 0 && depends_on(c, stage.axes[axes - 1].var);
            found.pixels |= axes > 1 && depends_on(c, stage.axes[axes - 2].var);
            bool skipped = false;
            for (size_t i = 0; i < stage.reduce.size(); ++i)
                if (skips_padding(c, stage.reduce[i], stage)) found.skipped[i] = skipped = true;
            for (size_t i = 0; i + 2 < stage.axes.size(); ++i)
                found.others |= !skipped && depends_on(c, stage.axes[i].var);
        }
    });
    return found;
}

constexpr int64_t kOpenRows = 48;  // of an image of unknown size; there may be one such image, or several

// How many rows one task takes, of images with so many.
int64_t rows_per_task(int64_t images, int64_t rows, int threads) {
    int64_t most = std::max<int64_t>(1, images * rows / (6 * threads));
    int64_t even = largest_divisor(rows, most);
    return even * 2 > most ? even : most;
}

// partial[.., channel, part] lies as [.., part, channel].
Status move_channels_last(Schedule& s, const std::string& partial) {
    const Stage& stage = find_stage(s, partial);
    IndexMap map;
    for (size_t i = 0; i < stage.axes.size(); ++i) {
        map.vars.push_back(index_var("d" + std::to_string(i), stage.axes[i].extent.as_int()));
        map.shape.push_back(stage.axes[i].extent);
    }
    map.indices = map.vars;
    std::swap(map.indices[stage.axes.size() - 1], map.indices[stage.axes.size() - 2]);
    std::swap(map.shape[stage.axes.size() - 1], map.shape[stage.axes.size() - 2]);
    return s.transform_layout(partial, map);
}

// `sum` adds its parts up in vectors of channels. Gives the loop over them.
Result<Loop> add_parts_up(Schedule& s, const std::string& sum, int64_t lanes) {
    std::vector<Loop> own = s.loops(sum);
    const Loop parts = own.back(), channel = own[own.size() - 2];
    auto [vectors, lane] = TRY(s.split(channel, lanes));
    TRY(s.reorder({parts, vectors, lane}));
    TRY(s.unroll(vectors));
    TRY(s.vectorize(lane));
    return parts;
}

// A part: iterations outside, channels inside, in registers. Gives its last reduction.
Result<Loop> schedule_part(Schedule& s, const std::string& partial, const Loop& inside, int64_t lanes) {
    TRY(s.compute_at(partial, inside));
    TRY(s.set_scope(partial, Scope::Register));
    TRY(move_channels_last(s, partial));
    std::vector<Loop> kept, order;
    for (const Loop& loop : s.loops(partial)) (s.reduces(loop) ? order : kept).push_back(loop);
    const Loop last = order.back();
    auto [vectors, lane] = TRY(s.split(kept[kept.size() - 2], lanes));
    order.insert(order.end(), {kept.back(), vectors, lane});
    TRY(s.reorder(order));
    TRY(s.unroll(kept.back()));
    TRY(s.unroll(vectors));
    TRY(s.vectorize(lane));
    return last;
}

// Several sums side by side over the last reduction, which `sum` then adds up.
Status sum_side_by_side(Schedule& s, const std::string& sum, const Loop& inside, const WindowTiles& tiles,
                        int64_t lanes) {
    const Loop last = s.loops(sum).back();
    auto extent = s.extent(last).as_int();
    auto [iterations, part] = TRY(s.split(last, tiles.iterations));
    std::string partial = TRY(s.rfactor(part));
    const Loop iteration = TRY(schedule_part(s, partial, inside, lanes));
    if (!extent || *extent % tiles.iterations) TRY(s.loop_partition(iteration));
    return s.unroll(TRY(add_parts_up(s, sum, lanes)));
}

// A long sum row by row, or in parts of one row: what is added up one by one stays short, and with it the error.
Status sum_in_parts(Schedule& s, const std::string& sum, int64_t lanes) {
    constexpr int64_t kPart = 64;
    std::vector<Loop> reduced;
    for (const Loop& l : s.loops(sum))
        if (s.reduces(l)) reduced.push_back(l);
    Loop outer = reduced[0];
    bool cut = false;  // the last part has less
    if (reduced.size() == 1) {
        cut = s.extent(outer).as_int().value_or(1) % kPart != 0;
        auto [parts, part] = TRY(s.split(outer, kPart));
        outer = parts;
    }
    std::string partial = TRY(s.rfactor(outer));
    const Loop parts = TRY(add_parts_up(s, sum, lanes));
    const Loop last = TRY(schedule_part(s, partial, parts, lanes));
    if (cut) TRY(s.loop_partition(last));
    return s.annotate(last, "unroll", 4);
}

// Sums of many rows that are too long for registers: parts of them in the first cache, to which a few rows are added at
// a time, so that rows are read as they lie.
Status sum_in_memory(Schedule& s, const std::string& sum, const std::string& out, int64_t block, int64_t lanes,
                     bool parallel) {
    constexpr int64_t kRows = 4;
    std::vector<Loop> loops = s.loops(out);
    auto [at, in_block] = TRY(s.split(loops.back(), block * lanes));
    auto [vectors, lane] = TRY(s.split(in_block, lanes));
    TRY(s.annotate(vectors, "unroll", 4));
    TRY(s.vectorize(lane));
    TRY(s.compute_at(sum, at));
    TRY(s.set_scope(sum, Scope::Local));
    std::vector<Loop> kept, order;
    for (const Loop& l : s.loops(sum)) (s.reduces(l) ? order : kept).push_back(l);
    auto extent = s.extent(order.back()).as_int();
    auto [iterations, rows] = TRY(s.split(order.back(), kRows));
    auto [v, l] = TRY(s.split(kept.back(), lanes));
    order.back() = iterations;
    order.insert(order.end(), {v, rows, l});
    TRY(s.reorder(order));
    TRY(s.unroll(rows));
    TRY(s.vectorize(l));
    TRY(s.annotate(v, "unroll", 2));
    if (!extent || *extent % kRows) TRY(s.loop_partition(iterations));
    if (!parallel) return {};
    Loop all = loops[0];
    for (size_t i = 1; i + 1 < loops.size(); ++i) all = TRY(s.fuse(all, loops[i]));
    if (loops.size() > 1) return s.parallel(TRY(s.fuse(all, at)));
    return s.parallel(at);
}

// The sums of one tile.
Status sum_tile(Schedule& s, const std::string& sum, const Loop& inside, const WindowTiles& tiles,
                const Padding& padding, int64_t lanes, bool in_lanes) {
    if (in_lanes && tiles.iterations > 1) return sum_side_by_side(s, sum, inside, tiles, lanes);
    if (in_lanes && !tiles.small && tiles.pixels == 1 && find_stage(s, sum).combine == ReduceOp::Sum)
        return sum_in_parts(s, sum, lanes);
    std::vector<Loop> kept, reduced;
    for (const Loop& l : s.loops(sum)) (s.reduces(l) ? reduced : kept).push_back(l);
    std::vector<Loop> body = reduced;
    const bool pixels = tiles.pixels > 1;
    if (pixels) body.push_back(kept[kept.size() - 2]);
    if (in_lanes) {
        auto [v, l] = TRY(s.split(kept.back(), lanes));
        body.insert(body.end(), {v, l});
        TRY(s.reorder(body));
        TRY(s.unroll(v));
        TRY(s.vectorize(l));
    } else {
        TRY(s.reorder(body));
    }
    if (pixels) TRY(s.unroll(kept[kept.size() - 2]));
    if (!tiles.small) return s.annotate(reduced.back(), "unroll", 4);
    // Small windows are written out, of larger ones a row. Padding is left out row by row.
    constexpr int64_t kWrittenOutRow = 13;
    const size_t first = tiles.taps > 9 ? reduced.size() - 1 : 0;
    for (size_t i = 0; i < reduced.size(); ++i) {
        if (padding.skipped[i])
            TRY(s.loop_partition(reduced[i]));
        else if (i >= first && s.extent(reduced[i]).as_int().value_or(0) <= kWrittenOutRow)
            TRY(s.unroll(reduced[i]));
    }
    return {};
}

// A window being scheduled: what is known of it, and the loops of its output as they are cut.
struct Window {
    Schedule& s;
    const std::string &sum, &out;
    const CpuScheduleOptions& options;
    const Stage stage;
    const Padding padding;
    const int64_t lanes;
    const std::optional<int64_t> channels;
    const bool in_lanes;
    const WindowTiles tiles;
    bool parallel = false;
    int64_t steps = 1;       // that a window goes from column to column: a padded copy has columns apart by them
    bool in_memory = false;  // what reads the sums of a tile reads them from memory

    // A tile: neighbours along the axis before the last, in vectors along the last.
    std::vector<Loop> outer = {};  // around tiles, but for that over the channels
    std::optional<Loop> pixel = {}, vector = {}, lane = {}, columns = {};
    Loop at = {};  // over the channels' tiles
    std::vector<Loop> tasks = {};
    std::optional<Loop> around = {};  // a padded copy

    int64_t tile_channels() const { return tiles.vectors * lanes; }
    size_t row_loops() const { return columns ? outer.size() - 1 : outer.size(); }  // those before the columns

    Status cut_tiles();
    Result<std::optional<Loop>> cut_channel_blocks();
    Result<std::vector<Loop>> order_by_channel(const std::optional<Loop>& blocks);
    Result<std::vector<Loop>> order_by_row(const std::optional<Loop>& blocks, int64_t images, int64_t rows);
    Result<std::vector<Loop>> order_tasks();
    Status arrange(std::vector<Loop> order);
    Status sum_in_local_tile(const Loop& inside);
    Result<std::optional<Loop>> run_tasks();
    Status make_copy(const std::optional<Loop>& inside);
};

// By how much a window goes from column to column, where it takes several places of a row in steps of more than one.
int64_t steps_of_columns(const Stage& stage, const Stage& copy) {
    constexpr int64_t kMostSteps = 4, kFewestTaps = 3;
    for (const Expr& load : loads_of(stage, copy.buffer)) {
        const Expr& index = load.args().back();
        auto step = step_of(index, stage.axes.back().var);
        if (!step || step->as_int().value_or(1) < 2 || *step->as_int() > kMostSteps) continue;
        int64_t taps = 1;
        for (const ReduceAxis& r : stage.reduce)
            if (depends_on(index, r.var)) taps *= r.extent.as_int().value_or(1);
        if (taps < 2) continue;
        for (const ReduceAxis& a : stage.axes)
            if (!depends_on(load, a.var)) taps *= a.extent.as_int().value_or(1);
        if (taps >= kFewestTaps) return *step->as_int();
    }
    return 1;
}

// Rows of a copy have room for whole vectors, so that none of them is stored in parts.
void fill_vectors(Schedule& s, const Stage& stage, const Stage& copy, int64_t lanes) {
    std::vector<int64_t> multiples(copy.axes.size(), 1);
    multiples.back() = lanes * steps_of_columns(stage, copy);
    (void)s.pad(copy.name, multiples);  // refused where what it reads is not bounded: then the last are stored in parts
}

// Where a window goes in steps, places of one remainder lie together in its copy. Gives the steps.
int64_t part_columns(Schedule& s, const Stage& stage, const Stage& copy) {
    const int64_t steps = steps_of_columns(stage, copy);
    if (steps > 1) {
        IndexMap map;
        for (const ReduceAxis& axis : copy.axes) {
            map.vars.push_back(index_var("d" + std::to_string(map.vars.size()), axis.extent.as_int()));
            map.indices.push_back(map.vars.back());
            map.shape.push_back(axis.extent);
        }
        map.indices.back() = mod(map.vars.back(), steps);
        map.indices.push_back(floor_div(map.vars.back(), steps));
        map.shape.back() = steps;
        map.shape.push_back(ceil_div(copy.axes.back().extent, steps));
        if (s.transform_layout(copy.name, map)) return steps;
    }
    return 1;
}

Window look_at(Schedule& s, const std::string& sum, const std::string& out, const CpuScheduleOptions& options) {
    Stage stage = find_stage(s, sum);
    int64_t lanes = lanes_of(s, stage, options.machine);
    auto channels = s.extent(s.loops(out).back()).as_int();
    // A part of a vector is better than none.
    if (channels && *channels >= kFewestLanes)
        lanes = std::min<int64_t>(lanes, int64_t(std::bit_floor(uint64_t(*channels))));
    const bool in_lanes = lanes > 1 && (!channels || *channels >= lanes);
    WindowTiles tiles = choose_window(stage, lanes, in_lanes, options);
    int64_t steps = 1;
    const Stage* copy = padded_copy(s, stage);
    if (copy && in_lanes && tiles.small) {
        WindowTiles wider = tiles;
        round_up_tiles(wider, stage, lanes, options);
        std::vector<int64_t> multiples(stage.axes.size() + stage.reduce.size(), 1);
        multiples[stage.axes.size() - 1] = wider.vectors * lanes;
        if (wider.pixels > 1) multiples[stage.axes.size() - 2] = wider.pixels;
        if (s.pad(sum, multiples)) tiles = wider;
        stage = find_stage(s, sum);
        copy = padded_copy(s, stage);
        if (stage.axes.size() > 1 && axes_around_padding(stage, *copy) > 0) {
            fill_vectors(s, stage, *copy, lanes);
            steps = part_columns(s, stage, *padded_copy(s, stage));
        }
    }
    double work = double(tiles.taps) * double(channels.value_or(64));
    for (const ReduceAxis& a : stage.axes) work *= double(a.extent.as_int().value_or(64));
    const bool parallel = options.threads > 1 && work > 100e3;
    Padding padding = find_padding(stage);
    padding.others |= padding.pixels && tiles.pixels == 1;
    return {s,     sum,      out,      options, std::move(stage), std::move(padding),
            lanes, channels, in_lanes, tiles,   parallel,         steps};
}

Status Window::cut_tiles() {
    const std::vector<Loop> loops = s.loops(out);
    const size_t last = loops.size() - 1;
    outer.assign(loops.begin(), loops.end() - 1);
    if (tiles.pixels > 1) {
        const auto extent = s.extent(loops[last - 1]).as_int();
        const bool whole =
            extent && *extent >= tiles.pixels && *extent % tiles.pixels && !padded_copy(s, find_stage(s, sum));
        auto [o, i] =
            whole ? TRY(s.split_whole(loops[last - 1], tiles.pixels)) : TRY(s.split(loops[last - 1], tiles.pixels));
        outer.back() = o;
        columns = o;
        pixel = i;
    }
    if (const Stage* copy = padded_copy(s, find_stage(s, sum)))
        if (size_t count = std::min(last, axes_around_padding(find_stage(s, sum), *copy)); count > 0)
            around = outer[count - 1];
    at = loops[last];
    // Costly functions are not written out for each sum of a tile: they read it from memory, row by row.
    in_memory = in_lanes && pixel && is_costly(find_stage(s, out).value);
    if (!in_lanes) return {};
    auto [o, i] = options.whole_tiles ? TRY(s.split_whole(loops[last], tile_channels()))
                                      : TRY(s.split(loops[last], tile_channels()));
    at = o;
    lane = i;
    if (in_memory) return {};
    auto [v, l] = TRY(s.split(i, lanes));
    vector = v;
    lane = l;
    return {};
}

// The loop over blocks of channels, where their tiles are taken in such.
Result<std::optional<Loop>> Window::cut_channel_blocks() {
    if (!tiles.small || !in_lanes || !channels || *channels % tile_channels()) return std::optional<Loop>();
    if (around) return std::optional<Loop>();  // lines of a copy are read as they lie
    const int64_t each = channel_block(stage, *channels, tile_channels(), options.machine);
    if (each <= 0) return std::optional<Loop>();
    auto [o, i] = TRY(s.split(at, each));
    at = i;
    return std::optional<Loop>(o);
}

Result<std::vector<Loop>> Window::order_by_channel(const std::optional<Loop>& blocks) {
    tasks = {blocks ? *blocks : at};
    std::vector<Loop> order = tasks;
    if (blocks) outer.push_back(at);
    order.insert(order.end(), outer.begin(), outer.end());
    return order;
}

Result<std::vector<Loop>> Window::order_by_row(const std::optional<Loop>& blocks, int64_t images, int64_t rows) {
    const size_t count = row_loops();
    std::vector<Loop> order = outer;
    bool row_is_inside = count > 0;
    if (count > 0 && parallel) {
        Loop& row = order[count - 1];
        int64_t each = rows_per_task(images, rows, options.threads);
        tasks.assign(order.begin(), order.begin() + std::ptrdiff_t(count));
        if (each > 1) {
            auto [o, i] = TRY(s.split(row, each));
            row = i;
            tasks.back() = o;
            order.insert(order.begin() + std::ptrdiff_t(count) - 1, o);
            if (padding.others) TRY(s.loop_partition(i));
        } else {
            row_is_inside = false;
        }
    } else if (count > 0 && padding.others) {
        TRY(s.loop_partition(order[count - 1]));
    }
    // Blocks of channels stand inside the tasks, around the rows of each.
    if (blocks) order.insert(order.end() - std::ptrdiff_t(outer.size() - count) - (row_is_inside ? 1 : 0), *blocks);
    order.push_back(at);
    return order;
}

// Tasks: parts of images in whole rows, or else parts of the channels. Gives the loops around a tile in their order.
Result<std::vector<Loop>> Window::order_tasks() {
    int64_t images = 1, rows = 1;
    for (size_t i = 0; i < row_loops(); ++i) {
        images *= rows;
        rows = s.extent(outer[i]).as_int().value_or(i + 1 == row_loops() ? kOpenRows : 1);
    }
    const int64_t channel_tiles = channels && in_lanes ? *channels / tile_channels() : 1;
    const bool by_channel = parallel && images * rows < 6 * options.threads && channel_tiles >= 2 * options.threads;
    const std::optional<Loop> blocks = TRY(cut_channel_blocks());
    return by_channel ? order_by_channel(blocks) : order_by_row(blocks, images, rows);
}

// The loops of the output in their order, those of a tile written out.
Status Window::arrange(std::vector<Loop> order) {
    if (columns) {
        // Where all tiles of a row touch its ends, each knows what it touches.
        auto count = s.extent(*columns).as_int();
        if (count && *count <= 3)
            TRY(s.unroll(*columns));
        else
            TRY(s.loop_partition(*columns));
    }
    for (const std::optional<Loop>& loop : {pixel, vector, lane})
        if (loop) order.push_back(*loop);
    TRY(s.reorder(order));
    if (pixel && in_memory) TRY(s.annotate(*pixel, "unroll", 2));
    if (pixel && !in_memory) TRY(s.unroll(*pixel));
    if (vector) TRY(s.unroll(*vector));
    if (!lane) return {};
    TRY(s.vectorize(*lane));
    const bool whole = options.whole_tiles || (channels && *channels % tile_channels() == 0);
    if (!whole || padding.lanes) TRY(s.loop_partition(at));
    return {};
}

Status Window::sum_in_local_tile(const Loop& inside) {
    std::string tile = TRY(s.cache_write(sum, Scope::Register));
    TRY(s.compute_at(tile, inside));
    TRY(s.set_scope(tile, Scope::Local));
    std::vector<Loop> own = s.loops(tile);
    TRY(s.unroll(own[own.size() - 2]));
    auto [v, l] = TRY(s.split(own.back(), lanes));
    TRY(s.unroll(v));
    return s.vectorize(l);
}

Result<std::optional<Loop>> Window::run_tasks() {
    if (tasks.empty()) return std::optional<Loop>();
    Loop all = tasks[0];
    for (size_t i = 1; i < tasks.size(); ++i) all = TRY(s.fuse(all, tasks[i]));
    TRY(s.parallel(all));
    return std::optional<Loop>(all);
}

// The padded copy, of as much as one iteration of a loop reads.
Status Window::make_copy(const std::optional<Loop>& inside) {
    const Stage* copy = padded_copy(s, find_stage(s, sum));
    if (!copy || !inside) return {};
    const std::string name = copy->name;
    TRY(s.compute_at(name, *inside));
    TRY(s.set_scope(name, Scope::Local));
    if (steps == 1) return vectorize_map(s, name, copy->axes.size() - 1, options);
    auto [places, phase] = TRY(s.split(s.loops(name).back(), steps));
    TRY(s.reorder({phase, places}));
    auto [vectors, lane] = TRY(s.split(places, lanes));
    TRY(s.reorder({vectors, phase, lane}));
    TRY(s.unroll(phase));
    TRY(s.vectorize(lane));
    // Each vector of a short line knows which of its lanes are edges.
    constexpr int64_t kFewVectors = 8;
    if (s.extent(vectors).as_int().value_or(kFewVectors + 1) <= kFewVectors) return s.unroll(vectors);
    return s.loop_partition(vectors);
}

}  // namespace

Status schedule_window(Schedule& s, const std::string& sum, const std::string& out, const CpuScheduleOptions& options) {
    TRY(merge_unit_axes(s, sum, out));
    TRY(turn_weights(s, sum, find_stage(s, sum).axes.back().var));
    Window w = look_at(s, sum, out, options);
    if (w.tiles.block > 1) return sum_in_memory(s, sum, out, w.tiles.block, w.lanes, w.parallel);
    TRY(w.cut_tiles());
    const std::vector<Loop> order = TRY(w.order_tasks());
    const Loop inside = order.back();
    TRY(w.arrange(order));
    if (w.in_memory) TRY(w.sum_in_local_tile(inside));
    TRY(s.compute_at(sum, inside));
    TRY(s.set_scope(sum, Scope::Register));
    TRY(sum_tile(s, sum, inside, w.tiles, w.padding, w.lanes, w.in_lanes));
    const std::optional<Loop> task = TRY(w.run_tasks());
    return w.make_copy(task ? task : w.around);
}

}  // namespace tessera
