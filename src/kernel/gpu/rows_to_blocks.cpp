// Rows that blocks reduce: each thread takes every so many vectors of the row, partial results meet in shared memory.
// Of many short rows a block takes several, with threads of their own along y.
#include <algorithm>
#include <bit>
#include <map>

#include "base/check.h"
#include "kernel/analyse/row_group.h"
#include "kernel/gpu/gpu_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kWarp = 32, kMostThreads = 256, kShortRow = 64;
constexpr int64_t kSharedBytes = 40 << 10;  // for what is kept of a row
constexpr int64_t kGathered = 16;           // threads that gather partial results, where there are more than
constexpr int64_t kAddedUp = 32;            // what one adds up
constexpr int64_t kLanes = 4;               // of those at a time
constexpr int64_t kUnrolledLoads = 16;
constexpr int64_t kBlockVectors = 256, kBlockThreads = 128;  // that several short rows have together, where there are
constexpr int64_t kManyRows = 2048;
constexpr int64_t kFewRows = 32, kLongRow = 1 << 15;  // of which a block for each would leave most of a GPU idle

// So many threads that each has a few vectors.
int64_t threads_for(const Expr& elements, int64_t width) {
    const auto known = elements.as_int();
    if (!known) return 128;
    const auto wanted = static_cast<uint64_t>(std::max<int64_t>(1, *known / (4 * width)));
    return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(wanted)), kWarp, kMostThreads);
}

class RowsInBlocks {
  public:
    RowsInBlocks(Schedule& s, std::string out, RowGroup group)
        : s_(s), out_(std::move(out)), group_(std::move(group)) {}

    Status apply() {
        TRY(bind_rows());
        for (auto m = group_.members.rbegin(); m != group_.members.rend(); ++m) {
            TRY(s_.compute_at(*m, row_));
            TRY(s_.set_scope(*m, Scope::Shared));
        }
        for (const std::string& m : group_.members) {
            if (find_stage(s_, m).reduce.empty())
                TRY(share_map(m, group_.axes));
            else
                TRY(share_reduction(m));
        }
        TRY(share_map(out_, rows_ + (together_ ? 1 : 0)));
        for (const std::string& m : group_.members)
            if (totals_.contains(m)) TRY(finish_in_reader(m));
        return {};
    }

  private:
    // One dimension of blocks for each axis, as far as there are some: what is fused is not linear any more. Along x
    // there can be most.
    Status bind_rows() {
        std::vector<Loop> loops = s_.loops(out_);
        loops.resize(group_.axes);
        while (loops.size() > 3) {
            loops[0] = TRY(s_.fuse(loops[0], loops[1]));
            loops.erase(loops.begin() + 1);
        }
        rows_ = loops.size();
        if (const int64_t together = rows_together(loops.back()); together > 1) {
            auto [blocks, row] = TRY(s_.split(loops.back(), together));
            TRY(s_.bind(row, "thread.y"));
            loops.back() = blocks;
            together_ = true;
        }
        row_ = loops.back();
        auto size = [&](const Loop& l) { return s_.extent(l).as_int().value_or(1 << 30); };
        std::stable_sort(loops.begin(), loops.end(), [&](const Loop& a, const Loop& b) { return size(a) > size(b); });
        for (size_t i = 0; i < loops.size(); ++i) TRY(s_.bind(loops[i], std::string("block.") + char('x' + int(i))));
        return {};
    }

    // How many neighbours of a loop over rows one block takes: so many that it has enough to do.
    int64_t rows_together(const Loop& row) const {
        const Stage& out = find_stage(s_, out_);
        const auto rows = s_.extent(row).as_int();
        if (!rows || *rows < kManyRows || group_.axes != rows_ || out.axes.size() == group_.axes) return 1;
        int64_t vectors = 1;
        const int64_t width = width_for(out, out.axes.back());
        for (size_t i = group_.axes; i < out.axes.size(); ++i)
            vectors *= out.axes[i].extent.as_int().value_or(kBlockVectors * width);
        vectors = divide_up(vectors, width);
        int64_t together = std::min(kBlockVectors / vectors, kBlockThreads / threads_for(vectors * width, width));
        while (together > 1 && *rows % together != 0) --together;
        return std::max<int64_t>(together, 1);
    }

