// In which order the dimensions of each definition lie in memory. What convolutions and pools make and read has its
// channels innermost, and so has what is computed from it element by element; a value that is only read transposed lies
// transposed. Inputs, outputs, constants and what host steps use keep ONNX's order.
#pragma once

#include "kernel/from_graph/definitions.h"
#include "kernel/from_graph/program.h"

namespace tessera {

struct Layouts {
    std::vector<std::vector<int>>
        order;  // by definition: dimension d in memory is its axis order[d]; never empty but for rank 0
    std::vector<Choice> choices;
};

Layouts choose_layouts(const Definitions& all, bool choose);

// Whether two orders of a shape are the same memory: they move nothing but dimensions of one element.
bool same_memory(const std::vector<Expr>& shape, const std::vector<int>& a, const std::vector<int>& b);

}  // namespace tessera
