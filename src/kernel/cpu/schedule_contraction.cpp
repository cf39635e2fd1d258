// Contractions: operands packed into panels, register tiles, blocks of k, tasks over batch, rows and columns.
#include <algorithm>

#include "base/check.h"
#include "kernel/cpu/padding.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/cpu/words.h"
#include "kernel/ir/intrinsic.h"

namespace tessera {

namespace {

using Groups = std::vector<std::vector<int>>;

constexpr int64_t kRowsAtOnce = 16;             // of a B that is packed
constexpr int64_t kPlacesAtOnce = 7;            // of a window that is written out
constexpr int64_t kFillsOf = 8;                 // times what k may be filled up by, to read whole vectors of it
constexpr int64_t kLongSum = 192, kPart = 128;  // products in f32 that are added up one by one

class ContractionSchedule {
  public:
    ContractionSchedule(Schedule& s, std::string stage, Contraction c, std::string out, const CpuScheduleOptions& options)
        : s_(s), options_(options), mm_(std::move(stage)), out_(std::move(out)), c_(std::move(c)) {}

    Status apply() {
        measure();
        TRY(bring_to_one_form());
        TRY(lay_out());
        TRY(tile_output());
        TRY(tile_sum());
        TRY(attach_operands());
        return {};
    }

  private:
    void measure() {
        const Stage& stage = find_stage(s_, mm_);
        ContractionShape shape = measure_contraction(s_, stage, c_);
        shape.tile_rows = options_.tile_rows;
        shape.tile_columns = options_.tile_columns;
        shape.same_sums = options_.strict;
        if (options_.few_rows && !shape.m_known) shape.m = 1, shape.m_known = true;
        b_along_columns_ = lies_along_columns(s_, stage, c_);
        b_copied_ = shape.b_copied;
        tiles_ = choose_tiles(shape, options_.machine, options_.threads);
        lanes_ = std::max(1, options_.machine.vector_bytes / shape.element_bytes);
        // Blocks of k along whole axes or equal parts of the last one, so that what is packed for one is a box.
        if (tiles_.k_blocks > 1 && c_.depth.size() > 1) {
            int64_t inner = 1;
            for (auto i = c_.depth.rbegin(); i != c_.depth.rend(); ++i) {
                const int64_t extent = constant_or(stage.reduce[size_t(*i)].extent, 0);
                int64_t parts = 1;
                while (parts < extent && (extent % parts || inner * extent / parts > tiles_.kc * 3 / 2)) ++parts;
                if (extent > 0) inner *= extent / parts;
                if (extent == 0 || parts > 1) break;
            }
            if (inner * 4 > tiles_.kc) {
                tiles_.kc = inner;
                tiles_.k_blocks = shape.k / inner;
            }
        }
        even_blocks_ = tiles_.k_blocks == 1 || mod(extent_of(stage.reduce, c_.depth), tiles_.kc).is_int(0);
        rows_unsigned_ = c_.a == 0;
        const int64_t filled = divide_up(shape.k, lanes_) * lanes_;
        const bool worth = options_.machine.lane_multiply || filled * kFillsOf <= shape.k * (kFillsOf + 1);
        fills_ = worth && tiles_.pack_a && tiles_.k_blocks == 1 && tiles_.k_multiple == 1 && lanes_ > 1 &&
                 c_.depth.size() == 1 && lies_along_depth(s_, stage, c_);
        const bool rounds = s_.compute().buffers[size_t(stage.buffer)].dtype == DType::f32;
        if (rounds && extent_of(stage.reduce, c_.depth).as_int()) choose_parts(shape.k);
    }

