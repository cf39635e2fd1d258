// A back end: all that depends on what a program runs on. One value for each kind of processor, GPU or accelerator, in
// the list of backends.cpp; nothing else asks which one it is.
#pragma once

#include <span>

#include "kernel/backend/offload.h"
#include "kernel/backend/scheduling.h"
#include "llvm/compile_kernels.h"
#include "runtime/devices/device.h"
#include "tessera/devices.h"
#include "tessera/explore.h"

namespace tessera {

// A machine of chosen sizes, simulated: what compiles for it, and its area in transistors, by part.
struct SizedMachine {
    MachineSizes sizes;
    std::shared_ptr<const Offloading> offloading;
    std::vector<std::pair<std::string, double>> area;
};

class Backend {
  public:
    virtual ~Backend() = default;
    virtual std::string_view name() const = 0;
    // The names of its targets and devices that users may give, most usual first; takes() may know more, as numbers of
    // devices.
    virtual std::vector<std::string> targets() const = 0;
    virtual bool takes(std::string_view target) const = 0;
    // What it takes, for an error: targets(), and patterns such as "cuda:N for GPU N".
    virtual std::vector<std::string> forms() const { return targets(); }
    // The target that kernels are made and shown for where nobody named one.
    virtual std::string_view usual_target() const { return "host"; }

    // What kernels are made for: registers, caches, instructions, and whether they run as grids of thread blocks. Of a
    // device, the one that is there. E0603, E0701
    virtual Result<Machine> machine(std::string_view target) const;
    // How Computes become kernels.
    virtual const Scheduling& scheduling() const;
    // What kernels become: the name of the stage that shows it, and whether it is object files, which are linked into
    // this process and into C programs. Otherwise a device loads it.
    virtual std::string_view assembly() const { return "asm"; }
    virtual bool makes_objects() const { return false; }
    // Whether its devices compute in the host's memory, which users may write to between runs.
    virtual bool shares_memory() const { return true; }

    // Where programs for the target run. E0701: it is not in this machine. The processor, where the target names code
    // and no device.
    virtual Result<Device*> device(std::string_view target) const;
    // What it has in this machine. Where it has none, `why` is set if it is given.
    virtual std::vector<DeviceInfo> devices(std::string* why) const;
    // Of back ends that compute parts of graphs; the kernels of all else are the host's. Null: its programs are
    // kernels.
    virtual Result<std::shared_ptr<const Offloading>> offloading(std::string_view target,
                                                                 const OffloadOptions& options = {}) const;
    // Back ends whose machine is a description can simulate machines of other sizes. E0603: this one cannot; E0212.
    virtual bool has_sizes() const { return false; }
    virtual Result<SizedMachine> sized(std::string_view target, const MachineSizes& sizes,
                                       const OffloadOptions& options) const;
};

std::span<const Backend* const> backends();                    // the host's first
const Backend& backend_of_blocks();                            // the first whose kernels run as grids of thread blocks
Result<const Backend*> find_backend(std::string_view target);  // E0603

Result<Device*> device_for(std::string_view target);  // of its back end

// Those of the list; each stands in a file of its own.
const Backend& cpu_backend();
const Backend& cuda_backend();
const Backend& tessel_backend();

}  // namespace tessera
