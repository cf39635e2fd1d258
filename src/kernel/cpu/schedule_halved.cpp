#include <algorithm>

#include "base/check.h"
#include "kernel/cpu/halved_product.h"
#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kMostPart = 192, kLeastPart = 32;  // products in f32 that are added up one by one
constexpr int64_t kProductsShare = 6;                // of the second cache, for a task's products of one panel
constexpr int64_t kMostBlocks = 32;                  // of rows, of one task
constexpr int64_t kFewBlocks = 12;                   // with more, it does not matter that the first wait for a panel
constexpr int64_t kFewSteps = 4;                     // of the depth at once, where 49 sums are made of each

constexpr int64_t kRowsCollide = 2048;  // bytes: rows so far apart, or a multiple, share few places of a cache
constexpr int64_t kCopied = 32;         // elements of such a row that are copied at once

// The product, and the map that reads its elements as they are made; empty where it is the result itself.
struct HalvedParts {
    std::string product, out;
    Contraction c;
    std::vector<std::vector<int>> groups;  // of the axes of out: rows and columns
};

Error refused(const Compute& compute, const std::string& why) {
    return Error(Code::E0602, "Strassen cannot compute {}: {}", compute.name, why);
}

Result<HalvedParts> find_parts(const Schedule& s) {
    const Compute& compute = s.compute();
    HalvedParts parts;
    for (const Stage& stage : compute.stages) {
        auto c = match_contraction(stage);
        if (!c) continue;
        if (!parts.product.empty()) return refused(compute, "there are two products");
        parts.product = stage.name;
        parts.c = *c;
    }
    if (parts.product.empty()) return refused(compute, "there is no product");
    const Stage& stage = find_stage(s, parts.product);
    const Contraction& c = parts.c;
    for (const auto* axes : {&stage.axes, &stage.reduce})
        for (const ReduceAxis& axis : *axes)
            if (!axis.extent.as_int() || axis.extent.is_int(0)) return refused(compute, "a size is not known, or 0");
    if (!c.batch.empty() || c.rows.empty()) return refused(compute, "it is not one product of two matrices");
    if (stage.value.dtype() != DType::f32) return refused(compute, "it is not in f32");
    if (!measure_contraction(s, stage, c).packed_ahead) return refused(compute, "its weights are not known");
    if (is_costly(stage.value)) return refused(compute, "what it multiplies would be computed several times");
    auto larger = [](const ReduceAxis& axis) { return !axis.extent.is_int(1); };
    if (std::count_if(stage.reduce.begin(), stage.reduce.end(), larger) > 1)
        return refused(compute, "it sums over several axes");
    parts.out = parts.product;
    parts.groups = {c.rows, c.columns};
    if (size_t(stage.buffer) >= compute.params) {
        std::vector<std::string> readers = readers_of(s, stage.buffer);
        if (readers.size() != 1) return refused(compute, "its sums have several readers");
        const Stage& out = find_stage(s, readers[0]);
        auto matched = matching_groups(out, stage, parts.groups);
        if (!matched || !out.reduce.empty()) return refused(compute, "its sums are not read one by one");
        parts.out = out.name;
        parts.groups = *matched;
    }
    for (const Stage& other : compute.stages)
        if (other.name != parts.product && other.name != parts.out)
            return refused(compute, "something else is computed with it");
    return parts;
}

class HalvedSchedule {
  public:
    HalvedSchedule(const Schedule& before, const HalvedParts& parts, const HalvedTiles& tiles,
                   const CpuScheduleOptions& options)
        : options_(options),
          tiles_(tiles),
          mm_(parts.product),
          out_(parts.out),
          product_groups_{parts.c.rows, parts.c.columns},
          out_groups_(parts.groups),
          stages_(halve_product(before.compute(), parts.product, parts.c, tiles)),
          s_(stages_.compute),
          lanes_(std::max(1, options.machine.vector_bytes / 4)) {}

