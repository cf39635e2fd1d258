// What a machine can do at most, measured: a processor in a quarter of a second, a GPU once for each card.
#pragma once

#include <map>
#include <string>

#include "tessera/compile.h"

namespace tessera::cli {

struct Peak {
    double flops = 0;  // per second: of f32 by fused multiply-adds in registers; of a GPU, of floats at most
    double bytes = 0;  // per second: read from memory; of a GPU, read and written
    int threads = 1;
    std::map<std::string, double> flops_by_type = {};  // of a GPU: products of such elements

    double flops_of(const std::string& type) const {
        auto found = flops_by_type.find(type);
        return found == flops_by_type.end() ? flops : found->second;
    }
};

Peak measure_peak(int threads);  // 0: one for each core
// The most that was measured on this machine so far, kept in the user's folder of compiled code.
Peak cpu_peak(const CompileOptions& options);
// A peak is never below what a step reached.
void raise_peak(Peak& peak, const std::vector<StepProfile>& steps, const CompileOptions& options);
// Large products of each type, and a copy, as compiled for the target; kept in the user's folder of compiled code.
Result<Peak> gpu_peak(const CompileOptions& options);

}  // namespace tessera::cli
