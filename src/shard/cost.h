// What steps of a plan make a rank receive, and the seconds that a plan is estimated to take.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

int64_t moved_elements(const Placement& from, const Placement& to);  // that a rank receives, at most
// Of a combination over groups of `ranks` ranks: to a part of `from`, or to all of it in two steps.
int64_t combined_elements(const Placement& from, const Placement& to, int64_t ranks);
// The axes along which ranks receive elements.
std::vector<size_t> crossed_axes(const Placement& from, const Placement& to, const Mesh& mesh);

// Estimates: the longer of arithmetic and memory traffic; the latency of a collective and the bytes that a rank
// receives over the slowest axis.
double compute_seconds(double operations, double bytes, const Rates& rates);
double move_seconds(const Placement& from, const Placement& to, int64_t element_bytes, const Mesh& mesh,
                    const Rates& rates);
double combine_seconds(const Placement& from, const Placement& to, const std::vector<size_t>& axes,
                       int64_t element_bytes, const Mesh& mesh, const Rates& rates);

struct CollectiveCost {
    std::string kind, axes;
    int count = 0;
    int64_t bytes = 0;
    double seconds = 0;
};
struct PlanCost {
    double compute = 0, communicate = 0;      // seconds
    std::vector<CollectiveCost> collectives;  // by kind and axes, in the order of their names
    double seconds() const { return compute + communicate; }
};
double step_seconds(const Plan& plan, const PlanStep& step, const Rates& rates);
PlanCost cost_of(const Plan& plan, const Rates& rates);

}  // namespace tessera::shard
