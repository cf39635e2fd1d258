#include "kernel/gpu/memory_bound/row_stages.h"

#include <algorithm>

#include "kernel/analyse/contraction.h"
#include "kernel/analyse/row_group.h"
#include "kernel/gpu/gpu_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kShortestRow = 16, kShortestColumn = 4, kManyColumns = 2048;
constexpr int64_t kRowsInParts = 32, kRowInParts = 1 << 15;  // several blocks share such rows: reductions_in_parts.cpp

bool same_extents(const std::vector<ReduceAxis>& a, const std::vector<ReduceAxis>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const ReduceAxis& x, const ReduceAxis& y) { return x.extent == y.extent; });
}

// Whether a stage reads intermediates at its own row, and at its own element of it.
bool reads_own(const Compute& c, const Stage& stage, size_t rows) {
    const std::vector<ReduceAxis> along = axes_along(stage, rows);
    for (const Expr& load : loads_of(stage)) {
        if (size_t(load.node().slot) < c.params) continue;
        const size_t dims = load.args().size();
        if (dims != rows && dims != rows + along.size()) return false;
        for (size_t d = 0; d < dims; ++d)
            if (!(load.arg(d) == (d < rows ? stage.axes[d] : along[d - rows]).var)) return false;
    }
    return true;
}

bool is_kept(const Compute& c, const Stage& stage, size_t rows) {
    return !is_output(c, stage) && stage.reduce.empty() && stage.axes.size() > rows;
}

// Whether neighbouring rows share elements, as windows that overlap do.
bool overlaps(const Stage& stage) {
    for (const Expr& load : loads_of(stage))
        for (const Expr& index : load.args())
            for (const ReduceAxis& row : stage.axes)
                for (const ReduceAxis& along : stage.reduce) {
                    if (!depends_on(index, row.var) || !depends_on(index, along.var)) continue;
                    const auto step = step_of(index, row.var), within = step_of(index, along.var);
                    const auto every = step ? step->as_int() : std::nullopt, extent = along.extent.as_int();
                    const auto further = within ? within->as_int() : std::nullopt, rows = row.extent.as_int();
                    if (!every || !extent || !further) continue;
                    const bool side_by_side = rows && *every * *rows <= *further;  // all of them between two elements
                    if (!side_by_side && *every < *extent * *further) return true;
                }
    return false;
}

}  // namespace

bool is_output(const Compute& c, const Stage& stage) { return size_t(stage.buffer) < c.params; }

std::vector<ReduceAxis> axes_along(const Stage& stage, size_t rows) {
    if (!stage.reduce.empty()) return stage.reduce;
    return {stage.axes.begin() + std::ptrdiff_t(rows), stage.axes.end()};
}

RowStages find_rows(const Compute& c) {
    RowStages found;
    size_t rows = SIZE_MAX;
    for (const Stage& stage : c.stages)
        if (!stage.reduce.empty()) rows = std::min(rows, stage.axes.size());
    if (rows == SIZE_MAX) return found;
    for (const Stage& stage : c.stages) {
        if (stage.fold || stage.axes.size() < rows || (!stage.reduce.empty() && stage.axes.size() != rows)) return {};
        const std::vector<ReduceAxis> own(stage.axes.begin(), stage.axes.begin() + std::ptrdiff_t(rows));
        const std::vector<ReduceAxis> along = axes_along(stage, rows);
        if (&stage == &c.stages.front()) found.rows = own;
        if (!same_extents(own, found.rows) || !reads_own(c, stage, rows)) return {};
        if (found.along.empty()) found.along = along;
        if (!along.empty() && !same_extents(along, found.along)) return {};
        // What is written outside is not read back.
        if (is_output(c, stage))
            for (const Stage& reader : c.stages)
                if (!loads_of(reader, stage.buffer).empty()) return {};
    }
    found.ok = true;
    return found;
}

