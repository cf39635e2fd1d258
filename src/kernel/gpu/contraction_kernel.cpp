#include "kernel/gpu/contraction_kernel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "kernel/analyse/inline_maps.h"
#include "kernel/analyse/stages.h"
#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/fma_kernel.h"
#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/matrix_operand.h"
#include "kernel/gpu/mma_kernel.h"
#include "kernel/gpu/pack_operands.h"
#include "kernel/gpu/prepare_operand.h"
#include "kernel/gpu/row_kernel.h"
#include "kernel/gpu/wgmma_kernel.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/tile_copy.h"
#include "kernel/passes/clean_up.h"
#include "kernel/schedule/split_axes.h"

namespace tessera {
namespace {

constexpr int64_t kUnknown = 8;         // what an unknown extent is taken for, and
constexpr int64_t kUnknownSide = 512;   // what rows or columns are at least that have one
constexpr int64_t kMmaVector = 8;       // elements of 16 bits that are read at a time
constexpr int64_t kFewestSide = 16;     // of an output that is worth matrix instructions
constexpr int64_t kNarrowSide = 64;     // of a tile of windows of bytes
constexpr int64_t kFewestWide = 64;     // the same of instructions of four warps
constexpr int64_t kFewestFilters = 32;  // the same of windows: half a tile
constexpr int64_t kWideDepth = 64;      // of k, elements of 16 bits that these take at a time
constexpr int64_t kFewest = 256;        // elements of an output that is worth tiles
constexpr double kLaunch = 2;           // microseconds

int64_t size_of(const Expr& e) { return e.as_int().value_or(kUnknown); }

int64_t product_of(const std::vector<ReduceAxis>& axes, const std::vector<int>& which) {
    int64_t n = 1;
    bool known = true;
    for (int i : which) {
        n *= size_of(axes[size_t(i)].extent);
        known &= axes[size_t(i)].extent.as_int().has_value();
    }
    return known ? n : std::max(n, kUnknownSide);
}

}  // namespace

bool lies_along(const Schedule& s, const Expr& operand, const Expr& k) {
    bool along = false;
    visit(operand, [&](const Expr& x) {
        if (!x.is(ExprKind::Load)) return;
        auto step = stride_of(s, x, k);
        along |= step && step->is_int(1);
    });
    return along;
}

namespace {

// What matrix instructions multiply of the first operand: sums in f32 of products of two operands of 16 bits, of one
// type; or of f32, of which few digits are asked for; or sums of bytes.
std::optional<DType> narrow_type(const Schedule& s, const Stage& stage, const Expr& a, const Expr& b, Digits digits) {
    const DType sum = s.compute().buffers[size_t(stage.buffer)].dtype;
    const auto x = narrowed(a), y = narrowed(b);
    if (!x && !y && digits == Digits::Few && sum == DType::f32 && a.dtype() == sum && b.dtype() == sum) return sum;
    if (!x || !y || !are_multiplied(x->dtype(), y->dtype()) || sum != matrix_sum(x->dtype())) return {};
    return dtype_bytes(x->dtype()) <= 2 ? std::optional(x->dtype()) : std::nullopt;
}

// Whether vectors of an operand can be read along an axis: all lanes at once, or none.
bool reads_vectors(const Schedule& s, const Expr& operand, const ReduceAxis& along, int64_t width) {
    const auto extent = along.extent.as_int();
    if (!extent || *extent % width) return false;
    bool fits = true;
    visit(operand, [&](const Expr& x) {
        if (x.is(ExprKind::Select)) fits &= !depends_on(x.arg(0), along.var);
        if (!x.is(ExprKind::Load)) return;
        auto step = stride_of(s, x, along.var);
        fits &= step && (step->is_int(0) || step->is_int(1));
    });
    return fits;
}

OperandPlan operand_plan(const Schedule& s, const Expr& operand, const ReduceAxis& depth, const ReduceAxis& side) {
    const bool along_k = lies_along(s, operand, depth.var), bytes = operand.dtype() == DType::i32;
    const std::vector<int64_t> widths = !bytes    ? std::vector<int64_t>{kMmaVector}
                                        : along_k ? std::vector<int64_t>{16, 8, 4}
                                                  : std::vector<int64_t>{4, 2};
    for (int64_t width : widths)
        if (reads_vectors(s, operand, along_k ? depth : side, width)) return {along_k, width};
    return {along_k, 1};
}

// Of several axes of a reduction, the longest, where tiles along it are nearly full: the places that others say are
// then the same for a whole tile. Where there is none, all are taken as one. Bytes, of which tiles are deeper, may fill
// them by half.
std::optional<size_t> inner_axis(const Stage& stage, int64_t tile, bool bytes) {
    if (stage.reduce.size() < 2) return std::nullopt;
    size_t best = 0;
    for (size_t i = 1; i < stage.reduce.size(); ++i)
        if (size_of(stage.reduce[i].extent) > size_of(stage.reduce[best].extent)) best = i;
    const int64_t extent = size_of(stage.reduce[best].extent), filled = (extent + tile - 1) / tile * tile;
    return 4 * extent >= (bytes ? 2 : 3) * filled ? std::optional(best) : std::nullopt;
}

// A contraction as it was found: its sizes, its tile, and how its operands lie.
struct Found {
    Contraction c;
    int64_t batch = 1, m = 1, n = 1;
    std::optional<DType> narrow;  // what matrix instructions multiply of it, and
    std::optional<DType> wide;    // those of four warps
    bool may_share = false;       // multiprocessors can share a tile
    bool two_signs = false;       // of bytes
    bool is_small = false;        // too small for tiles
    bool in_order = false;        // sums of f32 are added up in the order of k
    BlockTile tile;
    std::optional<size_t> inner;

