// Convolutions in small groups: only the weights are packed. A tile is a few outputs of a row times a few vectors of
// channels. What it reads of the input is loaded in vectors along the channels; each lane multiplies for its group.
#include <algorithm>
#include <cmath>

#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kLongestSum = 192;  // products in f32 that are added up one by one
constexpr int64_t kMostVectors = 4, kMostPixels = 16;
constexpr int64_t kWrittenOut = 5;  // places of a window along a row
constexpr int64_t kTasks = 4;       // for each thread, at least

struct GroupedTiles {
    int64_t pixels = 1, vectors = 1, lanes = 1;
    bool in_vectors = true;  // inputs come in vectors, of which lanes are taken; otherwise one by one
    int64_t channels() const { return vectors * lanes; }
};

// Cycles that a tile takes for one place of the window and one channel of the group's inputs; infinite where the
// registers do not hold it.
double cycles_of(const GroupedTiles& t, const Machine& m) {
    const int64_t sums = t.pixels * t.vectors, inputs = t.in_vectors ? t.pixels : m.load_broadcast ? 0 : 1;
    if (sums + inputs + t.vectors + 1 > m.vector_registers) return INFINITY;
    const double loads = double(t.pixels) / double(t.in_vectors ? t.lanes : 1) + double(t.vectors);
    return std::max({double(sums) / m.fma_pipes, loads / 2, double(m.fma_latency)}) + 0.1 * loads + 0.2;
}

// For groups of so many inputs and outputs, along rows of `width` places.
std::optional<GroupedTiles> choose_grouped(int64_t width, int64_t inputs, int64_t outputs, int64_t lanes,
                                           const Machine& machine) {
    GroupedTiles best{.lanes = lanes};
    if (outputs % lanes == 0)
        best.in_vectors = machine.lane_multiply && inputs % lanes == 0;
    else if (lanes % outputs || inputs != outputs)
        return std::nullopt;
    double least = INFINITY;
    GroupedTiles t = best;
    for (t.vectors = 1; t.vectors <= kMostVectors; ++t.vectors) {
        if (t.vectors > 1 && outputs % t.channels()) continue;
        for (t.pixels = 1; t.pixels <= std::min(width, kMostPixels); ++t.pixels) {
            const double cost = cycles_of(t, machine) * double((width + t.pixels - 1) / t.pixels) / double(t.vectors);
            if (cost < least * 0.999) least = cost, best = t;
        }
    }
    return std::isinf(least) ? std::nullopt : std::optional(best);
}

// The load of the input, padded or not, that lies along its channels; nullopt where there is more to it.
std::optional<Expr> input_of(const Schedule& s, const Stage& stage, const Contraction& c) {
    const Expr& a = stage.value.arg(size_t(c.a));
    const Expr& x = a.is(ExprKind::Select) ? a.arg(1) : a;
    if (!x.is(ExprKind::Load)) return std::nullopt;
    auto step = stride_of(s, x, stage.reduce[size_t(c.depth.back())].var);
    if (!step || !step->is_int(1)) return std::nullopt;
    return x;
}

class GroupedSchedule {
  public:
    GroupedSchedule(Schedule& s, std::string sum, Contraction c, std::string out, const CpuScheduleOptions& options)
        : s_(s), sum_(std::move(sum)), out_(std::move(out)), c_(std::move(c)), options_(options) {}

