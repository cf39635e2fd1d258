#include "kernel/gpu/attention/attention_rows.h"

#include <algorithm>

#include "kernel/gpu/attention/attention_kernel.h"
#include "kernel/gpu/attention/warp_attention.h"
#include "kernel/gpu/contraction_builder.h"

namespace tessera {
namespace {

constexpr int64_t kReserved = 1 << 10;  // bytes of shared memory, beside what a block asks for
constexpr int64_t kMostResident = 2;    // blocks of an SM, which keep enough copies in flight
constexpr int64_t kTileKeys = 64, kLongTileKeys = 128;
constexpr int64_t kPanelElements = 64;  // of 16 bits
constexpr int64_t kShortHead = 64;      // elements, up to which warps do better with rows of their own
// In the time of a tile: what a block takes to begin and end, the second launch, and each part that it reads.
constexpr double kBlockCost = 1, kCombineCost = 1.5, kPartCost = 0.03;
constexpr int64_t kMostKeyParts = 128, kPartsOfDynamic = 16;

// Of how many neighbours along an axis the operand is the same, where it is so of more than one.
std::optional<int64_t> shared_by(const std::vector<Expr>& operands, const ReduceAxis& axis) {
    const auto extent = axis.extent.as_int();
    if (!extent) return {};
    std::vector<int64_t> tried;
    for (const Expr& operand : operands)
        visit(operand, [&](const Expr& e) {
            if (e.is(ExprKind::FloorDiv) && e.arg(0) == axis.var && e.arg(1).as_int())
                tried.push_back(*e.arg(1).as_int());
        });
    for (int64_t group : tried) {
        if (group < 2 || *extent % group) continue;
        const Expr in = index_var("%in_group", group), of = index_var("%group", *extent / group);
        const Bindings split{{axis.var.node().name, of * group + in}};
        if (std::none_of(operands.begin(), operands.end(),
                         [&](const Expr& e) { return depends_on(substitute(e, split), in); }))
            return group;
    }
    return {};
}

int64_t bytes_of_block(const WarpTiles& t, int64_t depth, int64_t columns) {
    const int64_t head = t.padded_depth(depth) + t.skew(), width = t.padded_columns(columns) + t.skew();
    const int64_t places = t.ahead + 1, weights = t.wide ? 0 : t.keys + t.skew();
    return 2 * (t.keys * (head + width) * places + t.rows * (head + weights)) +
           (t.across > 1 ? 8 * t.rows * t.across : 0);
}

// Tiles that wgmma reads lie in panels of 32, 64 or 128 bytes.
int64_t in_panels(int64_t elements) {
    return elements <= 16   ? 16
           : elements <= 32 ? 32
                            : (elements + kPanelElements - 1) / kPanelElements * kPanelElements;
}

}  // namespace

std::optional<VectorSource> vector_source(const Compute& compute, const Expr& operand, const ReduceAxis& along) {
    const auto found = scaled_load(operand);
    if (!found || !is_copied(found->load.dtype())) return {};
    const auto slot = size_t(found->load.node().slot);
    if (slot >= compute.params || !divides(kVectorElements, along.extent)) return {};
    if (along.extent.as_int().value_or(kLongestWarpHead + 1) > kLongestWarpHead) return {};
    const Buffer& b = compute.buffers[slot];
    if (!b.strides.empty() || b.shape.empty()) return {};
    const size_t last = b.shape.size() - 1;
    for (size_t d = 0; d <= last; ++d)
        if (depends_on(found->load.arg(d), along.var) != (d == last)) return {};
    const Expr& at = found->load.arg(last);
    const auto step = step_of(at, along.var);
    if (!step || !step->is_int(1)) return {};
    if (!divides(kVectorElements, substitute(at, {{along.var.node().name, Expr(0)}}))) return {};
    if (last > 0 && !divides(kVectorElements, b.shape[last])) return {};
    return VectorSource{found->load, found->factor};
}

int64_t WarpTiles::padded_depth(int64_t depth) const { return wide ? in_panels(depth) : (depth + 15) / 16 * 16; }

int64_t WarpTiles::padded_columns(int64_t columns) const {
    return wide ? in_panels(columns) : (columns + 16 * across - 1) / (16 * across) * (16 * across);
}

AttentionRows::AttentionRows(const Attention& a) {
    const std::vector<Expr> operands{a.k, a.v};
    std::vector<Digit> dynamic_rows, dynamic_blocks;
    auto add = [](Digit d, std::vector<Digit>& known, std::vector<Digit>& dynamic) {
        (d.extent.as_int() ? known : dynamic).push_back(std::move(d));
    };
    // The last axes count fastest; that of queries counts slowest of rows.
    std::optional<Digit> queries;
    for (size_t i = a.product->axes.size(); i-- > 0;) {
        const ReduceAxis& axis = a.product->axes[i];
        if (i == a.column) continue;
        if (axis.extent.is_int(1)) {
            single_.push_back(axis.var);
            continue;
        }
        if (!depends_on(a.k, axis.var) && !depends_on(a.v, axis.var)) {
            Digit whole{axis.var, axis.extent};
            if (i == a.query)
                queries = std::move(whole);
            else
                add(std::move(whole), digits_, dynamic_rows);
        } else if (const auto group = shared_by(operands, axis)) {
            digits_.push_back({axis.var, *group, 1, true});
            add({axis.var, floor_div(axis.extent, *group), *group}, outer_, dynamic_blocks);
        } else {
            add({axis.var, axis.extent}, outer_, dynamic_blocks);
        }
    }
    if (queries) add(std::move(*queries), digits_, dynamic_rows);
    if (!dynamic_rows.empty()) {
        digits_.push_back(dynamic_rows.back());
        dynamic_rows.pop_back();
    }
    dynamic_blocks.insert(dynamic_blocks.end(), dynamic_rows.begin(), dynamic_rows.end());
    if (!dynamic_blocks.empty()) {
        outer_.push_back(dynamic_blocks.back());
        dynamic_blocks.pop_back();
    }
    if (!dynamic_blocks.empty()) {
        other_ = dynamic_blocks.back();
        dynamic_blocks.pop_back();
    }
    // Tiles of rows and another axis would want the same axis of the launch.
    ok_ = dynamic_blocks.empty() && !(other_ && !count().as_int());
}

Expr AttentionRows::count() const {
    Expr all = 1;
    for (const Digit& d : digits_) all = all * d.extent;
    return all;
}

Expr AttentionRows::inner_blocks() const {
    Expr all = 1;
    for (const Digit& d : outer_) all = all * d.extent;
    return all;
}

bool AttentionRows::depends(const Expr& e) const {
    return std::any_of(digits_.begin(), digits_.end(), [&](const Digit& d) { return depends_on(e, d.var); });
}

Bindings AttentionRows::outer_names(const Expr& block, const Expr& other) const {
    Bindings names;
    for (const Expr& var : single_) names.insert_or_assign(var.node().name, Expr(0));
    if (other_) names.insert_or_assign(other_->var.node().name, other * other_->step);
    Expr left = block;
    for (size_t i = 0; i < outer_.size(); ++i) {
        const bool last = i + 1 == outer_.size();
        names.insert_or_assign(outer_[i].var.node().name, (last ? left : mod(left, outer_[i].extent)) * outer_[i].step);
        if (!last) left = floor_div(left, outer_[i].extent);
    }
    return names;
}

Bindings AttentionRows::names(const Bindings& outer, const Expr& row) const {
    Bindings names = outer;
    Expr left = row;
    for (size_t i = 0; i < digits_.size(); ++i) {
        const Digit& d = digits_[i];
        const bool last = i + 1 == digits_.size();
        Expr digit = last ? left : mod(left, d.extent);
        if (!last) left = floor_div(left, d.extent);
        const std::string& name = d.var.node().name;
        names.insert_or_assign(name, d.added ? outer.at(name) + digit : digit);
    }
    return names;
}

WarpTiles choose_warp_tiles(const AttentionSizes& sizes, const Machine& machine) {
    const auto& [rows, keys, blocks, depth, columns] = sizes;
    WarpTiles best, made;
    made.rows = !rows || *rows > 32 ? 64 : *rows > 16 ? 32 : 16;
    // Warpgroups need fewer barriers, even where most of their rows are empty.
    const bool one_tile = keys && *keys <= kTileKeys;
    if (machine.has("wgmma") && !(one_tile && made.rows < 64)) made.rows = 64, made.wide = true;
    const bool short_head = depth <= kShortHead && columns <= kShortHead;
    made.down = made.wide || (made.rows == 64 && short_head) ? 4 : made.rows > 16 ? 2 : 1;
    made.across = kWarps / made.down;
    const bool few_tiles = keys && blocks && *blocks * *keys < machine.cores * kLongTileKeys;
    for (int64_t of_tile : {kLongTileKeys, kTileKeys, kTileKeys / 2})
        for (int64_t ahead : {2, 1, 0}) {
            if (of_tile % (16 * made.across) || best.rows) continue;
            if (of_tile == kLongTileKeys && (!made.wide || one_tile || few_tiles || ahead < 2)) continue;
            made.keys = of_tile, made.ahead = ahead;
            auto resident = [&](int64_t places) {
                WarpTiles t = made;
                t.ahead = places;
                const int64_t bytes = bytes_of_block(t, depth, columns);
                return bytes > machine.shared_bytes
                           ? 0
                           : std::min(kMostResident, (machine.shared_bytes + kReserved) / (bytes + kReserved));
            };
            made.resident = resident(ahead);
            // Two blocks of an SM hide more than a deeper ring.
            if (made.resident == 0 || (ahead > 1 && resident(ahead - 1) > made.resident)) continue;
            if (ahead == 0 && of_tile == kTileKeys && made.across <= 2) continue;
            best = made;
        }
    return best;
}

int64_t choose_key_parts(std::optional<int64_t> blocks, std::optional<int64_t> keys, const WarpTiles& tiles,
                         bool few_rows, const Machine& machine) {
    const int64_t at_once = machine.cores * tiles.resident;
    if (!keys || !blocks) {
        if (!few_rows) return 1;
        return blocks ? std::clamp<int64_t>(at_once / *blocks, 1, kPartsOfDynamic * 2) : kPartsOfDynamic;
    }
    const int64_t all = (*keys + tiles.keys - 1) / tiles.keys;
    int64_t best = 1;
    double least = 0;
    for (int64_t parts = 1; parts <= std::min(all, kMostKeyParts); ++parts) {
        const int64_t waves = (*blocks * parts + at_once - 1) / at_once, each = (all + parts - 1) / parts;
        const double cost =
            double(waves) * (double(each) + kBlockCost) + (parts > 1 ? kCombineCost + kPartCost * double(parts) : 0);
        if (parts > 1 && cost >= least) continue;
        least = cost, best = parts;
    }
    return best;
}

}  // namespace tessera
