// The properties of a CPU or GPU that default schedules depend on, detected on the host or given by a target name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera {

struct Machine {
    std::string target = "host";      // a name that parse_target reads
    int vector_bytes = 16;            // of one register
    int vector_registers = 32;
    int fma_pipes = 2, fma_latency = 4;
    bool lane_multiply = false;       // has multiply-by-lane instructions (NEON): broadcasts from registers are free
    bool load_broadcast = false;      // has memory broadcast operands (AVX-512): broadcasts from memory are free
    bool masked = false;              // has masked vector loads and stores
    int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 0;  // of one core; l3 shared
    int cores = 1;                    // for a GPU: SMs
    bool blocks = false;              // runs thread blocks: a GPU
    double flops = 0, bandwidth = 0;  // for a GPU, per second: operations of large f32 products, bytes of memory
    int64_t shared_bytes = 0;         // for a GPU: maximum shared memory of a block
    double launch = 0;                // for a GPU: seconds that a small kernel takes among others
    int64_t barrier = 400'000;        // cost of a thread barrier, in multiply-adds of one core
    std::vector<std::string> features = {};  // by LLVM's names: "dotprod", "avx512vnni"

    // Has dot-product instructions for bytes.
    bool multiplies_bytes() const { return has("dotprod") || has("avx512vnni") || has("avxvnni"); }
    bool has(std::string_view feature) const {
        return std::find(features.begin(), features.end(), feature) != features.end();
    }
};

}  // namespace tessera
