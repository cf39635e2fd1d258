// Maps that read along one axis and write along another, as transpositions do: a block reads a square in the order of
// memory, and writes it from shared memory in the other.
#include <algorithm>

#include "kernel/gpu/gpu_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kSquare = 32, kRowsAtATime = 8;

// The load that is read across, and the axis along which it lies.
struct Crossing {
    Expr load;
    size_t axis;
};

std::optional<Crossing> find_crossing(const Schedule& s, const Stage& stage) {
    std::optional<Crossing> found;
    for (const Expr& load : loads_of(stage)) {
        auto along = stride_of(s, load, stage.axes.back().var);
        if (along && (along->is_int(0) || along->is_int(1))) continue;
        for (size_t i = 0; i + 1 < stage.axes.size(); ++i) {
            auto step = stride_of(s, load, stage.axes[i].var);
            if (!step || !step->is_int(1) || stage.axes[i].extent.as_int().value_or(kSquare) < kSquare) continue;
            if (found) return {};
            found = Crossing{load, i};
        }
    }
    return found;
}

// Each of its indices is one of the axes, or the same all along.
bool is_plain(const Stage& stage, const Expr& load) {
    return std::all_of(load.args().begin(), load.args().end(), [&](const Expr& index) {
        const bool axis =
            std::any_of(stage.axes.begin(), stage.axes.end(), [&](const ReduceAxis& a) { return a.var == index; });
        return axis || index.as_int();
    });
}

size_t place_of(const Expr& load, const Expr& var) {
    const auto at = std::find(load.args().begin(), load.args().end(), var);
    return static_cast<size_t>(at - load.args().begin());
}

// A square's loop over rows and that over its columns as threads, some rows one after the other.
Status share_square(Schedule& s, const Loop& rows, const Loop& columns) {
    auto [turn, row] = TRY(s.split(rows, kRowsAtATime));
    TRY(s.reorder({row, columns, turn}));
    TRY(s.bind(row, "thread.y"));
    TRY(s.bind(columns, "thread.x"));
    return s.unroll(turn);
}

}  // namespace

Result<bool> transpose_to_blocks(Schedule& s, const std::string& name) {
    const Stage stage = find_stage(s, name);
    if (stage.axes.size() < 2 || stage.axes.size() > 3) return false;
    if (stage.axes.back().extent.as_int().value_or(kSquare) < kSquare) return false;
    const auto crossing = find_crossing(s, stage);
    if (!crossing || !is_plain(stage, crossing->load)) return false;
    const size_t across = place_of(crossing->load, stage.axes.back().var);
    const size_t along = place_of(crossing->load, stage.axes[crossing->axis].var);
    if (across >= crossing->load.args().size() || along + 1 != crossing->load.args().size()) return false;

    const std::string copy = TRY(s.cache_read(name, crossing->load.node().slot, Scope::Shared));
    const std::vector<Loop> loops = s.loops(name);
    auto [i_out, i_in] = TRY(s.split(loops[crossing->axis], kSquare));
    auto [j_out, j_in] = TRY(s.split(loops.back(), kSquare));
    std::vector<Loop> order;
    for (size_t l = 0; l + 1 < loops.size(); ++l)
        if (l != crossing->axis) order.push_back(loops[l]);
    const size_t others = order.size();
    order.insert(order.end(), {i_out, j_out, i_in, j_in});
    TRY(s.reorder(order));
    if (others > 0) TRY(s.bind(order[0], "block.z"));
    TRY(s.bind(i_out, "block.y"));
    TRY(s.bind(j_out, "block.x"));
    TRY(share_square(s, i_in, j_in));
    TRY(s.compute_at(copy, j_out));
    const std::vector<Loop> own = s.loops(copy);
    TRY(s.reorder({own[across], own[along]}));
    TRY(share_square(s, own[across], own[along]));
    TRY(s.storage_align(copy, static_cast<int>(across), kSquare, 1));
    return true;
}

}  // namespace tessera
