// Machine code of kernels, from the cache, or generated and stored there.
#pragma once

#include "llvm/compile_kernels.h"
#include "runtime/code_cache.h"

namespace tessera {

struct CachedCode {
    std::shared_ptr<CompiledModule> module;
    bool found = false;
    Status kept;  // not ok: why the code could not be kept
};
Result<CachedCode> cached_code(const std::vector<Kernel>& kernels, const CodegenOptions& codegen,
                               const CodeCache& cache);

}  // namespace tessera
