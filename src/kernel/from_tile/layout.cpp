#include "kernel/from_tile/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tessera::from_tile_detail {
namespace {

int log_of(int64_t n) { return std::countr_zero(static_cast<uint64_t>(n)); }

Stmt bound(const Expr& var, int64_t extent, const char* axis, Stmt body) {
    return for_loop({.var = var, .extent = extent, .kind = LoopKind::Bound, .axis = axis, .body = std::move(body)});
}

// A number's digit: floor(n / unit) mod size.
Expr digit(const Expr& n, int64_t unit, int64_t size, int64_t all) {
    if (size == 1) return 0;
    const Expr high = unit == 1 ? n : floor_div(n, unit);
    return unit * size >= all ? high : mod(high, size);
}

void place_products(const TileLayout& layout, TilePlace& p, int& names) {
    const int64_t rows = layout.shape[0] / layout.down;
    const int64_t columns = layout.of_rows ? 1 : layout.shape[1] / layout.across;
    const auto variable = [&](const char* name, int64_t extent, size_t axis, bool lane = false) {
        const Expr var = index_var(fmt::format("{}{}", name, names++), extent);
        p.loops.push_back({var, extent, axis, lane});
        return var;
    };
    const Expr v = variable("v", rows / 16, 0);
    const Expr x = layout.of_rows ? Expr(0) : variable("x", columns / 8, 1);
    const Expr h = variable("h", 2, 0);
    const Expr in = layout.of_rows ? Expr(0) : variable("of", 2, 1, true);
    const Expr across = layout.across == 1 ? Expr(0)
                        : layout.wide      ? floor_div(p.warp, layout.down)
                                           : mod(p.warp, layout.across);
    Expr down = p.warp;
    if (layout.across > 1) down = layout.wide ? mod(p.warp, layout.down) : floor_div(p.warp, layout.across);
    const Expr first = layout.wide ? (v * Expr(layout.down) + down) * Expr(16) : down * Expr(rows) + v * Expr(16);
    if (layout.across == 1) p.row = v * Expr(2) + h;
    if (layout.of_rows) {
        p.at = {first + h * Expr(8) + p.group};
        if (layout.shape.size() > 1) p.at.emplace_back(0);
        p.own = *p.row;
        p.of_rows = true;
        p.inside = eq(p.pair, Expr(0));
        return;
    }
    p.at = {first + h * Expr(8) + p.group, across * Expr(columns) + x * Expr(8) + p.pair * Expr(2) + in};
    p.own = v * Expr(columns / 8 * 4) + x * Expr(4) + h * Expr(2) + in;
}

}  // namespace

int64_t TileLayout::used() const {
    if (of_products || of_rows) return warps * kThreadsOfWarp;
    int64_t all = 1;
    for (int64_t n : threads) all *= n;
    return all;
}

int64_t TileLayout::per_thread() const {
    int64_t all = 1;
    for (int64_t n : shape) all *= n;
    return all / (of_rows ? used() / kPairsOfGroup : used());
}

std::vector<int> TileLayout::bits_of(size_t axis) const {
    std::vector<int> bits;
    const auto add = [&](int from, int count) {
        for (int b = 0; b < count; ++b) bits.push_back(from + b);
    };
    if (of_products || of_rows) {
        if (axis == 0) add(2, 3), add(5 + (wide ? 0 : log_of(across)), log_of(down));
        if (axis == 1) add(0, 2), add(5 + (wide ? log_of(down) : 0), log_of(across));
        return bits;
    }
    int64_t inner = 1;
    for (size_t d : order) {
        if (d == axis) break;
        inner *= threads[d];
    }
    add(log_of(inner), log_of(threads[axis]));
    return bits;
}

TileLayout spread_tile(const std::vector<int64_t>& shape, int64_t warps, int64_t most_lanes, size_t fastest) {
    const size_t rank = shape.size();
    TileLayout made{.shape = shape,
                    .warps = warps,
                    .order = {fastest},
                    .lanes = std::vector<int64_t>(rank, 1),
                    .threads = std::vector<int64_t>(rank, 1),
                    .registers = std::vector<int64_t>(rank, 1)};
    int64_t all = 1, left = warps * kThreadsOfWarp;
    for (int64_t n : shape) all *= n;
    for (size_t d = rank; d-- > 0;)
        if (d != fastest) made.order.push_back(d);
    made.lanes[fastest] = std::min({most_lanes, shape[fastest], std::max<int64_t>(1, all / left)});
    for (size_t d : made.order) {
        const int64_t n = shape[d] / made.lanes[d];
        made.threads[d] = std::min(n, left);
        left /= made.threads[d];
        made.registers[d] = n / made.threads[d];
    }
    return made;
}