    // Long sums in equal parts, since the error grows with the longest chain of additions. k is filled up with zeros
    // where it has no such parts, and also to whole vectors, so that A can be read in them.
    void choose_parts(int64_t k) {
        if (tiles_.k_blocks > 1) k = tiles_.kc;
        // More sums side by side take longer to add up, and so have longer parts.
        const int64_t longer = options_.machine.load_broadcast ? 2 : 1, most = longer * kLongSum, part = longer * kPart;
        if (tiles_.k_blocks > 1 && k <= 2 * part) return;  // blocks are parts
        if (fills_) k = (k + lanes_ - 1) / lanes_ * lanes_;
        if (k <= most) return;
        if (!tiles_.pack_b && b_copied_) {
            // Parts of the first axis of k, which are whole windows.
            const int64_t first = constant_or(find_stage(s_, mm_).reduce[size_t(c_.depth.front())].extent, 1);
            for (int64_t parts = 2; parts < first && part_ == 0; ++parts)
                if (first % parts == 0 && k / parts <= most) part_ = first / parts;
            return;
        }
        for (int64_t parts = (k + most - 1) / most; parts <= k / (part / 2); ++parts)
            if (k % parts == 0) {
                part_ = k / parts;
                return;
            }
        if (tiles_.k_blocks == 1 && c_.depth.size() == 1 && tiles_.pack_a && tiles_.pack_b) part_ = part;
    }

    // Stage mm[b,m,n] over k from a[b,m,k..] and b[b,k..,n], then out[b,m,n].
    Status bring_to_one_form() {
        const Stage stage = find_stage(s_, mm_);
        const bool along_depth = lies_along_depth(s_, stage, c_);
        Groups groups;
        for (const auto& g : {c_.batch, c_.rows, c_.columns})
            if (!g.empty()) groups.push_back(g);
        has_batch_ = !c_.batch.empty();
        // Quotients by an open size do not say which part of a copy is read: there is one of everything then.
        for (size_t i = 1; i < c_.batch.size(); ++i) hides_places_ |= !stage.axes[size_t(c_.batch[i])].extent.as_int();
        has_rows_ = !c_.rows.empty();
        Groups out_groups = groups;
        if (out_.empty()) {
            out_ = TRY(s_.cache_write(mm_, Scope::Register));
        } else {
            auto matched = matching_groups(find_stage(s_, out_), stage, groups);
            CHECK(matched.has_value());
            out_groups = *matched;
            // Costly functions are not written out for each sum of a tile: they read it from memory, row by row.
            if (is_costly(find_stage(s_, out_).value) && tiles_.k_blocks == 1 && !tiles_.tile_words)
                tile_ = TRY(s_.cache_write(mm_, Scope::Register));
        }
        const Expr a_value = stage.value.arg(size_t(c_.a)), b_value = stage.value.arg(size_t(c_.b));
        a_batch_ = std::any_of(c_.batch.begin(), c_.batch.end(),
                               [&](int i) { return depends_on(a_value, stage.axes[size_t(i)].var); });
        a_known_ = is_known(s_, a_value);
        if (tiles_.pack_a) a_ = TRY(s_.reindex(mm_, c_.a));
        // Rows that are read where they lie: those after the last are none, for the last tile.
        std::string lying;
        const auto m = extent_of(stage.axes, c_.rows).as_int();
        if (!tiles_.pack_a && tiles_.pack_b && has_rows_ && !copy_of(s_, a_value) && m && *m % tiles_.mr) {
            lying = TRY(s_.reindex(mm_, c_.a));
            TRY(merge_operand(lying, stage, a_value, {c_.batch, c_.rows}));
            short_rows_ = true;
        }
        if (tiles_.pack_b) b_ = TRY(s_.reindex(mm_, c_.b));
        if (!a_.empty()) TRY(merge_operand(a_, stage, a_value, {c_.batch, c_.rows}));
        if (!b_.empty()) TRY(merge_operand(b_, stage, b_value, {c_.batch, c_.columns}));
        if (const Stage* copy = copy_of(s_, a_value); copy && !tiles_.pack_a) copy_ = copy->name;
        // What is read where it lies keeps its places apart: they are no one line.
        if (const Stage* copy = copy_of(s_, b_value); copy && !tiles_.pack_b && c_.depth.size() > 1)
            b_copy_ = copy->name;
        Groups depth{c_.depth};
        if (!copy_.empty() || !b_copy_.empty()) {
            depth.clear();
            for (int k : c_.depth) depth.push_back({k});
        }
        TRY(s_.merge_axes(mm_, groups, depth));
        if (!tile_.empty()) TRY(s_.merge_axes(tile_, groups));
        TRY(s_.merge_axes(out_, out_groups));
        std::vector<int64_t> multiples;
        if (has_batch_) multiples.push_back(1);
        if (has_rows_) multiples.push_back(tiles_.mr);
        multiples.push_back(tiles_.nr);
        // What lies outside cannot be padded; a padded copy may have more columns.
        const std::vector<int64_t> of_tile = multiples;
        multiples.resize(multiples.size() + depth.size(), 1);
        if (b_.empty()) {
            if (!copy_of(s_, b_value) || !s_.pad(mm_, multiples)) return {};
            if (!tile_.empty()) TRY(s_.pad(tile_, of_tile));
            by_rows_ = !b_copy_.empty() && along_depth && !options_.machine.lane_multiply;
            return {};
        }
        if (copy_.empty())
            multiples.back() = tiles_.k_blocks > 1 ? tiles_.kc
                               : part_ > 0         ? part_
                               : fills_            ? lanes_
                                                   : tiles_.k_multiple;
        TRY(s_.pad(mm_, multiples));
        if (!lying.empty()) TRY(s_.compute_inline(lying));
        if (!tile_.empty()) TRY(s_.pad(tile_, of_tile));
        by_rows_ = (along_depth && !options_.machine.lane_multiply) || tiles_.k_multiple > 1;
        if (along_depth && !by_rows_) TRY(turn_in_registers());
        return {};
    }

