#include <algorithm>

#include "kernel/gpu/inside_image.h"
#include "kernel/gpu/memory_bound/row_stages.h"
#include "kernel/gpu/memory_bound/window_kernel.h"

namespace tessera {
namespace {

// The load whose place depends on an axis and on one that is reduced over, together.
std::optional<Expr> find_slid(const Stage& sum) {
    std::optional<Expr> found;
    for (const Expr& load : loads_of(sum)) {
        bool slides = false;
        for (const Expr& index : load.args()) {
            const auto uses = [&](const ReduceAxis& a) { return depends_on(index, a.var); };
            slides |= std::any_of(sum.axes.begin(), sum.axes.end(), uses) &&
                      std::any_of(sum.reduce.begin(), sum.reduce.end(), uses);
        }
        if (!slides) continue;
        if (found && !(*found == load)) return {};
        found = load;
    }
    return found;
}

// How one index of the image depends on the axes of a stage; nothing where it is not linear in at most one of each
// kind.
std::optional<Sliding> slide_of(const Expr& index, const Stage& sum) {
    Sliding made;
    Expr rest = index;
    size_t axes = 0, taps = 0;
    for (size_t i = 0; i < sum.axes.size(); ++i) {
        if (!depends_on(index, sum.axes[i].var)) continue;
        const auto step = step_of(index, sum.axes[i].var);
        const auto every = step ? step->as_int() : std::nullopt;
        if (!every || *every < 1 || ++axes > 1) return {};
        made.axis = i, made.every = *every, made.size = sum.axes[i].extent.as_int().value_or(0);
        rest = rest - sum.axes[i].var * *every;
    }
    for (size_t i = 0; i < sum.reduce.size(); ++i) {
        if (!depends_on(index, sum.reduce[i].var)) continue;
        const auto step = step_of(index, sum.reduce[i].var);
        const auto further = step ? step->as_int() : std::nullopt, count = sum.reduce[i].extent.as_int();
        if (!further || *further < 1 || !count || ++taps > 1) return {};
        made.tap = i, made.further = *further, made.taps = *count;
        rest = rest - sum.reduce[i].var * *further;
    }
    const auto first = rest.as_int();
    if (axes != 1 || !first) return {};
    made.from = *first;
    return made;
}

// Whether an axis goes through all of a dimension, or through a slice of it.
bool takes_part(const Sliding& own, const Stage& sum, const Expr& size) {
    if (own.from == 0 && sum.axes[own.axis].extent == size) return true;
    const auto all = size.as_int();
    return all && own.size > 0 && own.from >= 0 && own.from + own.size <= *all && !sum.axes[own.axis].extent.is_int(1);
}

// What is cast, by casts that change none of its values.
Expr behind_exact_casts(Expr e, DType kept) {
    const bool narrow = is_float(kept) && dtype_bytes(kept) <= 4;
    const auto is_exact = [&](DType to) { return to == kept || (narrow && to == DType::f32); };
    const bool once = e.is(ExprKind::Cast);
    if (once) e = Expr(e.arg(0));
    while (once && e.is(ExprKind::Cast) && is_exact(e.dtype())) e = Expr(e.arg(0));
    return e;
}

// What is read of the image: the load, a cast of it, and the choice between that and what padding is.
void find_operand(const Expr& e, const Expr& load, const Buffer& image, const std::vector<size_t>& dims,
                  SlidingWindow& to) {
    if (behind_exact_casts(e, load.dtype()) == load) to.operand = e, to.fill = constant(0, e.dtype());
    if (!e.is(ExprKind::Select)) return;
    if (!(behind_exact_casts(e.arg(1), load.dtype()) == load) || !e.arg(2).is(ExprKind::Const)) return;
    if (!asks_for_inside(e.arg(0), load.args(), image, dims)) return;
    to.operand = e, to.fill = e.arg(2);
}

}  // namespace

std::optional<SlidingWindow> match_sliding_window(const Compute& compute) {
    const Compute c = without_unit_axes(compute);
    if (c.stages.empty() || c.stages.size() > 2 || c.stages[0].reduce.empty() || c.stages[0].fold) return {};
    SlidingWindow found;
    found.sum = c.stages[0], found.out = c.stages.back();
    if (c.stages.size() == 2) {
        if (!found.out.reduce.empty() || found.out.axes.size() != found.sum.axes.size()) return {};
        for (const Expr& load : loads_of(found.out, found.sum.buffer))
            for (size_t i = 0; i < found.out.axes.size(); ++i)
                if (!(load.arg(i) == found.out.axes[i].var)) return {};
    }
    const auto load = find_slid(found.sum);
    if (!load || size_t(load->node().slot) >= c.params) return {};
    found.image = load->node().slot;
    const Buffer& image = c.buffers[size_t(found.image)];
    if (!image.strides.empty()) return {};
    std::vector<size_t> dims;
    std::set<size_t> used;
    for (size_t d = 0; d < load->args().size(); ++d) {
        const auto slide = load->arg(d).as_int() ? std::optional<Sliding>() : slide_of(load->arg(d), found.sum);
        if (!slide) {
            if (load->arg(d).is_int(0) && image.shape[d].is_int(1)) continue;
            return {};
        }
        if (!used.insert(slide->axis).second) return {};
        Sliding own = *slide;
        own.dim = d;
        if (!own.tap && own.every == 1 && takes_part(own, found.sum, image.shape[d])) {
            found.planes.push_back(own.axis), found.plane_dims.push_back(d), found.plane_from.push_back(own.from);
            continue;
        }
        if (dims.size() == 2 || own.size == 0 || !image.shape[d].as_int()) return {};
        dims.push_back(d);
        if (dims.size() == 2) found.y = found.x, found.has_y = true;
        found.x = own;
    }
    size_t taps = 0;
    for (const Sliding* s : {&found.x, &found.y}) taps += s->tap ? 1 : 0;
    if (dims.empty() || taps != found.sum.reduce.size() || used.size() != found.sum.axes.size()) return {};
    found.image_along_x = found.x.dim + 1 == image.shape.size();
    visit(found.sum.value, [&](const Expr& e) { find_operand(e, *load, image, dims, found); });
    return found;
}

}  // namespace tessera
