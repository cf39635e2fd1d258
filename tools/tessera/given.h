// What several subcommands take alike: a model's inputs, and how it is compiled.
#pragma once

#include "command.h"

namespace tessera::cli {

// Inputs from files, and random ones.
struct GivenInputs {
    std::vector<std::string> files, dims;
    uint64_t seed = 0;
    bool random = true;  // draw what no file gives

    void add_options(CLI::App& command);  // --input, --dim, --seed
    Status check_files() const;           // by their names, before anything is loaded. E0110
    // E0401, E0402, E0405, E0501.
    Result<NamedData> gather(const Model& model, const std::string& path) const;
};

// The sizes that symbols take by the inputs that are given.
SymbolValues sizes_of(const Graph& graph, const NamedData& given);

// With the model's suggested sizes for the other symbols of its inputs, named on standard error.
SymbolValues with_suggested_sizes(const Model& model, SymbolValues sizes);

struct CompileFlags {
    CompileOptions options;
    std::string machine;  // the file of --machine
    bool rtl = false;     // --rtl
    bool no_cache = false, no_optimize = false, no_fuse = false;
    double search = 0, mutate = 0;  // seconds; 0: none

    void add_options(CLI::App& command);  // --target, --machine, --rtl, --virtual-threads, --precision, --cache-dir, --no-cache, --no-optimize, --no-fuse
    void add_threads(CLI::App& command);  // --threads
    void add_tier(CLI::App& command, const std::string& standard);  // --tier
    void add_search(CLI::App& command);                             // --search, --mutate
    Result<CompileOptions> chosen() const;                          // E0501, E0603
    // What --search finds for the target, at these sizes; the model itself where nobody asked.
    Result<Model> searched(const Model& model, const SymbolValues& sizes, Progress::Mode mode) const;
};

// Shows which kernel it is at.
Result<Executable> compile_with_progress(const Model& model, CompileOptions options, Progress::Mode mode);

Result<Model> load_or_demo(const std::string& path, uint64_t seed = 0);  // no path: the built-in ResNet-50

}  // namespace tessera::cli
