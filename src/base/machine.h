// What default schedules need to know of a processor or GPU, and no more. Read from the host, or by the name of a target.
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
    bool lane_multiply = false;       // multiplies a register by one lane of another (NEON): broadcasts cost nothing from registers
    bool load_broadcast = false;      // multiplies by an element in memory, repeated (AVX-512): broadcasts cost nothing from memory
    bool masked = false;              // vector loads and stores of some lanes only
    int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 0;  // of one core; l3 shared
    int cores = 1;                    // of a GPU: its SMs
    bool blocks = false;              // runs blocks of threads: a GPU
    double flops = 0, bandwidth = 0;  // of a GPU, in a second: operations of large products of f32, bytes of memory
    int64_t shared_bytes = 0;         // of a GPU: that a block may have
    double launch = 0;                // of a GPU: seconds that a kernel of little work takes among others
    int64_t barrier = 400'000;        // multiply-adds of one core in the time that threads take to meet
    std::vector<std::string> features = {};  // by LLVM's names: "dotprod", "avx512vnni"

    // There is an instruction for sums of products of bytes.
    bool multiplies_bytes() const { return has("dotprod") || has("avx512vnni") || has("avxvnni"); }
    bool has(std::string_view feature) const {
        return std::find(features.begin(), features.end(), feature) != features.end();
    }
};

}  // namespace tessera
