#include "kernel/gpu/pack_operands.h"

#include <algorithm>

#include "base/check.h"
#include "kernel/analyse/stages.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/matrix_operand.h"
#include "kernel/ir/tile_copy.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

constexpr int64_t kUnknownExtent = 512;
constexpr int64_t kFewestAcross = 64;  // of an operand that stays along its side: rows of fewer are copied slowly

// Several axes as one, the last fastest.
struct Merged {
    Expr index = 0, extent = 1;
};

Merged merged(const std::vector<ReduceAxis>& axes) {
    Merged all;
    for (const ReduceAxis& axis : axes) {
        all.index = all.index * axis.extent + axis.var;
        all.extent = all.extent * axis.extent;
    }
    return all;
}

// Whether something of it lies along the last of the axes, but for those of one element.
bool lies_along_last(const Schedule& s, const Expr& operand, const std::vector<ReduceAxis>& axes) {
    const auto last = std::find_if(axes.rbegin(), axes.rend(), [](const ReduceAxis& a) { return !a.extent.is_int(1); });
    return last != axes.rend() && lies_along(s, operand, last->var);
}

// One more parameter: what is none moves up.
int add_parameter(Compute& compute, Buffer made) {
    const auto slot = static_cast<int>(compute.params);
    for (Stage& stage : compute.stages) {
        stage.value = rewrite(stage.value, [&](const Expr& x) -> Expr {
            if (!x.is(ExprKind::Load) || x.node().slot < slot) return x;
            return load(x.node().slot + 1, x.dtype(), x.args());
        });
        if (stage.buffer >= slot) ++stage.buffer;
    }
    compute.buffers.insert(compute.buffers.begin() + slot, std::move(made));
    compute.known.resize(compute.params);
    compute.known.push_back(false);
    ++compute.params;
    return slot;
}

// The stage as a Compute of its own, with parameters for what it reads and what it fills.
void add_pack(Stage stage, Packing& to) {
    Compute pack{.name = to.contraction.name + "_" + stage.name, .symbols = to.contraction.symbols};
    std::vector<int> args;
    auto take = [&](int slot) {
        const auto found = std::find(args.begin(), args.end(), slot);
        if (found != args.end()) return static_cast<int>(found - args.begin());
        args.push_back(slot);
        pack.buffers.push_back(to.contraction.buffers[size_t(slot)]);
        return static_cast<int>(args.size()) - 1;
    };
    stage.value = rewrite(stage.value, [&](const Expr& x) -> Expr {
        return x.is(ExprKind::Load) ? load(take(x.node().slot), x.dtype(), x.args()) : x;
    });
    stage.buffer = take(stage.buffer);
    pack.params = args.size();
    pack.stages.push_back(std::move(stage));
    to.packs.push_back(std::move(pack));
    to.args.push_back(std::move(args));
}

// From line to line, in elements. Lines that begin at multiples of 16 bytes can be copied, but cost more where they do
// not begin at multiples of 128: the shorter ones of those that lie along k are not worth the room.
Expr pitch_of(const Expr& extent, int64_t element_bytes, bool along_side) {
    constexpr int64_t kLongest = 8;  // panels that are padded by 16 bytes alone
    const int64_t panel = kPanelBytes / element_bytes, piece = kPieceBytes / element_bytes;
    const bool is_long = extent.as_int().value_or(kUnknownExtent) >= kLongest * panel;
    const int64_t aligned = along_side || is_long ? panel : piece;
    return ceil_div(extent, aligned) * aligned;
}

// What fills a packed operand, and the operand that reads it.
bool pack_operand(const Schedule& s, const Contraction& c, bool rows, Packing& to) {
    const Stage stage = to.contraction.stages[0];
    const auto which = size_t(rows ? c.a : c.b);
    const Expr operand = stage.value.arg(which);
    const auto narrow = narrowed(operand);
    if (narrow ? dtype_bytes(narrow->dtype()) != 2 : operand.dtype() != DType::f32) return false;
    const Expr value = narrow ? as_narrow(*narrow) : operand;
    auto axes_of = [](const std::vector<ReduceAxis>& all, const std::vector<int>& which_of) {
        std::vector<ReduceAxis> axes;
        for (int i : which_of) axes.push_back(all[size_t(i)]);
        return axes;
    };
    const std::vector<ReduceAxis> batch = axes_of(stage.axes, c.batch), depth = axes_of(stage.reduce, c.depth),
                                  side = axes_of(stage.axes, rows ? c.rows : c.columns);
    const Expr& before = s.compute().stages[0].value.arg(which);
    int64_t across = 1;
    for (const ReduceAxis& axis : side) across *= axis.extent.as_int().value_or(kUnknownExtent);
    const bool along_side =
        !lies_along_last(s, before, depth) && lies_along_last(s, before, side) && across >= kFewestAcross;
    const std::vector<ReduceAxis>&outer = along_side ? depth : side, &inner = along_side ? side : depth;
    const Merged apart = merged(batch), lines = merged(outer), line = merged(inner);
    const Expr pitch = pitch_of(line.extent, int64_t(dtype_bytes(value.dtype())), along_side);
    Buffer made{.name = rows ? "packed_a" : "packed_b", .dtype = value.dtype(), .shape = {lines.extent, line.extent}};
    std::vector<Expr> at{lines.index, line.index};
    if (!(pitch == line.extent)) made.strides = {pitch, 1};
    if (!apart.extent.is_int(1)) {
        made.shape.insert(made.shape.begin(), apart.extent);
        at.insert(at.begin(), apart.index);
        if (!made.strides.empty()) made.strides.insert(made.strides.begin(), lines.extent * pitch);
    }
    Stage pack{.name = made.name, .axes = batch, .reduce = {}, .store = at, .value = value};
    for (const auto* axes : {&outer, &inner}) pack.axes.insert(pack.axes.end(), axes->begin(), axes->end());
    bool constant = true;
    visit(value, [&](const Expr& x) {
        const auto slot = x.is(ExprKind::Load) ? size_t(x.node().slot) : SIZE_MAX;
        constant &= slot == SIZE_MAX || (slot < to.contraction.known.size() && to.contraction.known[slot]);
    });
    if (!constant) {
        double elements = 1;
        for (const ReduceAxis& axis : pack.axes) elements *= double(axis.extent.as_int().value_or(kUnknownExtent));
        to.bytes += 2 * double(dtype_bytes(value.dtype())) * elements;
        ++to.launches;
    }
    const int slot = add_parameter(to.contraction, std::move(made));
    Expr& sum = to.contraction.stages[0].value;
    std::vector<Expr> operands = sum.args();
    operands[which] = cast(load(slot, value.dtype(), at), operand.dtype());
    sum = operands[0] * operands[1];
    if (!is_product(sum)) return false;
    pack.buffer = slot;
    to.slots.push_back(slot);
    add_pack(std::move(pack), to);
    return true;
}

}  // namespace