Compute without_unit_axes(Compute c) {
    const auto is_unit = [](const Expr& extent) { return extent.is_int(1); };
    std::map<int, std::vector<size_t>> left;  // by intermediate: the dimensions that stay
    for (Stage& stage : c.stages) {
        Bindings first;
        for (auto* axes : {&stage.axes, &stage.reduce}) {
            std::vector<ReduceAxis> kept;
            for (const ReduceAxis& a : *axes) {
                const bool last = axes == &stage.reduce && kept.empty() && &a == &axes->back();
                if (is_unit(a.extent) && !last)
                    first.insert_or_assign(a.var.node().name, 0);
                else
                    kept.push_back(a);
            }
            *axes = std::move(kept);
        }
        stage.value = substitute(stage.value, first);
        for (Expr& index : stage.store) index = substitute(index, first);
        if (is_output(c, stage)) continue;
        Buffer& b = c.buffers[size_t(stage.buffer)];
        std::vector<Expr> shape, at;
        for (size_t d = 0; d < b.shape.size(); ++d) {
            if (is_unit(b.shape[d])) continue;
            left[stage.buffer].push_back(d);
            shape.push_back(b.shape[d]);
            at.push_back(stage.store[d]);
        }
        left[stage.buffer];
        b.shape = std::move(shape), stage.store = std::move(at);
    }
    for (Stage& stage : c.stages)
        stage.value = map_loads(stage.value, [&](const Expr& x) {
            const auto kept = left.find(x.node().slot);
            if (kept == left.end()) return x;
            std::vector<Expr> at;
            for (size_t d : kept->second) at.push_back(x.arg(d));
            return load(x.node().slot, x.dtype(), std::move(at));
        });
    return c;
}

namespace {

// The axes that an index numbers the elements of, the slowest first; empty where there are fewer than two.
std::vector<size_t> digits_of(const Expr& index, const Stage& stage) {
    std::vector<std::pair<int64_t, size_t>> found;
    for (size_t a = 0; a < stage.axes.size(); ++a) {
        if (!depends_on(index, stage.axes[a].var)) continue;
        const auto step = step_of(index, stage.axes[a].var);
        if (!step || !step->as_int() || !stage.axes[a].extent.as_int()) return {};
        found.push_back({*step->as_int(), a});
    }
    std::sort(found.rbegin(), found.rend());
    Expr whole = 0;
    std::vector<size_t> axes;
    for (const auto& [step, a] : found) {
        whole = whole * stage.axes[a].extent + stage.axes[a].var;
        axes.push_back(a);
    }
    return axes.size() > 1 && whole == index ? axes : std::vector<size_t>{};
}

// One axis in place of several; false where there are none.
bool join_digits(const Compute& c, Stage& stage) {
    for (const Expr& load : loads_of(stage)) {
        if (size_t(load.node().slot) < c.params) continue;
        for (const Expr& index : load.args()) {
            const std::vector<size_t> axes = digits_of(index, stage);
            // Neighbours in memory stay an axis of their own.
            const bool last = std::any_of(axes.begin(), axes.end(), [&](size_t a) {
                return !stage.store.empty() && depends_on(stage.store.back(), stage.axes[a].var);
            });
            if (axes.empty() || last) continue;
            std::vector<ReduceAxis> digits;
            for (size_t a : axes) digits.push_back(stage.axes[a]);
            const Expr extent = elements_of(digits);
            const Expr var = index_var(digits[0].var.node().name + "_whole", extent.as_int());
            stage.value = map_loads(stage.value, [&](const Expr& x) {
                std::vector<Expr> at;
                for (const Expr& own : x.args()) at.push_back(own == index ? var : own);
                return with_args(x, std::move(at));
            });
            Bindings names;
            Expr left = var;
            for (size_t i = digits.size(); i-- > 0;) {
                names.insert_or_assign(digits[i].var.node().name, i == 0 ? left : mod(left, digits[i].extent));
                left = floor_div(left, digits[i].extent);
            }
            stage.value = substitute(stage.value, names);
            for (Expr& at : stage.store) at = substitute(at, names);
            stage.axes[*std::min_element(axes.begin(), axes.end())] = {var, extent};
            std::erase_if(stage.axes, [&](const ReduceAxis& a) { return names.count(a.var.node().name) > 0; });
            return true;
        }
    }
    return false;
}

}  // namespace

