// Nodes once more over wider floats: what they compute is rounded less on the way.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tessera {

struct WiderFloats {
    std::vector<DType> from;
    DType to;
};
inline const WiderFloats kSinglesToDoubles{{DType::f32}, DType::f64};
inline const WiderFloats kHalvesToSingles{{DType::f16, DType::bf16}, DType::f32};

// Other types are unchanged.
Result<Tensor> widened(const Tensor& t, const WiderFloats& wider);
Type widened(const Type& type, const WiderFloats& wider);

// A copy of the node in `to`, of inputs that `map` has; its outputs are added there. Types that its attributes name are
// widened too. E0208 where the op has no such form, or graphs are nested in it.
Status add_widened(Graph& to, const Node& node, std::unordered_map<const Value*, Value*>& map,
                   const WiderFloats& wider);

}  // namespace tessera
