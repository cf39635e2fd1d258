// Machines of several sizes, simulated on one model: cycles against an estimate of area.
#pragma once

#include <atomic>
#include <functional>

#include "tessera/model.h"

namespace tessera {

// A matrix unit of inputs x outputs multiply-accumulators, and the bytes a cycle of each memory channel.
struct MachineSizes {
    int inputs = 0, outputs = 0, bytes_per_cycle = 0;  // 0: as the target's description has it
};

struct ExploreOptions {
    std::string target;  // one whose machine is a description: the sizes that are not given are its own
    std::vector<MachineSizes> machines;
    int virtual_threads = 2;
    std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
    const std::atomic<bool>* cancel = nullptr;  // set it to stop with E0410
};

struct ExploredMachine {
    MachineSizes sizes;
    double megahertz = 0;
    int64_t cycles = 0, matrix_cycles = 0;  // of all layers that the machine computes; in which its matrix unit is busy
    int64_t macs = 0;                       // multiply-accumulates that these layers need
    size_t layers = 0;
    std::vector<std::pair<std::string, double>> area;  // transistors, by part
    double total_area() const;
    // The share of the matrix unit's multiply-accumulates that the model needs.
    double utilization() const;
};

// In the order of options.machines. What a machine does not compute is left out: its host does that. E0603: the target
// has no machine whose sizes can be chosen; E0501: no machine has these sizes; E0601: it computes nothing of the model.
Result<std::vector<ExploredMachine>> explore(const Model& model, const ExploreOptions& options);

}  // namespace tessera
