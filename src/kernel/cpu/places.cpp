#include "kernel/cpu/places.h"

#include <algorithm>
#include <functional>
#include <set>

#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

constexpr std::string_view kPlaces = "_places";
constexpr int64_t kRowsWorthATable = 4;  // of a map

bool depends_on_axis(const Expr& e, const ReduceAxis& axis) {
    return !axis.extent.is_int(1) && depends_on(e, axis.var);
}

// A float that becomes a place, a quotient of floats or a costly function; or a place that is chosen by what is read.
bool is_worth_keeping(const Expr& e) {
    if (e.is(ExprKind::Load) || e.is(ExprKind::Const)) return false;
    bool found = is_costly(e), chooses = false;
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Cast) && x.dtype() == DType::i64) found |= is_float(x.arg(0).dtype());
        if (x.is(ExprKind::Div)) found |= is_float(x.dtype());
        // What is computed in f64 halves the lanes.
        if (x.is(ExprKind::Cast) && x.dtype() == DType::f32)
            found |= x.arg(0).dtype() == DType::f64 && !x.arg(0).is(ExprKind::Load);
        chooses |= x.is(ExprKind::Select) || x.is(ExprKind::Min) || x.is(ExprKind::Max);
    });
    return found || (chooses && e.dtype() == DType::i64 && e.node().reads);
}

// Shared by some rows, and another number for each lane.
bool is_shared_by_rows(const Expr& e, const Stage& stage, const ReduceAxis& lanes) {
    if (!depends_on_axis(e, lanes)) return false;
    int64_t rows = 1;
    for (const ReduceAxis& axis : stage.axes)
        if (!depends_on_axis(e, axis)) rows *= axis.extent.as_int().value_or(kRowsWorthATable);
    return rows >= kRowsWorthATable;
}

// Is there a choice, other than of the places of loads?
bool chooses_values(const Expr& e) {
    if (e.is(ExprKind::Select)) return true;
    return !e.is(ExprKind::Load) && std::any_of(e.args().begin(), e.args().end(), chooses_values);
}

// The largest parts of the value that are worth it.
std::vector<Expr> kept_parts(const Stage& stage, const ReduceAxis& lanes) {
    std::vector<Expr> parts;
    const bool chooses = chooses_values(stage.value);
    std::set<const ExprNode*> seen;
    std::function<void(const Expr&)> look = [&](const Expr& e) {
        if (!seen.insert(&e.node()).second) return;
        // Bounds of a place that a choice asks for too stay in sight.
        const bool bounds = chooses && e.dtype() == DType::i64 && (e.is(ExprKind::Min) || e.is(ExprKind::Max));
        const bool number = (e.dtype() == DType::i64 && !bounds) || e.dtype() == DType::f32 || e.dtype() == DType::f64;
        if (number && is_shared_by_rows(e, stage, lanes) && is_worth_keeping(e)) {
            if (std::none_of(parts.begin(), parts.end(), [&](const Expr& p) { return p == e; })) parts.push_back(e);
            return;
        }
        for (const Expr& a : e.args()) look(a);
    };
    look(stage.value);
    return parts;
}

// The axes of a stage, those that it reduces first.
std::vector<ReduceAxis> all_axes(const Stage& stage) {
    std::vector<ReduceAxis> axes = stage.reduce;
    axes.insert(axes.end(), stage.axes.begin(), stage.axes.end());
    return axes;
}

// The stage that makes the table of one part, which the value of `stage` then reads.
Stage table_of(Compute& compute, Stage& stage, const Expr& part, size_t number) {
    Stage made{.name = stage.name + std::string(kPlaces) + std::to_string(number)};
    Bindings own;
    std::vector<Expr> at;
    Buffer table{made.name, part.dtype(), {}, Scope::Global, {}};
    for (const ReduceAxis& axis : all_axes(stage)) {
        if (!depends_on(part, axis.var)) continue;
        const Expr var = index_var(made.name + "_" + std::to_string(at.size()), axis.extent.as_int());
        own.emplace(axis.var.node().name, var);
        made.axes.push_back({var, axis.extent});
        made.store.push_back(var);
        table.shape.push_back(axis.extent);
        at.push_back(axis.var);
    }
    made.value = substitute(part, own);
    made.buffer = int(compute.buffers.size());
    compute.buffers.push_back(std::move(table));
    const Expr read = load(made.buffer, part.dtype(), at);
    stage.value = rewrite(stage.value, [&](const Expr& e) { return e == part ? read : e; });
    return made;
}

}  // namespace

Compute with_places(Compute compute) {
    constexpr int64_t kFewTerms = 16;
    const auto reduces = [](const Stage& s) {
        if (s.reduce.empty()) return s.fold;
        return s.fold || elements_of(s.reduce).as_int().value_or(kFewTerms + 1) > kFewTerms || match_contraction(s);
    };
    if (std::any_of(compute.stages.begin(), compute.stages.end(), reduces)) return compute;
    for (size_t i = 0; i < compute.stages.size(); ++i) {
        const ReduceAxis* lanes = last_larger_axis(compute.stages[i]);
        if (!lanes) continue;
        const std::vector<Expr> parts = kept_parts(compute.stages[i], *lanes);
        for (size_t number = 0; number < parts.size(); ++number) {
            Stage made = table_of(compute, compute.stages[i], parts[number], number);
            compute.stages.insert(compute.stages.begin() + std::ptrdiff_t(i++), std::move(made));
        }
    }
    return compute;
}

bool makes_places(const Stage& stage) { return stage.name.find(kPlaces) != std::string::npos; }

}  // namespace tessera
