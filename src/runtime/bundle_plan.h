// A program of known sizes as a list of calls over given memory, for code that runs without this runtime.
#pragma once

#include "llvm/bundle_object.h"
#include "runtime/prepare_weights.h"

namespace tessera {

struct BundlePlan {
    std::vector<Kernel> kernels;            // that runs use; the entry's calls count in them
    BundleEntry entry;                      // but for its name and id
    std::vector<std::string_view> weights;  // one after the other, each on a multiple of 64 bytes
    Weights memory;                         // that they lie in
    int64_t arena_bytes = 0;
};

// Prepares the weights here, whatever machine the kernels are scheduled for. E0605: a node is left to the evaluator.
// `codegen`: of the bundle, whatever its target.
Result<BundlePlan> plan_bundle(Program& program, int threads, const CodegenOptions& codegen);

}  // namespace tessera
