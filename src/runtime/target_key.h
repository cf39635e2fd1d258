// What machine code depends on besides its kernels, and what its speed depends on, as parts of a key (code_key).
#pragma once

#include <string>
#include <vector>

#include "llvm/compile_kernels.h"

namespace tessera {

// The actual processor, never "host", and the options. The target must exist.
std::vector<std::string> target_parts(const CodegenOptions& codegen);

// The same, and the caches and cores of the machine.
std::vector<std::string> machine_parts(const CodegenOptions& codegen);

}  // namespace tessera