Compute with_whole_rows(Compute c) {
    for (Stage& stage : c.stages)
        if (stage.reduce.empty() && is_output(c, stage))
            while (join_digits(c, stage)) {
            }
    return c;
}

namespace {

// The axes of a map that are the rows of what it reads row by row, in their order; empty where there are none.
std::vector<size_t> row_axes_of(const Stage& map, const std::map<int, size_t>& rows_of) {
    std::vector<size_t> found;
    for (const Expr& load : loads_of(map)) {
        const auto rows = rows_of.find(load.node().slot);
        if (rows == rows_of.end()) continue;
        std::vector<size_t> own;
        for (size_t k = 0; k < rows->second; ++k)
            for (size_t a = 0; a < map.axes.size(); ++a)
                if (load.arg(k) == map.axes[a].var) own.push_back(a);
        if (own.size() != rows->second || (!found.empty() && found != own)) return {};
        found = own;
    }
    return found;
}

}  // namespace

Compute rows_first(Compute c) {
    std::map<int, size_t> rows_of;               // by intermediate: how many of its first dimensions are rows
    std::map<int, std::vector<size_t>> changed;  // by intermediate: its dimensions in their new order
    for (Stage& stage : c.stages) {
        stage.value = map_loads(stage.value, [&](const Expr& x) {
            const auto order = changed.find(x.node().slot);
            if (order == changed.end()) return x;
            std::vector<Expr> at;
            for (size_t d : order->second) at.push_back(x.arg(d));
            return load(x.node().slot, x.dtype(), std::move(at));
        });
        if (!stage.reduce.empty()) {
            if (!is_output(c, stage)) rows_of[stage.buffer] = stage.axes.size();
            continue;
        }
        std::vector<size_t> order = row_axes_of(stage, rows_of);
        const size_t rows = order.size();
        if (rows == 0) continue;
        for (size_t a = 0; a < stage.axes.size(); ++a)
            if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
        std::vector<ReduceAxis> axes;
        for (size_t a : order) axes.push_back(stage.axes[a]);
        stage.axes = std::move(axes);
        if (is_output(c, stage)) continue;
        rows_of[stage.buffer] = rows, changed[stage.buffer] = order;
        Buffer& b = c.buffers[size_t(stage.buffer)];
        std::vector<Expr> shape, at;
        for (size_t d : order) shape.push_back(b.shape[d]), at.push_back(stage.store[d]);
        b.shape = std::move(shape), stage.store = std::move(at);
    }
    return c;
}

namespace {

// Parameters as lists of elements: rows that a reshape made of several dimensions are contiguous there.
void flatten_params(Compute& c) {
    const auto flat = [&](const Buffer& b, const std::vector<Expr>& at) {
        Expr offset = 0;
        for (size_t d = 0; d < at.size(); ++d) offset = offset * b.shape[d] + at[d];
        return offset;
    };
    for (size_t i = 0; i < c.params; ++i) {
        Buffer& b = c.buffers[i];
        if (!b.strides.empty() || b.shape.size() < 2) continue;
        for (Stage& stage : c.stages) {
            if (size_t(stage.buffer) == i) stage.store = {flat(b, stage.store)};
            stage.value = map_loads(stage.value, [&](const Expr& x) {
                return size_t(x.node().slot) == i ? load(x.node().slot, x.dtype(), {flat(b, x.args())}) : x;
            });
        }
        Expr all = 1;
        for (const Expr& size : b.shape) all = all * size;
        b.shape = {all};
    }
}

}  // namespace