    Result<Schedule> run() {
        TRY(lay_out());
        TRY(tile_output());
        TRY(tile_products());
        TRY(pack_first());
        auto [vectors, lane] = TRY(s_.split(loop(stages_.b, "n"), lanes_));
        TRY(s_.vectorize(lane));
        TRY(s_.unroll(vectors));
        return std::move(s_);
    }

  private:
    static Loop loop(const std::string& stage, const char* axis) { return {stage + "." + axis}; }

    // Factors lie in the order in which they are used: part of the depth, product, tile.
    Status lay_out() {
        for (const std::string& name : {stages_.a, stages_.b}) {
            const Stage& stage = find_stage(s_, name);
            IndexMap map;
            std::vector<Expr> size;
            for (const ReduceAxis& a : stage.axes) {
                map.vars.push_back(a.var);
                size.push_back(a.extent);
            }
            const Expr &p = map.vars[0], &tile = map.vars[1], &k = map.vars[2], &inner = map.vars[3];
            const Expr part = floor_div(k, tiles_.part), in_part = mod(k, tiles_.part),
                       parts = floor_div(size[2], tiles_.part);
            if (name == stages_.a) {
                map.indices = {part, p, tile, in_part, inner};
                map.shape = {parts, size[0], size[1], tiles_.part, size[3]};
            } else {
                map.indices = {tile, part, p, in_part, inner};
                map.shape = {size[1], parts, size[0], tiles_.part, size[3]};
            }
            TRY(s_.transform_layout(name, map));
        }
        return {};
    }

    // Tasks, blocks of columns, blocks of rows; in a block what is at the same place of each tile at once, since it is
    // made of the same products.
    Status tile_output() {
        const bool costly = out_ != mm_ && is_costly(find_stage(s_, out_).value);
        if (out_ != mm_ && !costly) TRY(s_.compute_inline(mm_));
        TRY(s_.merge_axes(out_, out_groups_));
        std::vector<Loop> loops = s_.loops(out_), tasks;
        Loop rows = loops[0], columns = loops[1];
        const int64_t mr = tiles_.mr, nr = tiles_.nr, parts = tiles_.parts();
        auto cut = [&](Loop& l, int64_t size) -> Status {
            if (*s_.extent(l).as_int() <= size) return {};
            auto [task, inner] = TRY(s_.split(l, size));
            tasks.push_back(task);
            l = inner;
            return {};
        };
        TRY(cut(rows, tiles_.rows * parts * mr));
        TRY(cut(columns, tiles_.columns * parts * nr));
        auto [row_blocks, in_rows] = TRY(s_.split(rows, parts * mr));
        auto [column_blocks, in_columns] = TRY(s_.split(columns, parts * nr));
        std::vector<Loop> order = tasks;
        order.insert(order.end(), {column_blocks, row_blocks});
        panel_loop_ = column_blocks;
        if (costly) {
            // Costly functions read their sums from memory, row by row.
            auto [wide, lane] = TRY(s_.split(in_columns, nr));
            order.insert(order.end(), {in_rows, wide, lane});
            TRY(s_.reorder(order));
            TRY(s_.vectorize(lane));
            TRY(s_.merge_axes(mm_, product_groups_));
            TRY(s_.compute_at(mm_, row_blocks));
            TRY(s_.set_scope(mm_, Scope::Local));
            std::vector<Loop> own = s_.loops(mm_);
            TRY(combine_products(own[0], own[1], {}));
        } else {
            TRY(combine_products(in_rows, in_columns, order));
        }
        TRY(s_.loop_partition(column_blocks));
        TRY(s_.loop_partition(row_blocks));
        if (tasks.empty()) return {};
        task_loop_ = tasks[0];
        for (size_t i = 1; i < tasks.size(); ++i) task_loop_ = TRY(s_.fuse(*task_loop_, tasks[i]));
        if (options_.threads > 1) TRY(s_.parallel(*task_loop_));
        return {};
    }

