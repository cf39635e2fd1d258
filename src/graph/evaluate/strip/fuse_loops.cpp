#include <algorithm>

#include "graph/evaluate/strip/plan.h"

namespace tessera::strip {
namespace {

template <typename F>
void for_each_affine(Plan& plan, F&& f) {
    for (PlanNode& n : plan.nodes) {
        f(n.affine);
        for (PlanNode::Check& c : n.checks) f(c.index);
    }
}

// Whether every affine form steps over the whole inner loop when the outer one advances.
bool can_fuse(Plan& plan, int outer, int inner) {
    const int64_t extent = plan.extents[inner];
    int64_t whole, total;
    if (__builtin_mul_overflow(extent, plan.extents[outer], &total)) return false;
    bool good = true;
    for_each_affine(plan, [&](const Affine& a) {
        good = good && !__builtin_mul_overflow(a.factor(inner), extent, &whole) && a.factor(outer) == whole;
    });
    return good;
}

void fuse(Plan& plan, int outer, int inner) {
    for_each_affine(plan,
                    [&](Affine& a) { std::erase_if(a.terms, [&](const Affine::Term& t) { return t.var == outer; }); });
    for (PlanNode& n : plan.nodes) n.vars &= ~bit_of(outer);
    plan.extents[inner] *= plan.extents[outer];
    plan.extents[outer] = 1;
}

}  // namespace

void fuse_loops(Plan& plan) {
    std::vector<int>& dims = plan.outputs;
    for (size_t i = dims.size(); i-- > 1;) {
        if (!can_fuse(plan, dims[i - 1], dims[i])) continue;
        fuse(plan, dims[i - 1], dims[i]);
        dims.erase(dims.begin() + static_cast<int64_t>(i) - 1);
    }
    for (size_t id = 0; id < plan.nodes.size(); ++id) {
        std::vector<int>& axes = plan.nodes[id].axes;
        for (size_t i = 0; i < axes.size(); ++i)
            for (size_t j = 0; j < axes.size(); ++j) {
                if (i == j || !can_fuse(plan, axes[i], axes[j])) continue;
                fuse(plan, axes[i], axes[j]);
                axes.erase(axes.begin() + static_cast<int64_t>(i));
                i = j = 0;
                if (axes.size() < 2) break;
            }
    }
}

}  // namespace tessera::strip
