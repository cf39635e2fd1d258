#include "kernel/gpu/memory_bound/element_map_kernel.h"

#include <algorithm>

#include "kernel/analyse/inline_maps.h"
#include "kernel/analyse/merge_dense_axes.h"
#include "kernel/gpu/device_size.h"
#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/gpu_loops.h"

namespace tessera {
namespace {

constexpr int64_t kMapThreads = 256, kMostTurnsOfThread = 8;
constexpr int64_t kBytesOfThread = 32, kWholeAccess = 16;
constexpr int64_t kManyElements = int64_t{1} << 40;  // where it is not known how many there are

class ElementMap {
  public:
    ElementMap(const Compute& compute, const Stage& stage, int64_t lanes, int64_t each)
        : stage_(stage), lanes_(lanes), each_(each) {
        kernel_.name = compute.name;
        kernel_.symbols = compute.symbols;
        kernel_.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + std::ptrdiff_t(compute.params));
        kernel_.params = compute.params;
    }

    Kernel make() {
        const Expr total = floor_div(elements_of(stage_.axes), lanes_), of_block = kMapThreads * each_;
        const Expr blocks = ceil_div(total, of_block), block = loop_var("block", blocks);
        const DType dtype = kernel_.buffers[size_t(stage_.buffer)].dtype;
        const int pending = int(kernel_.buffers.size());
        kernel_.buffers.push_back(
            {.name = "pending", .dtype = dtype, .shape = {each_ * lanes_}, .scope = Scope::Register});
        const auto vector = [&](const Expr& thread, const Expr& turn) {
            return block * of_block + turn * kMapThreads + thread;
        };
        const Expr thread = loop_var("thread", kMapThreads), first = loop_var("first", each_),
                   then = loop_var("then", each_);
        Stmt computed = over_lanes("computed", [&](const Expr& lane) {
            return store(pending, {first * lanes_ + lane}, at(stage_.value, vector(thread, first), lane));
        });
        Stmt written = over_lanes("written", [&](const Expr& lane) {
            return store(stage_.buffer, place(vector(thread, then), lane),
                         load(pending, dtype, {then * lanes_ + lane}));
        });
        Stmt body = alloc(pending, seq({loop_over(first, each_, LoopKind::Unrolled, std::move(computed)),
                                        loop_over(then, each_, LoopKind::Unrolled, std::move(written))}));
        body = loop_over(thread, kMapThreads, LoopKind::Bound, std::move(body), "thread.x");
        if (!mod(total, of_block).is_int(0)) {
            // The last block has fewer.
            const Expr last = loop_var("last_thread", kMapThreads), turn = loop_var("turn", each_);
            const Expr v = vector(last, turn);
            Stmt one = over_lanes("last_lane", [&](const Expr& lane) {
                return store(stage_.buffer, place(v, lane), at(stage_.value, v, lane));
            });
            one = loop_over(turn, each_, LoopKind::Serial, if_then(lt(v, total), std::move(one)));
            one = loop_over(last, kMapThreads, LoopKind::Bound, std::move(one), "thread.x");
            body = if_then(lt(block, floor_div(total, of_block)), std::move(body), std::move(one));
        }
        kernel_.body = loop_over(block, blocks, LoopKind::Bound, std::move(body), "block.x");
        return std::move(kernel_);
    }

  private:
    template <typename F>
    Stmt over_lanes(const std::string& name, const F& body) const {
        if (lanes_ == 1) return body(Expr(0));
        const Expr lane = loop_var(name, lanes_);
        return loop_over(lane, lanes_, LoopKind::Vector, body(lane));
    }

