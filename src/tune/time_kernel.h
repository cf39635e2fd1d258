// One kernel of a program alone, by the clock: on memory of its own, one thread, with its weights out of the nearer
// caches and what the kernel before it would have made in them. Equal kernels over equal sizes have equal keys.
#pragma once

#include <optional>

#include "kernel/from_graph/program.h"
#include "llvm/compile_kernels.h"

namespace tessera {

// Of what is timed, a kernel or a whole model: the most memory that it may compute in. A search has to fit in beside
// other work, and what takes more is seldom faster.
inline constexpr int64_t kMostTimedBytes = int64_t{1000} << 20;

struct KernelCall {
    Kernel kernel;
    std::vector<int64_t> symbols;  // of the kernel
    struct Argument {
        DType dtype;
        int64_t bytes;
        bool weight;  // it lies in memory since the model was loaded
    };
    std::vector<Argument> arguments;
};

// Nothing where a size is not known before the program runs.
std::optional<KernelCall> call_of(const Program& program, const KernelStep& step);

int64_t bytes_of(const KernelCall& call);  // of all arguments

// What its time depends on, in 32 hexadecimal digits: for a group of nodes, their bodies, attributes and sizes, and of
// constants the sizes.
std::string kernel_key(const KernelCall& call);

struct KernelTiming {
    double seconds = 0.02;  // of runs, at least, or kMostRuns of them
    double hopeless = 1e9;  // one run that takes longer is enough
};
// The least that a run took, in processor time.
std::optional<double> time_kernel(const CompiledKernel& code, const KernelCall& call, const KernelTiming& timing);

}  // namespace tessera
