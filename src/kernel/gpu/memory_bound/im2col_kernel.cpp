#include "kernel/gpu/memory_bound/im2col_kernel.h"

#include <algorithm>
#include <numeric>

#include "kernel/analyse/inline_maps.h"
#include "kernel/gpu/contraction_builder.h"
#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/memory_bound/row_stages.h"

namespace tessera {
namespace {

constexpr int64_t kIm2colThreads = 128, kBytesAtOnce = 16;
constexpr int64_t kPieceElements = 48, kMostPieceElements = 128;  // of a thread: loads in flight, in registers

Expr merged(const std::vector<ReduceAxis>& axes) {
    Expr index = 0;
    for (const ReduceAxis& axis : axes) index = index * axis.extent + axis.var;
    return index;
}

// The axes as digits of a number.
void name_digits(const std::vector<ReduceAxis>& axes, Expr number, Bindings& names) {
    for (size_t i = axes.size(); i-- > 0;) {
        names.insert_or_assign(axes[i].var.node().name, i == 0 ? number : mod(number, axes[i].extent));
        number = floor_div(number, axes[i].extent);
    }
}

class Im2col {
  public:
    Im2col(const Compute& compute, const Stage& stage, size_t outer)
        : stage_(stage),
          windows_(stage.axes.begin(), stage.axes.begin() + std::ptrdiff_t(outer)),
          window_(stage.axes.begin() + std::ptrdiff_t(outer), stage.axes.end()) {
        kernel_.name = compute.name;
        kernel_.symbols = compute.symbols;
        kernel_.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + std::ptrdiff_t(compute.params));
        kernel_.params = compute.params;
        lanes_ = kBytesAtOnce / int64_t(dtype_bytes(dtype()));
    }

    std::optional<Kernel> make() {
        const auto elements = elements_of(window_).as_int(), outermost = window_[0].extent.as_int();
        if (!elements || !outermost) return {};
        const int64_t taps = *elements / *outermost;  // of one step along the outermost axis
        const int64_t together = lanes_ / std::gcd(taps, lanes_);
        const Expr count = elements_of(windows_), blocks = ceil_div(count, kIm2colThreads);
        const Expr block = loop_var("block", blocks), thread = loop_var("thread", kIm2colThreads);
        const Expr window = block * kIm2colThreads + thread;
        int64_t steps = together;  // along the outermost axis, of a thread
        if (*outermost % steps != 0 || steps * taps > kMostPieceElements) return {};
        while (steps * 2 * taps <= kPieceElements && *outermost % (steps * 2) == 0) steps *= 2;
        const Expr pieces = *outermost / steps, piece = loop_var("piece", pieces);
        Stmt body = write(
            window, piece * (steps * taps),
            [&](const Expr& k, Bindings& names) {
                name_digits(window_, k, names);
                names.insert_or_assign(window_[0].var.node().name, piece * steps + floor_div(k, taps));
            },
            steps * taps);
        if (!mod(count, kIm2colThreads).is_int(0)) body = if_then(lt(window, count), std::move(body));
        body = loop_over(thread, kIm2colThreads, LoopKind::Bound, std::move(body), "thread.x");
        body = loop_over(block, blocks, LoopKind::Bound, std::move(body), "block.x");
        kernel_.body = loop_over(piece, pieces, LoopKind::Bound, std::move(body), "block.y");
        return std::move(kernel_);
    }

  private:
    DType dtype() const { return kernel_.buffers[size_t(stage_.buffer)].dtype; }

