// The tensors that a training step updates. On the CPU, steps update them in place. On a GPU they are device arrays,
// copied to the host on request. As long as a caller holds such a copy, each step reads its contents before the update
// and writes it afterwards.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/devices/device.h"
#include "tessera/tensor.h"

namespace tessera {

class TrainingMemory {
  public:
    TrainingMemory() = default;
    // `target`: as CompileOptions has it. `copy_of`: by tensor, the one that it is a copy of in another float type,
    // made here whenever that one is given a value here.
    static Result<TrainingMemory> make(std::vector<Tensor> tensors, const std::vector<std::optional<size_t>>& copy_of,
                                       std::string_view target);

    // Where a step reads and writes tensor `i`.
    const Tensor& placed(size_t i) const { return device_ ? on_device_[i] : here_[i]; }
    // Around each run: uploads copies that callers hold and may have written to; afterwards, refreshes those copies.
    Status before_run();
    Status after_run();

    // Tensors `first` to `end` in host memory, with their current values: to read, or to lend to a caller that may
    // write them.
    Result<std::span<const Tensor>> read(size_t first, size_t end);
    Result<std::span<const Tensor>> lend(size_t first, size_t end);
    size_t size() const { return here_.size(); }
    // The value of tensor `i`, whose type and sizes it has.
    Status set(size_t i, const Tensor& value);

  private:
    bool shared(size_t i) const { return lent_[i] || here_[i].owner().use_count() > 1; }
    Status upload(size_t i);
    Status download(size_t i);

    std::vector<Tensor> here_, on_device_;
    std::vector<std::optional<size_t>> copy_;  // by tensor
    std::vector<bool> stale_;                  // here, since a run changed it on the GPU
    std::vector<bool> lent_;                   // since the last run
    Device* device_ = nullptr;                 // null: tensors stay here
    std::unique_ptr<Stream> stream_;
};

}  // namespace tessera