    // The rows and columns of a block, inside `order`.
    Status combine_products(const Loop& in_rows, const Loop& in_columns, std::vector<Loop> order) {
        auto [row_part, row] = TRY(s_.split(in_rows, tiles_.mr));
        auto [column_part, in_tile] = TRY(s_.split(in_columns, tiles_.nr));
        auto [vectors, lane] = TRY(s_.split(in_tile, lanes_));
        order.insert(order.end(), {row, vectors, row_part, column_part, lane});
        TRY(s_.reorder(order));
        TRY(s_.vectorize(lane));
        if (tiles_.halvings == 1) TRY(s_.unroll(vectors));
        TRY(s_.unroll(row_part));
        return s_.unroll(column_part);
    }

    // All rows of a task for one part of the depth and one product: its panel of weights stays in the first cache.
    Status tile_products() {
        const std::string& all = stages_.products;
        TRY(s_.compute_at(all, panel_loop_));
        auto [parts, k] = TRY(s_.split(loop(all, "k"), tiles_.part));
        const std::string tile = TRY(s_.rfactor(parts));
        TRY(s_.set_scope(all, Scope::Local));
        auto [vectors, lane] = TRY(s_.split(loop(all, "n"), lanes_));
        const Loop p = loop(all, "p"), blocks = loop(all, "t"), row = loop(all, "i");
        TRY(s_.reorder({parts, p, loop(all, "j"), blocks, row, vectors, lane}));
        TRY(s_.vectorize(lane));
        TRY(s_.unroll(vectors));
        TRY(s_.unroll(row));
        TRY(s_.compute_at(tile, blocks));
        TRY(s_.set_scope(tile, Scope::Register));
        const Loop depth = s_.loops(tile).back();
        auto [tile_vectors, tile_lane] = TRY(s_.split(loop(tile, "n"), lanes_));
        TRY(s_.reorder({depth, loop(tile, "i"), tile_vectors, tile_lane}));
        TRY(s_.vectorize(tile_lane));
        TRY(s_.unroll(tile_vectors));
        TRY(s_.unroll(loop(tile, "i")));
        const bool few = tiles_.halvings == 1 && tiles_.rows <= kFewBlocks;
        if (few || !options_.machine.lane_multiply) TRY(s_.annotate(depth, "unroll", 4));
        if (few) TRY(s_.prefetch_next(tile, find_stage(s_, stages_.b).buffer, depth, p, blocks));
        if (!options_.machine.lane_multiply) return {};
        const std::string copy = TRY(s_.cache_read(tile, find_stage(s_, stages_.a).buffer, Scope::Register));
        TRY(s_.compute_at(copy, depth));
        return s_.vectorize(s_.loops(copy).back());
    }

    // A few steps of the depth of all blocks in registers, transposed, and their sums.
    Status pack_first() {
        if (task_loop_) TRY(s_.compute_at(stages_.a, *task_loop_));
        TRY(s_.set_scope(stages_.a, Scope::Local));
        const Loop blocks = loop(stages_.a, "t"), p = loop(stages_.a, "p"), rows = loop(stages_.a, "i");
        const int64_t steps = tiles_.halvings == 1 ? lanes_ : std::min(lanes_, kFewSteps);
        auto [squares, k] = TRY(s_.split(loop(stages_.a, "k"), steps));
        TRY(s_.reorder({blocks, squares, k, p, rows}));
        TRY(s_.unroll(k));
        TRY(s_.unroll(p));
        TRY(s_.vectorize(rows));
        TRY(s_.loop_partition(blocks));
        std::string transposed = stages_.blocks;
        if (tiles_.copied > 0) {
            transposed = TRY(s_.cache_read(stages_.a, find_stage(s_, stages_.blocks).buffer, Scope::Register));
            auto [lines, in_lines] = TRY(s_.split(squares, tiles_.copied / steps));
            TRY(s_.compute_at(transposed, in_lines));
            TRY(copy_rows(lines));
        } else {
            TRY(s_.compute_at(transposed, squares));
        }
        TRY(s_.set_scope(transposed, Scope::Register));
        TRY(s_.reorder({loop(transposed, "i"), loop(transposed, "k")}));
        TRY(s_.vectorize(loop(transposed, "k")));
        for (const char* axis : {"h", "g", "i"}) TRY(s_.unroll(loop(transposed, axis)));
        return {};
    }

