#include "kernel/ir/check_bounds.h"

#include <algorithm>

namespace tessera {
namespace {

Status check_inside(const Buffer& buffer, const std::vector<Expr>& indices) {
    for (size_t i = 0; i < indices.size(); ++i)
        if (leaves(indices[i], buffer.shape[i]))
            return Error(Code::E0406, "{} is accessed out of bounds: index {} of {}", buffer.name,
                         to_string(indices[i]), to_string(buffer.shape[i]))
                .hint("guard the access with a select or an if");
    return {};
}

// Every load that no select guards.
Status check_loads(const Expr& e, const std::vector<Buffer>& buffers) {
    if (e.is(ExprKind::Load)) TRY(check_inside(buffers[static_cast<size_t>(e.node().slot)], e.args()));
    const size_t unguarded = e.is(ExprKind::Select) ? 1 : e.args().size();
    for (size_t i = 0; i < unguarded; ++i) TRY(check_loads(e.arg(i), buffers));
    return {};
}

bool is_empty(const std::vector<ReduceAxis>& axes) {
    return std::any_of(axes.begin(), axes.end(), [](const ReduceAxis& a) { return a.extent.is_int(0); });
}

}  // namespace

bool leaves(const Expr& index, const Expr& size) {
    const Bounds b = bounds(index);
    const std::optional<int64_t> n = size.as_int();
    return (b.low && *b.low < 0) || (b.high && n && *b.high >= *n);
}

Status check_bounds(const Compute& compute) {
    for (const Stage& stage : compute.stages) {
        if (is_empty(stage.axes)) continue;  // touches nothing
        TRY(check_inside(compute.buffers[static_cast<size_t>(stage.buffer)], stage.store));
        if (!is_empty(stage.reduce)) TRY(check_loads(stage.value, compute.buffers));
    }
    return {};
}

}  // namespace tessera