    // Rows that lie along k are read in vectors and transposed in registers, a square at a time.
    Status turn_in_registers() {
        if (a_.empty() || lanes_ < 2) return {};
        const Stage& stage = find_stage(s_, a_);
        const Expr& k = stage.axes.back().extent;
        if (k.is_int(0) || !mod(k, lanes_).is_int(0)) return {};
        rows_ = a_;
        a_ = TRY(s_.cache_read(mm_, stage.buffer, Scope::Local));
        return {};
    }

    // The operand's axes as those of each group in one, then the reduction axes in the order of `depth`.
    Status merge_operand(const std::string& name, const Stage& stage, const Expr& value, const Groups& outer) {
        std::vector<int> position(stage.axes.size(), -1);
        int next = 0;
        for (size_t i = 0; i < stage.axes.size(); ++i)
            if (depends_on(value, stage.axes[i].var)) position[i] = next++;
        Groups groups;
        for (const auto& group : outer) {
            std::vector<int> mine;
            for (int i : group)
                if (position[size_t(i)] >= 0) mine.push_back(position[size_t(i)]);
            if (!mine.empty()) groups.push_back(mine);
        }
        for (int k : c_.depth) groups.push_back({next + k});
        return s_.merge_axes(name, groups);
    }

    // Panels: [b][m / mr][k][m % mr], and likewise for columns. Where elements of A are broadcast from memory, its
    // panels may stay as rows: [b][m / mr][m % mr][k].
    Status lay_out() {
        if (!a_.empty()) TRY(panels(a_, tiles_.mr, by_rows_));
        if (b_.empty()) return {};
        return panels(b_, tiles_.nr, false);
    }

    Status panels(const std::string& name, int64_t width, bool by_rows) {
        const Stage stage = find_stage(s_, name);
        size_t depth = c_.depth.size(), outer = stage.axes.size() - depth;
        IndexMap map;
        for (size_t i = 0; i < stage.axes.size(); ++i)
            map.vars.push_back(index_var("d" + std::to_string(i), stage.axes[i].extent.as_int()));
        for (size_t i = 0; i + 1 < outer; ++i) {
            map.indices.push_back(map.vars[i]);
            map.shape.push_back(stage.axes[i].extent);
        }
        const Expr& along = map.vars[outer - 1];
        Expr k = 0, k_extent = 1;
        for (size_t i = outer; i < stage.axes.size(); ++i) {
            k = k * stage.axes[i].extent + map.vars[i];
            k_extent = k_extent * stage.axes[i].extent;
        }
        std::vector<Expr> inner{k, mod(along, width)}, inner_shape{k_extent, Expr(width)};
        if (by_rows) {
            // What all tasks share has no strides but those of its shape.
            if (auto length = k_extent.as_int(); length && tiles_.a_ahead)
                inner_shape[0] = (*length + line() - 1) / line() / 2 * 2 * line() + line();
            std::swap(inner[0], inner[1]);
            std::swap(inner_shape[0], inner_shape[1]);
        }
        map.indices.push_back(floor_div(along, width));
        map.indices.insert(map.indices.end(), inner.begin(), inner.end());
        map.shape.push_back(ceil_div(stage.axes[outer - 1].extent, width));
        map.shape.insert(map.shape.end(), inner_shape.begin(), inner_shape.end());
        return s_.transform_layout(name, map);
    }

