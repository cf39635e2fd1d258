// What a kernel does to its parameters: which it reads, which it writes, and which output may take the memory of which
// input, because every element is read for the last time where the same element is written.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

struct KernelAccess {
    std::vector<bool> reads, writes;  // by parameter
    bool uses(size_t parameter) const { return reads[parameter] || writes[parameter]; }
};
KernelAccess kernel_access(const Kernel& kernel);

// Whether parameter `output` may lie where parameter `input` does, with these values of the kernel's symbols. Sound,
// not complete: each store to the output is of a different element, and all reads of the input are of the element
// stored.
bool may_overwrite(const Kernel& kernel, size_t input, size_t output, const SymbolValues& symbols);

}  // namespace tessera
