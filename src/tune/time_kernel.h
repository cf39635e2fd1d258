// One kernel of a program alone, by the clock of the device that it runs on: on memory of its own, on the processor by
// one thread, with its weights out of the nearer caches and what the kernel before it would have made in them. Equal
// kernels over equal sizes have equal keys.
#pragma once

#include <optional>

#include "kernel/from_graph/program.h"
#include "runtime/devices/device.h"

namespace tessera {

// Of what is timed on the processor, a kernel or a whole model: the most memory that it may compute in. A search has to
// fit in beside other work, and what takes more is seldom faster.
inline constexpr int64_t kMostTimedBytes = int64_t{1000} << 20;
int64_t most_timed_bytes(const Device& device);  // the same of any: a part of a GPU's own memory

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

class KernelTimer {
  public:
    static Result<std::unique_ptr<KernelTimer>> make(Device& device);
    // The least that a run took. The code was loaded by the device. E0408, E0702.
    Result<double> seconds(const CompiledKernel& code, const KernelCall& call, const KernelTiming& timing);
    // After an error: E0702 where it was not about that kernel alone, and the device does nothing more.
    Status device_works();

  private:
    KernelTimer(Device& device, std::unique_ptr<Stream> stream) : device_(device), stream_(std::move(stream)) {}
    Result<double> least(const CompiledKernel& code, const KernelCall& call, const KernelTiming& timing);
    Status wake();
    Status leave_in_caches(const KernelCall& call, const std::vector<void*>& arguments);

    Device& device_;
    std::unique_ptr<Stream> stream_;
    std::shared_ptr<void> other_;  // that is touched between runs
    double last_ = 0;              // when it was last busy, by the wall's clock
};

}  // namespace tessera