    // Is it of the kind? If so, the tile is chosen.
    bool measure() {
        const Stage& stage = find_stage(s_, sum_);
        const size_t count = stage.axes.size();
        if (count < 3 || c_.batch != std::vector{int(count) - 2} || c_.columns != std::vector{int(count) - 1})
            return false;
        auto width = stage.axes[count - 3].extent.as_int(), groups = stage.axes[count - 2].extent.as_int();
        auto outputs = stage.axes[count - 1].extent.as_int();
        auto inputs = stage.reduce[size_t(c_.depth.back())].extent.as_int();
        auto places = elements_of(stage.reduce).as_int();  // times inputs
        if (!width || !groups || !outputs || !inputs || !places || c_.depth.size() < 2) return false;
        if (*width < 1 || *groups < 2 || *places < 1 || *places > kLongestSum) return false;
        auto x = input_of(s_, stage, c_);
        const int64_t lanes = lanes_of(s_, stage, options_.machine);
        if (!x || lanes < 2 || !measure_contraction(s_, stage, c_).packed_ahead) return false;
        auto tiles = choose_grouped(*width, *inputs, *outputs, lanes, options_.machine);
        if (!tiles || *groups * *outputs % tiles->channels()) return false;
        for (size_t i = 0; i + 2 < count; ++i) axes_.push_back({int(i)});
        axes_.push_back({int(count) - 2, int(count) - 1});
        out_axes_ = axes_;
        if (!out_.empty()) {
            auto matched = matching_groups(find_stage(s_, out_), stage, axes_);
            if (!matched || is_costly(find_stage(s_, out_).value)) return false;
            out_axes_ = *matched;
        }
        tiles_ = *tiles;
        inputs_ = *inputs;
        input_ = x->node().slot;
        auto all = elements_of(stage.axes).as_int();
        parallel_ = options_.threads > 1 && (!all || 2 * *all * *places > 400'000);
        return true;
    }

    Status apply() {
        if (out_.empty()) out_ = TRY(s_.cache_write(sum_, Scope::Register));
        weights_ = TRY(s_.reindex(sum_, c_.b));
        TRY(s_.merge_axes(sum_, axes_));
        TRY(s_.merge_axes(out_, out_axes_));
        TRY(lay_out_weights());
        TRY(tile_output());
        return tile_sum();
    }

  private:
    // [channel / n][places and inputs][channel % n], n the channels of a tile.
    Status lay_out_weights() {
        std::vector<std::vector<int>> merged{{0, 1}};
        for (size_t i = 0; i < c_.depth.size(); ++i) merged.push_back({int(i) + 2});
        TRY(s_.merge_axes(weights_, merged));
        const Stage& stage = find_stage(s_, weights_);
        IndexMap map;
        for (size_t i = 0; i < stage.axes.size(); ++i)
            map.vars.push_back(index_var("d" + std::to_string(i), stage.axes[i].extent.as_int()));
        map.indices.push_back(floor_div(map.vars[0], tiles_.channels()));
        map.shape.push_back(ceil_div(stage.axes[0].extent, tiles_.channels()));
        for (int i : c_.depth) {
            map.indices.push_back(map.vars[size_t(i) + 1]);
            map.shape.push_back(stage.axes[size_t(i) + 1].extent);
        }
        map.indices.push_back(mod(map.vars[0], tiles_.channels()));
        map.shape.push_back(tiles_.channels());
        return s_.transform_layout(weights_, map);
    }

    // Rows, tiles of columns, tiles of channels: the rows of input that neighbours share stay in the first cache.
    Status tile_output() {
        std::vector<Loop> loops = s_.loops(out_), order(loops.begin(), loops.end() - 2);
        auto [column_tiles, pixels] = TRY(s_.split(loops[loops.size() - 2], tiles_.pixels));
        auto [channel_tiles, channels] = TRY(s_.split(loops.back(), tiles_.channels()));
        auto [vectors, lanes] = TRY(s_.split(channels, tiles_.lanes));
        tile_loop_ = channel_tiles;
        if (parallel_) {
            // Few rows, and parts of the channels are tasks as well.
            int64_t rows = 1;
            for (const Loop& loop : order) rows *= s_.extent(loop).as_int().value_or(64);
            const int64_t parts = (kTasks * options_.threads + rows - 1) / std::max<int64_t>(rows, 1);
            if (parts > 1 && s_.extent(channel_tiles).as_int().value_or(1) > 1) {
                auto [part, inner] =
                    TRY(s_.split_parts(channel_tiles, std::min(parts, *s_.extent(channel_tiles).as_int())));
                order.insert(order.begin(), part);
                tile_loop_ = inner;
            }
        }
        const std::vector<Loop> tasks = order;
        order.insert(order.end(), {column_tiles, tile_loop_, pixels, vectors, lanes});
        TRY(s_.reorder(order));
        TRY(s_.unroll(pixels));
        TRY(s_.unroll(vectors));
        TRY(s_.vectorize(lanes));
        // Where all tiles of a row touch its ends, each knows what it touches.
        if (s_.extent(column_tiles).as_int().value_or(4) <= 3)
            TRY(s_.unroll(column_tiles));
        else
            TRY(s_.loop_partition(column_tiles));
        if (!parallel_ || tasks.empty()) return {};
        Loop all = tasks[0];
        for (size_t i = 1; i < tasks.size(); ++i) all = TRY(s_.fuse(all, tasks[i]));
        return s_.parallel(all);
    }

    Status tile_sum() {
        TRY(s_.compute_at(sum_, tile_loop_));
        TRY(s_.set_scope(sum_, Scope::Register));
        std::vector<Loop> kept, reduced, order;
        for (const Loop& l : s_.loops(sum_)) (s_.reduces(l) ? reduced : kept).push_back(l);
        for (int i : c_.depth) order.push_back(reduced[size_t(i)]);
        const Loop place = order[order.size() - 2], pixels = kept[kept.size() - 2];
        Loop input = order.back(), at = place;
        if (tiles_.in_vectors && inputs_ > tiles_.lanes) {
            auto [outer, inner] = TRY(s_.split(input, tiles_.lanes));
            order.back() = at = outer;
            order.push_back(inner);
            input = inner;
        }
        auto [vectors, lanes] = TRY(s_.split(kept.back(), tiles_.lanes));
        order.insert(order.end(), {pixels, vectors, lanes});
        TRY(s_.reorder(order));
        TRY(s_.unroll(pixels));
        TRY(s_.unroll(vectors));
        TRY(s_.vectorize(lanes));
        if (tiles_.in_vectors)
            TRY(s_.unroll(input));
        else
            TRY(s_.annotate(input, "unroll", 4));
        if (s_.extent(place).as_int().value_or(kWrittenOut + 1) <= kWrittenOut) TRY(s_.unroll(place));
        // Rows of padding are left out.
        for (size_t i = 0; i + 2 < c_.depth.size(); ++i) TRY(s_.loop_partition(reduced[size_t(c_.depth[i])]));
        if (!tiles_.in_vectors) return {};
        const std::string copy = TRY(s_.cache_read(sum_, input_, Scope::Register));
        TRY(s_.compute_at(copy, at));
        std::vector<Loop> own = s_.loops(copy);
        for (size_t i = 0; i + 1 < own.size(); ++i) TRY(s_.unroll(own[i]));
        return s_.vectorize(own.back());
    }

    Schedule& s_;
    std::string sum_, out_, weights_;
    Contraction c_;
    const CpuScheduleOptions& options_;
    GroupedTiles tiles_;
    std::vector<std::vector<int>> axes_, out_axes_;  // of sum and out, group and channel in one
    int64_t inputs_ = 1;                             // of a group
    int input_ = 0;                                  // buffer
    bool parallel_ = false;
    Loop tile_loop_;
};

}  // namespace

Result<bool> schedule_grouped(Schedule& s, const std::string& stage, const Contraction& c, const std::string& out,
                              const CpuScheduleOptions& options) {
    GroupedSchedule grouped(s, stage, c, out, options);
    if (!grouped.measure()) return false;
    TRY(grouped.apply());
    return true;
}

}  // namespace tessera