    // Of a stage that has all rows of a block.
    Status bind_lines(const std::string& name) {
        return together_ ? s_.bind(s_.loops(name)[group_.axes - 1], "thread.y") : Status();
    }

    // The loops from number `first` on, one after the other of their vectors to each thread.
    Status share_map(const std::string& name, size_t first) {
        const Stage stage = find_stage(s_, name);
        if (stage.axes.size() == group_.axes) return {};
        const ReduceAxis inner = stage.axes.back();
        if (name != out_) TRY(bind_lines(name));
        std::vector<Loop> loops = s_.loops(name);
        return share(name, std::vector<Loop>(loops.begin() + std::ptrdiff_t(first), loops.end()),
                     width_for(stage, inner));
    }

    // As wide as memory outside of the block asks for. What is kept of a row has the same threads everywhere.
    int64_t width_for(const Stage& stage, const ReduceAxis& along) const {
        std::set<int> kept;
        for (const std::string& m : group_.members) kept.insert(find_stage(s_, m).buffer);
        const int64_t plain = access_width(s_, stage, along), outside = access_width(s_, stage, along, kept);
        if (plain == 1 || outside > 1) return outside;
        const Stage& out = find_stage(s_, out_);
        const int64_t of_row = access_width(s_, out, out.axes.back(), kept);
        const auto extent = along.extent.as_int();
        return of_row > 1 && extent && *extent % of_row == 0 ? of_row : plain;
    }

    Status share(const std::string& name, const std::vector<Loop>& loops, int64_t width) {
        Loop all = loops[0];
        std::vector<Loop> order;
        if (width > 1) {
            auto [vectors, lane] = TRY(s_.split(loops.back(), width));
            TRY(s_.vectorize(lane));
            std::vector<Loop> rest(loops.begin(), loops.end() - 1);
            rest.push_back(vectors);
            all = rest[0];
            for (size_t i = 1; i < rest.size(); ++i) all = TRY(s_.fuse(all, rest[i]));
        } else {
            for (size_t i = 1; i < loops.size(); ++i) all = TRY(s_.fuse(all, loops[i]));
        }
        const int64_t threads = threads_for(s_.extent(all) * width, width);
        auto [iteration, thread] = TRY(s_.split(all, threads));
        TRY(s_.reorder({thread, iteration}));
        threads_of_.insert_or_assign(name, thread);
        TRY(unroll_few(iteration));
        return s_.bind(thread, "thread.x");
    }

    // What is left of a reduction is added up by every thread that reads it, for itself, where one stage reads it: that
    // takes less time than to wait for one thread.
    Status finish_in_reader(const std::string& name) {
        const std::vector<std::string> readers = readers_of(s_, find_stage(s_, name).buffer);
        if (readers.size() != 1 || !threads_of_.contains(readers[0])) return {};
        TRY(s_.compute_at(name, threads_of_.at(readers[0])));
        TRY(s_.set_scope(name, Scope::Register));
        auto [vectors, lane] = TRY(s_.split(s_.loops(name).back(), kLanes));
        TRY(s_.vectorize(lane));
        return s_.unroll(vectors);
    }

    // Few iterations one after the other, so that what they read is on its way together.
    Status unroll_few(const Loop& loop) {
        const auto extent = s_.extent(loop).as_int();
        if (extent && *extent <= kUnrolledLoads) return s_.unroll(loop);
        return s_.annotate(loop, "unroll", 4);
    }

