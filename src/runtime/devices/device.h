// Where kernels run and their memory lies. What one stream is given happens in order; it may still be going on when the
// call returns, and is done after synchronize. A device and its streams outlive what was made by them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernel/backend/offload.h"
#include "llvm/compile_kernels.h"

namespace tessera {

struct LaunchExtents {
    int64_t x = 1, y = 1, z = 1;
};

// A parameter that the hardware copies tiles of (TileMap), its sizes known. Innermost first, strides in bytes.
struct BoundMap {
    int buffer = 0;
    DType dtype = DType::f16;
    std::vector<int64_t> sizes, strides, box;
    std::vector<int64_t> from = {}, to = {}, every = {};
};

// One launch of compiled code, its sizes known.
struct Launch {
    void* handle = nullptr;     // the code; on the CPU, a LaunchFunction
    LaunchExtents grid = {};    // blocks; on the CPU, x iterations of one loop
    LaunchExtents block = {};   // threads of each block; on the CPU, one
    int64_t local_bytes = 0;    // scratch: of each thread on the CPU, of all together on a GPU
    bool spread = false;        // over the threads of the CPU: it is worth waking them
    bool in_turn = false;       // a GPU's blocks, x of them, are taken in turn by as many as it runs at once
    int together = 1;           // neighbouring blocks of a GPU that reach each other's shared memory
    bool begins_early = false;  // on a GPU, while launches before it run: its code waits for them
    int64_t shared_bytes = 0;
    std::vector<BoundMap> maps = {};
    mutable RangeTime time = {};  // on one thread of the CPU, as measured
};

// The caller keeps the pointees alive until the launch call returns.
struct LaunchArguments {
    std::span<void* const> buffers;    // one for each parameter of the kernel
    std::span<const int64_t> symbols;  // of the kernel, in its order
};

// As an argument that kernels only read.
inline void* read_only(const void* data) { return const_cast<void*>(data); }

// A point in the work of a stream.
class Event {
  public:
    virtual ~Event() = default;
    virtual Status wait() const = 0;  // the caller, until all before it is done
    // By the device's clock, of two that were recorded as timed by one stream, this one being done.
    virtual Result<double> seconds_since(const Event& earlier) const = 0;
};

// What was captured, to be replayed on any stream of its device.
class Recording {
  public:
    virtual ~Recording() = default;
};

// One caller's launches and copies, in order. Used by one thread at a time.
class Stream {
  public:
    virtual ~Stream() = default;

    // Room for launches of up to so many local bytes. Launching itself allocates nothing.
    virtual Status reserve(int64_t local_bytes) = 0;
    virtual Status launch(const Launch& launch, const LaunchArguments& arguments) = 0;
    virtual Status copy_to_device(void* to, const void* from, int64_t bytes) = 0;
    virtual Status copy_to_host(void* to, const void* from, int64_t bytes) = 0;
    virtual Status copy_on_device(void* to, const void* from, int64_t bytes) = 0;
    // Reads it, so that it is in the caches as far as they hold it, and what they held before is not.
    virtual Status touch(const void* memory, int64_t bytes) = 0;

    virtual Result<std::shared_ptr<const Event>> record(bool timed = false) = 0;
    virtual Status record(const Event& again) = 0;  // which is a point of this stream's from here on
    virtual Status wait(const Event& event) = 0;    // what follows waits for it, the caller does not
    // Waits until all is done, and gives back what only work in progress needs.
    virtual Status synchronize() = 0;

