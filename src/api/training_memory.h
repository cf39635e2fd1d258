// The tensors that a training updates. On the processor, steps update them where they lie. For a GPU they lie there,
// and are copied back when somebody asks for them: the next step reads these copies, which may have been written to,
// and each step reads and writes those that somebody still holds.
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
    // Around each run: what others wrote to copies that they hold goes to the GPU, and what the run made comes back.
    Status before_run();
    Status after_run();

    // Those from `first` up to `end` in the process's memory, with their values as they are now: to be read, or to be
    // lent to somebody who may write them.
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
