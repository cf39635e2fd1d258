// A model whose declared sizes a run contradicts: what the run shows wins.
#pragma once

#include "graph/graph.h"
#include "tessera/model.h"

namespace tessera {

bool contradicts_sizes(const Error& error);  // it says that declared sizes do not hold, or may follow from that
Warning warning_of_run(const Error& contradiction);

// Whether a run can contradict what the model was compiled by: a name on two sizes of inputs, or sizes as declared.
bool can_be_contradicted(const Model& model);
// Whether sizes that only a run knows can make a window of a pool larger than its input, which no formula here covers.
bool has_dynamic_pools(const Graph& graph);

// The graph with all sizes as inference finds them. A size of an input that these inputs contradict, or every open one
// with `all`, has a name of its own. An error where these inputs do not fit it either.
Result<std::shared_ptr<Graph>> relaxed(const Graph& graph, const NamedData& inputs, bool all);

// The graph for exactly the sizes of these inputs.
Result<std::shared_ptr<Graph>> for_sizes_of(const Graph& graph, const NamedData& inputs);

}  // namespace tessera
