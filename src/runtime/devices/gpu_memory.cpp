#include "runtime/devices/gpu_memory.h"

#include <algorithm>

#include "runtime/devices/cuda_device.h"
#include "runtime/devices/cuda_driver.h"

namespace tessera {
namespace {

constexpr unsigned kApartFromDefault = 1;  // of a stream: it does not wait for the default one

class GpuMemory : public shard::WireMemory {
  public:
    GpuMemory(const cuda::Driver& driver, Device& device) : driver_(driver), device_(device) {}
    ~GpuMemory() override {
        const auto inside = device_.enter();
        if (handle_) driver_.cuStreamDestroy(handle_);
    }
    Status open() {
        TRY(driver_.check(driver_.cuStreamCreate(&handle_, kApartFromDefault), "making a stream"));
        stream_ = TRY(device_.borrow_stream(handle_));
        return {};
    }

    Result<Tensor> allocate(DType dtype, const Sizes& sizes) override {
        const int64_t bytes = TRY(element_count(sizes)) * int64_t(dtype_bytes(dtype));
        auto memory = TRY(device_.allocate(std::max<int64_t>(bytes, 1)));
        const void* data = memory.get();
        return Tensor::view_on_gpu(device_.gpu(), dtype, sizes, data, std::move(memory));
    }
    Tensor part(const Tensor& all, int64_t first, int64_t elements) const override {
        const auto* from = static_cast<const char*>(all.data()) + first * int64_t(dtype_bytes(all.dtype()));
        return Tensor::view_on_gpu(device_.gpu(), all.dtype(), {elements}, from, all.owner());
    }
    Result<Tensor> upload(const Tensor& t) override {
        if (t.gpu() != kNoGpu) return t;
        Tensor there = TRY(allocate(t.dtype(), t.sizes()));
        if (t.bytes() > 0) TRY(stream_->copy_to_device(there.mutable_data(), t.data(), t.bytes()));
        TRY(stream_->synchronize());  // the source may be a part that nobody keeps
        return there;
    }
    Result<Tensor> download(const Tensor& t) override {
        if (t.gpu() == kNoGpu) return t;
        Tensor here = TRY(Tensor::zeros(t.dtype(), t.sizes()));
        if (t.bytes() > 0) TRY(stream_->copy_to_host(here.mutable_data(), t.data(), t.bytes()));
        TRY(stream_->synchronize());
        return here;
    }
    void* stream() const override { return handle_; }

  private:
    const cuda::Driver& driver_;
    Device& device_;
    cuda::Handle handle_ = nullptr;
    std::unique_ptr<Stream> stream_;
};

}  // namespace

Result<std::unique_ptr<shard::WireMemory>> gpu_memory(int gpu) {
    const cuda::Driver* driver = TRY(cuda::Driver::load());
    Device* device = TRY(cuda_device(gpu));
    const DeviceScope inside = TRY(device->enter());
    auto made = std::make_unique<GpuMemory>(*driver, *device);
    TRY(made->open());
    return std::unique_ptr<shard::WireMemory>(std::move(made));
}

Result<DeviceScope> enter_gpu(int gpu) { return TRY(cuda_device(gpu))->enter(); }

std::string gpu_target(int gpu) { return fmt::format("cuda:{}", gpu); }

std::optional<int> own_gpu(const std::string& target, int64_t local, int64_t local_ranks) {
    const auto number = cuda_number(target);
    if (!number || shard::nccl_version().empty()) return {};
    if (local_ranks == 1) return *number;
    const auto gpus = count_gpus();
    if (target.find(':') != std::string::npos || !gpus.ok() || *gpus < local_ranks) return {};
    return int(local);
}

}  // namespace tessera
