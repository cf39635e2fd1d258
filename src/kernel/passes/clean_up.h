// Clean-up passes over the statements that lower() generates, in the order in which it runs them.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// Splits loops with the note "partition" into ranges, such that one range needs no guards.
void partition_loops(Kernel& kernel);

// Replaces loops of one iteration by their bodies, and removes loops without iterations.
void drop_unit_loops(Kernel& kernel);

// Removes conditions that always hold or are implied by an enclosing if.
void simplify_kernel(Kernel& kernel);

// Merges adjacent dimensions of a parameter if every access splits one index into them.
void merge_dimensions(Kernel& kernel);
void merge_dimension(Kernel& kernel, int slot, size_t d);  // merges d and d + 1 of a parameter without strides

// Moves buffers from Register to Local scope if their indices are not constant once unrolled and vector loops are
// expanded.
void place_registers(Kernel& kernel);

constexpr int64_t kSecondCache = 2;  // the level that `prefetch` prefetches to: L2

// Prefetches the row that the next iteration of a parallel loop reads, while this iteration computes functions of its
// own row.
void prefetch_rows(Kernel& kernel);
// The same for iterations that copy and multiply tiles.
void prefetch_steps(Kernel& kernel);

// Removes buffers that are not allocated anywhere.
void drop_unused_buffers(Kernel& kernel);

}  // namespace tessera