    // So many elements of a window, from `first` on. `name` gives the axes of one of them.
    template <typename F>
    Stmt write(const Expr& window, const Expr& first, const F& name, int64_t count) {
        const int pending = int(kernel_.buffers.size());
        kernel_.buffers.push_back(
            {.name = fmt::format("pending{}", pending), .dtype = dtype(), .shape = {count}, .scope = Scope::Register});
        Bindings names;
        name_digits(windows_, window, names);
        std::vector<Expr> line;
        for (size_t d = 0; d + 1 < stage_.store.size(); ++d) line.push_back(substitute(stage_.store[d], names));
        const auto place = [&](const Expr& k) {
            std::vector<Expr> at = line;
            at.push_back(first + k);
            return at;
        };
        const Expr k = loop_var(fmt::format("k{}", pending), count);
        name(k, names);
        Stmt read = store(pending, {k}, substitute(stage_.value, names));
        std::vector<Stmt> steps{loop_over(k, count, LoopKind::Unrolled, std::move(read))};
        const int64_t vectors = count / lanes_;
        const Expr v = loop_var(fmt::format("vector{}", pending), vectors),
                   lane = loop_var(fmt::format("lane{}", pending), lanes_);
        if (vectors > 0) {
            const Expr at = v * lanes_ + lane;
            Stmt one = store(stage_.buffer, place(at), load(pending, dtype(), {at}));
            one = loop_over(lane, lanes_, LoopKind::Vector, std::move(one));
            steps.push_back(loop_over(v, vectors, LoopKind::Unrolled, std::move(one)));
        }
        return alloc(pending, seq(std::move(steps)));
    }

    const Stage stage_;
    const std::vector<ReduceAxis> windows_, window_;
    int64_t lanes_ = 1;
    Kernel kernel_;
};

// How many of the axes number windows, where the others number the elements of one, in the order of memory.
std::optional<size_t> axes_of_windows(const Stage& stage) {
    for (size_t outer = stage.axes.size() - 1; outer-- > 1;) {
        const std::vector<ReduceAxis> inner(stage.axes.begin() + std::ptrdiff_t(outer), stage.axes.end());
        if (!(merged(inner) == stage.store.back())) continue;
        for (size_t d = 0; d + 1 < stage.store.size(); ++d)
            for (const ReduceAxis& axis : inner)
                if (depends_on(stage.store[d], axis.var)) return {};
        return outer;
    }
    return {};
}

// Whether lines of the result begin where vectors may.
bool lines_are_aligned(const Buffer& b, int64_t lanes) {
    if (b.strides.empty()) return divides(lanes, b.shape.back());
    for (size_t d = 0; d + 1 < b.strides.size(); ++d)
        if (!divides(lanes, b.strides[d])) return false;
    return b.strides.back().is_int(1);
}

}  // namespace

std::optional<Lowered> im2col_kernel(const Compute& compute, const Machine& machine) {
    Schedule s(compute);
    if (!machine.blocks || !inline_maps(s).ok() || s.compute().stages.size() != 1) return {};
    const Compute c = without_unit_axes(s.compute());
    const Stage& stage = c.stages[0];
    if (!stage.reduce.empty() || stage.fold || stage.axes.size() < 3 || stage.store.size() < 2) return {};
    const Buffer& to = c.buffers[size_t(stage.buffer)];
    const int64_t lanes = kBytesAtOnce / int64_t(dtype_bytes(to.dtype));
    const auto outer = axes_of_windows(stage);
    if (!outer || !lines_are_aligned(to, lanes)) return {};
    // One load, of windows that overlap or lie beside each other.
    const std::vector<Expr> loads = loads_of(stage);
    if (loads.size() != 1 || dtype_bytes(loads[0].dtype()) > dtype_bytes(to.dtype)) return {};
    const Expr& next = stage.axes[*outer - 1].var;
    const Schedule of_stage(c);
    const auto apart = stride_of(of_stage, loads[0], next),
               within = stride_of(of_stage, loads[0], stage.axes.back().var);
    const auto step = apart ? apart->as_int() : std::nullopt;
    if (!step || *step < 1 || *step * int64_t(dtype_bytes(loads[0].dtype())) > kBytesAtOnce) return {};
    const bool slides = std::any_of(loads[0].args().begin(), loads[0].args().end(), [&](const Expr& index) {
        return depends_on(index, next) && std::any_of(stage.axes.begin() + std::ptrdiff_t(*outer), stage.axes.end(),
                                                      [&](const ReduceAxis& a) { return depends_on(index, a.var); });
    });
    if (!slides || !within || access_width(of_stage, stage, stage.axes.back()) >= lanes) return {};
    auto kernel = Im2col(c, stage, *outer).make();
    if (!kernel || !verify(*kernel).ok()) return {};
    Lowered made;
    made.kernel = std::move(*kernel);
    return made;
}

}  // namespace tessera
