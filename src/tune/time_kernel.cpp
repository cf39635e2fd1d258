#include "tune/time_kernel.h"

#include <algorithm>

#include "base/clock.h"
#include "runtime/code_cache.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/run_plan.h"

namespace tessera {
namespace {

constexpr int kLeastRuns = 3, kMostRuns = 30;
constexpr double kColdRun = 2;         // times what a run takes, at most, for the first one
constexpr double kSlow = 10;           // times what is asked for: two runs are enough
constexpr int64_t kDrawn = 1 << 20;    // that are made, and then copied
constexpr int64_t kShareOfDevice = 4;  // one part in so many of a GPU's memory

// A GPU that had nothing to do for so long may have slowed down; seconds of work that wake it.
constexpr double kIdle = 0.1, kWaking = 0.02;

int64_t root_of(const Program& program, int buffer) {
    while (program.buffers[size_t(buffer)].alias >= 0) buffer = program.buffers[size_t(buffer)].alias;
    return buffer;
}

std::optional<int64_t> known_bytes(const ProgramBuffer& buffer) {
    auto sizes = buffer_sizes(buffer, {});
    if (!sizes.ok() || !*sizes) return {};
    auto bytes = buffer_bytes(buffer, **sizes);
    return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

// Numbers between -1 and 1, none of them tiny.
const std::vector<float>& numbers() {
    static const std::vector<float> all = [] {
        std::vector<float> made(static_cast<size_t>(kDrawn));
        uint32_t state = 1;
        for (float& v : made) {
            state = state * 1664525 + 1013904223;
            v = float(int32_t(state >> 20) - 2048 + 1) / 2048 + 1e-3f;
        }
        return made;
    }();
    return all;
}

Status fill(Stream& stream, void* memory, int64_t bytes) {
    int64_t done = std::min(bytes, kDrawn * int64_t{sizeof(float)});
    TRY(stream.copy_to_device(memory, numbers().data(), done));
    for (auto* to = static_cast<char*>(memory); done < bytes;) {
        const int64_t next = std::min(done, bytes - done);
        TRY(stream.copy_on_device(to + done, memory, next));
        done += next;
    }
    return {};
}

}  // namespace

std::optional<KernelCall> call_of(const Program& program, const KernelStep& step) {
    KernelCall call{program.kernels[step.kernel], {}, {}};
    for (const Expr& symbol : step.symbols) {
        auto value = evaluate_int(symbol, {});
        if (!value) return {};
        call.symbols.push_back(*value);
    }
    for (int arg : step.args) {
        const ProgramBuffer& own = program.buffers[size_t(arg)];
        const ProgramBuffer& root = program.buffers[size_t(root_of(program, arg))];
        auto bytes = known_bytes(root), least = known_bytes(own);
        if (!bytes || !least) return {};
        const bool weight = root.role == BufferRole::Constant || root.role == BufferRole::Prepared;
        call.arguments.push_back({own.dtype, std::max(*bytes, *least), weight});
    }
    return call;
}

int64_t bytes_of(const KernelCall& call) {
    int64_t bytes = 0;
    for (const auto& a : call.arguments) bytes += a.bytes;
    return bytes;
}

std::string kernel_key(const KernelCall& call) {
    Kernel kernel = call.kernel;
    kernel.name = "k";
    std::vector<std::string> parts = {to_string(kernel), fmt::format("{}", fmt::join(call.symbols, " "))};
    for (const auto& a : call.arguments) parts.push_back(fmt::format("{} {} {}", int(a.dtype), a.bytes, a.weight));
    return code_key(parts);
}

int64_t most_timed_bytes(const Device& device) {
    const std::optional<int64_t> room = device.room();
    return room ? *room / kShareOfDevice : kMostTimedBytes;
}

Result<std::unique_ptr<KernelTimer>> KernelTimer::make(Device& device) {
    std::unique_ptr<KernelTimer> made(new KernelTimer(device, TRY(device.make_stream(1))));
    const int64_t bytes = std::max<int64_t>(device.caches().all, 64);
    made->other_ = TRY(device.allocate(bytes));
    TRY(fill(*made->stream_, made->other_.get(), bytes));
    TRY(made->stream_->synchronize());
    return made;
}

Status KernelTimer::wake() {
    const double now = wall_seconds();
    if (device_.shares_memory() || now - last_ < kIdle) return {};
    while (wall_seconds() < now + kWaking) {
        TRY(stream_->touch(other_.get(), device_.caches().all));
        TRY(stream_->synchronize());
    }
    return {};
}

Status KernelTimer::device_works() {
    TRY(stream_->touch(other_.get(), 64));
    return stream_->synchronize();
}

Status KernelTimer::leave_in_caches(const KernelCall& call, const std::vector<void*>& arguments) {
    TRY(stream_->touch(other_.get(), device_.caches().all));
    int64_t near = device_.caches().near;
    for (size_t k = 0; k < arguments.size(); ++k) {
        if (call.arguments[k].weight || call.arguments[k].bytes > near) continue;
        near -= call.arguments[k].bytes;
        TRY(stream_->touch(arguments[k], call.arguments[k].bytes));
    }
    return {};
}

Result<double> KernelTimer::seconds(const CompiledKernel& code, const KernelCall& call, const KernelTiming& timing) {
    TRY(wake());
    auto best = least(code, call, timing);
    last_ = wall_seconds();
    Status done = stream_->synchronize();
    if (best.ok()) TRY(std::move(done));
    return best;
}

Result<double> KernelTimer::least(const CompiledKernel& code, const KernelCall& call, const KernelTiming& timing) {
    SymbolValues symbols;
    for (size_t i = 0; i < call.symbols.size(); ++i) symbols.emplace(call.kernel.symbols[i], call.symbols[i]);
    const std::vector<Launch> launches = TRY(bind_launches(code, symbols));
    TRY(stream_->reserve(most_local_bytes(launches)));
    std::vector<std::shared_ptr<void>> memory;
    std::vector<void*> pointers;
    for (const auto& a : call.arguments) {
        memory.push_back(TRY(device_.allocate(std::max<int64_t>(a.bytes, 64))));
        pointers.push_back(memory.back().get());
        if (a.dtype == DType::f32) TRY(fill(*stream_, pointers.back(), a.bytes));
    }
    auto run = [&]() -> Result<double> {
        const auto began = TRY(stream_->record(true));
        for (const Launch& l : launches) TRY(stream_->launch(l, {pointers, call.symbols}));
        const auto ended = TRY(stream_->record(true));
        TRY(ended->wait());
        return ended->seconds_since(*began);
    };
    double best = TRY(run()), sum = 0;  // the first meets memory that nobody has used yet
    if (best > kColdRun * timing.hopeless) return best;
    const bool slow = best > kSlow * timing.seconds;
    if (!slow) best = 1e9;
    for (int i = 0; i < (slow ? 1 : kMostRuns) && (i < kLeastRuns || sum < timing.seconds); ++i) {
        TRY(leave_in_caches(call, pointers));
        const double took = TRY(run());
        best = std::min(best, took);
        sum += took;
        if (best > timing.hopeless) break;
        if (i > 0 && sum > kSlow * timing.seconds) break;
    }
    return best;
}

}  // namespace tessera
