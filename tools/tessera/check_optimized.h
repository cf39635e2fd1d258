// Runs a model and what the optimizer made of it on the same random inputs, and compares.
#pragma once

#include "command.h"

namespace tessera::cli {

struct CheckedOutput {
    std::string name;
    double error = 0;      // the largest difference, relative to the largest element
    double tolerance = 0;  // 0: every element must be the same
};

struct CheckedRun {
    SymbolValues sizes;
    std::vector<CheckedOutput> outputs;
    double seconds_before = 0, seconds_after = 0;
};

// E0407 where an output differs by more than the precision allows. Symbolic dimensions that are not given get small
// sizes. `rules`: files of the user's own rules, which may be at fault.
Result<CheckedRun> check_optimized(const Model& before, const Model& after, const std::string& precision,
                                   const SymbolValues& sizes, uint64_t seed, const std::vector<std::string>& rules);

Json checked_json(const CheckedRun& run);
std::string checked_text(const CheckedRun& run);

}  // namespace tessera::cli
