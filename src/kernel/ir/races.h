// Thread blocks and threads of Bound loops: identifies their loops, and checks that no two of them race, that is,
// access one element concurrently while one of them writes.
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

// A perfect nest of block loops, or of thread loops; `first` is the outermost.
struct BoundNest {
    std::vector<const For*> loops;
    Stmt body;  // of the innermost
};
BoundNest bound_nest(const For& first);

std::set<int> written_buffers(const Stmt& s);  // by stores and calls

// For a kernel that satisfies all other invariants. E0601 if two blocks, or two threads without a barrier in between,
// may access one element of global or shared memory while one of them writes.
// `global`: check global memory too.
Status check_races(const Kernel& kernel, bool global = true);

}  // namespace tessera
