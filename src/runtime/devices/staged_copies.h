// Copies of ordinary memory to a GPU, by way of memory that the GPU reads itself: threads fill one piece while others
// are copied. The driver alone copies at the rate of one thread.
#pragma once

#include <array>
#include <memory>

#include "runtime/devices/cuda_driver.h"
#include "runtime/devices/device.h"

namespace tessera {

// Of one stream, whose pieces are free again when the stream is past them.
class StagedCopies {
  public:
    StagedCopies(Device& device, const cuda::Driver& driver, cuda::Handle stream)
        : device_(device), driver_(driver), stream_(stream) {}
    ~StagedCopies();
    StagedCopies(const StagedCopies&) = delete;
    StagedCopies& operator=(const StagedCopies&) = delete;

    // Whether a copy gains by it: it is long, and the driver does not know the memory.
    bool takes(const void* from, int64_t bytes) const;
    // In the device's context. What is read has been read when it returns.
    Status copy(void* to, const void* from, int64_t bytes);

  private:
    struct Piece {
        std::shared_ptr<void> memory = nullptr;
        cuda::Handle copied = nullptr;  // an event
    };
    Result<Piece*> next_piece();

    Device& device_;
    const cuda::Driver& driver_;
    const cuda::Handle stream_;
    std::array<Piece, 4> pieces_ = {};
    size_t next_ = 0;
};

}  // namespace tessera
