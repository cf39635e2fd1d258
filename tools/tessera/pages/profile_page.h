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
    std::optional<double> at_once;  // seconds of a run on a GPU, its steps launched together

    double of_peak(double f, double b, double s) const {
        return s > 0 ? std::max(f / peak.flops, b / peak.bytes) / s : 0;
    }
};

std::string profile_page(const Measured& measured, const Executable& executable, const std::string& title,
                         const SymbolValues& sizes);

}  // namespace tessera::cli
