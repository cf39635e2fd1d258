#include "runtime/devices/cuda_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/memory.h"
#include "base/usable_cores.h"
#include "llvm/compile_kernels.h"
#include "runtime/devices/cuda_driver.h"
#include "runtime/devices/cuda_tiles.h"
#include "runtime/devices/staged_copies.h"
#include "tessera/devices.h"

namespace tessera {
namespace {

using cuda::Driver;
using cuda::Handle;
using cuda::Pointer;

constexpr int kMajorVersion = 75, kMinorVersion = 76;   // attributes of a device
constexpr int kMultiprocessors = 16, kCacheBytes = 38;  // the same
constexpr int kSharedBytes = 97;                        // the same: of one block, at most
constexpr int kDeviceNumber = 9;                        // attribute of a pointer
constexpr int kMostShared = 8;                          // attribute of a function: bytes that come with a launch
constexpr int kErrorLog = 5, kErrorLogBytes = 6;        // options of loading a module
constexpr int kTogether = 4, kBeginsEarly = 6;          // attributes of a launch
constexpr int kBeginsEarlyIn = 12030;                   // drivers from here on take it in graphs too
constexpr unsigned kNonBlocking = 1, kNoTiming = 2;
constexpr int64_t kSlack = 256;  // bytes after the last: a kernel may read, and not use, the first of an empty buffer
constexpr int kRelaxed = 2;      // of capturing: other threads may do what they like
constexpr unsigned kInsteadOfOthers = 1;  // of what is captured next: it follows these

constexpr const char* kElsewhere = "target host runs on the CPU";

Pointer address(const void* memory) { return reinterpret_cast<Pointer>(memory); }

class CudaDevice : public Device {
  public:
    CudaDevice(const Driver& driver, int number, Handle context, std::string name, std::string target,
               int multiprocessors, int64_t cache_bytes)
        : driver_(driver),
          number_(number),
          context_(context),
          name_(std::move(name)),
          target_(std::move(target)),
          multiprocessors_(multiprocessors),
          cache_bytes_(cache_bytes) {}

    // Calls of the driver are about the context of the thread that makes them. It mostly is the one already.
    Result<DeviceScope> enter() const override {
        Handle before = nullptr;
        if (driver_.cuCtxGetCurrent(&before) == 0 && before == context_) return DeviceScope();
        TRY(driver_.check(driver_.cuCtxSetCurrent(context_), "entering its context"));
        return DeviceScope(*this, before);
    }
    std::string_view name() const override { return name_; }
    std::string version() const override { return fmt::format("CUDA {}", driver_.version); }
    DeviceCaches caches() const override { return {cache_bytes_, cache_bytes_ / 2}; }
    std::optional<int64_t> room() const override {
        size_t free = 0, total = 0;
        const auto inside = enter();
        if (!inside.ok() || driver_.cuMemGetInfo(&free, &total)) return 0;
        return static_cast<int64_t>(free);
    }
    std::string_view target() const override { return target_; }
    bool shares_memory() const override { return false; }
    int gpu() const override { return number_; }
    Result<std::shared_ptr<void>> allocate(int64_t bytes) override;
    Result<std::shared_ptr<void>> allocate_for_copies(int64_t bytes) override;
    Result<std::unique_ptr<Stream>> make_stream(int threads) override;
    Result<std::unique_ptr<Stream>> borrow_stream(void* handle) override;
    Result<std::shared_ptr<CompiledModule>> load(std::shared_ptr<CompiledModule> module) override;

    const Driver& driver() const { return driver_; }
    int64_t multiprocessors() const { return multiprocessors_; }

  private:
    void leave(void* before) const override { driver_.cuCtxSetCurrent(before); }
    Result<Handle> assemble(std::string_view text) const;

    const Driver& driver_;
    const int number_;
    Handle context_;
    std::string name_, target_;
    int64_t multiprocessors_, cache_bytes_;
};

class CudaEvent : public Event {
  public:
    CudaEvent(const CudaDevice& device, Handle event) : device_(device), driver_(device.driver()), event_(event) {}
    ~CudaEvent() override {
        const auto inside = device_.enter();
        driver_.cuEventDestroy(event_);
    }
    Status wait() const override {
        const DeviceScope inside = TRY(device_.enter());
        return driver_.check(driver_.cuEventSynchronize(event_), "waiting for an event");
    }
    Result<double> seconds_since(const Event& earlier) const override {
        const auto* own = dynamic_cast<const CudaEvent*>(&earlier);
        CHECK(own && &own->device_ == &device_, "an event of another device");
        const DeviceScope inside = TRY(device_.enter());
        float milliseconds = 0;
        TRY(driver_.check(driver_.cuEventElapsedTime(&milliseconds, own->event_, event_), "reading its clock"));
        return 1e-3 * static_cast<double>(milliseconds);
    }
    Handle handle() const { return event_; }

