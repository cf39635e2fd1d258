// Computes or kernels given as text, and the stages of compiling that come after them: `tessera compile` starts from
// either, so that one can be read, changed by hand, and compiled.
#pragma once

#include "api/stages.h"

namespace tessera {

inline constexpr std::string_view kComputeSuffix = ".tsc", kKernelSuffix = ".tsk";

struct TextStages {
    bool has_computes = false;         // it was computes that were given
    std::vector<KernelStages> stages;  // then
    std::vector<Kernel> kernels;
    CompileReport report;  // its decisions
    CodegenOptions codegen;

    // "compute" and "schedule" where computes were given; "kernel", "llvm", "asm". E0501: not reached from this text.
    Result<std::string> emit(std::string_view what) const;
};

// The suffix of the file says what is in it. E0301, E0302: it cannot be read; E0406, E0601: it breaks an invariant.
Result<TextStages> compile_text(const std::string& path, const CompileOptions& options);

}  // namespace tessera
