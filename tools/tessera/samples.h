// Sample data for calibration: arrays whose first dimension counts examples, .npz files with the inputs of one run
// each, or random inputs.
#pragma once

#include "command.h"

namespace tessera::cli {

struct GivenSamples {
    std::string data;                          // "x.npy,y.npy", "NAME=x.npy", or a folder of .npz files
    int64_t random = 0, batch = 0, limit = 0;  // batch 0: the model's, or 1; limit 0: all
    std::vector<std::string> dims;
    uint64_t seed = 0;

    void add_options(CLI::App& command);  // --data, --random, --batch, --limit, --dim, --seed
    bool given() const { return !data.empty() || random > 0; }
    // E0501 without any, E0110, E0401 to E0405.
    Result<std::vector<NamedData>> read(const Model& model) const;
};

}  // namespace tessera::cli