    bool bytes() const { return narrow && is_int(*narrow); }
    std::vector<std::vector<int>> groups() const {
        std::vector<std::vector<int>> all;
        for (const auto& g : {c.batch, c.rows, c.columns})
            if (!g.empty()) all.push_back(g);
        return all;
    }
};

// Operands that are simply read, of types that are multiplied. Sums of products of floats of 8 bits have few digits.
std::optional<DType> wide_type(const Expr& a, const Expr& b, Digits digits) {
    const auto x = matrix_load(a), y = matrix_load(b);
    if (!x || !y || !are_multiplied(x->dtype, y->dtype)) return {};
    const bool enough =
        x->dtype == DType::f32 ? digits == Digits::Few : digits != Digits::All || !kNarrowFloats.has(x->dtype);
    return enough ? std::optional(x->dtype) : std::nullopt;
}

// Whether a product of few columns is better off as sums along rows, which lie together in both operands: tiles would
// be nearly empty.
bool is_sum_of_rows(const Schedule& s, const Stage& stage, const Found& f) {
    constexpr int64_t kFewColumns = 4, kLongRow = 512;
    if (f.n > kFewColumns || f.m <= kMostFewRows || stage.reduce.size() != 1) return false;
    const Expr& k = stage.reduce[0].var;
    return size_of(stage.reduce[0].extent) >= kLongRow && lies_along(s, stage.value.arg(0), k) &&
           lies_along(s, stage.value.arg(1), k);
}

std::optional<Found> find_contraction(const Schedule& s, Digits digits, const Machine& machine) {
    const auto& stages = s.compute().stages;
    if (stages.empty() || stages.size() > 2) return {};
    const Stage& stage = stages[0];
    auto c = match_contraction(stage);
    if (!c || stage.fold || c->rows.empty()) return {};
    Found f{.c = *c};
    f.in_order = digits == Digits::All;
    f.batch = 1;
    for (int i : c->batch) f.batch *= size_of(stage.axes[size_t(i)].extent);
    f.m = product_of(stage.axes, c->rows);
    f.n = product_of(stage.axes, c->columns);
    f.is_small = f.m * f.n < kFewest;
    if (f.n < 2 || (f.is_small && f.m > kMostFewRows) || f.batch > 65535) return {};
    const Expr &a = stage.value.arg(size_t(c->a)), &b = stage.value.arg(size_t(c->b));
    if (is_sum_of_rows(s, stage, f)) return {};
    if (f.m >= kFewestSide && f.n >= kFewestSide) f.narrow = narrow_type(s, stage, a, b, digits);
    f.wide = wide_type(a, b, digits);
    f.two_signs = f.wide && is_int(*f.wide) && matrix_load(b)->dtype != *f.wide;
    if (f.wide && s.compute().buffers[size_t(stage.buffer)].dtype != matrix_sum(*f.wide)) f.wide.reset();
    f.tile = f.narrow ? choose_mma_tile(machine, f.batch, f.m, f.n, *f.narrow)
                      : choose_block_tile(machine, f.batch, f.m, f.n);
    // Windows of bytes need registers for their addresses, which 128 rows or columns do not leave where products are of
    // warps.
    if (f.bytes() && stage.reduce.size() > 1 && !machine.has("wgmma")) f.tile.m = f.tile.n = kNarrowSide;
    f.inner = inner_axis(stage, f.tile.k, f.bytes());
    return f;
}

// Whether tiles of an operand that lies along its side cannot be copied, or not be multiplied, and along k could be:
// where rows begin anywhere, and those of bytes.
bool lies_wrong(const Schedule& s, const Expr& operand, const ReduceAxis& depth) {
    const auto found = matrix_load(operand);
    const int64_t vector = found ? kPieceBytes / int64_t(dtype_bytes(found->dtype)) : 1;
    if (!found || size_of(depth.extent) % vector) return false;
    const auto step = stride_of(s, found->load, depth.var);
    return step && step->as_int() && (dtype_bytes(found->dtype) != 2 || *step->as_int() % vector);
}

// Operands that are known, and lie neither along k nor along their side: along the side, in the order of steps; bytes,
// along k. Those that lie along their side, but not so that tiles can be copied: along k, for means that copy tiles,
// and bytes for all.
std::vector<PreparedOperand> prepare_operands(const Schedule& s, const Found& f, bool wide, Compute& compute) {
    std::vector<PreparedOperand> prepared;
    for (bool rows : {true, false}) {
        const Stage stage = compute.stages[0];
        const Expr operand = stage.value.arg(size_t(rows ? f.c.a : f.c.b));
        const std::vector<int>& side = rows ? f.c.rows : f.c.columns;
        const size_t along = f.inner ? *f.inner : size_t(f.c.depth.back());
        const Expr& before = s.compute().stages[0].value.arg(size_t(rows ? f.c.a : f.c.b));
        if (lies_along(s, before, stage.reduce[along].var)) continue;
        const bool turned = lies_along(s, before, stage.axes[size_t(side.back())].var);
        const bool wants_k = (wide && f.wide) || f.bytes();
        if (turned && !(wants_k && lies_wrong(s, before, stage.reduce[along]))) continue;
        const bool to_k = turned || f.bytes();
        std::vector<ReduceAxis> order;
        for (int i : f.c.batch) order.push_back(stage.axes[size_t(i)]);
        for (int i : f.c.depth)
            if (size_t(i) != along) order.push_back(stage.reduce[size_t(i)]);
        if (!to_k) order.push_back(stage.reduce[along]);
        for (int i : side) order.push_back(stage.axes[size_t(i)]);
        if (to_k) order.push_back(stage.reduce[along]);
        if (auto made = prepare_operand(compute, operand, order)) prepared.push_back(std::move(*made));
    }
    return prepared;
}

// Steps along all of a reduction, tiles being taken along one of its axes; 0 where they are not known.
int64_t steps_along(const Stage& stage, size_t inner, int64_t tile) {
    int64_t steps = 1;
    for (size_t i = 0; i < stage.reduce.size(); ++i) {
        const int64_t extent = stage.reduce[i].extent.as_int().value_or(0);
        steps *= i == inner ? (extent + tile - 1) / tile : extent;
    }
    return steps;
}

// By products of few rows; with instructions of four warps, also of an operand that a window goes over, or of one that
// is packed first; or without.
enum class Means : uint8_t { Rows, Wide, Windows, Packed, Narrow };

// The window of a convolution whose channels fill tiles.
std::optional<Window> window_of(const Compute& compute, const Found& f) {
    const Stage& stage = compute.stages[0];
    if (!f.inner && stage.reduce.size() > 1) return {};
    const int64_t channels = size_of(stage.reduce[f.inner.value_or(0)].extent),
                  filled = divide_up(channels, kWideDepth) * kWideDepth;
    if (2 * channels < filled) return {};
    return find_window(compute, stage, stage.value.arg(size_t(f.c.a)), f.c.rows, f.c.batch, f.inner.value_or(0));
}

// Whether tiles of an operand can be copied as it lies, and what lines that begin within those of the cache cost.
struct Lines {
    bool can_copy = false;
    double misaligned = 0;
};
Lines lines_of(const Schedule& s, const Expr& operand, const ReduceAxis& depth, const ReduceAxis& side) {
    const auto found = matrix_load(operand);
    if (!found) return {};
    const auto step = stride_of(s, found->load, lies_along(s, operand, depth.var) ? side.var : depth.var);
    if (!step) return {};
    const auto size = int64_t(dtype_bytes(found->dtype));
    if (divides(kPanelBytes / size, *step)) return {true, 0};
    // All but some are read as two; where they begin within what the cache moves at a time, more is moved for them.
    constexpr int64_t kMoved = 32;
    constexpr double kSplit = 1.5;
    const int64_t apart = std::gcd(size_of(*step) * size, kPanelBytes);
    return {divides(kPieceBytes / size, *step), apart < kMoved ? kSplit : 1 - double(apart) / double(kPanelBytes)};
}

std::pair<Lines, Lines> lines_of(const Schedule& s, const Found& f) {
    const Stage& stage = s.compute().stages[0];
    auto last = [](const std::vector<ReduceAxis>& axes, const std::vector<int>& which) -> const ReduceAxis& {
        size_t i = which.size() - 1;
        while (i > 0 && axes[size_t(which[i])].extent.is_int(1)) --i;
        return axes[size_t(which[i])];
    };
    const ReduceAxis& along = last(stage.reduce, f.c.depth);
    return {lines_of(s, stage.value.arg(size_t(f.c.a)), along, last(stage.axes, f.c.rows)),
            lines_of(s, stage.value.arg(size_t(f.c.b)), along, last(stage.axes, f.c.columns))};
}

// What the contraction's axes are once they are merged, and the kernel.
Result<std::optional<TiledKernel>> tiled(Schedule s, const Found& f, Means means, const Machine& machine) {
    const bool wide = means == Means::Wide || means == Means::Windows;
    std::optional<Window> window;
    if (means == Means::Windows && !(window = window_of(s.compute(), f))) return std::optional<TiledKernel>();
    const std::string sum = s.compute().stages[0].name;
    const std::string after = s.compute().stages.size() == 2 ? s.compute().stages[1].name : "";
    const Stage stage = s.compute().stages[0];
    const auto [lines_a, lines_b] = lines_of(s, f);
    const Expr a = stage.value.arg(size_t(f.c.a)), b = stage.value.arg(size_t(f.c.b));
    const Expr& k = stage.reduce[f.inner ? *f.inner : size_t(f.c.depth.back())].var;
    const Depth depth{f.inner.value_or(0), lies_along(s, a, k), lies_along(s, b, k)};
    std::vector<std::vector<int>> reduced{f.c.depth};
    if (f.inner && (means == Means::Windows || means == Means::Narrow)) {
        reduced.clear();
        for (size_t i = 0; i < stage.reduce.size(); ++i) reduced.push_back({int(i)});
    }
    if (!after.empty()) {
        const Stage& out = find_stage(s, after);
        auto matched = out.reduce.empty() ? matching_groups(out, stage, f.groups()) : std::nullopt;
        if (!matched) return std::optional<TiledKernel>();
        TRY(s.merge_axes(after, *matched));
    }
    TRY(s.merge_axes(sum, f.groups(), reduced));
    const Stage merged = find_stage(s, sum);
    Stage out = after.empty() ? merged : find_stage(s, after);
    const DType sum_type = s.compute().buffers[size_t(merged.buffer)].dtype;
    if (after.empty()) {  // the sums are in registers: where they are stored decides alone how wide
        out.reduce.clear();
        out.value = constant(0, sum_type);
    }
    const int64_t width = access_width(s, out, out.axes.back());
    if (after.empty()) {  // by axis, of which the buffer may have more or fewer
        std::vector<Expr> own;
        for (const ReduceAxis& axis : out.axes) own.push_back(axis.var);
        out.value = load(merged.buffer, sum_type, own);
    }
    const bool has_batch = !f.c.batch.empty();
    if (means == Means::Rows) return row_kernel(s, merged, out, f.c.a, machine);
    if (wide) {
        const size_t inner = window ? f.inner.value_or(0) : 0;
        const DType dtype = window ? DType::f16 : *f.wide;
        const int64_t steps = steps_along(merged, inner, kPanelBytes / int64_t(dtype_bytes(dtype)));
        WgmmaProduct product{f.batch, f.m, f.n, steps, dtype, end_of_square(s.compute(), out, merged.buffer)};
        product.may_share = product.may_pair = !window && f.may_share;
        product.even_parts = window.has_value();
        if (!window) product.misaligned = {lines_a.misaligned, lines_b.misaligned};
        const WgmmaShape shape = choose_wgmma(machine, product);
        const WgmmaPlan wgmma{shape.tile, shape.parts, shape.together, shape.pairs, inner, std::move(window)};
        return wgmma_kernel(s, merged, out, has_batch, f.c.a, wgmma);
    }
    if (!f.narrow) {
        FmaPlan plan{f.tile, depth, width};
        if (!has_batch && !f.in_order)
            plan.parts = choose_parts(machine, f.tile, f.batch, f.m, f.n, steps_along(merged, depth.inner, f.tile.k));
        return std::optional(fma_kernel(s.compute(), merged, out, has_batch, f.c.a, plan));
    }
    const size_t first = has_batch ? 1 : 0;  // of the axes: rows, then columns
    const ReduceAxis& along = merged.reduce[depth.inner];
    const MmaPlan plan{
        f.tile,
        operand_plan(s, merged.value.arg(size_t(f.c.a)), along, merged.axes[first]),
        operand_plan(s, merged.value.arg(size_t(f.c.b)), along, merged.axes[first + 1]),
        depth,
        width,
        has_batch ? 1 : choose_parts(machine, f.tile, f.batch, f.m, f.n, steps_along(merged, depth.inner, f.tile.k))};
    return std::optional(mma_kernel(s.compute(), merged, out, has_batch, f.c.a, plan));
}

}  // namespace

namespace {

// The first axis of the columns taken for one of the batch: those that are left may lie together where all do not.
std::optional<Found> with_columns_apart(const Schedule& s, Found f) {
    const auto& axes = s.compute().stages[0].axes;
    if (f.c.columns.size() < 2 || axes[size_t(f.c.columns[0])].extent.is_int(1)) return {};
    f.c.batch.push_back(f.c.columns[0]);
    std::sort(f.c.batch.begin(), f.c.batch.end());
    f.c.columns.erase(f.c.columns.begin());
    f.batch *= size_of(axes[size_t(f.c.batch.back())].extent);
    f.n = product_of(axes, f.c.columns);
    if (f.n < kFewestSide || f.batch > 65535) return {};
    return f;
}

// Whether the few columns of a product, which leave most of a tile empty, cost less than to read its rows.
bool is_tall(const Found& f) { return f.c.batch.empty() && f.m >= kFewestWide && dtype_bytes(*f.wide) == 2; }

// Whether there are columns enough, or steps enough that it does not matter how slowly short rows are stored.
bool fills_wide(const Found& f, double depth) {
    constexpr double kLong = 384;
    return f.n >= kFewestWide || !f.narrow || depth >= kLong;
}

bool suits(Means means, const Found& f, const Machine& machine) {
    if (f.is_small && means != Means::Rows) return false;
    switch (means) {
        case Means::Rows: return f.m <= kMostFewRows && f.c.batch.empty();
        case Means::Packed:
        case Means::Narrow: return f.m > 1;
        case Means::Wide:
            if (f.two_signs && !machine.has("ptx84")) return false;
            return f.m > 1 && machine.has("wgmma") && f.wide && (f.n >= kFewestWide || is_tall(f));
        case Means::Windows:
            return f.m > 1 && machine.has("wgmma") && f.narrow && dtype_bytes(*f.narrow) == 2 && f.n >= kFewestFilters;
    }
    return false;
}

Result<std::optional<Lowered>> lower_found(const Schedule& s, const Found& found, Means means, const Machine& machine) {
    Compute with = s.compute();
    std::vector<PreparedOperand> prepared = prepare_operands(s, found, means == Means::Wide, with);
    if (prepared.size() > 1) {  // one kernel prepares one
        with = s.compute();
        prepared.clear();
    }
    auto made = TRY(tiled(Schedule(std::move(with)), found, means, machine));
    if (!made) return std::optional<Lowered>();
    if (means ==
        Means::Narrow) {  // what is the kernel's own keeps rows and columns: so threads are seen to write apart
        made->kernel.params -= made->scratch.size();
        merge_dimensions(made->kernel);
        made->kernel.params += made->scratch.size();
    }
    simplify_kernel(made->kernel);
    drop_unused_buffers(made->kernel);
    TRY(verify(made->kernel));
    Lowered lowered;
    lowered.kernel = std::move(made->kernel);
    lowered.scratch = std::move(made->scratch);
    if (!prepared.empty()) {
        lowered.prepare = std::move(prepared[0].prepare);
        lowered.prepare_args = {prepared[0].from, prepared[0].to};
        lowered.prepared = {prepared[0].to};
    }
    return std::optional(std::move(lowered));
}

// Instructions of a thread that computes an element of an operand, beside its loads.
double arithmetic_of(const Expr& operand) {
    constexpr double kFunction = 30, kQuotient = 10;
    if (operand.is(ExprKind::Load) || matrix_load(operand)) return 0;
    double all = 0;
    for (const Expr& x : operand.args())
        if (is_float(x.dtype())) all += arithmetic_of(x);
    if (operand.is(ExprKind::Cast) || operand.is(ExprKind::Select) || operand.args().empty()) return all;
    const bool function = operand.is(ExprKind::Call) || operand.is(ExprKind::Pow);
    return all + (function ? kFunction : operand.is(ExprKind::Div) ? kQuotient : 1);
}

// Of multiply-adds with such a tile, as a share of what the largest has: small ones read more than they multiply.
double fma_rate(const BlockTile& tile) {
    auto cost = [](int64_t m, int64_t n) {
        const double x = double(m) / kBlockSide, y = double(n) / kBlockSide;
        return (x * y + 2 * (x + y) + 2) / (x * y);
    };
    return cost(128, 128) / cost(tile.m, tile.n);
}

// What a product takes that reads its operands in place and multiplies by `mma.sync` or by FMA, in microseconds on an
// H200. Elements that are not fetched in vectors cost more than the products, and so do those that functions are
// computed for: once for each tile across, by few threads.
// So does the end of a tile for each tensor that it reads, by pairs of elements: `end` is of 64 x 64.
double narrow_time(const Machine& machine, const Schedule& s, const Found& f, double depth, double end) {
    constexpr double kBegin = 2, kScalarFlops = 40e6, kInstructions = 54e3;
    const double peak = !f.narrow ? 35e6 * fma_rate(f.tile) : *f.narrow == DType::f32 ? 150e6 : 200e6;
    depth = std::ceil(depth / double(f.tile.k)) * double(f.tile.k);
    const Stage& stage = s.compute().stages[0];
    const Expr &a = stage.value.arg(size_t(f.c.a)), &b = stage.value.arg(size_t(f.c.b));
    const ReduceAxis& along = stage.reduce[f.inner ? *f.inner : size_t(f.c.depth.back())];
    auto reads_in_vectors = [&](const Expr& operand, const std::vector<int>& side) {
        return operand_plan(s, operand, along, stage.axes[size_t(side.back())]).width > 1;
    };
    const bool vectors = reads_in_vectors(a, f.c.rows) && reads_in_vectors(b, f.c.columns);
    const double tiles = double(f.batch * divide_up(f.m, f.tile.m) * divide_up(f.n, f.tile.n));
    const double at_once = 2.0 * machine.cores, turns = std::ceil(tiles / at_once) * at_once / tiles;
    const double computed = double(f.tile.m) * arithmetic_of(a) + double(f.tile.n) * arithmetic_of(b);
    const double products = 2 * double(f.tile.m * f.tile.n) / (vectors ? peak : std::min(peak, kScalarFlops));
    const double squares = double(f.tile.m * f.tile.n) / (64 * 64) / machine.cores;
    return kBegin + tiles * turns * (depth * (products + computed / (kInstructions * machine.cores)) + squares * end);
}

// What it takes by instructions of four warps, as operands lie; nothing where tiles of them cannot be copied.
std::optional<double> wide_time(const Machine& machine, const Schedule& s, const Found& f, double depth, double end) {
    if (!f.wide || dtype_bytes(*f.wide) != 2) return {};
    const auto [a, b] = lines_of(s, f);
    const Stage& stage = s.compute().stages[0];
    if (f.n < kFewestWide && !lies_along(s, stage.value.arg(size_t(f.c.b)), stage.reduce[size_t(f.c.depth.back())].var))
        return {};  // short rows are copied slowly
    if (!a.can_copy || !b.can_copy) return {};
    const auto steps = int64_t(std::ceil(depth / double(kWideDepth)));
    WgmmaProduct product{f.batch, f.m, f.n, steps, *f.wide, end};
    product.may_share = product.may_pair = f.may_share;
    product.misaligned = {a.misaligned, b.misaligned};
    return choose_wgmma(machine, product).time;
}

double depth_of(const Stage& stage) {
    double depth = 1;
    for (const ReduceAxis& axis : stage.reduce) depth *= double(axis.extent.as_int().value_or(kUnknownSide));
    return depth;
}

// With operands packed first, each by a launch of its own, where that takes less than the given time.
Result<std::optional<Lowered>> lower_packed(const Schedule& s, const Found& f, const Machine& machine, Digits digits,
                                            const LowerMap& lower_map, double in_place) {
    constexpr double kBytes = 2.5e6, kComputed = 10;
    const Stage& stage = s.compute().stages[0];
    if (!lower_map || f.bytes() || f.m < 2) return std::optional<Lowered>();
    const double depth = depth_of(stage), end = end_of_square(s.compute(), s.compute().stages.back(), stage.buffer);
    // Without instructions of four warps it is worth a launch only where each element takes arithmetic.
    const bool computed = arithmetic_of(stage.value) > kComputed;
    struct Way {
        Packing packing;
        Found found;
        double time;
    };
    std::vector<Way> ways;
    for (const auto& [a, b] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
        auto packing = pack_operands(s.compute(), f.c, a, b);
        if (!packing) continue;
        const Schedule packed(packing->contraction);
        std::optional<Found> found = find_contraction(packed, digits, machine);
        if (!found) continue;
        found->c.depth = f.c.depth;
        found->may_share = f.may_share;
        if (!suits(Means::Wide, *found, machine) || !fills_wide(*found, depth)) found->wide.reset();
        if (!found->wide && !computed) continue;
        const auto wide = wide_time(machine, packed, *found, depth, end);
        const double product = wide ? kLaunch + *wide : narrow_time(machine, packed, *found, depth, end);
        const double time = packing->launches * kLaunch + packing->bytes / kBytes + product;
        if (time < in_place) ways.push_back({std::move(*packing), std::move(*found), time});
    }
    std::stable_sort(ways.begin(), ways.end(), [](const Way& x, const Way& y) { return x.time < y.time; });
    for (const Way& way : ways) {
        const Means means = way.found.wide ? Means::Wide : Means::Narrow;
        std::optional<Lowered> made = TRY(lower_found(Schedule(way.packing.contraction), way.found, means, machine));
        if (!made) continue;
        made->packs = TRY(lower_packs(way.packing, lower_map));
        made->scratch.insert(made->scratch.end(), way.packing.slots.begin(), way.packing.slots.end());
        return made;
    }
    return std::optional<Lowered>();
}

// By these means, or with operands packed first where that is cheaper.
Result<std::optional<Lowered>> lower_priced(const Schedule& s, const Found& f, Means means, const Machine& machine,
                                            Digits digits, const LowerMap& lower_map) {
    const double depth = depth_of(s.compute().stages[0]);
    const double end = end_of_square(s.compute(), s.compute().stages.back(), s.compute().stages[0].buffer);
    if (means == Means::Packed)
        return lower_packed(s, f, machine, digits, lower_map, narrow_time(machine, s, f, depth, end));
    const auto& reduce = s.compute().stages[0].reduce;
    const auto many = [](const ReduceAxis& axis) { return !axis.extent.is_int(1); };
    const bool one_axis = std::count_if(reduce.begin(), reduce.end(), many) == 1, few = f.n < kFewestWide;
    if (means == Means::Wide && few && (!one_axis || !fills_wide(f, depth))) return std::optional<Lowered>();
    if (means == Means::Wide && one_axis) {
        auto in_place = wide_time(machine, s, f, depth, end);
        const double narrow = narrow_time(machine, s, f, depth, end);
        const bool pays = !few || (in_place && *in_place + kLaunch < narrow);
        if (few && !pays) in_place = narrow;
        if (in_place) {
            auto packed = lower_packed(s, f, machine, digits, lower_map, *in_place);
            if (packed.ok() && *packed) return packed;
        }
        if (!pays) return std::optional<Lowered>();
    }
    return lower_found(s, f, means, machine);
}

}  // namespace

Result<std::optional<Lowered>> contraction_kernel(const Compute& compute, const Machine& machine, Digits digits,
                                                  const LowerMap& lower_map) {
    Schedule s(compute);
    TRY(inline_maps(s));
    if (auto made = digits == Digits::All ? std::nullopt : with_factors_behind(s.compute()))
        s = Schedule(std::move(*made));
    Compute by_digits = s.compute();
    split_read_axes(by_digits);
    s = Schedule(std::move(by_digits));
    std::optional<Found> found = find_contraction(s, digits, machine);
    if (!found) return std::optional<Lowered>();
    found->may_share = machine.has("ptx84");
    std::vector<Found> ways{*found};
    if (auto apart = with_columns_apart(s, *found)) ways.push_back(std::move(*apart));
    std::optional<Error> first;
    for (Means means : {Means::Rows, Means::Wide, Means::Windows, Means::Packed, Means::Narrow})
        for (const Found& way : ways) {
            if (!suits(means, way, machine)) continue;
            auto made = lower_priced(s, way, means, machine, digits, lower_map);
            if (made.ok() && *made) return made;
            if (!made.ok() && !first) first = made.error();
        }
    if (first) return std::move(*first);
    return std::optional<Lowered>();
}

}  // namespace tessera
