// The few annotations from which propagation makes a plan that is as good as that of homes for all values.
#pragma once

#include "shard/search/search.h"

namespace tessera::shard {

using Judge = std::function<Result<Judged>(const Shardings&)>;
using IsAsGood = std::function<bool(const Judged&)>;

// Adds annotations to `given`, equal ones for values of equal places, until the plan is as good; then drops those that
// are not needed. Nothing where no annotations suffice.
Result<std::optional<Judged>> few_annotations(const Graph& graph, const std::vector<Unit>& units, const Mesh& mesh,
                                              const Shardings& given, const Shardings& homes, const Judge& judge,
                                              const IsAsGood& is_as_good);

}  // namespace tessera::shard
