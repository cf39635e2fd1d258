// Every back end there is.
#include <array>

#include "backends/backend.h"
#include "base/check.h"
#include "base/nearest.h"
#include "kernel/cpu/cpu_scheduling.h"
#include "runtime/devices/cpu_device.h"

namespace tessera {

std::span<const Backend* const> backends() {
    static const std::array<const Backend*, 3> kAll{&cpu_backend(), &cuda_backend(), &tessel_backend()};
    return kAll;
}

Result<const Backend*> find_backend(std::string_view target) {
    for (const Backend* b : backends())
        if (b->takes(target)) return b;
    std::vector<std::string> names;
    for (const Backend* b : backends())
        for (std::string& name : b->targets()) names.push_back(std::move(name));
    const std::string_view base = target.substr(0, target.find(':'));
    for (const Backend* b : backends())
        if (base.size() < target.size() && b->takes(base))
            return Error(Code::E0603, "there is no target \"{}\"", target)
                .hint("with {}, the targets are {}", base, fmt::join(b->forms(), ", "));
    const std::string meant = nearest(base, {names.begin(), names.end()});
    return Error(Code::E0603, "there is no target \"{}\"", target)
        .hint("{}the targets are {}", meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
              fmt::join(names, ", "));
}

const Backend& backend_of_blocks() {
    for (const Backend* b : backends())
        if (const auto machine = b->machine(b->usual_target()); machine.ok() && machine->blocks) return *b;
    CHECK(false, "no back end runs thread blocks");
    return *backends().front();
}

// What a back end says nothing about, the host does.
Result<Machine> Backend::machine(std::string_view) const { return describe_target("host"); }
const Scheduling& Backend::scheduling() const { return cpu_scheduling(); }
Result<Device*> Backend::device(std::string_view) const { return &cpu_device(); }
std::vector<DeviceInfo> Backend::devices(std::string*) const { return {}; }
Result<std::shared_ptr<const Offloading>> Backend::offloading(std::string_view, const OffloadOptions&) const {
    return std::shared_ptr<const Offloading>();
}

Result<SizedMachine> Backend::sized(std::string_view target, const MachineSizes&, const OffloadOptions&) const {
    std::vector<std::string> names;
    for (const Backend* b : backends())
        if (b->has_sizes()) names.emplace_back(b->name());
    return Error(Code::E0603, "{} has no machine whose sizes can be chosen", target)
        .hint("the targets that have one: {}", fmt::join(names, ", "));
}

Result<Device*> device_for(std::string_view target) { return TRY(find_backend(target))->device(target); }

}  // namespace tessera
