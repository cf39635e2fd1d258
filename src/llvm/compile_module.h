// Some kernels as one LLVM module: emitted, optimized, and written out as text or machine code.
#pragma once

#include "llvm/emitter.h"

namespace tessera::codegen {

struct PlannedKernel {
    const Kernel* kernel;
    std::vector<LaunchPlan> launches;
    std::vector<std::string> symbols;  // one a launch
};
// Symbols of kernels with equal names differ by the kernel's index in the list.
Result<std::vector<PlannedKernel>> plan_kernels(const std::vector<Kernel>& kernels, const Machine& machine = {});

enum class Form { Object, Assembly, Text };
// `add` may put more into the module before it is optimized.
Result<std::string> compile_module(std::span<const PlannedKernel> kernels, const Target& target,
                                   const CodegenOptions& options, Form form,
                                   const std::function<void(llvm::Module&)>& add = {});

}  // namespace tessera::codegen
