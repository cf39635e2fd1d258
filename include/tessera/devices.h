// The devices of this machine that models can run on, and what an accelerator measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct DeviceInfo {
    std::string target;  // for CompileOptions::target: "host", "cuda:1"
    std::string name;
    std::string code;      // the code generator's target, "sm_90a"; empty for the host and for unusable devices
    int64_t bytes = 0;     // memory of a GPU
    int capability = 0;    // compute capability of a GPU as a number: 90 for 9.0
    int processors = 0;    // number of SMs of a GPU
    int shared_bytes = 0;  // largest shared memory of a block
    std::string why = {};  // the reason if the device cannot be used
};

// What one part of a model takes on an accelerator, by the accelerator's own clock.
struct DeviceProfile {
    struct Unit {
        std::string name;
        int64_t instructions = 0, busy = 0;                // busy: cycles in which it moves or computes rows
        int64_t wait_fetch = 0;                            // cycles without an instruction,
        int64_t wait_previous = 0, wait_next = 0;          // that wait for a token of a neighboring unit,
        int64_t wait_room = 0;                             // or for room in a queue
    };
    // Cycles from the end of the layer before to its own end.
    struct Layer {
        std::string name, op, plan;                        // plan: its tiles
        int64_t begin = 0, end = 0;
        int64_t macs = 0, matrix_cycles = 0;               // multiply-accumulates; cycles of the matrix unit
        int64_t bytes = 0, least_bytes = 0;                // moved; values and weights, each once
        int64_t scalar_cycles = 0;                         // of a scalar host (docs/accelerator.md)
        double busy() const { return end > begin ? double(matrix_cycles) / double(end - begin) : 0; }
    };
    struct Span {                                          // one instruction, in which cycles
        int unit = 0, layer = 0;
        int64_t begin = 0, end = 0;
        std::string instruction;
    };
    std::string name, machine;
    double megahertz = 0;
    int64_t cycles = 0;
    int64_t macs_per_cycle = 0, bytes_per_cycle = 0;       // peaks; bytes: of reads, and of writes
    int64_t matrix_cycles = 0, alu_cycles = 0, alu_stalls = 0;
    int64_t fetch_bytes = 0, load_bytes = 0, store_bytes = 0;
    std::vector<Unit> units;
    std::vector<Layer> layers;
    std::vector<Span> spans;
    std::vector<std::pair<size_t, size_t>> tokens;         // spans: which adds the token, which takes it
};

// The host, all GPUs that the driver reports, then simulated accelerators. Unless null, `why` receives the reason if there are no GPUs.
std::vector<DeviceInfo> list_devices(std::string* why = nullptr);

// The target for GPUs of a compute capability; empty if it is too old.
std::string gpu_target(int major, int minor);

// The number of the GPU that owns this memory; nothing if the driver does not know the address.
std::optional<int> gpu_of_memory(const void* memory);

}  // namespace tessera