    Expr at(const Expr& e, const Expr& vector, const Expr& lane) const {
        Bindings values;
        Expr left = vector;
        for (size_t i = stage_.axes.size(); i-- > 0;) {
            const bool last = i + 1 == stage_.axes.size();
            const ReduceAxis& axis = stage_.axes[i];
            const Expr extent = last ? floor_div(axis.extent, lanes_) : axis.extent;
            Expr own = i == 0 ? left : mod(left, extent);
            if (last) own = own * lanes_ + lane;
            values.insert_or_assign(axis.var.node().name, own);
            left = floor_div(left, extent);
        }
        return substitute(e, values);
    }

    std::vector<Expr> place(const Expr& vector, const Expr& lane) const {
        std::vector<Expr> all;
        for (const Expr& index : stage_.store) all.push_back(at(index, vector, lane));
        return all;
    }

    const Stage stage_;
    const int64_t lanes_, each_;
    Kernel kernel_;
};

// Quotients of integers that are loaded: a function each, not a multiplication. Several of them at once take more
// registers than the loads in flight are worth.
bool divides_loaded(const Expr& value) {
    bool found = false;
    visit(value, [&](const Expr& e) {
        const bool quotient = e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod) || e.is(ExprKind::Rem) ||
                              (e.is(ExprKind::Div) && !is_float(e.dtype()));
        found |= quotient && e.node().reads;
    });
    return found;
}

// Whether vectors along the innermost axis begin at multiples of their length, in all that lies along it.
bool are_aligned(const Schedule& s, const Stage& stage, int64_t lanes) {
    const auto aligned = [&](int buffer, const std::vector<Expr>& indices) {
        const Buffer& b = s.compute().buffers[size_t(buffer)];
        const auto along = stride_of(s, buffer, indices, stage.axes.back().var);
        if (!along || !along->is_int(1)) return true;
        Expr first = 0, stride = 1;
        for (size_t d = indices.size(); d-- > 0;) {
            first = first + indices[d] * (b.strides.empty() ? stride : b.strides[d]);
            stride = stride * b.shape[d];
        }
        Bindings values{{stage.axes.back().var.node().name, 0}};
        return mod(substitute(first, values), lanes).is_int(0);
    };
    if (!aligned(stage.buffer, stage.store)) return false;
    const std::vector<Expr> loads = loads_of(stage);
    return std::all_of(loads.begin(), loads.end(), [&](const Expr& x) { return aligned(x.node().slot, x.args()); });
}

}  // namespace

std::optional<Lowered> element_map_kernel(const Compute& compute, const Machine& machine) {
    Schedule s(compute);
    if (!inline_maps(s).ok() || s.compute().stages.size() != 1) return {};
    const std::string name = s.compute().stages[0].name;
    if (!find_stage(s, name).reduce.empty() || find_stage(s, name).axes.empty()) return {};
    if (is_choice_of_sums(find_stage(s, name)) || sums_apart(s.compute())) return {};
    if (!merge_dense_axes(s, name).ok()) return {};
    const Stage stage = find_stage(s, name);
    if (divides_loaded(stage.value) || axis_of_lookups(stage)) return {};
    int64_t lanes = access_width(s, stage, stage.axes.back());
    while (lanes > 1 && !are_aligned(s, stage, lanes)) lanes /= 2;
    int64_t bytes = int64_t(dtype_bytes(s.compute().buffers[size_t(stage.buffer)].dtype));
    for (const Expr& load : loads_of(stage)) bytes = std::max(bytes, int64_t(dtype_bytes(load.dtype())));
    if (lanes * bytes >= kWholeAccess) return {};
    Schedule transposed = s;
    if (auto squares = transpose_to_blocks(transposed, name); squares.ok() && *squares) return {};
    const int64_t total = elements_of(stage.axes).as_int().value_or(kManyElements);
    const int64_t each =
        std::min({kMostTurnsOfThread, kBytesOfThread / (lanes * bytes), total / lanes / device_threads(machine)});
    if (each < 2) return {};
    Lowered made;
    made.kernel = ElementMap(s.compute(), stage, lanes, each).make();
    return verify(made.kernel).ok() ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace tessera
