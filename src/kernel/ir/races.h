// Blocks and threads, as Bound loops make them: which loops they are, and that no two of them touch one element at the
// same time, one of them writing.
#pragma once

#include <set>

#include "kernel/ir/kernel.h"

namespace tessera {

bool is_block_axis(std::string_view axis);   // block.x, block.y, block.z
bool is_thread_axis(std::string_view axis);  // thread.x, ...
inline bool is_block_loop(const For& loop) { return loop.kind == LoopKind::Bound && is_block_axis(loop.axis); }
inline bool is_thread_loop(const For& loop) { return loop.kind == LoopKind::Bound && is_thread_axis(loop.axis); }
bool is_barrier(const Stmt& s);
bool has_barrier(const Stmt& s);

// A nest of loops over blocks, or over threads, that stand directly in one another; `first` is the outermost.
struct BoundNest {
    std::vector<const For*> loops;
    Stmt body;  // of the innermost
};
BoundNest bound_nest(const For& first);

std::set<int> written_buffers(const Stmt& s);  // by stores and calls

// Of a kernel that keeps all other rules. E0601 where two blocks, or two threads without a barrier between, may touch
// one element of global or shared memory and one of them writes.
// `global`: of global memory too.
Status check_races(const Kernel& kernel, bool global = true);

}  // namespace tessera
