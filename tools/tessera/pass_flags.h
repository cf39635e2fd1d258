// The options of commands that run passes over a graph: what there is, what is printed after which, where it ends.
#pragma once

#include "command.h"

namespace tessera::cli {

struct PassFlags {
    std::vector<std::string> print_after;
    std::string stop_after;
    bool verify = false, list = false;

    void add_options(CLI::App& command);                    // --print-after, --stop-after, --verify, --list-passes
    Status check(const std::vector<PassRun>& there) const;  // E0501
    // Prints the graph after the passes that were named; empty where none was.
    std::function<void(const std::string& pass, const Model& now, bool changed)> printer() const;
};

void print_passes(const std::vector<PassRun>& passes);

}  // namespace tessera::cli
