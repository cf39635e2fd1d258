#include "shard/plan.h"

#include <algorithm>
#include <limits>
#include <set>

#include "shard/cost.h"
#include "shard/divide.h"
#include "shard/order_steps.h"
#include "shard/tidy_plan.h"

namespace tessera::shard {
namespace {

using Axes = std::vector<size_t>;

Status check_nodes(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
        for (const auto& [name, attr] : node->attrs())
            if (std::holds_alternative<GraphPtr>(attr))
                return Error(Code::E0409, "{} has nested graphs, which are not partitioned", node->op().name)
                    .at(node->where());
        if (node->is(Trait::Random))
            return Error(Code::E0409, "{} draws random numbers, which ranks cannot share", node->op().name)
                .at(node->where());
    }
    return {};
}

class Planning {
  public:
    Planning(Plan& plan, const PlanOptions& options)
        : plan_(plan), mesh_(plan.mesh), options_(options), rates_(options.chosen_rates()) {}

    void run() {
        for (const auto& v : plan_.graph->inputs()) plan_.inputs.push_back(source(v.get()));
        for (const Unit& u : plan_.units) u.body ? divided(u) : whole(u);
        hold_outputs();
        tidy_plan(plan_);
        order_steps(plan_, options_.overlap_operations);
    }

  private:
    void hold_outputs() {
        const auto& inputs = plan_.graph->inputs();
        const auto& outputs = plan_.graph->outputs();
        plan_.in_parts.resize(inputs.size());
        std::vector<const Value*> instead_of(outputs.size());
        for (const KeptState& k : options_.kept) {
            plan_.in_parts[k.input] = divisible_sizes(*inputs[k.input]).has_value();
            if (k.output && plan_.in_parts[k.input]) instead_of[*k.output] = inputs[k.input].get();
        }
        for (size_t i = 0; i < outputs.size(); ++i)
            plan_.outputs.push_back(instead_of[i]            ? fetch(outputs[i], home(instead_of[i]))
                                    : options_.whole_outputs ? fetch_whole(outputs[i])
                                                             : fetch_home(outputs[i]));
    }

    // Held tensors.
    int hold(Held h) {
        plan_.held.push_back(std::move(h));
        return int(plan_.held.size()) - 1;
    }
    int hold(const Value* v, Placement boxes) {
        const int id = hold(Held{v, v->type().tensor().dtype, divisible_sizes(*v), std::move(boxes)});
        known_[v].push_back(id);
        return id;
    }
    int hold_undivided(const Value* v) {
        Held h{.value = v};
        if (v->type().is_tensor()) h.dtype = v->type().tensor().dtype;
        const int id = hold(std::move(h));
        known_[v].push_back(id);
        return id;
    }
    Placement home(const Value* v) const { return place(*divisible_sizes(*v), plan_.shardings.at(v), mesh_); }

    int source(const Value* v) {
        const int id = divisible_sizes(*v) ? hold(v, home(v)) : hold_undivided(v);
        plan_.held[size_t(id)].source = true;
        return id;
    }

    const std::vector<int>& known(const Value* v) {
        if (!known_.contains(v)) source(v);  // a constant
        return known_.at(v);
    }

    // What is held that costs least to move to where it is needed: all of the tensor, or each rank's own part of it.
    std::pair<int, int64_t> nearest(const Value* v, const Placement& need) {
        std::pair<int, int64_t> best{-1, std::numeric_limits<int64_t>::max()};
        for (int id : known(v)) {
            const Placement& boxes = plan_.held[size_t(id)].boxes;
            const int64_t elements = moved_elements(boxes, need);
            if (elements < best.second && (elements == 0 || !in_pieces_.contains(id))) best = {id, elements};
        }
        return best;
    }

    int fetch(const Value* v, const Placement& need) {
        for (int id : known(v))
            if (plan_.held[size_t(id)].boxes == need) return id;
        const int from = nearest(v, need).first, to = hold(v, need);
        if (!contains(need, home(v))) in_pieces_.insert(to);
        plan_.steps.push_back(MoveStep{from, to});
        return to;
    }
    int fetch_whole(const Value* v) {
        const auto sizes = divisible_sizes(*v);
        return sizes ? fetch(v, place_whole(*sizes, mesh_)) : known(v)[0];
    }

    int fetch_home(const Value* v) { return divisible_sizes(*v) ? fetch(v, home(v)) : known(v)[0]; }

    static Axes partial_axes(const Unit& unit, const Division& division) {
        Axes axes;
        for (size_t v = 0; v < division.size(); ++v)
            if (unit.variables[v].reduced) axes.insert(axes.end(), division[v].begin(), division[v].end());
        return axes;
    }

