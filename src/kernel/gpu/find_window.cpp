#include "kernel/gpu/inside_image.h"
#include "kernel/gpu/matrix_operand.h"
#include "kernel/gpu/wgmma_kernel.h"

namespace tessera {
namespace {

// The axes of a stage that have more than one element.
std::vector<ReduceAxis> long_axes(const Stage& stage, const std::vector<int>& which) {
    std::vector<ReduceAxis> axes;
    for (int i : which)
        if (!stage.axes[size_t(i)].extent.is_int(1)) axes.push_back(stage.axes[size_t(i)]);
    return axes;
}

// How place number d depends on the window's own axis and those of the reduction.
bool find_steps(const Expr& at, const ReduceAxis& own, const Stage& stage, size_t d, Window& to) {
    auto step = step_of(at, own.var);
    const auto every = step ? step->as_int() : std::nullopt, size = own.extent.as_int();
    if (!every || *every < 1 || !size) return false;
    Expr rest = at - own.var * *every;
    for (size_t i = 0; i < stage.reduce.size(); ++i) {
        auto along = step_of(at, stage.reduce[i].var);
        const auto further = along ? along->as_int() : std::nullopt;
        if (!further || *further < 0) return false;
        to.further[i][d] = *further;
        rest = rest - stage.reduce[i].var * *further;
    }
    const auto first = rest.as_int();
    if (!first) return false;
    to.size[d] = *size, to.every[d] = *every, to.from[d] = *first;
    return true;
}

}  // namespace

std::optional<Window> find_window(const Compute& compute, const Stage& stage, const Expr& operand,
                                  const std::vector<int>& rows, const std::vector<int>& batch, size_t channels) {
    auto narrow = narrowed(operand);
    if (!narrow) return {};
    std::vector<Expr> conditions;
    Expr e = as_narrow(*narrow);
    for (; e.is(ExprKind::Select); e = as_narrow(e.arg(1))) conditions.push_back(e.arg(0));
    if (!e.is(ExprKind::Load) || size_t(e.node().slot) >= compute.params || e.args().size() != 4) return {};
    const Buffer& image = compute.buffers[size_t(e.node().slot)];
    if (!image.strides.empty() || dtype_bytes(image.dtype) != 2) return {};
    const auto count = image.shape[3].as_int();
    constexpr int64_t kAligned = 8;
    if (!count || *count % kAligned || !image.shape[1].as_int() || !image.shape[2].as_int()) return {};
    const std::vector<ReduceAxis> axes = long_axes(stage, rows);
    if (axes.size() < 2 || axes.size() > 3) return {};
    const ReduceAxis &y = axes[axes.size() - 2], &x = axes[axes.size() - 1];
    const std::vector<Expr>& at = e.args();
    if (axes.size() == 3 ? !(at[0] - axes[0].var).is_int(0) : !image.shape[0].is_int(1)) return {};
    Window found;
    Expr first = at[3] - stage.reduce[channels].var;
    for (const ReduceAxis& axis : long_axes(stage, batch)) {
        auto step = step_of(at[3], axis.var);
        const auto apart = step ? step->as_int() : std::nullopt;
        if (!apart || found.apart || *apart % kAligned) return {};
        found.apart = *apart;
        first = first - axis.var * *apart;
    }
    if (!first.is_int(0)) return {};
    found.buffer = e.node().slot;
    found.further.resize(stage.reduce.size());
    if (!find_steps(at[1], y, stage, 0, found) || !find_steps(at[2], x, stage, 1, found)) return {};
    for (const Expr& condition : conditions)
        if (!asks_for_inside(condition, at, image, {1, 2})) return {};
    return found;
}

}  // namespace tessera
