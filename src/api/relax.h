// A model whose declared sizes a run contradicts: what the run shows wins.
#pragma once

#include "graph/graph.h"
#include "tessera/model.h"

namespace tessera {

bool contradicts_sizes(const Error& error);  // declared sizes do not hold, or the error may be a consequence of that
Warning warning_of_run(const Error& contradiction);

// Whether a run can contradict what the model was compiled by: a name on two sizes of inputs, or sizes as declared.
bool can_be_contradicted(const Model& model);
// Whether sizes that only a run knows can make a window of a pool larger than its input, which no formula here covers.
bool has_dynamic_pools(const Graph& graph);

// The graph with inferred sizes only. An input size that these inputs contradict, or with `all` every dynamic one, gets
// a symbol of its own. An error if these inputs are invalid even then.
Result<std::shared_ptr<Graph>> relaxed(const Graph& graph, const NamedData& inputs, bool all);

// The graph for exactly the sizes of these inputs.
Result<std::shared_ptr<Graph>> for_sizes_of(const Graph& graph, const NamedData& inputs);

}  // namespace tessera
