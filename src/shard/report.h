// What a plan is, in figures.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

struct ValuePart {
    const Value* value;
    int64_t bytes, rank_bytes;  // all of it; a rank's part by its sharding, at most
};
std::vector<ValuePart> value_parts(const Plan& plan);  // in the order of the graph: inputs, constants, results

bool is_collective(const Plan& plan, const PlanStep& step);
const Value* collected_value(const Plan& plan, const PlanStep& step);
std::vector<size_t> collective_axes(const Plan& plan, const PlanStep& step);  // along which ranks exchange elements

// Of the parts of constants that a rank keeps.
int64_t weight_bytes(const Plan& plan, int64_t rank);

}  // namespace tessera::shard