    // Partial sums lie tile by tile: rows far apart would fight for places in the cache.
    Status tile_partial_sums() {
        const Stage& stage = find_stage(s_, mm_);
        IndexMap map;
        for (size_t i = 0; i < stage.axes.size(); ++i)
            map.vars.push_back(index_var("d" + std::to_string(i), stage.axes[i].extent.as_int()));
        size_t next = 0;
        if (has_batch_) {
            map.indices.push_back(map.vars[0]);
            map.shape.push_back(stage.axes[next++].extent);
        }
        std::vector<Expr> inner, inner_shape;
        auto cut = [&](int64_t size) {
            map.indices.push_back(floor_div(map.vars[next], size));
            map.shape.push_back(ceil_div(stage.axes[next].extent, size));
            inner.push_back(mod(map.vars[next++], size));
            inner_shape.push_back(size);
        };
        if (has_rows_) cut(tiles_.mr);
        cut(tiles_.nr);
        map.indices.insert(map.indices.end(), inner.begin(), inner.end());
        map.shape.insert(map.shape.end(), inner_shape.begin(), inner_shape.end());
        return s_.transform_layout(mm_, map);
    }

    // Tasks, tiles of columns, tiles of rows, and one register tile.
    Status tile_output() {
        std::vector<Loop> loops = s_.loops(out_), order, tasks;
        size_t at = 0;
        if (has_batch_) tasks.push_back(loops[at++]);
        std::optional<Loop> row_tiles, rows;
        if (has_rows_) {
            Loop m = loops[at++];
            if (!s_.extent(m).as_int() || *s_.extent(m).as_int() > tiles_.mc) {
                auto [block, inner] = TRY(s_.split(m, tiles_.mc));
                tasks.push_back(block);
                m = inner;
            }
            auto [tile, inner] = TRY(s_.split(m, tiles_.mr));
            row_tiles = tile;
            rows = inner;
        }
        Loop n = loops[at];
        if (!s_.extent(n).as_int() || *s_.extent(n).as_int() > tiles_.nc) {
            auto [block, inner] = TRY(s_.split(n, tiles_.nc));
            tasks.push_back(block);
            n = inner;
        }
        auto [column_tiles, columns] = TRY(s_.split(n, tiles_.nr));
        // Long chains of instructions run best side by side: a whole row of the tile.
        auto [vectors, lanes] = TRY(s_.split(columns, tile_.empty() ? lanes_ : tiles_.nr));
        order = tasks;
        order.push_back(column_tiles);
        if (row_tiles) order.insert(tiles_.along_rows ? order.end() - 1 : order.end(), *row_tiles);
        tile_loop_ = order.back();
        panel_loop_ = column_tiles;
        if (row_tiles && tiles_.along_rows && options_.machine.load_broadcast) rows_loop_ = row_tiles;
        if (rows) order.push_back(*rows);
        order.insert(order.end(), {vectors, lanes});
        TRY(s_.reorder(order));
        TRY(s_.vectorize(lanes));
        TRY(s_.unroll(vectors));
        const bool in_memory = !tile_.empty() || tiles_.tile_words;
        if (rows && !in_memory) TRY(s_.unroll(*rows));
        if (rows && in_memory) TRY(s_.annotate(*rows, "unroll", 2));
        // A row is left out by one test; columns in vectors, so their last tile stands apart.
        TRY(s_.loop_partition(column_tiles));
        if (short_rows_) TRY(s_.loop_partition(*row_tiles));
        if (tasks.empty()) return {};
        task_loop_ = tasks[0];
        for (size_t i = 1; i < tasks.size(); ++i) task_loop_ = TRY(s_.fuse(*task_loop_, tasks[i]));
        if (tiles_.parallel) TRY(s_.parallel(*task_loop_));
        return {};
    }

