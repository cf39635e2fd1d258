// What is computed element by element of an array that a program reads, or of one that it writes, taken into the
// program: the array itself is then no longer needed.
#pragma once

#include <functional>

#include "tile/program.h"

namespace tessera::tile {

// One of the arrays that an element is computed from, and which of its elements that takes.
struct MapOperand {
    enum class At : uint8_t {
        Own,   // of stores: what the program stores itself
        Same,  // the element at the same place
        One,   // the only one
        Part,  // of place p, that at p / inner % count
    } at = At::Same;
    DType dtype = DType::f32;
    Expr inner = 1, count = 1;  // over any symbols
};
struct ElementMap {
    Expr body;  // Load number i without indices is the element of operand i
    std::vector<MapOperand> operands;
};

// Whether it is 0 where the operands for which `zero` holds are. Says no where that is not plain.
bool gives_zero(const Expr& body, const std::function<bool(size_t operand)>& zero);

struct Absorbed {
    ProgramData program;
    // What the parameters are that were added behind the others: operands, pointers or single elements by their At; or
    // numbers (i64).
    struct Parameter {
        std::optional<size_t> operand;
        Expr number = 0;
    };
    std::vector<Parameter> added;
};

// Each load of the array at `parameter`, which has `elements`, is one of the first operand that is Same, whose array
// comes in its place, and of the others. What is loaded where a mask does not hold, or outside of the array, stays what
// it was.
Absorbed absorb_into_loads(const ProgramData& program, size_t parameter, const Expr& elements, const ElementMap& map);
// Each store into the array stores what `map` makes of it. The program must not read it.
Absorbed absorb_into_stores(const ProgramData& program, size_t parameter, const ElementMap& map);

}  // namespace tessera::tile