    // Whether the stream's owner is capturing it.
    virtual Result<bool> captured_by_others() const { return false; }
    virtual bool captures() const { return false; }  // whether replaying saves time
    // What is launched and copied in between is taken down, arguments by value, and does not happen.
    virtual Status begin_capture() = 0;
    // While it captures: what comes next follows these of the launches that were captured, and may run beside others.
    virtual Status follow(const std::vector<size_t>&) { return {}; }
    virtual Result<std::unique_ptr<Recording>> end_capture() = 0;
    virtual Status replay(const Recording& recording) = 0;
    // Of what this stream captured, launch `i` has these arguments in replays from here on.
    virtual Status update(Recording& recording, size_t i, const Launch& launch, const LaunchArguments& arguments) = 0;
};

// Of what a device has between its memory and one launch.
struct DeviceCaches {
    int64_t all = int64_t{6} << 20;   // bytes: to touch so many leaves nothing of what was there
    int64_t near = int64_t{1} << 20;  // bytes of one launch's results that are still cached for the next
};

class Device;

// While it lives, what the thread asks the driver for is the device's; then whose it was before.
class DeviceScope {
  public:
    DeviceScope() = default;
    DeviceScope(const Device& device, void* before) : device_(&device), before_(before) {}
    DeviceScope(DeviceScope&& other) noexcept
        : device_(std::exchange(other.device_, nullptr)), before_(other.before_) {}
    ~DeviceScope();

  private:
    const Device* device_ = nullptr;  // null: there is nothing to leave
    void* before_ = nullptr;
};

// Shared by all threads.
class Device {
  public:
    virtual ~Device() = default;
    // Each call of a device and its streams is inside by itself; several together are, at less cost, where the caller
    // is.
    virtual Result<DeviceScope> enter() const { return DeviceScope(); }
    virtual std::string_view name() const = 0;
    virtual std::string version() const { return {}; }  // of its driver
    virtual DeviceCaches caches() const { return {}; }
    // Free bytes of device memory; nothing for the host.
    virtual std::optional<int64_t> room() const { return {}; }
    virtual std::string_view target() const { return "host"; }  // that code is generated for
    // Whether kernels access host memory, so that tensors are used in place.
    virtual bool shares_memory() const { return true; }
    virtual int gpu() const { return kNoGpu; }  // its number, as tensors have it
    // Zeroed, aligned to kBlockAlignment, counted against the memory limit until it is let go of. Over the limit:
    // E0408.
    virtual Result<std::shared_ptr<void>> allocate(int64_t bytes) = 0;
    // Of the process, that copies to and from the device are fastest with. Not zeroed.
    virtual Result<std::shared_ptr<void>> allocate_for_copies(int64_t bytes) { return allocate(bytes); }
    // Code that can be launched here: as it is, or loaded.
    virtual Result<std::shared_ptr<CompiledModule>> load(std::shared_ptr<CompiledModule> module) { return module; }
    // Code that its back end made of a part of a graph, for Launch::handle. E0701: it runs no such code.
    virtual Result<std::shared_ptr<void>> load_code(std::shared_ptr<const DeviceCode> code);
    // `threads`: of the CPU, at most; 0: as many as the pool has.
    virtual Result<std::unique_ptr<Stream>> make_stream(int threads) = 0;
    // Wraps a driver stream that the caller owns; null: the device's default stream.
    virtual Result<std::unique_ptr<Stream>> borrow_stream(void* handle);

  private:
    friend class DeviceScope;
    virtual void leave(void* before) const { (void)before; }
};

inline DeviceScope::~DeviceScope() {
    if (device_) device_->leave(before_);
}

std::string shown_bytes(int64_t bytes);  // "1.5 GB"
std::string shown_place(int gpu);        // "GPU 1", or "the CPU"

// Where memory ran out: what it was for.
template <typename... Args>
Error needed_for(Error error, fmt::format_string<Args...> what, Args&&... args) {
    if (error.code() != Code::E0408 || !error.note().empty()) return error;
    return std::move(error).note("the memory is for {}", fmt::format(what, std::forward<Args>(args)...));
}

// Device memory that grows on demand; growing discards the contents.
class Arena {
  public:
    explicit Arena(Device& device) : device_(&device) {}
    Status reserve(int64_t bytes);
    char* data() const { return static_cast<char*>(memory_.get()); }
    int64_t bytes() const { return bytes_; }

  private:
    Device* device_;
    std::shared_ptr<void> memory_;
    int64_t bytes_ = 0;
};

}  // namespace tessera
