// The schedule of attention: a task has some queries of one head, and goes over blocks of keys with running values.
//
//   parallel over heads and blocks of queries:
//     qt = Q, transposed
//     for blocks of keys:
//       kb, vb = K, V of the block
//       for tiles of queries:
//         scores of the block and their maximum, a register tile of keys at a time
//         their exponentials, and the sum of those
//         the product with V corrected and added to, a register tile of columns at a time
//     out = product / sums
#include "kernel/cpu/attention.h"
#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

class AttentionSchedule {
  public:
    AttentionSchedule(AttentionStages stages, const AttentionTiles& tiles, const CpuScheduleOptions& options)
        : n_(std::move(stages)), s_(n_.compute), t_(tiles), options_(options) {
        const Stage& product = find_stage(s_, n_.product);
        lanes_ = std::max(1, options.machine.vector_bytes / int(dtype_bytes(product.value.dtype())));
        by_lanes_ = options.machine.lane_multiply && lanes_ > 1;
        heads_ = product.axes.size() - 2;
    }

    Result<Schedule> run(bool direct) {
        std::vector<std::string> made = TRY(s_.online({n_.most, n_.sums, n_.product}, t_.keys));
        const std::string &most_block = made[0], &sums_block = made[1], &product_block = made[2];
        TRY(tile_out());
        TRY(tile_product());
        for (const std::string& name : {n_.most, n_.sums}) {
            TRY(s_.compute_at(name, tile_));
            auto [tiles, lanes] = TRY(s_.split(loop(name, 0), t_.queries));
            TRY(s_.vectorize(lanes));
        }
        TRY(multiply_values(product_block, direct));
        for (const std::string& name : {made[3], sums_block, n_.exps, made[4], most_block, n_.scores})
            TRY(s_.compute_at(name, tile_));
        for (const std::string& name : {made[3], made[4]}) TRY(s_.vectorize(loop(name, 0)));
        for (const std::string& name : n_.bias) TRY(copy_bias(name));
        TRY(add_up(sums_block));
        TRY(make_scores(most_block, direct));
        TRY(copy_queries());
        return std::move(s_);
    }

  private:
    // A loop of a stage after those over heads.
    Loop loop(const std::string& stage, size_t i) const { return s_.loops(stage)[heads_ + i]; }

    // A loop over queries of a tile in registers: a few vectors side by side.
    Result<std::vector<Loop>> in_registers(const Loop& queries) {
        auto [vectors, lanes] = TRY(s_.split(queries, lanes_));
        TRY(s_.unroll(vectors));
        TRY(s_.vectorize(lanes));
        return std::vector<Loop>{vectors, lanes};
    }

    // A copy of rows, along elements that lie side by side.
    Status copy_rows(const std::string& stage, const Loop& along) {
        const int64_t extent = *find_stage(s_, stage).axes.back().extent.as_int();
        if (extent < lanes_ || lanes_ < 2) return {};
        auto [vectors, lanes] = TRY(s_.split(along, lanes_));
        TRY(s_.vectorize(lanes));
        if (extent % lanes_) return s_.loop_partition(vectors);
        return s_.annotate(vectors, "unroll", 4);
    }

    // Tiles of queries after one another, each transposed.
    Status lay_out_tiles(const std::string& stage) {
        IndexMap map;
        for (const ReduceAxis& axis : find_stage(s_, stage).axes) {
            map.vars.push_back(index_var("d" + std::to_string(map.vars.size()), axis.extent.as_int()));
            map.indices.push_back(map.vars.back());
            map.shape.push_back(axis.extent);
        }
        const Expr query = map.vars.back(), extent = map.shape.back();
        map.indices.back() = mod(query, t_.queries);
        map.shape.back() = t_.queries;
        map.indices.insert(map.indices.end() - 2, floor_div(query, t_.queries));
        map.shape.insert(map.shape.end() - 2, ceil_div(extent, t_.queries));
        return s_.transform_layout(stage, map);
    }