  private:
    const CudaDevice& device_;
    const Driver& driver_;
    Handle event_;
};

class CudaRecording : public Recording {
  public:
    CudaRecording(const CudaDevice& device, Handle graph, Handle ready, std::vector<Handle> nodes)
        : device_(device), driver_(device.driver()), graph_(graph), ready_(ready), nodes_(std::move(nodes)) {}
    ~CudaRecording() override {
        const auto inside = device_.enter();
        driver_.cuGraphExecDestroy(ready_);
        driver_.cuGraphDestroy(graph_);
    }
    Handle handle() const { return ready_; }
    Handle node(size_t launch) const { return nodes_[launch]; }

  private:
    const CudaDevice& device_;
    const Driver& driver_;
    Handle graph_, ready_;       // as captured, which keeps the nodes; and as it is launched
    std::vector<Handle> nodes_;  // by launch; null where it has no blocks, or none is known
};

// PTX, assembled by the driver.
class CudaModule : public CompiledModule {
  public:
    CudaModule(const CudaDevice& device, std::shared_ptr<CompiledModule> assembly, std::vector<Handle> modules)
        : device_(device), assembly_(std::move(assembly)), modules_(std::move(modules)) {}
    ~CudaModule() override {
        const auto inside = device_.enter();
        for (Handle m : modules_) device_.driver().cuModuleUnload(m);
    }
    const std::string& object() const override { return assembly_->object(); }
    void take(std::vector<CompiledKernel> kernels) { kernels_ = std::move(kernels); }

  private:
    const CudaDevice& device_;
    std::shared_ptr<CompiledModule> assembly_;
    std::vector<Handle> modules_;
};

class CudaStream : public Stream {
  public:
    CudaStream(CudaDevice& device, Handle stream, bool borrowed = false)
        : device_(device),
          driver_(device.driver()),
          stream_(stream),
          borrowed_(borrowed),
          scratch_(device),
          touched_(device),
          staged_(device, driver_, stream) {}
    ~CudaStream() override {
        if (borrowed_) return;
        const auto inside = device_.enter();
        driver_.cuStreamDestroy(stream_);
    }

    Status reserve(int64_t local_bytes) override { return scratch_.reserve(local_bytes); }

    Status launch(const Launch& launch, const LaunchArguments& arguments) override {
        const DeviceScope inside = TRY(device_.enter());
        if (is_empty(launch)) {
            if (capturing_) nodes_.push_back(nullptr);
            return {};
        }
        TRY(gather(launch, arguments));
        cuda::LaunchAttribute attributes[2];
        unsigned count = 0;
        if (launch.begins_early) attributes[count++] = {.id = kBeginsEarly, .value = {1}};
        if (launch.together > 1) attributes[count++] = {.id = kTogether, .value = {launch.together, 1, 1}};
        const cuda::KernelNode node = node_of(launch);
        const cuda::LaunchConfig config{{node.grid[0], node.grid[1], node.grid[2]},
                                        {node.block[0], node.block[1], node.block[2]},
                                        node.shared,
                                        stream_,
                                        attributes,
                                        count};
        TRY(driver_.check(driver_.cuLaunchKernelEx(&config, launch.handle, values_.data(), nullptr),
                          "launching a kernel"));
        if (capturing_) nodes_.push_back(last_node());
        return {};
    }

