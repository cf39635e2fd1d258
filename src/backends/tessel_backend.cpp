// The accelerator of docs/accelerator.md, simulated: "tessel" is the machine of machines/tessel.json,
// "tessel:FILE.json" one of another description. "tessel:rtl" and "tessel:rtl:FILE.json" run on the machine's RTL.
#include "backends/backend.h"
#include "kernel/accelerator/area.h"
#include "kernel/accelerator/compile/network_code.h"
#include "kernel/accelerator/compile/take_layers.h"
#include "runtime/devices/accelerator_device.h"

namespace tessera {
namespace {

constexpr std::string_view kName = "tessel", kDevice = "tessel:sim", kRtl = "tessel:rtl", kDescription = ".json";

class TesselOffloading : public Offloading {
  public:
    TesselOffloading(accelerator::Machine machine, const OffloadOptions& options, std::string_view device)
        : machine_(std::move(machine)), options_{.contexts = options.virtual_threads}, device_(device) {}
    std::string device() const override { return device_; }
    Result<Changed> take(Graph& graph, PassContext& context) const override {
        return accelerator::take_layers(graph, machine_, options_, context);
    }
    Result<std::shared_ptr<const DeviceCode>> compile(const Node& node) const override {
        return accelerator::compile_part(node, machine_, options_);
    }

  private:
    const accelerator::Machine machine_;
    const accelerator::NetworkOptions options_;
    const std::string device_;
};

class TesselBackend : public Backend {
  public:
    std::string_view name() const override { return kName; }
    std::vector<std::string> targets() const override { return {std::string(kName)}; }
    std::vector<std::string> forms() const override {
        return {std::string(kName), "tessel:FILE.json for another machine's description", "tessel:rtl",
                "tessel:rtl:FILE.json"};
    }
    bool takes(std::string_view target) const override {
        return target == kName || target == kDevice || target == kRtl || !description(target).empty();
    }
    Result<Device*> device(std::string_view target) const override {
        return target.starts_with(kRtl) ? &accelerator_rtl() : &simulated_accelerator();
    }
    std::vector<DeviceInfo> devices(std::string*) const override {
        const accelerator::Machine m;
        return {{.target = std::string(kName),
                 .name = fmt::format("a simulated accelerator of {}x{} multiply-accumulators at {} MHz", m.inputs,
                                     m.outputs, m.megahertz),
                 .code = {}}};
    }
    Result<std::shared_ptr<const Offloading>> offloading(std::string_view target,
                                                         const OffloadOptions& options) const override {
        TRY(check_options(options));
        return std::make_shared<const TesselOffloading>(TRY(machine_of(target)), options,
                                                        target.starts_with(kRtl) ? kRtl : kDevice);
    }

    bool has_sizes() const override { return true; }
    Result<SizedMachine> sized(std::string_view target, const MachineSizes& sizes,
                               const OffloadOptions& options) const override {
        TRY(check_options(options));
        const accelerator::Machine m =
            TRY(accelerator::with_sizes(TRY(machine_of(target)), sizes.inputs, sizes.outputs, sizes.bytes_per_cycle));
        const accelerator::Area area = accelerator::area_of(m);
        return SizedMachine{{m.inputs, m.outputs, m.bytes_per_cycle},
                            std::make_shared<const TesselOffloading>(m, options, kDevice),
                            {{"matrix unit", area.matrix},
                             {"vector ALU", area.alu},
                             {"control", area.control},
                             {"memories", area.memories}}};
    }

  private:
    static Status check_options(const OffloadOptions& options) {
        if (options.virtual_threads == 1 || options.virtual_threads == 2) return {};
        return Error(Code::E0501, "virtual_threads: expected 1 or 2, got {}", options.virtual_threads);
    }
    static Result<accelerator::Machine> machine_of(std::string_view target) {
        if (const std::string file(description(target)); !file.empty()) return accelerator::load_machine(file);
        return accelerator::Machine{.name = std::string(kName)};
    }
    // The file of "tessel:FILE.json" and "tessel:rtl:FILE.json".
    static std::string_view description(std::string_view target) {
        if (!target.starts_with(kName) || !target.ends_with(kDescription)) return {};
        target.remove_prefix(target.starts_with(std::string(kRtl) + ":") ? kRtl.size() : kName.size());
        return target.starts_with(":") ? target.substr(1) : std::string_view();
    }
};

}  // namespace

const Backend& tessel_backend() {
    static const TesselBackend kBackend;
    return kBackend;
}

}  // namespace tessera