    Status tile_out() {
        std::vector<Loop> tasks = s_.loops(n_.out);
        const Loop query = tasks[heads_], column = tasks[heads_ + 1];
        const Expr queries = s_.extent(query), columns = s_.extent(column);
        tasks.resize(heads_);
        auto [block, rest] = TRY(s_.split(query, t_.block));
        auto [tile, row] = TRY(s_.split(rest, t_.queries));
        tasks.push_back(block);
        task_ = tasks[0];
        for (size_t i = 1; i < tasks.size(); ++i) task_ = TRY(s_.fuse(task_, tasks[i]));
        if (options_.threads > 1 && !s_.extent(task_).is_int(1)) TRY(s_.parallel(task_));
        if (*columns.as_int() >= lanes_ && lanes_ > 1) {
            auto [vectors, lanes] = TRY(s_.split(column, lanes_));
            TRY(s_.vectorize(lanes));
            if (*columns.as_int() % lanes_)
                TRY(s_.loop_partition(vectors));
            else
                TRY(s_.unroll(vectors));
        }
        if (!mod(queries, t_.queries).is_int(0)) TRY(s_.loop_partition(tile));
        TRY(s_.compute_at(n_.result, tile));
        TRY(in_registers(loop(n_.result, 1)));
        for (const std::string& name : {n_.blind, n_.inverse}) {
            if (name.empty()) continue;
            TRY(s_.compute_at(name, tile));
            TRY(s_.vectorize(loop(name, 0)));
        }
        if (!n_.zeros.empty()) {
            TRY(s_.compute_at(n_.zeros, task_));
            TRY(s_.reorder({loop(n_.zeros, 1), loop(n_.zeros, 0)}));
            TRY(copy_rows(n_.zeros, loop(n_.zeros, 1)));
        }
        return {};
    }

    // The running product of the task's queries.
    Status tile_product() {
        TRY(s_.compute_at(n_.product, task_));
        TRY(lay_out_tiles(n_.product));
        block_ = loop(n_.product, 2);
        auto [columns, column] = TRY(s_.split(loop(n_.product, 0), t_.rows));
        auto [tiles, query] = TRY(s_.split(loop(n_.product, 2), t_.queries));
        std::vector<Loop> order{block_, tiles, columns, column};
        std::vector<Loop> lanes = TRY(in_registers(query));
        order.insert(order.end(), lanes.begin(), lanes.end());
        TRY(s_.reorder(order));
        TRY(s_.unroll(column));
        tile_ = tiles;
        columns_loop_ = columns;
        return {};
    }

    Status copy_queries() {
        TRY(s_.compute_at(n_.queries, task_));
        TRY(lay_out_tiles(n_.queries));
        auto [tiles, lane] = TRY(s_.split(loop(n_.queries, 1), t_.queries));
        TRY(s_.reorder({tiles, loop(n_.queries, 0), lane}));
        return s_.vectorize(lane);
    }

    Status multiply_values(const std::string& part, bool direct) {
        TRY(s_.compute_at(part, columns_loop_));
        TRY(s_.set_scope(part, Scope::Register));
        const Loop column = loop(part, 0), key = loop(part, 3);
        std::vector<Loop> order{key, column}, lanes = TRY(in_registers(loop(part, 1)));
        order.insert(order.end(), lanes.begin(), lanes.end());
        TRY(s_.reorder(order));
        TRY(s_.unroll(column));
        TRY(s_.annotate(key, "unroll", 4));
        if (by_lanes_) {
            std::string copy = TRY(s_.cache_read(part, find_stage(s_, n_.values).buffer, Scope::Register));
            TRY(s_.compute_at(copy, key));
            TRY(s_.vectorize(loop(copy, 1)));
        }
        if (direct) return s_.compute_inline(n_.values);
        TRY(s_.compute_at(n_.values, block_));
        return copy_rows(n_.values, loop(n_.values, 1));
    }

    Status copy_bias(const std::string& name) {
        TRY(s_.compute_at(name, tile_));
        TRY(s_.vectorize(loop(name, 1)));
        // A constant number of rows can be transposed in registers.
        if (mod(find_stage(s_, name).axes[heads_].extent, t_.keys).is_int(0)) return {};
        auto [parts, rows] = TRY(s_.split(loop(name, 0), lanes_));
        return s_.loop_partition(parts);
    }

    Status add_up(const std::string& part) {
        TRY(s_.vectorize(loop(n_.exps, 1)));
        TRY(s_.reverse_compute_at(part, loop(n_.exps, 0)));
        TRY(s_.set_scope(part, Scope::Register));
        const Loop query = loop(part, 0);
        TRY(s_.reorder({loop(part, 2), loop(part, 1), query}));
        return s_.vectorize(query);
    }