    Status copy_to_device(void* to, const void* from, int64_t bytes) override {
        if (bytes <= 0) return {};
        const DeviceScope inside = TRY(device_.enter());
        if (!capturing_ && !borrowed_ && staged_.takes(from, bytes)) return staged_.copy(to, from, bytes);
        return driver_.check(driver_.cuMemcpyHtoDAsync(address(to), from, static_cast<size_t>(bytes), stream_),
                             "copying to its memory");
    }
    Status copy_to_host(void* to, const void* from, int64_t bytes) override {
        if (bytes <= 0) return {};
        const DeviceScope inside = TRY(device_.enter());
        return driver_.check(driver_.cuMemcpyDtoHAsync(to, address(from), static_cast<size_t>(bytes), stream_),
                             "copying from its memory");
    }
    Status copy_on_device(void* to, const void* from, int64_t bytes) override {
        if (bytes <= 0) return {};
        const DeviceScope inside = TRY(device_.enter());
        return driver_.check(driver_.cuMemcpyDtoDAsync(address(to), address(from), static_cast<size_t>(bytes), stream_),
                             "copying in its memory");
    }

    Status touch(const void* memory, int64_t bytes) override {
        TRY(touched_.reserve(bytes));
        return copy_on_device(touched_.data(), memory, bytes);
    }

    Result<std::shared_ptr<const Event>> record(bool timed) override {
        const DeviceScope inside = TRY(device_.enter());
        Handle event = nullptr;
        TRY(driver_.check(driver_.cuEventCreate(&event, timed ? 0 : kNoTiming), "making an event"));
        auto made = std::make_shared<const CudaEvent>(device_, event);
        TRY(driver_.check(driver_.cuEventRecord(event, stream_), "recording an event"));
        return std::shared_ptr<const Event>(std::move(made));
    }
    Status record(const Event& again) override {
        const DeviceScope inside = TRY(device_.enter());
        const auto* own = dynamic_cast<const CudaEvent*>(&again);
        CHECK(own, "an event of another device");
        return driver_.check(driver_.cuEventRecord(own->handle(), stream_), "recording an event");
    }
    Status wait(const Event& event) override {
        const auto* own = dynamic_cast<const CudaEvent*>(&event);
        if (!own) return event.wait();
        const DeviceScope inside = TRY(device_.enter());
        return driver_.check(driver_.cuStreamWaitEvent(stream_, own->handle(), 0), "waiting for an event");
    }
    Status synchronize() override {
        const DeviceScope inside = TRY(device_.enter());
        return driver_.check(driver_.cuStreamSynchronize(stream_), "running its kernels");
    }

    Result<bool> captured_by_others() const override {
        if (!borrowed_) return false;
        const DeviceScope inside = TRY(device_.enter());
        int status = 0;
        TRY(driver_.check(driver_.cuStreamIsCapturing(stream_, &status), "asking for a stream"));
        return status != 0;
    }
    bool captures() const override { return true; }
    Status begin_capture() override {
        const DeviceScope inside = TRY(device_.enter());
        TRY(driver_.check(driver_.cuStreamBeginCapture(stream_, kRelaxed), "beginning to capture"));
        capturing_ = true;
        nodes_.clear();
        return {};
    }
    Status follow(const std::vector<size_t>& launches) override {
        const DeviceScope inside = TRY(device_.enter());
        std::vector<Handle> nodes;
        for (size_t l : launches) {
            if (!nodes_[l]) return no_node(l);
            nodes.push_back(nodes_[l]);
        }
        return driver_.check(
            driver_.cuStreamUpdateCaptureDependencies(stream_, nodes.data(), nodes.size(), kInsteadOfOthers),
            "capturing");
    }
    Result<std::unique_ptr<Recording>> end_capture() override {
        const DeviceScope inside = TRY(device_.enter());
        Handle graph = nullptr, ready = nullptr;
        capturing_ = false;
        TRY(driver_.check(driver_.cuStreamEndCapture(stream_, &graph), "capturing"));
        const int made = driver_.cuGraphInstantiateWithFlags(&ready, graph, 0);
        if (made != 0) driver_.cuGraphDestroy(graph);
        TRY(driver_.check(made, "making a graph"));
        return std::unique_ptr<Recording>(new CudaRecording(device_, graph, ready, std::move(nodes_)));
    }
    Status replay(const Recording& recording) override {
        const DeviceScope inside = TRY(device_.enter());
        const auto* own = dynamic_cast<const CudaRecording*>(&recording);
        CHECK(own, "a recording of another device");
        return driver_.check(driver_.cuGraphLaunch(own->handle(), stream_), "launching a graph");
    }
    Status update(Recording& recording, size_t i, const Launch& launch, const LaunchArguments& arguments) override {
        const DeviceScope inside = TRY(device_.enter());
        const auto* own = dynamic_cast<const CudaRecording*>(&recording);
        CHECK(own, "a recording of another device");
        if (is_empty(launch)) return {};
        if (!own->node(i)) return no_node(i);
        TRY(gather(launch, arguments));
        const cuda::KernelNode node = node_of(launch);
        return driver_.check(driver_.cuGraphExecKernelNodeSetParams(own->handle(), own->node(i), &node),
                             "changing what a graph launches");
    }

