// Processors: this machine's, and those that code is generated for.
#include "backends/backend.h"
#include "kernel/cpu/cpu_scheduling.h"
#include "llvm/targets/target.h"

namespace tessera {
namespace {

class CpuBackend : public Backend {
  public:
    std::string_view name() const override { return "cpu"; }
    std::vector<std::string> targets() const override {
        std::vector<std::string> names{"host"};
        for (std::string& name : codegen::target_names())
            if (takes(name)) names.push_back(std::move(name));
        return names;
    }
    bool takes(std::string_view target) const override {
        const auto found = codegen::find_target(target);
        return found.ok() && !found->machine.blocks;
    }
    Result<Machine> machine(std::string_view target) const override { return describe_target(target); }
    const Scheduling& scheduling() const override { return cpu_scheduling(); }
    bool makes_objects() const override { return true; }
    std::vector<DeviceInfo> devices(std::string*) const override {
        return {{.target = "host", .name = "the CPU", .code = {}}};
    }
};

}  // namespace

const Backend& cpu_backend() {
    static const CpuBackend kBackend;
    return kBackend;
}

}  // namespace tessera
