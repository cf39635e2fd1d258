#include "api/training_memory.h"

#include <algorithm>
#include <cstring>

#include "backends/backend.h"
#include "base/numeric.h"

namespace tessera {
namespace {

void convert(const Tensor& from, Tensor& to) {
    constexpr int64_t kChunk = 4096;
    std::vector<double> values(static_cast<size_t>(kChunk));
    for (int64_t i = 0; i < from.elements(); i += kChunk) {
        const int64_t count = std::min(kChunk, from.elements() - i);
        read_reals(from.dtype(), from.data(), i, 1, count, values.data());
        write_reals(to.dtype(), to.mutable_data(), i, 1, count, values.data());
    }
}

}  // namespace

Result<TrainingMemory> TrainingMemory::make(std::vector<Tensor> tensors,
                                            const std::vector<std::optional<size_t>>& copy_of,
                                            std::string_view target) {
    TrainingMemory made;
    made.here_ = std::move(tensors);
    made.copy_.resize(made.size());
    for (size_t i = 0; i < copy_of.size(); ++i)
        if (copy_of[i]) made.copy_[*copy_of[i]] = i;
    Device* device = TRY(device_for(target));
    if (device->shares_memory()) return made;
    const DeviceScope inside = TRY(device->enter());
    made.device_ = device;
    made.stream_ = TRY(device->make_stream(0));
    made.stale_.resize(made.size());
    made.lent_.resize(made.size());
    for (size_t i = 0; i < made.here_.size(); ++i) {
        const Tensor& t = made.here_[i];
        auto memory = device->allocate(std::max<int64_t>(t.bytes(), 1));
        if (!memory.ok()) return needed_for(std::move(memory.error()), "the parameters and what the optimizer keeps");
        const void* data = memory->get();
        made.on_device_.push_back(Tensor::view_on_gpu(device->gpu(), t.dtype(), t.sizes(), data, std::move(*memory)));
    }
    for (size_t i = 0; i < made.size(); ++i) TRY(made.upload(i));
    TRY(made.stream_->synchronize());
    return made;
}

Status TrainingMemory::upload(size_t i) {
    const int64_t bytes = here_[i].bytes();
    if (bytes == 0) return {};
    TRY(stream_->copy_to_device(read_only(on_device_[i].data()), here_[i].data(), bytes));
    if (!copy_[i]) return {};
    convert(here_[i], here_[*copy_[i]]);
    return upload(*copy_[i]);
}

Status TrainingMemory::download(size_t i) {
    stale_[i] = false;
    const int64_t bytes = here_[i].bytes();
    if (bytes == 0) return {};
    return stream_->copy_to_host(read_only(here_[i].data()), on_device_[i].data(), bytes);
}

Status TrainingMemory::before_run() {
    if (!device_) return {};
    const DeviceScope inside = TRY(device_->enter());
    bool any = false;
    for (size_t i = 0; i < size(); ++i) {
        if (!shared(i)) continue;
        lent_[i] = false;
        TRY(upload(i));
        any = true;
    }
    return any ? stream_->synchronize() : Status();
}

Status TrainingMemory::after_run() {
    if (!device_) return {};
    const DeviceScope inside = TRY(device_->enter());
    bool any = false;
    for (size_t i = 0; i < size(); ++i) {
        stale_[i] = true;
        if (!shared(i)) continue;
        TRY(download(i));
        any = true;
    }
    return any ? stream_->synchronize() : Status();
}

Result<std::span<const Tensor>> TrainingMemory::read(size_t first, size_t end) {
    const auto range = std::span<const Tensor>(here_).subspan(first, end - first);
    if (!device_) return range;
    const DeviceScope inside = TRY(device_->enter());
    for (size_t i = first; i < end; ++i)
        if (stale_[i]) TRY(download(i));
    TRY(stream_->synchronize());
    return range;
}

Result<std::span<const Tensor>> TrainingMemory::lend(size_t first, size_t end) {
    if (device_) std::fill(lent_.begin() + long(first), lent_.begin() + long(end), true);
    return read(first, end);
}

Status TrainingMemory::set(size_t i, const Tensor& value) {
    if (value.bytes()) std::memcpy(read_only(here_[i].data()), value.data(), static_cast<size_t>(value.bytes()));
    if (!device_) return {};
    const DeviceScope inside = TRY(device_->enter());
    stale_[i] = false;
    TRY(upload(i));
    return stream_->synchronize();
}

}  // namespace tessera