    // Costly functions are not written out for each product of a tile: they read it from memory, row by row.
    Status make_scores(const std::string& most, bool direct) {
        const bool apart = is_costly(find_stage(s_, n_.scores).value);
        std::string tiled = n_.scores;
        if (apart) {
            tiled = TRY(s_.cache_write(n_.dot, Scope::Register));
            TRY(s_.set_scope(tiled, Scope::Local));
            TRY(s_.compute_at(tiled, tile_));
        }
        const bool whole = mod(find_stage(s_, tiled).axes[heads_].extent, t_.rows).is_int(0);
        auto [tiles, row] = TRY(s_.split(loop(tiled, 0), t_.rows));
        TRY(in_registers(loop(tiled, 2)));
        TRY(s_.unroll(row));
        if (!whole) TRY(s_.loop_partition(tiles));
        if (apart) TRY(s_.vectorize(loop(n_.scores, 1)));
        TRY(s_.reverse_compute_at(most, apart ? loop(n_.scores, 0) : tiles));
        TRY(s_.set_scope(most, Scope::Register));
        const Loop step = loop(most, 2), block = loop(most, 1);
        if (apart) {
            TRY(s_.reorder({step, block, loop(most, 0)}));
            TRY(s_.vectorize(loop(most, 2)));
        } else {
            std::vector<Loop> order{step, block}, lanes = TRY(in_registers(loop(most, 0)));
            order.insert(order.end(), lanes.begin(), lanes.end());
            TRY(s_.reorder(order));
            TRY(s_.unroll(step));
        }
        return multiply_keys(tiles, direct);
    }

    Status multiply_keys(const Loop& tiles, bool direct) {
        TRY(s_.compute_at(n_.dot, tiles));
        TRY(s_.set_scope(n_.dot, Scope::Register));
        const Loop row = loop(n_.dot, 0);
        Loop depth = loop(n_.dot, 2);
        const bool whole = mod(s_.extent(depth), lanes_).is_int(0);
        std::vector<Loop> lanes = TRY(in_registers(loop(n_.dot, 1))), order{depth};
        if (by_lanes_ && whole) {
            auto [outer, inner] = TRY(s_.split(depth, lanes_));
            TRY(s_.unroll(inner));
            order = {outer, inner};
        } else {
            TRY(s_.annotate(depth, "unroll", 4));
        }
        order.push_back(row);
        order.insert(order.end(), lanes.begin(), lanes.end());
        TRY(s_.reorder(order));
        TRY(s_.unroll(row));
        if (by_lanes_ && whole) {
            std::string copy = TRY(s_.cache_read(n_.dot, find_stage(s_, n_.keys).buffer, Scope::Register));
            TRY(s_.compute_at(copy, order[0]));
            TRY(s_.unroll(loop(copy, 0)));
            TRY(s_.vectorize(loop(copy, 1)));
        }
        if (direct) return s_.compute_inline(n_.keys);
        TRY(s_.compute_at(n_.keys, block_));
        return copy_rows(n_.keys, loop(n_.keys, 1));
    }

    AttentionStages n_;
    Schedule s_;
    AttentionTiles t_;
    const CpuScheduleOptions& options_;
    int64_t lanes_ = 1;
    bool by_lanes_ = false;  // elements of K and V come as lanes of registers
    size_t heads_ = 0;       // axes
    Loop task_, block_, tile_, columns_loop_;
};

}  // namespace

Result<Schedule> schedule_attention(const Compute& compute, const Attention& attention, const CpuScheduleOptions& options,
                                    std::optional<int64_t> queries) {
    const Stage& product = *attention.product;
    auto extent = [&](size_t axis) { return product.axes[axis].extent.as_int(); };
    Expr outer = 1;
    for (size_t i : attention.outer) outer = outer * product.axes[i].extent;
    const int bytes = int(dtype_bytes(compute.buffers[size_t(product.buffer)].dtype));
    const AttentionTiles tiles = choose_attention_tiles(extent(*attention.query) ? extent(*attention.query) : queries,
                                                        attention.key.extent.as_int(), *attention.depth.extent.as_int(),
                                                        *extent(attention.column), outer.as_int().value_or(16), bytes,
                                                        options.machine, options.threads);
    AttentionStages stages = attention_stages(compute, attention, tiles);
    // A task of one tile reads keys and values where they lie.
    const bool direct =
        tiles.block == tiles.queries && stages.zeros.empty() && *extent(attention.column) % tiles.rows == 0;
    return AttentionSchedule(std::move(stages), tiles, options).run(direct);
}

}  // namespace tessera