    // Rows that fight for places in the first cache: whole lines of one after the other.
    Status copy_rows(const Loop& at) {
        const std::string& rows = stages_.blocks;
        IndexMap map;
        for (const ReduceAxis& a : find_stage(s_, rows).axes) {
            map.vars.push_back(a.var);
            map.shape.push_back(a.extent);
        }
        map.indices = map.vars;
        std::swap(map.indices[3], map.indices[4]);
        std::swap(map.shape[3], map.shape[4]);
        TRY(s_.transform_layout(rows, map));
        TRY(s_.compute_at(rows, at));
        TRY(s_.set_scope(rows, Scope::Local));
        TRY(s_.reorder({loop(rows, "i"), loop(rows, "k")}));
        auto [vectors, lane] = TRY(s_.split(loop(rows, "k"), lanes_));
        TRY(s_.unroll(vectors));
        return s_.vectorize(lane);
    }

    const CpuScheduleOptions& options_;
    const HalvedTiles tiles_;
    const std::string mm_, out_;
    const std::vector<std::vector<int>> product_groups_, out_groups_;
    HalvedStages stages_;
    Schedule s_;
    const int64_t lanes_;
    std::optional<Loop> task_loop_;
    Loop panel_loop_;
};

}  // namespace

std::optional<HalvedTiles> choose_halved_tiles(const ContractionShape& shape, int64_t halvings, const Machine& machine,
                                               int threads) {
    HalvedTiles t;
    if (halvings < 1 || halvings > 2) return std::nullopt;
    t.halvings = halvings;
    const int64_t parts = t.parts(), lanes = std::max<int64_t>(1, machine.vector_bytes / shape.element_bytes);
    if (shape.k % (parts * lanes) != 0 || shape.m < parts || shape.n < parts) return std::nullopt;
    const int64_t depth = shape.k / parts;
    for (int64_t part = std::min(depth, kMostPart); part >= std::min(depth, kLeastPart) && t.part == 1; --part)
        if (depth % part == 0 && part % lanes == 0) t.part = part;
    if (t.part == 1) return std::nullopt;
    if (shape.k * shape.element_bytes % kRowsCollide == 0 && t.part % kCopied == 0) t.copied = kCopied;
    ContractionShape half = shape;
    half.m = divide_up(shape.m, parts);
    half.n = divide_up(shape.n, parts);
    half.k = t.part;
    half.a_along_depth = false;  // always packed
    const ContractionTiles tiles = choose_tiles(half, machine, 1);
    t.mr = tiles.mr;
    t.nr = tiles.nr;
    const int64_t row_blocks = divide_up(half.m, t.mr), column_blocks = divide_up(half.n, t.nr);
    const int64_t products = t.products() * t.mr * t.nr * shape.element_bytes;
    const int64_t most = std::clamp<int64_t>(machine.l2_bytes / kProductsShare / products, 4, kMostBlocks);
    t.rows = divide_up(row_blocks, std::max(divide_up(row_blocks, most), std::min<int64_t>(row_blocks, threads)));
    const int64_t row_tasks = divide_up(row_blocks, t.rows);
    t.columns = divide_up(column_blocks, std::min(column_blocks, divide_up(threads, row_tasks)));
    t.tasks = row_tasks * divide_up(column_blocks, t.columns);
    return t;
}

Result<Schedule> schedule_halved(const Compute& compute, const CpuScheduleOptions& options) {
    Schedule s(compute);
    TRY(inline_plain_maps(s));
    const HalvedParts parts = TRY(find_parts(s));
    const ContractionShape shape = measure_contraction(s, find_stage(s, parts.product), parts.c);
    auto tiles = choose_halved_tiles(shape, compute.halvings, options.machine, options.threads);
    if (!tiles) return refused(compute, "its sizes do not come out even");
    return HalvedSchedule(s, parts, *tiles, options).run();
}

}  // namespace tessera
