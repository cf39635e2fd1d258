// A back end: all that depends on what a program runs on. One value for each kind of processor, GPU or accelerator, in
// the list of backends.cpp; nothing else asks which one it is.
#pragma once

#include <span>

#include "kernel/backend/offload.h"
#include "llvm/compile_kernels.h"
#include "runtime/devices/device.h"
#include "tessera/devices.h"

namespace tessera {

class Backend {
  public:
    virtual ~Backend() = default;
    virtual std::string_view name() const = 0;
    // The names of its targets and devices that users may give, most usual first; takes() may know more, as numbers of
    // devices.
    virtual std::vector<std::string> targets() const = 0;
    virtual bool takes(std::string_view target) const = 0;

    // Where programs for the target run. E0701: it is not in this machine. The processor, where the target names code
    // and no device.
    virtual Result<Device*> device(std::string_view target) const;
    // What it has in this machine. Where it has none, `why` is set if it is given.
    virtual std::vector<DeviceInfo> devices(std::string* why) const;
    // Of back ends that compute parts of graphs; the kernels of all else are the host's. Null: its programs are kernels.
    virtual Result<std::shared_ptr<const Offloading>> offloading(std::string_view target,
                                                                 const OffloadOptions& options = {}) const;
};

std::span<const Backend* const> backends();  // the host's first
Result<const Backend*> find_backend(std::string_view target);  // E0603

Result<Device*> device_for(std::string_view target);  // of its back end

// Those of the list; each stands in a file of its own.
const Backend& cpu_backend();
const Backend& cuda_backend();
const Backend& tessel_backend();

}  // namespace tessera
