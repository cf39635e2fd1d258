// The accelerator of docs/accelerator.md, simulated: "tessel" is the machine of machines/tessel.json,
// "tessel:FILE.json" one of another description.
#include "backends/backend.h"
#include "kernel/accelerator/compile/network_code.h"
#include "kernel/accelerator/compile/take_layers.h"
#include "runtime/devices/accelerator_device.h"

namespace tessera {
namespace {

constexpr std::string_view kName = "tessel", kDevice = "tessel:sim", kDescription = ".json";

class TesselOffloading : public Offloading {
  public:
    TesselOffloading(accelerator::Machine machine, const OffloadOptions& options)
        : machine_(std::move(machine)), options_{.contexts = options.virtual_threads} {}
    std::string device() const override { return std::string(kDevice); }
    Result<Changed> take(Graph& graph, PassContext& context) const override {
        return accelerator::take_layers(graph, machine_, options_, context);
    }
    Result<std::shared_ptr<const DeviceCode>> compile(const Node& node) const override {
        return accelerator::compile_part(node, machine_, options_);
    }

  private:
    const accelerator::Machine machine_;
    const accelerator::NetworkOptions options_;
};

class TesselBackend : public Backend {
  public:
    std::string_view name() const override { return kName; }
    std::vector<std::string> targets() const override { return {std::string(kName)}; }
    bool takes(std::string_view target) const override {
        return target == kName || target == kDevice || !description(target).empty();
    }
    Result<Device*> device(std::string_view) const override { return &simulated_accelerator(); }
    std::vector<DeviceInfo> devices(std::string*) const override {
        const accelerator::Machine m;
        return {{.target = std::string(kName),
                 .name = fmt::format("a simulated accelerator of {}x{} multiply-accumulators at {} MHz", m.inputs,
                                     m.outputs, m.megahertz),
                 .code = {}}};
    }
    Result<std::shared_ptr<const Offloading>> offloading(std::string_view target,
                                                         const OffloadOptions& options) const override {
        accelerator::Machine machine{.name = std::string(kName)};
        if (const std::string file(description(target)); !file.empty()) machine = TRY(accelerator::load_machine(file));
        return std::make_shared<const TesselOffloading>(std::move(machine), options);
    }

  private:
    // The file of "tessel:FILE.json".
    static std::string_view description(std::string_view target) {
        if (!target.starts_with(kName) || !target.ends_with(kDescription)) return {};
        target.remove_prefix(kName.size());
        return target.starts_with(":") ? target.substr(1) : std::string_view();
    }
};

}  // namespace

const Backend& tessel_backend() {
    static const TesselBackend kBackend;
    return kBackend;
}

}  // namespace tessera