    // Seconds of a division: of computation, for what is read, and for the result.
    double cost(const UnitDivider& divider, const Unit& unit, const Division& division) {
        const Divided divided = divider.divide(division);
        double seconds = divided.seconds + divider.result_seconds(divided, home(unit.value()));
        for (const auto& [slot, need] : divided.needs) {
            const int from = nearest(unit.node->input(slot), need).first;
            seconds += divider.operand_seconds(slot, plan_.held[size_t(from)].boxes, need);
        }
        return seconds;
    }

    // For each axis the variables that it divides in some tensor around the unit.
    std::vector<std::vector<size_t>> candidates(const Unit& unit) {
        std::vector<std::vector<size_t>> by_axis(mesh_.axes().size());
        const auto ties = ties_of(unit);
        for (size_t v = 0; v < ties.size(); ++v)
            for (const Tie& tie : ties[v])
                for (size_t a : plan_.shardings.at(tie.value).dims[tie.dim].axes)
                    if (by_axis[a].empty() || by_axis[a].back() != v) by_axis[a].push_back(v);
        return by_axis;
    }

    // In the order of the tensor around the unit that has most of the axes, or of the mesh.
    void order_axes(const Unit& unit, Division& division) {
        const auto ties = ties_of(unit);
        for (size_t v = 0; v < division.size(); ++v) {
            const Axes* longest = nullptr;
            for (const Tie& tie : ties[v]) {
                const Axes& axes = plan_.shardings.at(tie.value).dims[tie.dim].axes;
                if (!longest || axes.size() > longest->size()) longest = &axes;
            }
            if (!longest) continue;
            std::stable_sort(division[v].begin(), division[v].end(), [&](size_t a, size_t b) {
                return std::find(longest->begin(), longest->end(), a) < std::find(longest->begin(), longest->end(), b);
            });
        }
    }

    Division choose(const Unit& unit) {
        Division division(unit.variables.size());
        if (options_.draw) {
            for (size_t a = 0; a < mesh_.axes().size() && !division.empty(); ++a)
                if (const size_t v = options_.draw(division.size() + 1); v < division.size()) division[v].push_back(a);
            return division;
        }
        const auto by_axis = candidates(unit);
        const UnitDivider divider(unit, mesh_, rates_);
        std::vector<size_t> choice(by_axis.size(), 0);  // by axis: a candidate, then none
        std::optional<std::pair<double, Division>> best;
        for (bool more = true; more;) {
            Division d(unit.variables.size());
            for (size_t a = 0; a < choice.size(); ++a)
                if (choice[a] < by_axis[a].size()) d[by_axis[a][choice[a]]].push_back(a);
            order_axes(unit, d);
            if (const double c = cost(divider, unit, d); !best || c < best->first) best = {c, d};
            more = false;
            for (size_t a = 0; a < choice.size() && !more; ++a) {
                more = ++choice[a] <= by_axis[a].size();
                if (!more) choice[a] = 0;
            }
        }
        return best->second;
    }

    ComputeStep compute(const Unit& unit, const Expr& body, std::vector<Variable> variables,
                        std::vector<Ranges> ranges) {
        ComputeStep step{.unit = &unit, .body = body, .variables = std::move(variables), .ranges = std::move(ranges)};
        step.inputs.resize(unit.node->inputs().size());
        const std::vector<Read> reads = reads_of(body);
        for (size_t slot : slots_of(reads)) {
            if (slot >= step.inputs.size()) continue;  // a part, which stands there already
            const Value* v = unit.node->input(slot);
            step.inputs[slot] = fetch(v, needs_of(reads, slot, *divisible_sizes(*v), step.variables, step.ranges));
        }
        return step;
    }

    void divided(const Unit& unit) {
        const Division division = choose(unit);
        const auto ranges = ranges_of(unit.variables, division, mesh_);
        const Value* v = unit.value();
        const Placement made = result_boxes(unit.variables, ranges);
        const bool is_partial = !partial_axes(unit, division).empty();
        int result;
        if (is_partial && !unit.body->is(ExprKind::Reduce)) {
            result = by_parts(unit, division, ranges, made);
        } else {
            ComputeStep step = compute(unit, *unit.body, unit.variables, ranges);
            step.own = !is_partial;
            result = is_partial ? hold(Held{v, v->type().tensor().dtype, divisible_sizes(*v), made}) : hold(v, made);
            step.results = {result};
            plan_.steps.push_back(std::move(step));
            if (is_partial) result = combine(v, result, *unit.body, partial_axes(unit, division));
        }
        if (plan_.held[size_t(result)].boxes != home(v)) fetch(v, home(v));
    }

    int combine(const Value* v, int from, const Expr& reduction, const Axes& axes) {
        const Placement &made = plan_.held[size_t(from)].boxes, wanted = home(v);
        const int to = hold(v, contains(made, wanted) ? wanted : Placement(made));
        plan_.steps.push_back(CombineStep{from, to, reduction.node().reduce_op, axes});
        return to;
    }