    // Each thread its part, then a few threads what those have, then one.
    Status share_reduction(const std::string& name) {
        const Stage stage = find_stage(s_, name);
        std::vector<Loop> reduced;
        for (const Loop& l : s_.loops(name))
            if (s_.reduces(l)) reduced.push_back(l);
        const int64_t width = width_for(stage, stage.reduce.back());
        Loop inner = reduced.back();
        std::optional<Loop> lane;
        if (width > 1) {
            auto [vectors, in] = TRY(s_.split(inner, width));
            reduced.back() = vectors;
            lane = in;
        }
        Loop all = reduced[0];
        for (size_t i = 1; i < reduced.size(); ++i) all = TRY(s_.fuse(all, reduced[i]));
        const int64_t threads = threads_for(s_.extent(all) * width, width);
        auto [iteration, thread] = TRY(s_.split(all, threads));
        std::string part = TRY(s_.rfactor(thread));
        const std::string moved = TRY(s_.cache_write(part, Scope::Register));
        TRY(s_.compute_at(moved, row_));
        TRY(s_.set_scope(moved, Scope::Shared));
        TRY(bind_lines(moved));
        const Loop own = s_.loops(moved).back();
        TRY(s_.bind(own, "thread.x"));
        TRY(s_.compute_at(part, own));
        threads_of_.insert_or_assign(part, own);
        totals_.insert(name);
        std::vector<Loop> inside = s_.loops(part);
        if (lane) {
            TRY(s_.vectorize(inside.back()));
            inside.pop_back();
        }
        TRY(unroll_few(inside.back()));
        if (threads <= kAddedUp) return {};
        auto [many, few] = TRY(s_.split(s_.loops(name).back(), kGathered));
        const std::string gathered = TRY(s_.rfactor(few));
        TRY(s_.compute_at(gathered, row_));
        TRY(s_.set_scope(gathered, Scope::Shared));
        TRY(bind_lines(gathered));
        for (const Loop& l : s_.loops(gathered))
            if (!s_.reduces(l)) few = l;
        return s_.bind(few, "thread.x");
    }

    Schedule& s_;
    std::string out_;
    RowGroup group_;
    Loop row_;                                // the innermost over rows
    size_t rows_ = 0;                         // so many
    bool together_ = false;                   // a block takes several of the innermost
    std::map<std::string, Loop> threads_of_;  // by stage: its loop over threads
    std::set<std::string> totals_;            // reductions of which partial results are shared
};

// Bytes that a group keeps of a row; nothing where that is not known.
std::optional<int64_t> kept_bytes(const Schedule& s, const RowGroup& group) {
    int64_t bytes = 0;
    for (const std::string& m : group.members) {
        const Stage& stage = find_stage(s, m);
        int64_t kept = int64_t(dtype_bytes(s.compute().buffers[size_t(stage.buffer)].dtype));
        for (size_t i = group.axes; i < stage.axes.size(); ++i) {
            const auto extent = stage.axes[i].extent.as_int();
            if (!extent) return {};
            kept *= *extent;
        }
        bytes += kept;
    }
    return bytes;
}

// What would not fit is computed again for each that reads it.
Status inline_large(Schedule& s, const RowGroup& group) {
    for (const std::string& m : group.members) {
        const Stage& stage = find_stage(s, m);
        if (stage.reduce.empty() && stage.axes.size() > group.axes) TRY(s.compute_inline(m));
    }
    return {};
}

// Whether what is made of few rows is so much that all blocks should share it.
bool is_few_long_rows(const Stage& out, size_t axes) {
    int64_t rows = 1, length = 1;
    for (size_t i = 0; i < out.axes.size(); ++i)
        (i < axes ? rows : length) *= out.axes[i].extent.as_int().value_or(i < axes ? kFewRows + 1 : 1);
    return rows <= kFewRows && length >= kLongRow;
}

// Whether the rows of a group are contiguous and long enough.
bool worth_sharing(const Schedule& s, const RowGroup& group) {
    bool along = false;
    for (const std::string& m : group.members) {
        const Stage& stage = find_stage(s, m);
        if (stage.reduce.empty()) continue;
        if (stage.axes.size() != group.axes || stage.fold || !reduces_along_lanes(s, stage)) return false;
        const auto length = elements_of(stage.reduce).as_int();
        if (length && *length < kShortRow) return false;
        along = true;
    }
    return along;
}

}  // namespace

Result<std::vector<std::string>> rows_to_blocks(Schedule& s, const std::string& name,
                                                const std::set<std::string>& done) {
    Schedule before = s;
    std::string out = name;
    if (!find_stage(s, name).reduce.empty()) out = TRY(s.cache_write(name, Scope::Register));
    RowGroup group = row_group(s, out, done);
    auto applied = [&]() -> Status {
        if (kept_bytes(s, group).value_or(kSharedBytes + 1) > kSharedBytes) {
            TRY(inline_large(s, group));
            group = row_group(s, out, done);
        }
        if (group.members.empty() || !worth_sharing(s, group) || is_few_long_rows(find_stage(s, out), group.axes))
            return Error(Code::E0602, "rows stay with one thread");
        return RowsInBlocks(s, out, group).apply();
    }();
    if (!applied.ok()) {
        s = std::move(before);
        return std::vector<std::string>();
    }
    return group.members;
}

}  // namespace tessera
