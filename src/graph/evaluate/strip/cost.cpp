#include <algorithm>
#include <cmath>

#include "graph/evaluate/strip/program.h"

namespace tessera::strip {
namespace {

constexpr double kOverhead = 12;  // of one operation on one strip

double apply_cost(const PlanNode& n) {
    switch (n.kind) {
        case ExprKind::Call: return n.fn <= Fn::Sqrt ? 0.6 : 8;
        case ExprKind::Pow: return 15;
        case ExprKind::Div:
        case ExprKind::FloorDiv:
        case ExprKind::Mod:
        case ExprKind::Rem: return is_float(n.from) && n.kind == ExprKind::Div ? 1 : 4;
        case ExprKind::Cast:
        case ExprKind::CastSaturate: return 1;
        default: return 0.4;
    }
}

double lane_cost(const PlanNode& n, int lane) {
    switch (n.op) {
        case Op::Const: return 0;
        case Op::Affine:
        case Op::Test: return 0.3;
        case Op::Load: {
            double cost = 2.5 * static_cast<double>(n.gathers.size());
            int64_t stride = lane < 0 ? 0 : std::abs(n.affine.factor(lane));
            return cost + (stride <= 1 ? 0.4 : stride < 16 ? 1.0 : 1.8);
        }
        case Op::Apply: return apply_cost(n);
        case Op::Select: return n.args[2] < 0 ? 0.5 : 2;
        case Op::Reduce: return 0;
    }
    return 0;
}

struct Costing {
    const Plan& plan;
    int lane;
    double length;
    std::vector<char> seen;

    double visit(int id) {
        if (seen[id]) return 0;
        seen[id] = 1;
        const PlanNode& n = plan.nodes[id];
        bool strip = lane >= 0 && has_var(n.vars, lane);
        if (n.op == Op::Reduce) {
            double count = 1;
            for (int a : n.axes) count *= static_cast<double>(plan.extents[a]);
            if (strip) return kOverhead / length + count * (visit(n.args[0]) + 0.4 + kOverhead / length);
            int axis = best_axis(plan, n);
            int64_t extent = axis < 0 ? 1 : plan.extents[axis];
            return (kOverhead + count * (strip_cost(plan, n.args[0], axis, extent) + 0.4)) / length;
        }
        double cost = lane_cost(n, strip ? lane : -1);
        cost = strip ? cost + kOverhead / length : (cost + kOverhead) / length;
        for (int a : n.args)
            if (a >= 0) cost += visit(a);
        for (const PlanNode::Gather& g : n.gathers) cost += visit(g.node);
        return cost;
    }
};

}  // namespace

double strip_cost(const Plan& plan, int root, int lane, int64_t length) {
    double lanes = lane < 0 ? 1 : static_cast<double>(std::min(length, kStrip));
    Costing costing{plan, lane, lanes, std::vector<char>(plan.nodes.size(), 0)};
    return costing.visit(root);
}

int best_axis(const Plan& plan, const PlanNode& reduce) {
    int best = -1;
    double least = 0;
    for (int a : reduce.axes) {
        if (!has_var(plan.nodes[reduce.args[0]].vars, a)) continue;
        double cost = reduce.axes.size() == 1 ? 0 : strip_cost(plan, reduce.args[0], a, plan.extents[a]);
        if (best >= 0 && cost >= least) continue;
        best = a;
        least = cost;
    }
    return best;
}

}  // namespace tessera::strip