    // Reductions within a body, divided: each becomes a tensor of its own, of the result's rank.
    int by_parts(const Unit& unit, const Division& division, const std::vector<Ranges>& ranges, const Placement& made) {
        std::vector<Variable> indices, own;
        for (const Variable& v : unit.variables) (v.reduced ? own : indices).push_back(v);
        std::vector<std::optional<int>> parts;
        Expr rest = *unit.body;
        const size_t inputs = unit.node->inputs().size();
        for (const Expr& reduction : unit.reductions) {
            std::vector<Variable> variables;
            std::vector<Ranges> part_ranges(ranges.size());
            Sizes sizes;
            std::vector<Expr> at;
            Axes axes;
            for (size_t v = 0; v < unit.variables.size(); ++v) {
                Variable variable = unit.variables[v];
                const bool used = depends_on(reduction, variable.var);
                if (variable.reduced && !has_axis(reduction, variable)) continue;
                const bool one = !variable.reduced && !used;
                if (one) variable.extent = 1;
                variables.push_back(variable);
                for (size_t r = 0; r < ranges.size(); ++r)
                    part_ranges[r].push_back(one ? Interval{0, 1} : ranges[r][v]);
                if (variable.reduced) {
                    axes.insert(axes.end(), division[v].begin(), division[v].end());
                    continue;
                }
                sizes.push_back(variable.extent);
                at.push_back(one ? Expr(0) : variable.var);
            }
            if (axes.empty()) continue;
            ComputeStep step = compute(unit, reduction, variables, part_ranges);
            const Placement boxes = result_boxes(variables, part_ranges);
            const Held part{unit.value(), reduction.dtype(), sizes, boxes};
            const int terms = hold(part), whole = hold(part);
            step.results = {terms};
            plan_.steps.push_back(std::move(step));
            plan_.steps.push_back(CombineStep{terms, whole, reduction.node().reduce_op, axes});
            const Expr loaded = load(int(inputs + parts.size()), reduction.dtype(), at);
            rest = rewrite(rest, [&](const Expr& e) { return e == reduction ? loaded : e; });
            parts.push_back(whole);
        }
        for (const Variable& v : own)  // of reductions that are not divided
            if (mentions_axis(rest, v)) indices.push_back(v);
        ComputeStep step = compute(unit, rest, indices, ranges_for(unit, indices, ranges));
        step.inputs.insert(step.inputs.end(), parts.begin(), parts.end());
        const int result = hold(unit.value(), made);
        step.results = {result};
        plan_.steps.push_back(std::move(step));
        return result;
    }

    static bool mentions_axis(const Expr& body, const Variable& v) {
        bool found = false;
        visit(body, [&](const Expr& e) { found |= e.is(ExprKind::Reduce) && has_axis(e, v); });
        return found;
    }
    static std::vector<Ranges> ranges_for(const Unit& unit, const std::vector<Variable>& variables,
                                          const std::vector<Ranges>& ranges) {
        std::vector<Ranges> out(ranges.size());
        for (const Variable& v : variables)
            for (size_t i = 0; i < unit.variables.size(); ++i)
                if (unit.variables[i].var == v.var)
                    for (size_t r = 0; r < ranges.size(); ++r) out[r].push_back(ranges[r][i]);
        return out;
    }

    void whole(const Unit& unit) {
        ComputeStep step{.unit = &unit};
        step.inputs.resize(unit.node->inputs().size());
        for (size_t i = 0; i < step.inputs.size(); ++i)
            if (const Value* v = unit.node->input(i)) step.inputs[i] = fetch_whole(v);
        std::vector<const Value*> divisible;
        for (size_t i = 0; i < unit.node->output_count(); ++i) {
            const Value* v = unit.node->output(i);
            const auto sizes = divisible_sizes(*v);
            step.results.push_back(sizes ? hold(v, place_whole(*sizes, mesh_)) : hold_undivided(v));
            if (sizes) divisible.push_back(v);
        }
        plan_.steps.push_back(std::move(step));
        for (const Value* v : divisible) fetch(v, home(v));
    }

    Plan& plan_;
    const Mesh& mesh_;
    const PlanOptions& options_;
    const Rates rates_;
    std::unordered_map<const Value*, std::vector<int>> known_;
    std::set<int> in_pieces_;  // held boxes that together may lack elements
};

}  // namespace

Result<std::unique_ptr<Plan>> make_plan(std::shared_ptr<const Graph> graph, const Mesh& mesh, const Shardings& given,
                                        const PlanOptions& options) {
    TRY(check_nodes(*graph));
    auto plan = std::make_unique<Plan>();
    plan->mesh = mesh;
    plan->graph = std::move(graph);
    plan->units = units_of(*plan->graph);
    Propagated propagated = propagate(*plan->graph, plan->units, mesh, given);
    plan->shardings = std::move(propagated.values);
    plan->conflicts = std::move(propagated.conflicts);
    Planning(*plan, options).run();
    return plan;
}

}  // namespace tessera::shard