    // The sum of one tile in registers; where k has several blocks, added up in a block of partial sums.
    Status tile_sum() {
        std::string tile = mm_;
        Loop at = tile_loop_;
        if (tiles_.k_blocks > 1) {
            std::vector<Loop> loops = s_.loops(mm_);
            Loop k = loops.back();
            auto [ko, ki] = TRY(s_.split(k, tiles_.kc));
            tile = TRY(s_.rfactor(ko));
            if (task_loop_) TRY(s_.compute_at(mm_, *task_loop_));
            TRY(s_.set_scope(mm_, Scope::Local));
            TRY(tile_partial_sums());
            loops = s_.loops(mm_);
            size_t next = has_batch_ ? 1 : 0;
            std::vector<Loop> order{loops.back()}, inner;
            std::optional<Loop> row_tiles;
            if (has_rows_) {
                auto [tiles, rows] = TRY(s_.split(loops[next++], tiles_.mr));
                row_tiles = tiles;
                inner.push_back(rows);
            }
            const bool whole = mod(s_.extent(loops[next]), tiles_.nr).is_int(0);
            auto [column_tiles, columns] = TRY(s_.split(loops[next], tiles_.nr));
            auto [vectors, lanes] = TRY(s_.split(columns, lanes_));
            order.push_back(column_tiles);
            if (b_.empty() && !whole) TRY(s_.loop_partition(column_tiles));
            if (row_tiles) order.push_back(*row_tiles);
            at = order.back();
            panel_loop_ = column_tiles;
            block_loop_ = order.front();
            // The last block is cut short; the others need not ask.
            if (b_.empty() && !even_blocks_) TRY(s_.loop_partition(*block_loop_));
            inner.insert(inner.end(), {vectors, lanes});
            order.insert(order.end(), inner.begin(), inner.end());
            TRY(s_.reorder(order));
            TRY(s_.vectorize(lanes));
            for (size_t i = 0; i + 1 < inner.size(); ++i) TRY(s_.unroll(inner[i]));
        }
        if (!tile_.empty()) TRY(keep_tile(at));
        TRY(s_.compute_at(tile, at));
        if (tiles_.tile_words) return sum_by_tiles(tile);
        const Loop rows_of_tiles = at;
        if (part_ > 0) TRY(sum_in_parts(tile, at));
        TRY(s_.set_scope(tile, Scope::Register));
        std::vector<Loop> loops = s_.loops(tile), order;
        size_t next = has_batch_ ? 1 : 0;
        std::optional<Loop> rows;
        if (has_rows_) rows = loops[next++];
        auto [vectors, lanes] = TRY(s_.split(loops[next], lanes_));
        Loop k = loops.back();
        if (!b_copy_.empty()) {
            std::copy_if(loops.begin() + std::ptrdiff_t(next) + 1, loops.end(), std::back_inserter(order),
                         [&](const Loop& l) { return s_.reduces(l); });
        } else if (copy_.empty()) {
            order.push_back(k);
        } else {
            // Neighbours along a line share elements, which would take up registers: they do not stand side by side.
            order.assign(loops.begin() + std::ptrdiff_t(next) + 1, loops.end());
            std::rotate(order.begin(), order.end() - 1, order.end());
            k = order.back();
        }
        if (rows) order.push_back(*rows);
        order.insert(order.end(), {vectors, lanes});
        TRY(s_.reorder(order));
        TRY(s_.vectorize(lanes));
        TRY(s_.unroll(vectors));
        if (rows) TRY(s_.unroll(*rows));
        // Lanes of A come in the same order each iteration: one iteration after the other is best there, unless it
        // prefetches.
        const bool alike = options_.machine.lane_multiply && tiles_.mr % lanes_ == 0 && !tiles_.prefetch;
        if (!copy_.empty() && c_.depth.size() == 1) return {};
        const bool written_out = s_.extent(k).as_int().value_or(kPlacesAtOnce + 1) <= kPlacesAtOnce;
        if (written_out && !copy_.empty()) return s_.unroll(k);
        if (written_out && !b_copy_.empty())
            TRY(s_.unroll(k));
        else if (!alike)
            TRY(s_.annotate(k, "unroll", 4));
        // The first tiles of rows would wait for each panel, and few come after them. A task of one panel has the next
        // in its next block of k.
        if (!b_.empty() && has_rows_ && tiles_.prefetch) {
            const Loop& next_panel = block_loop_ && tiles_.nc == tiles_.nr ? *block_loop_ : panel_loop_;
            TRY(s_.prefetch_next(tile, find_stage(s_, b_).buffer, k, next_panel, rows_of_tiles));
        }
        // A last block that is cut short has no constant number of rows to copy.
        const bool short_block = b_.empty() && !even_blocks_;
        if (!a_.empty() && !short_block && options_.machine.lane_multiply) {
            std::string copy = TRY(s_.cache_read(tile, find_stage(s_, a_).buffer, Scope::Register));
            TRY(s_.compute_at(copy, k));
            TRY(s_.vectorize(s_.loops(copy)[a_batch_ ? 1 : 0]));
        }
        return {};
    }

