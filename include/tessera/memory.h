// One budget for the memory of tensors, for the whole process.
#pragma once

#include <cstdint>

namespace tessera {

// The most bytes that live tensors may take together; at first, three quarters of the machine's memory. What would go
// over it is an error, E0408.
void set_memory_limit(int64_t bytes);
int64_t memory_limit();
int64_t memory_in_use();

}  // namespace tessera
