#include "kernel/cpu/padding.h"

#include <algorithm>

#include "kernel/cpu/schedule_kinds.h"
#include "kernel/ir/regions.h"

namespace tessera {
namespace {

constexpr std::string_view kPadded = "_padded";
constexpr int64_t kMostSteps = 4, kFewestTaps = 3;  // of a window whose columns are kept apart by their remainders
constexpr int64_t kFewRows = 8;  // of a group's product, each of which would be summed from packed windows
constexpr int64_t kSomeRows = 64, kShortLine = 40;
constexpr int64_t kBroadcastLine = 24;   // of an image, that is tiled by itself
constexpr int64_t kWindowed = 192;       // taps of a window that reads where things lie
constexpr int64_t kWindowedOnce = 4096;  // the same where each place is read for one result

// What a reduction reads: an element, or a constant beside it.
struct Element {
    Expr whole, from;     // `from` is the load in it
    Expr inside, beside;  // where it is read, and what stands elsewhere
    Expr value;           // of the element: `from`, or what is computed of it alone
};

// The one load of a value that nothing else decides; nullopt where there is more to it.
std::optional<Expr> only_load(const Expr& value, const Stage& stage) {
    std::optional<Expr> found;
    bool one = true;
    visit(value, [&](const Expr& e) {
        if (!e.is(ExprKind::Load)) return;
        one &= !found || *found == e;
        found = e;
    });
    if (!found || !one) return std::nullopt;
    const Expr rest =
        rewrite(value, [&](const Expr& e) { return e == *found ? identity(ReduceOp::Sum, e.dtype()) : e; });
    for (const auto* axes : {&stage.axes, &stage.reduce})
        for (const ReduceAxis& a : *axes)
            if (depends_on(rest, a.var)) return std::nullopt;
    return found;
}

// Does a load go in steps along the lanes, several times over each row: for places of a window, or for outputs that
// read the same?
bool is_spaced(const Stage& stage, const Expr& load, const Expr& lanes) {
    if (load.args().empty() || !depends_on(load.args().back(), lanes)) return false;
    const Expr& column = load.args().back();
    const auto step = step_of(column, lanes);
    if (!step || step->as_int().value_or(1) < 2 || *step->as_int() > kMostSteps) return false;
    int64_t taps = 1;
    for (const ReduceAxis& r : stage.reduce)
        if (depends_on(column, r.var)) taps *= r.extent.as_int().value_or(1);
    if (taps < 2) return false;
    for (const ReduceAxis& a : stage.axes)
        if (!depends_on(load, a.var)) taps *= a.extent.as_int().value_or(1);
    return taps >= kFewestTaps;
}

// The one choice between an element and a constant in a reduction.
std::optional<Element> padded_element(const Stage& stage, const Expr& lanes) {
    std::optional<Expr> found;
    bool one = true;
    visit(stage.value, [&](const Expr& e) {
        if (!e.is(ExprKind::Select)) return;
        one &= !found || *found == e;
        found = e;
    });
    if (!found || !one || !found->arg(2).is(ExprKind::Const)) return std::nullopt;
    const std::optional<Expr> from = only_load(found->arg(1), stage);
    if (!from || !(depends_on(found->arg(0), lanes) || is_spaced(stage, *from, lanes))) return std::nullopt;
    return Element{*found, *from, found->arg(0), found->arg(2), found->arg(1)};
}

// Does a load slide along lines of open length, several places of each at a time? Tiles that reach beyond them would be
// decided lane by lane.
bool slides_openly(const Stage& stage, const Expr& load, const ReduceAxis& lanes) {
    if (lanes.extent.as_int() || load.args().empty() || !depends_on(load.args().back(), lanes.var)) return false;
    const auto step = step_of(load.args().back(), lanes.var);
    return step && step->as_int().value_or(0) >= 1 &&
           std::any_of(stage.reduce.begin(), stage.reduce.end(), [&](const ReduceAxis& r) {
               return !r.extent.is_int(1) && depends_on(load.args().back(), r.var);
           });
}

// The one element that is read in steps along the lanes, several places of each row; or along lines of open length.
std::optional<Element> spaced_element(const Stage& stage, const ReduceAxis& line) {
    const Expr& lanes = line.var;
    std::optional<Element> found;
    bool one = true;
    visit(stage.value, [&](const Expr& e) {
        one &= !e.is(ExprKind::Select);
        if (!e.is(ExprKind::Load) || e.args().empty() || !depends_on(e, lanes)) return;
        one &= !found;
        if (is_spaced(stage, e, lanes) || slides_openly(stage, e, line))
            found = Element{e, e, int_const(1, DType::boolean), identity(ReduceOp::Sum, e.dtype()), e};
    });
    return one ? found : std::nullopt;
}

// A bound of one index of the element, for another value of that index; `runs` are the variables that it may not have.
// Where a window goes in steps, the bound may be one of a part of the index, and says less of places between them:
// `dimension` is then the index.
struct MovedBound {
    Expr bound;
    std::optional<size_t> dimension;
};
std::optional<MovedBound> moved_bound(const Expr& bound, const std::vector<Expr>& indices,
                                      const std::vector<Expr>& places, const Extents& runs) {
    constexpr int64_t kMostParts = 8;
    if (!mentions_any(bound, runs)) return MovedBound{bound, {}};
    if (!bound.is(ExprKind::Lt) && !bound.is(ExprKind::Le)) return std::nullopt;
    for (int64_t parts = 1; parts <= kMostParts; ++parts) {
        const Expr room = (bound.arg(1) - bound.arg(0)) * parts;
        for (size_t d = 0; d < indices.size(); ++d) {
            if (!mentions_any(indices[d], runs)) continue;
            std::optional<Expr> moved;
            if (Expr rest = room - indices[d]; !mentions_any(rest, runs)) moved = rest + places[d];
            if (Expr rest = room + indices[d]; !mentions_any(rest, runs)) moved = rest - places[d];
            if (!moved) continue;
            return MovedBound{bound.is(ExprKind::Lt) ? lt(0, *moved) : le(0, *moved),
                              parts > 1 ? std::optional(d) : std::nullopt};
        }
    }
    return std::nullopt;
}

Expr rows_in(const Stage& stage, const Contraction& c) {
    Expr rows = 1;
    for (int i : c.rows) rows = rows * stage.axes[size_t(i)].extent;
    return rows;
}

// Its products are not worth packing the windows: a few rows for each group.
bool sums_where_it_lies(const Stage& stage, const Machine& machine) {
    auto c = match_contraction(stage);
    if (!c) return true;
    const Expr rows = rows_in(stage, *c);
    if (!rows.is_int(1) && outgrows_cache(stage, *c, machine)) return false;
    Expr taps = 1;
    for (const ReduceAxis& r : stage.reduce) taps = taps * r.extent;
    const int64_t few = is_float(stage.value.dtype()) ? kFewRows : 1;
    const int64_t most = rows.is_int(1) ? kWindowedOnce : kWindowed;
    return rows.as_int().value_or(few + 1) <= few && taps.as_int().value_or(most + 1) <= most;
}

// Windows are packed for some rows only, from lines of an image that are short or of open size: most of what is packed
// would be decided lane by lane.
bool packs_short_lines(const Stage& stage, const ReduceAxis& lanes) {
    auto c = match_contraction(stage);
    return c && is_float(stage.value.dtype()) && rows_in(stage, *c).as_int().value_or(kSomeRows + 1) <= kSomeRows &&
           lanes.extent.as_int().value_or(1) <= kShortLine;
}

// The rows of an image that a product with known weights sums over, a few places of a line at a time: packed, most of
// each vector would be empty. Where elements are broadcast from memory, they can be from a copy. Gives the axis.
const ReduceAxis* broadcast_rows(const Compute& compute, const Stage& stage, const Machine& machine) {
    auto c = match_contraction(stage);
    if (!machine.load_broadcast || !c || !is_float(stage.value.dtype()) || c->rows.empty()) return nullptr;
    bool known = true;
    visit(stage.value.arg(size_t(c->b)), [&](const Expr& e) {
        known &= !e.is(ExprKind::Load) ||
                 (size_t(e.node().slot) < compute.known.size() && compute.known[size_t(e.node().slot)]);
    });
    const int64_t lanes = machine.vector_bytes / 4;
    const int64_t run = stage.reduce[size_t(c->depth.back())].extent.as_int().value_or(lanes);
    Expr taps = 1;
    for (const ReduceAxis& r : stage.reduce) taps = taps * r.extent;
    if (!known || run >= lanes || taps.as_int().value_or(kWindowed + 1) > kWindowed) return nullptr;
    const ReduceAxis* rows = nullptr;
    for (int i : c->rows)
        if (!stage.axes[size_t(i)].extent.is_int(1)) rows = &stage.axes[size_t(i)];
    return rows && rows->extent.as_int().value_or(kBroadcastLine) >= kBroadcastLine ? rows : nullptr;
}

// Windows that slide along the columns of a product that is not known ahead: copied element by element into panels,
// each is worth more products than there are rows for it. They are read where they lie, from lines of a copy.
bool reads_lines(const Compute& compute, const Stage& stage, const ReduceAxis& lanes) {
    constexpr int64_t kMostRows = 256, kLongLine = 24;
    auto c = match_contraction(stage);
    if (!c || c->rows.empty() || !is_float(stage.value.dtype()) || c->columns.empty()) return false;
    if (!(stage.axes[size_t(c->columns.back())].var == lanes.var)) return false;
    if (rows_in(stage, *c).as_int().value_or(kMostRows + 1) > kMostRows) return false;
    if (lanes.extent.as_int().value_or(0) < kLongLine) return false;
    const Expr& b = stage.value.arg(size_t(c->b));
    const Expr& x = b.is(ExprKind::Select) ? b.arg(1) : b;
    if (!x.is(ExprKind::Load) || x.args().empty() || dtype_bytes(x.dtype()) != 4) return false;
    if (size_t(x.node().slot) < compute.known.size() && compute.known[size_t(x.node().slot)]) return false;
    auto step = step_of(x.args().back(), lanes.var);
    return step && step->is_int(1) && !skips_lines(stage, x) &&
           std::any_of(stage.reduce.begin(), stage.reduce.end(),
                       [&](const ReduceAxis& r) { return depends_on(x.args().back(), r.var) && !r.extent.is_int(1); });
}

// The other factor of it.
std::optional<Element> element_of_product(const Stage& stage, const Expr& rows) {
    const Expr& a = stage.value.arg(size_t(match_contraction(stage)->a));
    const Expr& x = a.is(ExprKind::Select) ? a.arg(1) : a;
    if (!x.is(ExprKind::Load) || x.args().empty() || dtype_bytes(x.dtype()) != 4) return std::nullopt;
    auto step = step_of(x.args().back(), rows);
    if (!step || step->as_int().value_or(0) < 1) return std::nullopt;
    if (!a.is(ExprKind::Select))
        return Element{a, a, int_const(1, DType::boolean), identity(ReduceOp::Sum, a.dtype()), a};
    if (!a.arg(2).is(ExprKind::Const)) return std::nullopt;
    return Element{a, x, a.arg(0), a.arg(2), x};
}

// The one axis along which an index goes in steps of more than one, each place once.
const ReduceAxis* spaced_along(const Expr& index, const Stage& stage) {
    const ReduceAxis* found = nullptr;
    for (const ReduceAxis& r : stage.reduce)
        if (depends_on(index, r.var) && !r.extent.is_int(1)) return nullptr;
    for (const ReduceAxis& a : stage.axes) {
        if (!depends_on(index, a.var) || a.extent.is_int(1)) continue;
        auto step = step_of(index, a.var);
        if (found || !step || step->as_int().value_or(1) < 2) return nullptr;
        found = &a;
    }
    return found;
}

// Rows of whole vectors, with room for tiles that reach beyond the last column.
Expr whole_vectors(const Element& element, const Expr& column, const Expr& extent, const Machine& machine) {
    const int64_t lanes = std::max<int64_t>(1, machine.vector_bytes / int64_t(dtype_bytes(element.value.dtype())));
    const auto step = step_of(element.from.args().back(), column);
    const int64_t room = step ? step->as_int().value_or(1) * lanes : lanes;
    return ceil_div(extent + room, lanes) * lanes;
}

// The stage that makes the copy, and puts it in the place of the element in `stage`.
std::optional<Stage> pad_apart(Compute& compute, Stage& stage, const Machine& machine) {
    const ReduceAxis* lanes = last_larger_axis(stage);
    if (stage.reduce.empty() || stage.fold || !lanes) return std::nullopt;
    const bool in_place = sums_where_it_lies(stage, machine);
    std::optional<Element> element;
    const ReduceAxis* rows = in_place ? nullptr : broadcast_rows(compute, stage, machine);
    if (rows) element = element_of_product(stage, rows->var);
    if (element) {
        lanes = rows;
    } else {
        rows = nullptr;
        if (!in_place && !packs_short_lines(stage, *lanes) && !reads_lines(compute, stage, *lanes)) return std::nullopt;
        element = padded_element(stage, lanes->var);
        if (!element && in_place) element = spaced_element(stage, *lanes);
    }
    if (!element) return std::nullopt;
    const Expr& from = element->from;
    if (from.args().empty() || !depends_on(from.args().back(), lanes->var)) return std::nullopt;
    if (!in_place && !rows && spaced_along(from.args().back(), stage)) return std::nullopt;
    Extents runs;
    Bindings units;  // variables of single elements
    for (const auto* axes : {&stage.axes, &stage.reduce})
        for (const ReduceAxis& a : *axes) {
            runs.emplace(a.var.node().name, a.extent);
            if (a.extent.is_int(1)) units.emplace(a.var.node().name, 0);
        }
    Stage made{.name = stage.name + std::string(kPadded)};
    std::vector<Expr> places, at;
    for (size_t d = 0; d < from.args().size(); ++d) {
        const std::string name = made.name + "_" + std::to_string(d);
        if (const ReduceAxis* along = spaced_along(from.arg(d), stage); along && d + 1 < from.args().size()) {
            made.axes.push_back({index_var(name, along->extent.as_int()), along->extent});
            made.store.push_back(made.axes.back().var);
            places.push_back(
                substitute(substitute(from.arg(d), units), {{along->var.node().name, made.axes.back().var}}));
            // Single elements stay in sight: a product goes over all that it sums over.
            at.push_back(along->var + from.arg(d) - substitute(from.arg(d), units));
            continue;
        }
        const std::optional<Interval> reach = interval_of(from.arg(d), runs);
        if (!reach) return std::nullopt;
        Expr extent = reach->span + 1;
        if (d + 1 == from.args().size()) extent = whole_vectors(*element, lanes->var, extent, machine);
        made.axes.push_back({index_var(name, extent.as_int()), extent});
        made.store.push_back(made.axes.back().var);
        places.push_back(made.axes.back().var + reach->begin);
        at.push_back(from.arg(d) - reach->begin);
    }
    // Vectors may reach beyond the last column.
    const Expr& columns = compute.buffers[size_t(from.node().slot)].shape.back();
    std::vector<Expr> bounds{le(0, places.back()), lt(places.back(), columns)};
    auto add = [&](const Expr& bound) {
        auto equal = [&](const Expr& b) { return b.same(bound); };
        if (std::none_of(bounds.begin(), bounds.end(), equal)) bounds.push_back(bound);
    };
    for (const Expr& bound : conjuncts(element->inside)) {
        const std::optional<MovedBound> moved = moved_bound(bound, from.args(), places, runs);
        if (!moved) return std::nullopt;
        add(moved->bound);
        if (!moved->dimension) continue;
        const Expr& place = places[*moved->dimension];
        add(le(0, place));
        add(lt(place, compute.buffers[size_t(from.node().slot)].shape[*moved->dimension]));
    }
    Expr inside = int_const(1, DType::boolean);
    for (const Expr& bound : bounds) inside = logical_and(inside, bound);
    const Expr read = load(from.node().slot, from.dtype(), places);
    made.value =
        select(inside, rewrite(element->value, [&](const Expr& e) { return e == from ? read : e; }), element->beside);
    made.buffer = int(compute.buffers.size());
    Buffer copy{made.name, element->value.dtype(), {}, Scope::Global, {}};
    for (const ReduceAxis& a : made.axes) copy.shape.push_back(a.extent);
    compute.buffers.push_back(std::move(copy));
    const Expr copied = load(made.buffer, element->value.dtype(), at);
    stage.value = rewrite(stage.value, [&](const Expr& e) { return e == element->whole ? copied : e; });
    return made;
}

// What a window of one place along an axis reads is that place.
Expr without_unit_steps(const Stage& stage) {
    Bindings first;
    for (const ReduceAxis& r : stage.reduce) {
        bool slides = false;
        for (const Expr& load : loads_of(stage))
            for (const Expr& index : load.args())
                for (const ReduceAxis& a : stage.axes) slides |= depends_on(index, r.var) && depends_on(index, a.var);
        if (slides && r.extent.is_int(1)) first.emplace(r.var.node().name, 0);
    }
    return first.empty() ? stage.value : substitute(stage.value, first);
}

// Choices that are made one way wherever the stage goes: a window that is said to end at an open size, and does.
Expr without_certain_choices(const Stage& stage) {
    Extents runs;
    for (const auto* axes : {&stage.axes, &stage.reduce})
        for (const ReduceAxis& a : *axes) runs.emplace(a.var.node().name, a.extent);
    return rewrite(stage.value, [&](const Expr& e) {
        if (!e.is(ExprKind::Select)) return e;
        Expr left = int_const(1, DType::boolean);
        for (const Expr& bound : conjuncts(e.arg(0)))
            if (!always(bound, runs)) left = logical_and(left, bound);
        return select(left, e.arg(1), e.arg(2));
    });
}

}  // namespace

Compute with_padding(Compute compute, const Machine& machine) {
    for (Stage& stage : compute.stages)
        if (!stage.reduce.empty()) {
            if (!match_contraction(stage)) stage.value = without_unit_steps(stage);
            stage.value = without_certain_choices(stage);
        }
    for (size_t i = 0; i < compute.stages.size(); ++i)
        if (auto made = pad_apart(compute, compute.stages[i], machine))
            compute.stages.insert(compute.stages.begin() + std::ptrdiff_t(i++), std::move(*made));
    return compute;
}

double bytes_of_windows(const Stage& stage, const Contraction& c) {
    std::vector<Expr> indices;
    visit(stage.value.arg(size_t(c.b)), [&](const Expr& e) {
        if (e.is(ExprKind::Load)) indices.insert(indices.end(), e.args().begin(), e.args().end());
    });
    double elements = 1;
    for (const Expr& index : indices) {
        // How far all windows reach along it, or how many channels there are; what is open may be small.
        bool summed = false;
        double reach = 1;
        for (const ReduceAxis& r : stage.reduce)
            if (depends_on(index, r.var)) summed = true, reach += double(r.extent.as_int().value_or(1)) - 1;
        for (int i : c.columns)
            if (const ReduceAxis& a = stage.axes[size_t(i)]; depends_on(index, a.var)) {
                auto step = step_of(index, a.var);
                reach += double(a.extent.as_int().value_or(1) - 1) * double(step ? step->as_int().value_or(1) : 1);
            }
        if (summed) elements *= reach;
    }
    return elements * double(dtype_bytes(stage.value.dtype()));
}

bool outgrows_cache(const Stage& stage, const Contraction& c, const Machine& machine) {
    constexpr double kFarCopy = 8;
    bool skips = false;
    visit(stage.value.arg(size_t(c.b)), [&](const Expr& e) { skips |= e.is(ExprKind::Load) && skips_lines(stage, e); });
    // Lines of a dilated window are not packed together.
    return bytes_of_windows(stage, c) > (skips ? kFarCopy : 1) * double(machine.l2_bytes);
}

bool skips_lines(const Stage& stage, const Expr& load) {
    for (size_t d = 0; d + 1 < load.args().size(); ++d)
        for (const ReduceAxis& r : stage.reduce) {
            if (r.extent.is_int(1) || !depends_on(load.arg(d), r.var)) continue;
            auto step = step_of(load.arg(d), r.var);
            if (!step || !step->is_int(1)) return true;
        }
    return false;
}

bool makes_padding(const Stage& stage) { return stage.reduce.empty() && stage.name.ends_with(kPadded); }

size_t axes_around_padding(const Stage& reader, const Stage& made) {
    std::vector<Expr> indices;
    visit(reader.value, [&](const Expr& e) {
        if (e.is(ExprKind::Load) && e.node().slot == made.buffer) indices = e.args();
    });
    for (size_t i = 0; i < reader.axes.size(); ++i) {
        const ReduceAxis& axis = reader.axes[i];
        bool apart = axis.extent.is_int(1);
        for (const Expr& index : indices) {
            if (!depends_on(index, axis.var)) continue;
            Extents runs;
            for (const ReduceAxis& r : reader.reduce) runs.emplace(r.var.node().name, r.extent);
            auto step = step_of(index, axis.var);
            auto reach = interval_of(index, runs);
            apart = step && reach && always(lt(reach->span, *step), {});
            if (!apart) return i;
        }
        if (!apart) return i;
    }
    return reader.axes.size();
}

}  // namespace tessera
