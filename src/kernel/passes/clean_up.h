// Small passes over the statements that lower() has made, in the order it runs them.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// Rounds that need no guard apart from those that do, for the loops that say "partition".
void partition_loops(Kernel& kernel);

// A loop that runs once is its body; one that never runs is gone.
void drop_unit_loops(Kernel& kernel);

// Conditions that always hold, or are known from an if around them, are gone.
void simplify_kernel(Kernel& kernel);

// Neighbouring dimensions of a parameter that every access splits one index for are one dimension.
void merge_dimensions(Kernel& kernel);
void merge_dimension(Kernel& kernel, int slot, size_t d);  // d and d + 1 of a parameter without strides, in any case

// A buffer that was to be in registers, and is indexed by more than constants once loops are expanded, is in local
// memory.
void place_registers(Kernel& kernel);

constexpr int64_t kSecondCache = 2;  // where `prefetch` brings things

// What the next iteration of a parallel loop reads, a row, comes into the cache while functions of this one are
// computed.
void prefetch_rows(Kernel& kernel);
// The same for iterations that copy tiles and multiply them.
void prefetch_steps(Kernel& kernel);

// What is allocated nowhere any more is no buffer of the kernel.
void drop_unused_buffers(Kernel& kernel);

}  // namespace tessera
