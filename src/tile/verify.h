// What a tile program that nobody's builder has made must keep to; builders do so by themselves.
#pragma once

#include "tile/program.h"

namespace tessera::tile {

constexpr int64_t kMostElements = 1 << 20;  // of one tile
constexpr int kDeepestRegion = 64;          // inside of others
// How often a loop of a program that nobody vouches for runs at most.
constexpr int64_t kMostTrips = int64_t{1} << 31;

// E0601 where a program breaks one of these:
// - each value is given once, and used after that, in the region that gives it or in one inside;
// - an instruction has the inputs, outputs, numbers, word, body and regions of its kind, and their types fit;
// - a tile has at least one and at most kMostElements elements;
// - a body reads elements of the instruction's inputs and nothing else.
Status verify(const ProgramData& program);

// For each value that is a pointer, the parameter into whose array it points, by its place; -1 for others. E0601 where
// that is not one and the same whatever the program does: it was made of a number, or chosen among arrays.
Result<std::vector<int>> arrays_of_pointers(const ProgramData& program);

// The types of a region's arguments, which follow from what its instruction is given.
std::vector<Type> region_arguments(const Instruction& i, size_t region, const std::vector<Type>& types);

}  // namespace tessera::tile
