// The examples that a model is trained on: .npy files whose first dimension counts them, in batches in a seeded order.
#pragma once

#include "command.h"

namespace tessera::cli {

class TrainingData {
  public:
    // "x.npy,y.npy" for the ports in order, or "NAME=FILE"; numbers become those that the port takes. E0501, E0110,
    // E0405.
    static Result<TrainingData> read(const std::string& files, const std::vector<Port>& ports);

    int64_t examples() const { return examples_; }
    // How many batches an epoch has; the last may be smaller unless the model's batch size is fixed.
    int64_t batches(int64_t size) const { return fixed_ ? examples_ / size : (examples_ + size - 1) / size; }
    // E0405 where the model takes another size.
    Status check_batch(int64_t size) const;
    // Examples of one epoch in their order; with no seed, as they stand in the files.
    std::vector<int64_t> order(std::optional<uint64_t> seed, int64_t epoch) const;
    Result<NamedData> batch(const std::vector<int64_t>& order, int64_t number, int64_t size) const;

  private:
    std::vector<std::pair<std::string, Tensor>> tensors_;
    int64_t examples_ = 0;
    std::optional<int64_t> fixed_;
};

}  // namespace tessera::cli