    // The tile in memory, to which an instruction adds the products of so many words.
    Status sum_by_tiles(const std::string& tile) {
        TRY(s_.set_scope(tile, Scope::Local));
        const std::vector<Loop> loops = s_.loops(tile);
        const size_t rows = has_batch_ ? 1 : 0;
        auto [vectors, lanes] = TRY(s_.split(loops[rows + 1], lanes_));
        auto [parts, words] = TRY(s_.split(loops.back(), tiles_.tile_words));
        TRY(s_.reorder({parts, loops[rows], vectors, lanes, words}));
        // The zeros that it begins with are written in vectors.
        TRY(s_.vectorize(lanes));
        TRY(s_.unroll(vectors));
        TRY(s_.unroll(words));
        return s_.tensorize(loops[rows], word_tiles_name(rows_unsigned_, tiles_.tile_words));
    }

    // The tile in memory, to which parts of the sum are added; from then on `tile` is a part, computed at `at`.
    Status sum_in_parts(std::string& tile, Loop& at) {
        const std::vector<Loop> whole = s_.loops(tile);
        const auto first = std::find_if(whole.begin(), whole.end(), [&](const Loop& l) { return s_.reduces(l); });
        auto [parts, k] = TRY(s_.split(b_copy_.empty() ? whole.back() : *first, part_));
        std::string part = TRY(s_.rfactor(parts));
        TRY(s_.set_scope(tile, Scope::Local));
        const std::vector<Loop> loops = s_.loops(tile);
        size_t next = has_batch_ ? 1 : 0;  // after the columns there may be the block of k
        std::vector<Loop> order{loops.back()};
        if (has_rows_) order.push_back(loops[next++]);
        auto [vectors, lanes] = TRY(s_.split(loops[next], lanes_));
        order.insert(order.end(), {vectors, lanes});
        TRY(s_.reorder(order));
        TRY(s_.vectorize(lanes));
        for (size_t i = 1; i + 1 < order.size(); ++i) TRY(s_.unroll(order[i]));
        tile = part;
        at = order[0];
        return s_.compute_at(tile, at);
    }

    // The sums of one tile in memory.
    Status keep_tile(const Loop& at) {
        TRY(s_.compute_at(tile_, at));
        TRY(s_.set_scope(tile_, Scope::Local));
        std::vector<Loop> loops = s_.loops(tile_);
        auto [vectors, lanes] = TRY(s_.split(loops.back(), lanes_));
        TRY(s_.unroll(vectors));
        if (has_rows_) TRY(s_.unroll(loops[loops.size() - 2]));
        return s_.vectorize(lanes);
    }

