#include "shard/divide.h"

#include <algorithm>
#include <set>

#include "shard/cost.h"

namespace tessera::shard {
namespace {

using Axes = std::vector<size_t>;

// Operations outside of reductions and indices, each counted once.
void count(const Expr& e, std::set<const ExprNode*>& seen, double& operations, std::vector<Expr>& reductions) {
    if (!seen.insert(e.get()).second) return;
    switch (e.kind()) {
        case ExprKind::Const:
        case ExprKind::Var:
        case ExprKind::Load: return;
        case ExprKind::Reduce: reductions.push_back(e); return;
        case ExprKind::Cast:
        case ExprKind::Select: break;
        default: operations += 1;
    }
    for (const Expr& arg : e.args()) count(arg, seen, operations, reductions);
}

void add_work(const Expr& e, double extra, double factor, const std::vector<size_t>& scope,
              const std::vector<Variable>& variables, std::vector<Work>& work) {
    std::set<const ExprNode*> seen;
    std::vector<Expr> reductions;
    double operations = extra;
    count(e, seen, operations, reductions);
    work.push_back({scope, operations * factor});
    for (const Expr& reduction : reductions) {
        std::vector<size_t> own;
        double times = factor;
        for (size_t v = 0; v < variables.size(); ++v)
            if (has_axis(reduction, variables[v]) || depends_on(reduction, variables[v].var)) own.push_back(v);
        for (const ReduceAxis& axis : reduction.node().axes) {
            const bool divided = std::any_of(variables.begin(), variables.end(),
                                             [&](const Variable& v) { return v.reduced && v.var == axis.var; });
            if (!divided) times *= double(axis.extent.as_int().value_or(1));
        }
        add_work(reduction.arg(0), 1, times, own, variables, work);
    }
}

int64_t size_over(const Axes& axes, const Mesh& mesh) {
    int64_t n = 1;
    for (size_t a : axes) n *= mesh.size(a);
    return n;
}

// Of the terms of a reduction within a body: the indices that it depends on.
Placement part_boxes(const Unit& unit, const Expr& reduction, const std::vector<Ranges>& ranges) {
    Placement boxes(ranges.size());
    for (size_t v = 0; v < unit.variables.size(); ++v) {
        if (unit.variables[v].reduced || !depends_on(reduction, unit.variables[v].var)) continue;
        for (size_t r = 0; r < ranges.size(); ++r) boxes[r].push_back(ranges[r][v]);
    }
    return boxes;
}

}  // namespace

bool has_axis(const Expr& reduction, const Variable& variable) {
    const auto& axes = reduction.node().axes;
    return std::any_of(axes.begin(), axes.end(), [&](const ReduceAxis& a) { return a.var == variable.var; });
}

bool has_reduction(const Expr& body) {
    bool found = false;
    visit(body, [&](const Expr& e) { found |= e.is(ExprKind::Reduce); });
    return found;
}

std::vector<Work> work_of(const Expr& body, const std::vector<Variable>& variables) {
    std::vector<Work> work;
    std::vector<size_t> indices;
    for (size_t v = 0; v < variables.size(); ++v)
        if (!variables[v].reduced) indices.push_back(v);
    add_work(body, 0, 1, indices, variables, work);
    return work;
}

double operations_in(const std::vector<Work>& work, const Ranges& ranges) {
    double operations = 0;
    for (const Work& w : work) {
        double points = w.operations;
        for (size_t v : w.variables) points *= double(ranges[v].length());
        operations += points;
    }
    return operations;
}

std::vector<size_t> slots_of(const std::vector<Read>& reads) {
    std::vector<size_t> list;
    for (const Read& r : reads)
        if (std::find(list.begin(), list.end(), r.slot) == list.end()) list.push_back(r.slot);
    return list;
}

std::vector<Ranges> ranges_of(const std::vector<Variable>& variables, const Division& division, const Mesh& mesh) {
    std::vector<Ranges> ranges(static_cast<size_t>(mesh.ranks()));
    for (size_t r = 0; r < ranges.size(); ++r)
        for (size_t v = 0; v < variables.size(); ++v)
            ranges[r].push_back(block(variables[v].extent, division[v], mesh, int64_t(r)));
    return ranges;
}

Placement result_boxes(const std::vector<Variable>& variables, const std::vector<Ranges>& ranges) {
    Placement boxes;
    for (const Ranges& r : ranges) {
        Box& box = boxes.emplace_back();
        for (size_t v = 0; v < variables.size() && !variables[v].reduced; ++v) box.push_back(r[v]);
    }
    return boxes;
}

Placement needs_of(const std::vector<Read>& reads, size_t slot, const Sizes& sizes,
                   const std::vector<Variable>& variables, const std::vector<Ranges>& ranges) {
    Placement boxes(ranges.size());
    for (size_t r = 0; r < ranges.size(); ++r) {
        const auto same = std::find(ranges.begin(), ranges.begin() + int64_t(r), ranges[r]) - ranges.begin();
        if (size_t(same) < r) {
            boxes[r] = boxes[size_t(same)];
            continue;
        }
        for (const Read& read : reads) {
            if (read.slot != slot) continue;
            const Box box = needed(read, sizes, variables, ranges[r]);
            if (boxes[r].empty()) boxes[r] = box;
            for (size_t d = 0; d < box.size(); ++d) {
                Interval& all = boxes[r][d];
                all = {std::min(all.low, box[d].low), std::max(all.high, box[d].high)};
            }
        }
    }
    return boxes;
}

UnitDivider::UnitDivider(const Unit& unit, const Mesh& mesh, const Rates& rates)
    : unit_(unit),
      mesh_(mesh),
      rates_(rates),
      slots_(slots_of(unit.reads)),
      work_(work_of(*unit.body, unit.variables)),
      reads_memory_(has_reduction(*unit.body)) {}

Divided UnitDivider::divide(const Division& division) const {
    Divided d{.division = division};
    d.ranges = ranges_of(unit_.variables, division, mesh_);
    d.made = result_boxes(unit_.variables, d.ranges);
    for (size_t v = 0; v < division.size(); ++v)
        if (unit_.variables[v].reduced) d.partial.insert(d.partial.end(), division[v].begin(), division[v].end());
    double bytes = double(volume(d.made[0]) * element_bytes(unit_.value()->type().tensor().dtype));
    for (size_t slot : slots_) {
        const Value* v = unit_.node->input(slot);
        d.needs.emplace_back(slot, needs_of(unit_.reads, slot, *divisible_sizes(*v), unit_.variables, d.ranges));
        bytes += double(volume(d.needs.back().second[0]) * element_bytes(v->type().tensor().dtype));
    }
    d.seconds = compute_seconds(operations_in(work_, d.ranges[0]), reads_memory_ ? bytes : 0, rates_);
    return d;
}

double UnitDivider::operand_seconds(size_t slot, const Placement& from, const Placement& need) const {
    return move_seconds(from, need, element_bytes(unit_.node->input(slot)->type().tensor().dtype), mesh_, rates_);
}

double UnitDivider::result_seconds(const Divided& d, const Placement& wanted) const {
    const int64_t bytes = element_bytes(unit_.value()->type().tensor().dtype);
    const bool within = contains(d.made, wanted);
    double seconds = within ? 0 : move_seconds(d.made, wanted, bytes, mesh_, rates_);
    if (d.partial.empty()) return seconds;
    if (unit_.body->is(ExprKind::Reduce))
        return seconds + combine_seconds(d.made, within ? wanted : d.made, d.partial, bytes, mesh_, rates_);
    for (const Expr& reduction : unit_.reductions) {
        Axes axes;
        for (size_t v = 0; v < unit_.variables.size(); ++v)
            if (unit_.variables[v].reduced && has_axis(reduction, unit_.variables[v]))
                axes.insert(axes.end(), d.division[v].begin(), d.division[v].end());
        if (axes.empty()) continue;
        const Placement terms = part_boxes(unit_, reduction, d.ranges);
        seconds += combine_seconds(terms, terms, axes, element_bytes(reduction.dtype()), mesh_, rates_);
    }
    return seconds;
}

std::vector<Division> UnitDivider::divisions() const {
    std::vector<Division> all{Division(unit_.variables.size())};
    for (size_t a = 0; a < mesh_.axes().size(); ++a) {
        if (mesh_.size(a) < 2) continue;
        const size_t before = all.size();
        for (size_t i = 0; i < before; ++i)
            for (size_t v = 0; v < unit_.variables.size(); ++v) {
                Division d = all[i];
                if (unit_.variables[v].extent < size_over(d[v], mesh_) * mesh_.size(a)) continue;
                d[v].push_back(a);
                all.push_back(std::move(d));
            }
    }
    return all;
}

}  // namespace tessera::shard