  private:
    static Error no_node(size_t launch) {
        return Error(Code::E0702, "the GPU's driver has no node of a graph for launch {}", launch);
    }
    static bool is_empty(const Launch& l) { return l.grid.x <= 0 || l.grid.y <= 0 || l.grid.z <= 0; }

    // What a kernel is given, to where values_ point.
    Status gather(const Launch& launch, const LaunchArguments& arguments) {
        scratch_at_ = address(scratch_.data());
        values_.clear();
        for (void* const& b : arguments.buffers) values_.push_back(const_cast<void**>(&b));
        for (const int64_t& s : arguments.symbols) values_.push_back(const_cast<int64_t*>(&s));
        values_.push_back(&scratch_at_);
        maps_.resize(launch.maps.size());
        for (size_t i = 0; i < maps_.size(); ++i) {
            const BoundMap& map = launch.maps[i];
            TRY(describe_tiles(driver_, map, arguments.buffers[static_cast<size_t>(map.buffer)], maps_[i]));
            values_.push_back(&maps_[i]);
        }
        return {};
    }
    cuda::KernelNode node_of(const Launch& launch) {
        const int64_t at_once = device_.multiprocessors() / launch.together * launch.together;
        const int64_t blocks = launch.in_turn ? std::min(launch.grid.x, at_once) : launch.grid.x;
        auto count = [](int64_t n) { return static_cast<unsigned>(n); };
        return {launch.handle,
                {count(blocks), count(launch.grid.y), count(launch.grid.z)},
                {count(launch.block.x), count(launch.block.y), count(launch.block.z)},
                count(launch.shared_bytes),
                values_.data(),
                nullptr,
                nullptr,
                nullptr};
    }
    // What was captured last; null where the driver does not say.
    Handle last_node() const {
        int status = 0;
        uint64_t id = 0;
        Handle graph = nullptr;
        const Handle* nodes = nullptr;
        size_t count = 0;
        const int asked = driver_.cuStreamGetCaptureInfo(stream_, &status, &id, &graph, &nodes, &count);
        return asked == 0 && count == 1 ? nodes[0] : nullptr;
    }