    Status attach_operands() {
        for (const std::string& copy : {copy_, b_copy_}) {
            if (copy.empty() || !task_loop_ || hides_places_) continue;
            TRY(s_.compute_at(copy, *task_loop_));
            TRY(s_.set_scope(copy, Scope::Local));
            TRY(vectorize_map(s_, copy, find_stage(s_, copy).axes.size() - 1, options_));
        }
        if (!a_.empty()) {
            // What is known, or the same for all of a batch, is packed once.
            const bool ahead = tiles_.a_ahead || (a_known_ && task_loop_) || (has_batch_ && !a_batch_);
            if (ahead) {
                TRY(s_.set_scope(a_, Scope::Global));
            } else if (const auto& at = block_loop_ ? block_loop_ : rows_loop_ ? rows_loop_ : task_loop_) {
                TRY(s_.compute_at(a_, *at));
                TRY(s_.set_scope(a_, Scope::Local));
            }
            // Rows an odd number of cache lines apart, so that they do not fight for places.
            if (by_rows_ && !ahead && (task_loop_ || block_loop_ || rows_loop_))
                TRY(s_.storage_align(a_, a_batch_ ? 2 : 1, 2 * line(), line()));
            const bool parallel = ahead && tiles_.parallel;
            TRY(by_rows_        ? pack_by_rows(parallel)
                : rows_.empty() ? pack(a_, tiles_.mr, parallel, false)
                                : pack_turned(parallel));
        }
        if (b_.empty()) return {};
        if (tiles_.b_in_task && (task_loop_ || block_loop_)) {
            // Of one block of k, where there are several.
            TRY(s_.compute_at(b_, block_loop_ ? *block_loop_ : *task_loop_));
            TRY(s_.set_scope(b_, Scope::Local));
            return pack(b_, tiles_.nr, false, b_along_columns_);
        }
        return pack(b_, tiles_.nr, tiles_.parallel, b_along_columns_);
    }

    // Rows of A as they lie.
    Status pack_by_rows(bool parallel) {
        std::vector<Loop> loops = s_.loops(a_);
        const size_t outer = loops.size() - c_.depth.size();
        if (parallel) {
            Loop rows = loops[outer - 1];
            if (outer > 1) rows = TRY(s_.fuse(loops[0], rows));
            TRY(s_.parallel(rows));
        } else {
            auto [tiles, rows] = TRY(s_.split(loops[outer - 1], tiles_.mr));
            TRY(s_.loop_partition(tiles));
        }
        auto [vectors, lanes] = TRY(s_.split(loops.back(), lanes_));
        TRY(s_.annotate(vectors, "unroll", 4));
        TRY(s_.loop_partition(vectors));
        return s_.vectorize(lanes);
    }

    // Squares of A: read along k, stored along the rows of a panel.
    Status pack_turned(bool parallel) {
        std::vector<Loop> loops = s_.loops(a_);
        size_t depth = c_.depth.size(), outer = loops.size() - depth;
        auto [tiles, rows] = TRY(s_.split(loops[outer - 1], tiles_.mr));
        auto [squares, k] = TRY(s_.split(loops.back(), lanes_));
        std::vector<Loop> order{tiles};
        order.insert(order.end(), loops.begin() + std::ptrdiff_t(outer), loops.end() - 1);
        order.insert(order.end(), {squares, k, rows});
        TRY(s_.reorder(order));
        TRY(s_.unroll(k));
        if (tiles_.mr % lanes_ == 0 && tiles_.mr > lanes_) {
            auto [vectors, lanes] = TRY(s_.split(rows, lanes_));
            TRY(s_.unroll(vectors));
            TRY(s_.vectorize(lanes));
        } else {
            TRY(s_.vectorize(rows));
        }
        if (parallel) {
            Loop whole = tiles;
            if (outer > 1) whole = TRY(s_.fuse(loops[0], whole));
            TRY(s_.parallel(whole));
        } else {
            TRY(s_.loop_partition(tiles));
        }
        if (c_.depth.size() == 1) TRY(s_.loop_partition(squares));
        TRY(s_.compute_at(rows_, squares));
        TRY(s_.set_scope(rows_, Scope::Register));
        std::vector<Loop> own = s_.loops(rows_);
        TRY(s_.vectorize(own.back()));
        return s_.unroll(own[outer - 1]);
    }