std::optional<TileLayout> product_layout(const std::vector<int64_t>& shape, int64_t warps, bool rows) {
    if (shape.size() != 2) return {};
    std::optional<TileLayout> best;
    int64_t least = 0;
    for (int64_t down = 1; down <= warps; down *= 2) {
        const int64_t across = warps / down;
        if (shape[0] % (16 * down) || shape[1] % (16 * across)) continue;
        const int64_t cost = rows ? across : shape[0] / down + shape[1] / across;
        if (best && cost >= least) continue;
        least = cost;
        best = TileLayout{.shape = shape, .warps = warps, .of_products = true, .down = down, .across = across};
    }
    return best;
}

std::optional<TileLayout> wide_layout(const std::vector<int64_t>& shape, int64_t warps) {
    constexpr int64_t kGroupOfWarps = 4, kMostColumns = 256;
    if (shape.size() != 2) return {};
    for (int64_t down = warps; down >= kGroupOfWarps; down /= 2) {
        const int64_t across = warps / down;
        if (shape[0] % (16 * down) || shape[1] % (16 * across) || shape[1] / across > kMostColumns) continue;
        return TileLayout{
            .shape = shape, .warps = warps, .of_products = true, .down = down, .across = across, .wide = true};
    }
    return {};
}

TileLayout row_layout(const TileLayout& product, bool with_column) {
    TileLayout made = product;
    made.shape = {product.shape[0]};
    if (with_column) made.shape.push_back(1);
    made.of_products = false;
    made.of_rows = true;
    return made;
}

TilePlace threads_alone(int64_t warps, int& names) {
    const int n = names++;
    TilePlace p;
    p.warps = warps;
    p.warp = index_var(fmt::format("warp{}", n), warps);
    p.group = index_var(fmt::format("group{}", n), kGroupsOfWarp);
    p.pair = index_var(fmt::format("pair{}", n), kPairsOfGroup);
    return p;
}

TilePlace place_in(const TileLayout& layout, int& names) {
    TilePlace p = threads_alone(layout.warps, names);
    p.shape = layout.shape;
    if (layout.of_products || layout.of_rows) {
        place_products(layout, p, names);
        return p;
    }
    const size_t rank = layout.shape.size();
    const int64_t threads = layout.warps * kThreadsOfWarp, used = layout.used();
    std::vector<Expr> number(rank), in(rank, 0), turn(rank, 0);
    int64_t unit = 1;
    for (size_t d : layout.order) {
        number[d] = digit(p.thread(), unit, layout.threads[d], threads);
        unit *= layout.threads[d];
    }
    for (const bool lane : {false, true})
        for (size_t d = 0; d < rank; ++d) {
            const int64_t extent = (lane ? layout.lanes : layout.registers)[d];
            if (extent == 1) continue;
            const Expr var = index_var(fmt::format("{}{}", lane ? "in" : "r", names++), extent);
            p.loops.push_back({var, extent, d, lane});
            (lane ? in : turn)[d] = var;
            p.own = p.own * Expr(extent) + var;
        }
    for (size_t d = 0; d < rank; ++d)
        p.at.push_back((turn[d] * Expr(layout.threads[d]) + number[d]) * Expr(layout.lanes[d]) + in[d]);
    if (used < threads) p.inside = lt(p.thread(), used);
    return p;
}

Stmt in_threads(const TilePlace& p, Stmt body) {
    if (p.inside) body = if_then(*p.inside, std::move(body));
    body = bound(p.pair, kPairsOfGroup, "thread.x", std::move(body));
    body = bound(p.group, kGroupsOfWarp, "thread.y", std::move(body));
    return bound(p.warp, p.warps, "thread.z", std::move(body));
}

Stmt elements_of(const TilePlace& p, Stmt body, bool vector) {
    int64_t all = 1;
    for (const TilePlace::Loop& loop : p.loops) all *= loop.extent;
    for (size_t l = p.loops.size(); l-- > 0;) {
        const TilePlace::Loop& loop = p.loops[l];
        const bool lanes = loop.lane && vector && l + 1 == p.loops.size();
        const LoopKind kind = lanes ? LoopKind::Vector : all <= kMostUnrolled ? LoopKind::Unrolled : LoopKind::Serial;
        body = for_loop({.var = loop.var, .extent = loop.extent, .kind = kind, .body = std::move(body)});
    }
    return body;
}

}  // namespace tessera::from_tile_detail