Compute along_one_axis(Compute c) {
    size_t rows = SIZE_MAX;
    for (const Stage& stage : c.stages)
        if (!stage.reduce.empty()) rows = std::min(rows, stage.axes.size());
    if (rows == SIZE_MAX) return c;
    for (Stage& stage : c.stages) {
        const bool reduces = !stage.reduce.empty();
        if (stage.fold || (!reduces && !is_output(c, stage))) continue;
        std::vector<ReduceAxis>& axes = reduces ? stage.reduce : stage.axes;
        const size_t first = reduces ? 0 : rows;
        if (axes.size() < first + 2) continue;
        const std::vector<ReduceAxis> along(axes.begin() + std::ptrdiff_t(first), axes.end());
        const Expr extent = elements_of(along);
        const Expr var = index_var(along[0].var.node().name + "_all", extent.as_int());
        Bindings digits;
        Expr left = var;
        for (size_t i = along.size(); i-- > 0;) {
            digits.insert_or_assign(along[i].var.node().name, i == 0 ? left : mod(left, along[i].extent));
            left = floor_div(left, along[i].extent);
        }
        stage.value = substitute(stage.value, digits);
        for (Expr& at : stage.store) at = substitute(at, digits);
        axes.resize(first);
        axes.push_back({var, extent});
    }
    flatten_params(c);
    return c;
}

bool lie_across(const Schedule& s, const RowStages& found, bool few) {
    if (found.rows.empty()) return false;
    const auto rows = elements_of(found.rows).as_int(), length = elements_of(found.along).as_int();
    if ((!few && rows && *rows < kManyColumns) || (length && *length < kShortestColumn)) return false;
    bool across = false;
    for (const Stage& stage : s.compute().stages) {
        if (stage.reduce.empty()) continue;
        if (overlaps(stage) || match_contraction(stage)) return false;
        for (const Expr& load : loads_of(stage)) {
            if (size_t(load.node().slot) >= s.compute().params) continue;
            const auto step = stride_of(s, load, stage.axes.back().var);
            if (!step || !(step->is_int(0) || step->is_int(1))) return false;
            across |= step->is_int(1);
        }
    }
    return across;
}

bool are_worth_threads(const Schedule& s, const RowStages& found) {
    const auto length = elements_of(found.along).as_int(), rows = elements_of(found.rows).as_int();
    if (length && (*length < kShortestRow || (rows && *rows <= kRowsInParts && *length >= kRowInParts))) return false;
    if (rows && *rows < 1) return false;
    for (const Stage& stage : s.compute().stages) {
        if (stage.reduce.empty()) continue;
        if (overlaps(stage)) return false;
        const std::vector<Expr> loads = loads_of(stage);
        const bool inside = std::all_of(loads.begin(), loads.end(),
                                        [&](const Expr& x) { return size_t(x.node().slot) >= s.compute().params; });
        if (!inside && !reduces_along_lanes(s, stage)) return false;
    }
    return true;
}