std::optional<Packing> pack_operands(const Compute& compute, const Contraction& c, bool a, bool b) {
    const Schedule s(compute);
    Packing made;
    made.contraction = compute;
    if (a && !pack_operand(s, c, true, made)) return {};
    if (b && !pack_operand(s, c, false, made)) return {};
    return made;
}

namespace {

// Lines that begin anywhere, packed to lines that begin at multiples of 16 bytes: a thread reads elements one by one
// and writes a vector. Nothing where lines are no single axis, or not contiguous.
std::optional<Kernel> pack_lines(const Compute& pack) {
    const Stage& stage = pack.stages[0];
    const Buffer& to = pack.buffers[size_t(stage.buffer)];
    const int64_t width = kPieceBytes / int64_t(dtype_bytes(to.dtype));
    const ReduceAxis& inner = stage.axes.back();
    if (to.strides.empty() || !stage.store.back().same(inner.var)) return {};
    const Schedule s(pack);
    for (const Expr& read : loads_of(stage)) {
        const auto step = stride_of(s, read, inner.var);
        if (!step || !(step->is_int(0) || step->is_int(1))) return {};
    }
    const Expr vectors = ceil_div(inner.extent, width);
    Expr total = vectors;
    for (size_t d = 0; d + 1 < stage.axes.size(); ++d) total = total * stage.axes[d].extent;
    const Expr thread = loop_var("vector", total);
    Bindings at;
    Expr left = floor_div(thread, vectors);
    for (size_t d = stage.axes.size() - 1; d-- > 0;) {
        const ReduceAxis& axis = stage.axes[d];
        at.insert_or_assign(axis.var.node().name, d == 0 ? left : mod(left, axis.extent));
        left = floor_div(left, axis.extent);
    }
    const Expr first = mod(thread, vectors) * width;
    auto element = [&](const std::string& name, LoopKind kind) {
        const Expr in = loop_var(name, width);
        Bindings all = at;
        all.insert_or_assign(inner.var.node().name, first + in);
        std::vector<Expr> place;
        for (const Expr& e : stage.store) place.push_back(substitute(e, all));
        Stmt one = store(stage.buffer, std::move(place), substitute(stage.value, all));
        if (kind == LoopKind::Unrolled) one = if_then(lt(first + in, inner.extent), std::move(one));
        return loop_over(in, width, kind, std::move(one));
    };
    Kernel kernel;
    kernel.name = pack.name;
    kernel.symbols = pack.symbols;
    kernel.buffers = pack.buffers;
    kernel.params = pack.params;
    kernel.body = loop_over(thread, total, LoopKind::Parallel,
                            if_then(le(first + width, inner.extent), element("in_vector", LoopKind::Vector),
                                    element("in_rest", LoopKind::Unrolled)));
    return kernel;
}

}  // namespace

Result<std::vector<LoweredPack>> lower_packs(const Packing& packing, const LowerMap& lower_map) {
    std::vector<LoweredPack> all;
    for (size_t i = 0; i < packing.packs.size(); ++i) {
        if (auto lines = pack_lines(packing.packs[i])) {
            simplify_kernel(*lines);
            TRY(verify(*lines));
            all.push_back({std::move(*lines), packing.args[i]});
            continue;
        }
        Lowered made = TRY(lower_map(packing.packs[i]));
        CHECK(made.scratch.empty() && !made.prepare.body, "a map needs more than its parameters");
        all.push_back({std::move(made.kernel), packing.args[i]});
    }
    return all;
}

}  // namespace tessera
