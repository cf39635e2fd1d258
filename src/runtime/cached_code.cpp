#include "runtime/cached_code.h"

#include "runtime/target_key.h"

namespace tessera {

Result<CachedCode> cached_code(const std::vector<Kernel>& kernels, const CodegenOptions& codegen,
                               const CodeCache& cache) {
    std::string key;
    if (cache.enabled()) {
        std::vector<std::string> parts = target_parts(codegen);
        for (const Kernel& kernel : kernels) parts.push_back(to_string(kernel));
        key = code_key(parts);
        if (auto object = cache.find(key)) {
            auto loaded = load_object(kernels, std::move(*object), codegen);
            if (loaded.ok()) return CachedCode{std::move(*loaded), true, {}};
            cache.drop(key);
        }
    }
    auto module = TRY(compile_kernels(kernels, codegen));
    Status kept = cache.enabled() ? cache.store(key, module->object()) : Status();
    return CachedCode{std::move(module), false, std::move(kept)};
}

}  // namespace tessera