    // Panel after panel, each row of it in vectors. What lies along the columns of panels is read a few rows of k at a
    // time, all panels of them: not in steps from row to row, each on another page.
    Status pack(const std::string& name, int64_t width, bool parallel, bool along_columns) {
        std::vector<Loop> loops = s_.loops(name);
        size_t depth = c_.depth.size(), outer = loops.size() - depth;
        auto [tiles, inner] = TRY(s_.split(loops[outer - 1], width));
        Loop whole = tiles;
        std::vector<Loop> order(loops.begin() + std::ptrdiff_t(outer), loops.end());
        order.push_back(inner);
        auto count = s_.extent(tiles).as_int();
        auto longer = [&](const Loop& loop) { return !s_.extent(loop).is_int(1); };
        const auto k = std::find_if(loops.begin() + std::ptrdiff_t(outer), loops.end(), longer);
        const bool one_axis = k != loops.end() && std::none_of(k + 1, loops.end(), longer);
        if (along_columns && one_axis && (!count || *count > 1)) {
            auto [blocks, rows] = TRY(s_.split(*k, kRowsAtOnce));
            order = {blocks, tiles, rows, inner};
            if (parallel) {
                int64_t each = std::max<int64_t>(1, count.value_or(64) / (4 * options_.threads));
                auto [chunks, in_chunk] = TRY(s_.split(tiles, each));
                whole = chunks;
                order = {chunks, blocks, in_chunk, rows, inner};
            }
        } else {
            order.insert(order.begin(), tiles);
        }
        TRY(s_.reorder(order));
        if (width % lanes_ == 0) {
            auto [vectors, lanes] = TRY(s_.split(inner, lanes_));
            TRY(s_.vectorize(lanes));
            TRY(s_.unroll(vectors));
        } else {
            TRY(s_.unroll(inner));
        }
        if (!parallel) return s_.loop_partition(tiles);
        if (outer > 1) whole = TRY(s_.fuse(loops[0], whole));
        return s_.parallel(whole);
    }

    int64_t line() const { return lanes_ * 64 / options_.machine.vector_bytes; }  // of a cache, in elements

    Schedule& s_;
    const CpuScheduleOptions& options_;
    std::string mm_, out_, a_, b_;
    std::string rows_;           // A as it lies, where a_ is transposed
    std::string copy_, b_copy_;  // of A, of B, with filled edges, where it is not packed
    bool hides_places_ = false;  // the batch, as one axis, which of its places are asked for
    std::string tile_;           // the sums of a tile in memory, where the epilogue reads them there
    Contraction c_;
    ContractionTiles tiles_;
    int64_t lanes_ = 1;
    int64_t part_ = 0;                        // of a sum, that is added up in registers; 0: all of it
    bool a_batch_ = false, a_known_ = false;  // A has axes of the batch; is known before it runs
    bool has_batch_ = false, has_rows_ = false, b_along_columns_ = false, b_copied_ = false, by_rows_ = false;
    bool rows_unsigned_ = false;   // the bytes of A are, where the sum is over words
    bool short_rows_ = false;      // A is read where it lies, and has no rows for all of the last tile
    bool fills_ = false;           // k is filled up to whole vectors
    bool even_blocks_ = true;      // all blocks of k are of one size
    Loop tile_loop_, panel_loop_;  // over register tiles, over panels of B
    std::optional<Loop> task_loop_, block_loop_;
    std::optional<Loop> rows_loop_;  // over tiles of A, each of which is packed into the first cache when it is used
};

}  // namespace

Status schedule_contraction(Schedule& s, std::string stage, Contraction c, std::string out,
                            const CpuScheduleOptions& options) {
    return ContractionSchedule(s, std::move(stage), std::move(c), std::move(out), options).apply();
}

}  // namespace tessera
