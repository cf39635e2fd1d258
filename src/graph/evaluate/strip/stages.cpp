#include "graph/evaluate/strip/stages.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/memory.h"
#include "graph/evaluate/strip/contract.h"

namespace tessera::strip {
namespace {

constexpr int64_t kMostStaged = int64_t{1} << 27;  // elements of a staged reduction

// Marks the reductions that are used where more loops run than they depend on, and those that are needed for sure
// (not under a condition).
class Uses {
  public:
    explicit Uses(const Plan& plan) : wide(plan.nodes.size(), false), certain(plan.nodes.size(), false), plan_(plan) {
        VarSet outputs = 0;
        for (int v : plan.outputs) outputs |= bit_of(v);
        visit(plan.root, outputs, true);
    }
    std::vector<bool> wide, certain;

  private:
    void visit(int id, VarSet scope, bool sure) {
        if (id < 0 || !seen_.insert({id, scope, sure}).second) return;
        const PlanNode& n = plan_.nodes[id];
        if (sure) certain[id] = true;
        if (n.op == Op::Reduce) {
            if ((scope & ~n.vars) != 0) wide[id] = true;
            scope = n.vars;
            for (int a : n.axes) scope |= bit_of(a);
        }
        for (size_t i = 0; i < n.args.size(); ++i) visit(n.args[i], scope, sure && (n.op != Op::Select || i == 2));
        for (const PlanNode::Gather& g : n.gathers) visit(g.node, scope, sure);
    }
    const Plan& plan_;
    std::set<std::tuple<int, VarSet, bool>> seen_;
};

std::vector<BoxDim> row_major(const Plan& plan, const std::vector<int>& vars) {
    std::vector<BoxDim> box;
    for (int v : vars) box.push_back({v, 0, plan.extents[v], 0});
    int64_t stride = 1;
    for (size_t i = box.size(); i-- > 0;) {
        box[i].stride = stride;
        stride *= box[i].count;
    }
    return box;
}

Result<bool> compute(const Plan& plan, int node, const std::optional<Contraction>& contraction,
                     const std::vector<BoxDim>& box, Target target, Fault& fault) {
    if (contraction) return run(plan, *contraction, box, target, fault);
    Program program(plan, node, box);
    if (program.run(box, target)) return true;
    fault = program.fault();
    return false;
}

}  // namespace

Result<bool> run_in_stages(Plan& plan, Target out, Fault& fault) {
    bool reduces = false;
    for (const PlanNode& n : plan.nodes) reduces |= n.op == Op::Reduce;
    VarSet outputs = 0;
    for (int v : plan.outputs) outputs |= bit_of(v);
    std::optional<Contraction> last;
    if (reduces) {
        const Uses uses(plan);
        const int count = static_cast<int>(plan.nodes.size());
        for (int id = 0; id < count; ++id) {
            if (plan.nodes[id].op != Op::Reduce) continue;
            if (!uses.certain[id] && plan.nodes[id].fallible) continue;
            std::optional<Contraction> contraction = as_contraction(plan, id);
            const VarSet vars = plan.nodes[id].vars;
            if (id == plan.root && vars == outputs) {
                last = contraction;
                continue;
            }
            const int64_t elements = plan.extent_of(vars);
            if (elements > kMostStaged || (!uses.wide[id] && !contraction)) continue;
            std::vector<int> list;
            for (VarSet rest = vars; rest; rest &= rest - 1) list.push_back(std::countr_zero(rest));
            std::vector<BoxDim> box = row_major(plan, list);
            std::shared_ptr<void> memory = TRY(allocate_bytes(8 * elements));
            const DType held = plan.nodes[id].real_valued() ? DType::f64 : DType::i64;
            if (!TRY(compute(plan, id, contraction, box, {held, memory.get()}, fault))) return false;

            PlanNode load{.op = Op::Load, .dtype = plan.nodes[id].dtype, .vars = vars};
            load.slot = static_cast<int>(plan.slots.size());
            for (const BoxDim& d : box) load.affine.terms.push_back({d.var, d.stride});
            plan.slots.push_back({held, memory.get(), {elements}, memory});
            plan.nodes[id] = std::move(load);
        }
    }
    return compute(plan, plan.root, last, row_major(plan, plan.outputs), out, fault);
}

}  // namespace tessera::strip
