// Runs one rank's program with collectives on buffers of its device: everything is enqueued on one stream, in order.
#pragma once

#include "runtime/collectives/nccl.h"

namespace tessera::shard {

// Memory that collectives read and write, and the stream of all work on it.
class WireMemory {
  public:
    virtual ~WireMemory() = default;
    virtual Result<Tensor> allocate(DType dtype, const Sizes& sizes) = 0;
    // `elements` of it from `first` on, as memory of their own.
    virtual Tensor part(const Tensor& all, int64_t first, int64_t elements) const = 0;
    virtual Result<Tensor> upload(const Tensor& t) = 0;
    virtual Result<Tensor> download(const Tensor& t) = 0;  // once all that was enqueued is done
    virtual void* stream() const = 0;
};
std::unique_ptr<WireMemory> host_memory();  // for a library that stands in for NCCL

// The outputs of segment number `stage`, enqueued on the stream, in the memory that `place` has for some of them.
using Place = std::function<Result<std::optional<Tensor>>(size_t output, DType dtype, const Sizes& sizes)>;
using RunPlaced =
    std::function<Result<std::vector<Datum>>(size_t stage, const std::vector<Datum>& inputs, const Place& place)>;

// The groups of ranks of the program's collectives, for NcclRank.
std::vector<std::vector<size_t>> groups_of(const LocalProgram& program);

// The graph's outputs in host memory, for all of its inputs in order.
Result<std::vector<Datum>> run_wires(const Plan& plan, const LocalProgram& program, const std::vector<Datum>& inputs,
                                     const NcclRank& nccl, WireMemory& memory, const RunPlaced& segment);

}  // namespace tessera::shard
