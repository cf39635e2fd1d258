// The page of `tessera profile --report`: one HTML file with a timeline, a roofline, the graph and a table. Its sources
// stand in profile_page/ and are part of the binary.
#pragma once

#include "command.h"
#include "peak.h"

namespace tessera::cli {

struct Measured {
    std::vector<StepProfile> steps;  // in the order they run
    Peak peak;
    double seconds = 0, flops = 0, bytes = 0;
    int host_steps = 0;
    bool gpu = false;
    std::optional<double> at_once;  // seconds of a run on a GPU, its steps launched together

    // The share of the machine's peak, of operations or of bytes: whichever is nearer.
    double of_peak(const StepProfile& s) const {
        return s.seconds > 0 ? std::max(s.flops / peak.flops_of(s.dtype), s.bytes / peak.bytes) / s.seconds : 0;
    }
    // Of all steps, in so many seconds.
    double of_peak(double in) const {
        double computing = 0;
        for (const StepProfile& s : steps) computing += s.flops / peak.flops_of(s.dtype);
        return in > 0 ? std::max(computing, bytes / peak.bytes) / in : 0;
    }
};

std::string profile_page(const Measured& measured, const Executable& executable, const std::string& title,
                         const SymbolValues& sizes);

}  // namespace tessera::cli