Compute loads_apart(Compute c, const RowStages& found) {
    const size_t rows = found.rows.size();
    const auto named = [&](const Stage& stage, const Expr& load) {
        Bindings names;
        for (size_t i = 0; i < rows; ++i) names.insert_or_assign(stage.axes[i].var.node().name, found.rows[i].var);
        const std::vector<ReduceAxis> along = axes_along(stage, rows);
        for (size_t i = 0; i < along.size(); ++i) names.insert_or_assign(along[i].var.node().name, found.along[i].var);
        return substitute(load, names);
    };
    std::vector<std::pair<Expr, std::set<std::string>>> readers;
    const auto find = [&](const Expr& load) {
        return std::find_if(readers.begin(), readers.end(), [&](const auto& r) { return r.first == load; });
    };
    for (const Stage& stage : c.stages)
        for (const Expr& load : loads_of(stage)) {
            if (size_t(load.node().slot) >= c.params || axes_along(stage, rows).empty()) continue;
            const Expr own = named(stage, load);
            if (find(own) == readers.end()) readers.push_back({own, {}});
            find(own)->second.insert(stage.name);
        }
    std::vector<Stage> first;
    std::vector<Expr> shape, at;
    std::vector<ReduceAxis> axes = found.rows;
    axes.insert(axes.end(), found.along.begin(), found.along.end());
    for (const ReduceAxis& a : axes) shape.push_back(a.extent), at.push_back(a.var);
    for (const auto& [own, stages] : readers) {
        const bool of_row = std::any_of(found.rows.begin(), found.rows.end(),
                                        [&](const ReduceAxis& a) { return depends_on(own, a.var); });
        const bool along = std::any_of(found.along.begin(), found.along.end(),
                                       [&](const ReduceAxis& a) { return depends_on(own, a.var); });
        if (stages.size() < 2 || !of_row || !along) continue;
        const int buffer = int(c.buffers.size());
        const std::string name = fmt::format("loaded{}", buffer);
        c.buffers.push_back({name, own.dtype(), shape});
        first.push_back({.name = name, .buffer = buffer, .axes = axes, .store = at, .value = own});
        for (Stage& stage : c.stages) {
            std::vector<Expr> here;
            for (size_t i = 0; i < rows; ++i) here.push_back(stage.axes[i].var);
            for (const ReduceAxis& a : axes_along(stage, rows)) here.push_back(a.var);
            stage.value = map_loads(stage.value, [&](const Expr& x) {
                return here.size() == axes.size() && named(stage, x) == own ? load(buffer, x.dtype(), here) : x;
            });
        }
    }
    c.stages.insert(c.stages.begin(), first.begin(), first.end());
    return c;
}

int64_t lanes_for(const Schedule& s, const RowStages& found) {
    const Compute& c = s.compute();
    std::set<int> own;
    for (const Stage& stage : c.stages)
        if (!is_output(c, stage)) own.insert(stage.buffer);
    int64_t lanes = 8;
    for (const Stage& stage : c.stages) {
        const std::vector<ReduceAxis> along = axes_along(stage, found.rows.size());
        if (along.empty()) continue;
        bool outside = is_output(c, stage) && stage.reduce.empty();
        for (const Expr& load : loads_of(stage))
            outside |= size_t(load.node().slot) < c.params && depends_on(load, along.back().var);
        if (outside) lanes = std::min(lanes, access_width(s, stage, along.back(), own));
        // Whole vectors, also of what reads no memory.
        const auto extent = along.back().extent.as_int();
        while (lanes > 1 && (!extent || *extent % lanes)) lanes /= 2;
    }
    return lanes;
}

int64_t widest_access(const Compute& c) {
    int64_t bytes = 1;
    for (const Stage& stage : c.stages)
        for (const Expr& load : loads_of(stage))
            if (size_t(load.node().slot) < c.params && load.node().reads)
                bytes = std::max(bytes, int64_t(dtype_bytes(load.dtype())));
    return bytes;
}

KeptBytes bytes_kept(const Compute& c, size_t rows) {
    KeptBytes kept;
    for (size_t now = 0; now < c.stages.size(); ++now) {
        int64_t live = 0;
        for (size_t i = 0; i <= now; ++i) {
            if (!is_kept(c, c.stages[i], rows)) continue;
            const int64_t bytes = int64_t(dtype_bytes(c.buffers[size_t(c.stages[i].buffer)].dtype));
            if (i == now) kept.all += bytes;
            for (size_t later = now + 1; later < c.stages.size(); ++later)
                if (!loads_of(c.stages[later], c.stages[i].buffer).empty()) {
                    live += bytes;
                    break;
                }
        }
        kept.at_once = std::max(kept.at_once, live);
    }
    return kept;
}

Result<Compute> without_kept(const Compute& c, size_t rows) {
    Schedule s(c);
    for (const Stage& stage : c.stages)
        if (!is_output(c, stage) && stage.reduce.empty() && stage.axes.size() > rows) TRY(s.compute_inline(stage.name));
    return s.compute();
}

}  // namespace tessera
