// Compiled models: machine code for this processor (or another), run by a pool of threads.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/model.h"
#include "tessera/optimize.h"

namespace tessera {

class RunMemory;  // that runs compute in; see make_run_memory

struct CompileOptions {
    std::string target = "host";   // see compile_targets(); "cuda:1" is the second GPU of this machine
    int threads = 0;               // of a run, at most; 0: one for each core
    std::string precision = "default";  // "strict": the same bits whatever the number of threads
    bool optimize = true;          // the graph's rewrites first
    bool fuse = true;
    bool keep_weights = false;     // also the model's own that were prepared for running, and the stages before kernels:
                                   // for check(), and for emit() of "graph", "compute" and "schedule"
    bool specialise = true;        // compile again, when a run first has them, for sizes that decide branches and ranks
    std::optional<std::string> cache = {};  // folder of compiled code; none: the user's; empty: no cache
    std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
    std::shared_ptr<RunMemory> memory = {};  // shared with others, for runs on the processor; null: its own
    bool verify = false;  // check the graph's invariants after each pass
    // Called after each of compile_passes() with its name, the graph as it is then, and whether the pass changed it.
    // Nothing comes from the cache then.
    std::function<void(const std::string& pass, const Model& now, bool changed)> after = {};
};

// When one thread worked on a step, in seconds since the run began.
struct ThreadSpan {
    int thread = 0;
    double begin = 0, end = 0;
};

// One step of a compiled model, as profile shows it.
struct StepProfile {
    std::string label, kind;             // kind: "kernel", "control" (programs of nested graphs) or "host" (left to the evaluator)
    std::vector<std::string> nodes;      // of the optimized graph
    double seconds = 0;                  // median of the runs
    double flops = 0, bytes = 0;         // of one run
    std::string dtype;                   // elements that most of those operations are about; empty where there are none
    int launches = 0;
    std::vector<std::string> ops;            // of those nodes, one each
    std::vector<std::string> reads, writes;  // values, by their names; weights are not among them
    double begin = 0, end = 0;               // of the run that is nearest to the median, in seconds since it began
    std::vector<ThreadSpan> threads;         // in that run; none where the step is not the processor's
};

struct CompileReport {
    size_t kernels = 0, steps = 0, host_steps = 0;
    bool from_cache = false;
    std::vector<std::pair<std::string, double>> phases;            // name, seconds
    std::vector<std::pair<std::string, std::string>> decisions;    // what, and why
    size_t host_numbers = 0;  // host steps from tensors of numbers to tensors of numbers: what a kernel could have computed
    std::vector<std::pair<std::string, std::string>> host_reasons; // node, why no kernel computes it
    std::vector<std::string> deciding;                             // symbols by whose sizes the model takes its branches
};

// One run again and again on a GPU, its inputs being there already and its outputs staying. Used by one thread at a time.
class DeviceRuns {
   public:
    // Of one of so many, one launched after the other, by the GPU's clock.
    Result<double> seconds(int runs = 1) const;

    struct State;
    explicit DeviceRuns(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

class Executable {
   public:
    // The outputs in order. Safe to call from many threads at once.
    Result<std::vector<Datum>> run(const NamedData& inputs, const RunOptions& options = {}) const;
    // The same with one for each of inputs(), in order. Where they are like those of the run before, they are not looked at
    // again. Nothing of them is kept when it returns.
    Result<std::vector<Datum>> run_in_order(const std::vector<Datum>& inputs, const RunOptions& options = {}) const;
    Result<std::vector<StepProfile>> profile(const NamedData& inputs, int runs = 10) const;
    // E0501 where it was compiled for the processor, or steps are left to it.
    Result<DeviceRuns> on_device(const NamedData& inputs) const;
    Result<double> seconds_on_device(const NamedData& inputs, int runs = 100) const;  // of one of so many, in the same way
    // Each step against the evaluator, on these inputs: the largest difference relative to the values' size, per step.
    // E0501 where the weights were not kept.
    Result<std::vector<std::pair<std::string, double>>> check(const NamedData& inputs) const;

    std::vector<Port> inputs() const;
    std::vector<Port> outputs() const;
    const CompileReport& report() const;
    // What a run takes besides weights: the arena after planning, for these sizes of symbols (1 where not given).
    std::optional<int64_t> arena_bytes(const std::map<std::string, int64_t>& symbols = {}) const;
    int64_t weight_bytes() const;
    int gpu() const;  // that it runs on, by its number; kNoGpu: the processor

    // A stage as text: "graph", "outline" (the graph without the weights' bytes), "compute" or "schedule" (E0501 where the
    // weights were not kept), "kernel", "llvm" or "asm", which for a GPU is "ptx".
    Result<std::string> emit(std::string_view what) const;

    // One file that load maps, for this processor and this build of Tessera. Where a step is left to the evaluator, or is
    // another device's, the file holds the model, and load compiles it again. E0105.
    Status save(const std::string& path) const;
    // E0101 to E0104 for a file that cannot be read, E0605 where it is of another processor or build.
    static Result<Executable> load(const std::string& path);

    struct State;
    explicit Executable(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

Result<Executable> compile(const Model& model, const CompileOptions& options = {});
// The same of a model that is given away: its weights go as they are prepared for running, unless somebody else holds them
// or the executable itself needs the model again.
Result<Executable> compile(Model&& model, const CompileOptions& options = {});
// For executables that run in turns: together they take no more than the one that takes most. What runs at the same time
// as another gets memory of its own.
std::shared_ptr<RunMemory> make_run_memory();

struct BundleOptions {
    CompileOptions compile = {.threads = 1};  // threads: the most that a parallel run may use
    std::string name = {};                    // of the C functions; empty: after the model
    std::map<std::string, int64_t> sizes = {};  // of the model's symbols, all of them
    bool shared_library = false;              // linked by $CC, or cc, instead of an object file
};
struct BundleReport {
    std::vector<std::string> files;  // in the folder
    size_t kernels = 0, calls = 0;   // kernels; calls of one run
    int64_t weight_bytes = 0, arena_bytes = 0;
};
// Writes a folder that C programs can use without Tessera: code, a header, weights, an example and a Makefile. It appears whole
// or not at all; a folder that is there is replaced only where it is empty or a bundle. E0605: the model cannot be one.
Result<BundleReport> write_bundle(const Model& model, const std::string& folder, const BundleOptions& options = {});
std::vector<std::string> compile_targets();

// The passes that a graph goes through before it is kernels: those of the optimizer, then those of lowering.
std::vector<PassRun> compile_passes(const CompileOptions& options = {});
// The graph as it is after the first run of one of them.
Result<Model> graph_after(const Model& model, const std::string& pass, const CompileOptions& options = {});

}  // namespace tessera