    CudaDevice& device_;
    const Driver& driver_;
    Handle stream_;
    const bool borrowed_;
    Arena scratch_, touched_;
    StagedCopies staged_;
    bool capturing_ = false;
    std::vector<Handle> nodes_;  // that were captured, by launch
    std::vector<void*> values_;  // of the launch in progress
    Pointer scratch_at_ = 0;     // the same
    std::vector<TileDescription> maps_;
};

Result<std::shared_ptr<void>> CudaDevice::allocate(int64_t bytes) {
    const DeviceScope inside = TRY(enter());
    Pointer made = 0;
    const auto size = static_cast<size_t>(bytes + kSlack);
    if (const int result = driver_.cuMemAlloc(&made, size); result == cuda::kOutOfMemory) {
        size_t free = 0, total = 0;
        driver_.cuMemGetInfo(&free, &total);
        return Error(Code::E0408, "GPU {} ({}) cannot allocate {}: {} of {} are free", number_, name_,
                     shown_bytes(bytes), shown_bytes(static_cast<int64_t>(free)),
                     shown_bytes(static_cast<int64_t>(total)));
    } else {
        TRY(driver_.check(result, "allocating memory"));
    }
    std::shared_ptr<void> memory(reinterpret_cast<void*>(made), [this](void* m) {
        const auto inside = enter();
        driver_.cuMemFree(address(m));
    });
    TRY(driver_.check(driver_.cuMemsetD8Async(made, 0, size, nullptr), "clearing memory"));
    TRY(driver_.check(driver_.cuStreamSynchronize(nullptr), "clearing memory"));
    return memory;
}

Result<std::shared_ptr<void>> CudaDevice::allocate_for_copies(int64_t bytes) {
    const DeviceScope inside = TRY(enter());
    void* made = nullptr;
    TRY(driver_.check(driver_.cuMemHostAlloc(&made, static_cast<size_t>(std::max<int64_t>(bytes, 1)), 0),
                      "allocating memory of the process for copies"));
    return std::shared_ptr<void>(made, [this](void* m) {
        const auto inside = enter();
        driver_.cuMemFreeHost(m);
    });
}

Result<std::unique_ptr<Stream>> CudaDevice::make_stream(int) {
    const DeviceScope inside = TRY(enter());
    Handle stream = nullptr;
    TRY(driver_.check(driver_.cuStreamCreate(&stream, kNonBlocking), "making a stream"));
    return std::unique_ptr<Stream>(new CudaStream(*this, stream));
}

Result<std::unique_ptr<Stream>> CudaDevice::borrow_stream(void* handle) {
    return std::unique_ptr<Stream>(new CudaStream(*this, handle, true));
}

Result<Handle> CudaDevice::assemble(std::string_view text) const {
    const std::string whole(text);  // ends with a zero
    std::array<char, 4096> log{};
    std::array<int, 2> options{kErrorLog, kErrorLogBytes};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
    Handle module = nullptr;
    const int result =
        driver_.cuModuleLoadDataEx(&module, whole.c_str(), options.size(), options.data(), values.data());
    if (Status loaded = driver_.check(result, "assembling kernels"); !loaded.ok())
        return std::move(loaded.error()).note("{}", log.data());
    return module;
}

Result<std::shared_ptr<CompiledModule>> CudaDevice::load(std::shared_ptr<CompiledModule> module) {
    const std::vector<std::string_view> parts = module->assembly();
    std::vector<std::optional<Result<Handle>>> loaded(parts.size());
    std::atomic<size_t> next = 0;
    auto work = [&] {
        for (size_t i; (i = next++) < parts.size();) {
            const auto inside = enter();
            loaded[i] = inside.ok() ? assemble(parts[i]) : Result<Handle>(inside.error());
        }
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min<size_t>(static_cast<size_t>(usable_cores()), parts.size()); ++i)
        threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
    const DeviceScope inside = TRY(enter());
    std::vector<Handle> modules;
    Status status;
    for (auto& m : loaded) {
        if (m->ok())
            modules.push_back(**m);
        else if (status.ok())
            status = m->error();
    }
    auto made = std::make_shared<CudaModule>(*this, module, modules);
    TRY(std::move(status));
    std::vector<CompiledKernel> kernels = module->kernels();
    for (CompiledKernel& k : kernels)
        for (KernelLaunch& l : k.launches) {
            const std::string entry = ".entry " + l.symbol + "(";
            for (size_t i = 0; i < parts.size() && !l.handle; ++i)
                if (parts[i].find(entry) != std::string_view::npos) {
                    TRY(driver_.check(driver_.cuModuleGetFunction(&l.handle, modules[i], l.symbol.c_str()),
                                      "finding a kernel"));
                    const bool waits = parts[i].find("griddepcontrol.wait") != std::string_view::npos;
                    l.begins_early = waits && driver_.version >= kBeginsEarlyIn;
                }
            if (l.handle && l.shape.shared_bytes > 0)
                TRY(driver_.check(
                    driver_.cuFuncSetAttribute(l.handle, kMostShared, static_cast<int>(l.shape.shared_bytes)),
                    "asking for shared memory"));
            if (!l.handle) return Error(Code::E0702, "the GPU code has no kernel {}", l.symbol);
        }
    made->take(std::move(kernels));
    return std::shared_ptr<CompiledModule>(std::move(made));
}

// The driver's own number of a GPU.
Result<int> driver_number(const Driver& driver, int number) {
    int count = 0, device = 0;
    TRY(driver.check(driver.cuDeviceGetCount(&count), "counting GPUs"));
    if (number < 0 || number >= count) {
        const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
        auto wrong = Error(Code::E0701, "there is no GPU {}: this machine has {}", number,
                           count == 0 ? "none" : fmt::format("{}", count));
        if (visible) wrong = std::move(wrong).note("CUDA_VISIBLE_DEVICES={} may hide others", visible);
        if (count == 0) return std::move(wrong).hint("{}", kElsewhere);
        return std::move(wrong).hint(
            "{}", count == 1 ? "the only one is cuda:0" : fmt::format("they are cuda:0 to cuda:{}", count - 1));
    }
    TRY(driver.check(driver.cuDeviceGet(&device, number), "opening it"));
    return device;
}

Result<std::unique_ptr<CudaDevice>> open_device(int number) {
    const GpuDescription gpu = TRY(describe_gpu(number));
    if (gpu.target.empty())
        return Error(Code::E0701, "GPU {} ({}) has compute capability {}.{}, but 8.0 is required", number, gpu.name,
                     gpu.major, gpu.minor)
            .hint("{}", kElsewhere);
    const Driver& driver = *TRY(Driver::load());
    const int device = TRY(driver_number(driver, number));
    int cache = 0;
    TRY(driver.check(driver.cuDeviceGetAttribute(&cache, kCacheBytes, device), "asking for its cache"));
    Handle context = nullptr;
    TRY(driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), "making a context"));
    return std::make_unique<CudaDevice>(driver, number, context, gpu.name, gpu.target, gpu.processors, cache);
}

}  // namespace

