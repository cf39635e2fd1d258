// How an op runs a tile program: what its parameters are, and over which grid.
#pragma once

#include <array>

#include "tile/places.h"

namespace tessera {

struct TileCall {
    struct Argument {
        enum class As : uint8_t { Input, Output, Size } as = As::Input;
        size_t index = 0;       // of the op's inputs or outputs
        Expr size = 0;          // of a Size: over the graph's symbols, at least 0
        std::string text = {};  // as the op has it
    };
    tile::Program program;            // its pointers each point into one array; it stores into outputs only
    std::vector<Argument> arguments;  // of each parameter. A parameter that is no pointer and no Size is one element
    std::array<Expr, 3> grid;         // at least 0
    std::vector<int64_t> initial;     // of each output, the input that it begins as; -1: zeros
    int warps = 4;                    // of a block, on a GPU
    bool trusted = false;             // written by the compiler: it keeps to its arrays, and stores each element

    // The whole numbers that the program is given.
    tile::Given given() const {
        tile::Given made{{}, grid};
        for (const Argument& a : arguments)
            made.numbers.push_back(a.as == Argument::As::Size ? std::optional(a.size) : std::nullopt);
        return made;
    }
};

}  // namespace tessera
