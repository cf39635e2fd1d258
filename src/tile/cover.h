// Whether a program stores every element of an array.
#pragma once

#include "tile/places.h"

namespace tessera::tile {

// Whether a program loads from an array, or updates it.
bool reads(const ProgramData& program, size_t parameter);

// A condition over the symbols of what is given, under which each of the array's `elements` is stored, at least once,
// and what was there before matters to nobody; nothing where none is found. It looks at stores outside of branches and
// loops whose places are sums of indices times numbers: rows, columns, blocks, with masks that end them. Numbers are
// taken to be computed in 64 bits, as kernels do.
std::optional<Expr> covers(const ProgramData& program, size_t parameter, const Given& given, const Expr& elements);

}  // namespace tessera::tile
