// A mesh and annotations, as subcommands take them.
#pragma once

#include "command.h"

namespace tessera::cli {

struct ShardFlags {
    std::string mesh;
    std::vector<std::string> annotations;  // VALUE=SHARDING

    void add_options(CLI::App& command, const char* annotate);  // --mesh, and the name of the other
    bool given() const { return !mesh.empty(); }
    Result<ShardOptions> chosen(const SymbolValues& sizes) const;  // E0501
};

// The rank that mpirun gave this process, if it started it.
std::optional<int64_t> rank_of_mpirun();

}  // namespace tessera::cli
