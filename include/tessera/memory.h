// The process-wide memory budget for tensors.
#pragma once

#include <cstdint>

namespace tessera {

// The maximum number of bytes of all live tensors together; by default three quarters of the machine's memory.
// Allocations beyond it fail with E0408.
void set_memory_limit(int64_t bytes);
int64_t memory_limit();
int64_t memory_in_use();

}  // namespace tessera
