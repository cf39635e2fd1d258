#include "runtime/devices/accelerator_device.h"

#include <cstring>
#include <map>

#include "base/check.h"
#include "base/memory.h"
#include "kernel/accelerator/compile/network_code.h"
#include "kernel/accelerator/simulate.h"
#include "runtime/devices/rtl_simulator.h"

namespace tessera {
namespace {

using accelerator::CompiledNetwork;
using accelerator::NetworkCode;

// All before it was done when it was recorded.
class SimulatedEvent : public Event {
  public:
    explicit SimulatedEvent(double at) : at_(at) {}
    Status wait() const override { return {}; }
    Result<double> seconds_since(const Event& earlier) const override {
        const auto* own = dynamic_cast<const SimulatedEvent*>(&earlier);
        CHECK(own, "an event of another device");
        return at_ - own->at_;
    }

  private:
    double at_;
};

Sizes sizes_of(const accelerator::Activation& is) {
    if (is.matrix) return {is.width, is.channels};
    return {is.batch, is.channels, is.height, is.width};
}

// Timed events count the cycles of the machine, as seconds of its clock.
class SimulatedStream : public Stream {
  public:
    explicit SimulatedStream(bool rtl) : rtl_(rtl) {}
    Status reserve(int64_t) override { return {}; }

    Status launch(const Launch& launch, const LaunchArguments& arguments) override {
        const auto& code = *static_cast<const NetworkCode*>(launch.handle);
        const CompiledNetwork& compiled = code.compiled();
        const accelerator::Network& network = compiled.network;
        CHECK(arguments.buffers.size() == network.inputs.size() + network.outputs.size(), "{} buffers of a network",
              arguments.buffers.size());
        // Programs write what they compute alone: weights and padding stay from run to run.
        std::vector<uint8_t>& memory = memory_.try_emplace(&code, compiled.image).first->second;
        for (size_t i = 0; i < network.inputs.size(); ++i) {
            const accelerator::Activation& is = network.values[size_t(network.inputs[i])];
            write_input(compiled, i, Tensor::view(is.dtype, sizes_of(is), arguments.buffers[i], nullptr), memory);
        }
        const int64_t cycles = TRY(run(compiled, memory));
        seconds_ += double(cycles) / (compiled.machine.megahertz * 1e6);
        for (size_t i = 0; i < network.outputs.size(); ++i) {
            const Tensor made = TRY(read_output(compiled, i, memory));
            std::memcpy(arguments.buffers[network.inputs.size() + i], made.data(), size_t(made.bytes()));
        }
        return {};
    }

    Status copy_to_device(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes); }
    Status copy_to_host(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes); }
    Status copy_on_device(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes); }
    Status touch(const void*, int64_t) override { return {}; }
    Result<std::shared_ptr<const Event>> record(bool) override {
        return std::make_shared<const SimulatedEvent>(seconds_);
    }
    Status record(const Event&) override { return {}; }  // all is done
    Status wait(const Event& event) override { return event.wait(); }
    Status synchronize() override { return {}; }

    Status begin_capture() override { return cannot_capture(); }
    Result<std::unique_ptr<Recording>> end_capture() override { return cannot_capture(); }
    Status replay(const Recording&) override { return cannot_capture(); }
    Status update(Recording&, size_t, const Launch&, const LaunchArguments&) override { return cannot_capture(); }

  private:
    Result<int64_t> run(const CompiledNetwork& compiled, std::vector<uint8_t>& memory) const {
        if (rtl_) return TRY(RtlSimulator::find(compiled.machine)).run(memory, compiled.program);
        return TRY(accelerator::simulate(compiled.machine, compiled.instructions, memory)).cycles;
    }
    static Error cannot_capture() { return Error(Code::E0701, "a simulated accelerator captures nothing"); }
    static Status copy(void* to, const void* from, int64_t bytes) {
        if (bytes > 0) std::memmove(to, from, size_t(bytes));
        return {};
    }

    std::map<const NetworkCode*, std::vector<uint8_t>> memory_;
    const bool rtl_;
    double seconds_ = 0;  // simulated
};

class SimulatedAccelerator : public Device {
  public:
    explicit SimulatedAccelerator(bool rtl) : rtl_(rtl) {}
    std::string_view name() const override { return "simulated accelerator"; }
    bool shares_memory() const override { return false; }
    Result<std::shared_ptr<void>> allocate(int64_t bytes) override { return allocate_bytes(bytes); }
    Result<std::shared_ptr<void>> load_code(std::shared_ptr<const DeviceCode> code) override {
        if (!dynamic_cast<const NetworkCode*>(code.get()))
            return Error(Code::E0701, "the simulated accelerator runs compiled networks only");
        if (rtl_) TRY(RtlSimulator::find(static_cast<const NetworkCode&>(*code).compiled().machine));
        return std::shared_ptr<void>(code, const_cast<DeviceCode*>(code.get()));
    }
    Result<std::unique_ptr<Stream>> make_stream(int) override { return std::make_unique<SimulatedStream>(rtl_); }

  private:
    const bool rtl_;
};

}  // namespace

Device& simulated_accelerator() {
    static SimulatedAccelerator device(false);
    return device;
}

Device& accelerator_rtl() {
    static SimulatedAccelerator device(true);
    return device;
}

}  // namespace tessera
