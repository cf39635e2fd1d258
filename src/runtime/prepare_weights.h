// The weights of a program as its kernels read them: what preparing fills, and constants that runs use directly. A
// constant that only preparing reads is let go of as soon as it has been read, unless it is to be kept.
#pragma once

#include "runtime/run_plan.h"

namespace tessera {

struct Weights {
    std::vector<void*> pointers;  // by root; null: its memory is not a weight's
    std::vector<std::shared_ptr<const void>> memory;
    int64_t bytes = 0;
};

// Runs the steps of `program.prepare`. Without `keep`, constants that no run reads go from the program and its graph.
Result<Weights> prepare_weights(Program& program, const ProgramLayout& layout, const CompiledModule& module,
                                Device& device, int threads, bool keep);

}  // namespace tessera