Result<int> count_gpus() {
    const Driver& driver = *TRY(Driver::load());
    int count = 0;
    TRY(driver.check(driver.cuDeviceGetCount(&count), "counting GPUs"));
    return count;
}

Result<GpuDescription> describe_gpu(int number) {
    const Driver& driver = *TRY(Driver::load());
    const int device = TRY(driver_number(driver, number));
    std::array<char, 256> name{};
    size_t bytes = 0;
    GpuDescription gpu;
    TRY(driver.check(driver.cuDeviceGetName(name.data(), name.size(), device), "asking for its name"));
    auto ask = [&](int* value, int attribute, const char* doing) {
        return driver.check(driver.cuDeviceGetAttribute(value, attribute, device), doing);
    };
    TRY(ask(&gpu.major, kMajorVersion, "asking for its version"));
    TRY(ask(&gpu.minor, kMinorVersion, "asking for its version"));
    TRY(ask(&gpu.processors, kMultiprocessors, "counting multiprocessors"));
    TRY(ask(&gpu.shared_bytes, kSharedBytes, "asking for its shared memory"));
    TRY(driver.check(driver.cuDeviceTotalMem(&bytes, device), "asking for its memory"));
    gpu.name = name.data();
    gpu.bytes = static_cast<int64_t>(bytes);
    constexpr int kReadsPtx84 = 12040;
    gpu.target = gpu_target(gpu.major, gpu.minor);
    if (gpu.target == "sm_90a" && driver.version < kReadsPtx84) gpu.target = "sm_90a_ptx80";
    // Schedules are for the card that is there, which may have more SMs or fewer than its kind usually has.
    if (!gpu.target.empty() && TRY(describe_target(gpu.target)).cores != gpu.processors)
        gpu.target += fmt::format(":{}", gpu.processors);
    return gpu;
}

std::string gpu_target(int major, int minor) {
    if (major < 8) return "";
    if (major == 8) return minor == 6 ? "sm_86" : minor == 9 ? "sm_89" : "sm_80";
    if (major == 9) return "sm_90a";
    return major < 12 ? "sm_90" : "sm_89";  // which have as much shared memory
}

std::optional<int> gpu_of_memory(const void* memory) {
    const auto driver = Driver::load();
    int number = 0;
    if (!driver.ok() || (*driver)->cuPointerGetAttribute(&number, kDeviceNumber, address(memory)) != 0) return {};
    return number;
}

std::optional<int> cuda_number(std::string_view target) {
    if (target == "cuda") return 0;
    constexpr std::string_view kPrefix = "cuda:";
    if (!target.starts_with(kPrefix)) return {};
    target.remove_prefix(kPrefix.size());
    int number = 0;
    const auto read = std::from_chars(target.data(), target.data() + target.size(), number);
    if (read.ec != std::errc() || read.ptr != target.data() + target.size()) return {};
    return number;
}

Result<Device*> cuda_device(int number) {
    static std::mutex mutex;
    static auto& open = *new std::map<int, std::unique_ptr<CudaDevice>>;  // outlives all that was made by them
    std::lock_guard lock(mutex);
    auto found = open.find(number);
    if (found == open.end()) found = open.emplace(number, TRY(open_device(number))).first;
    return static_cast<Device*>(found->second.get());
}

}  // namespace tessera
