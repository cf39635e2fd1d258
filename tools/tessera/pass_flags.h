// The options of commands that run passes over a graph: what there is, what is printed after which, where it ends.
#pragma once

#include "command.h"

namespace tessera::cli {

struct PassFlags {
    std::vector<std::string> print_after;
    std::string stop_after;
    bool verify = false, list = false, with_weights = false;

    void add_options(CLI::App& command);                    // --print-after, --stop-after, --verify, --list-passes,
                                                            // --with-weights
    Status check(const std::vector<PassRun>& there) const;  // E0501
    // Prints the graph after the passes that were named; empty where none was.
    std::function<void(const std::string& pass, const Model& now, bool changed)> printer() const;
};

// A graph as text, by default without the bytes of its weights.
std::string outline(const Graph& graph, bool with_weights);

void print_passes(const std::vector<PassRun>& passes, bool json);

}  // namespace tessera::cli
