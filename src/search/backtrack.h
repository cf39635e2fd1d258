// TASO's search: a queue of whole graphs, cheapest first. Every rule at every place of the cheapest gives further
// graphs; those that cost less than alpha times the best are kept, until the budget or the time is spent.
#pragma once

#include "search/search.h"

namespace tessera {

Search backtrack(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
                 const SearchOptions& options);

}  // namespace tessera
