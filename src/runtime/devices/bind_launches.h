// The launches of a compiled kernel for the sizes of one call; every execution path uses it.
#pragma once

#include "llvm/compile_kernels.h"
#include "runtime/devices/device.h"

namespace tessera {

// `symbols`: values of the kernel's. E0108 where a range or the scratch of a launch does not follow from them.
Result<std::vector<Launch>> bind_launches(const CompiledKernel& kernel, const SymbolValues& symbols);

int64_t most_local_bytes(const std::vector<Launch>& launches);

}  // namespace tessera
