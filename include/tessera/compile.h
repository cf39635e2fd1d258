// Compiled models: machine code for this CPU, another one, or a GPU.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/devices.h"
#include "tessera/model.h"
#include "tessera/optimize.h"

namespace tessera {

class RunMemory;  // memory for the runs of several executables; see make_run_memory

struct CompileOptions {
    std::string target = "host";   // see compile_targets(); "cuda:1" is the second GPU of this machine
    int threads = 0;               // maximum for a run; 0: one for each core
    std::string precision = "default";  // "strict": bitwise independent of the number of threads
    bool optimize = true;          // run the graph optimizer first
    bool fuse = true;
    bool keep_weights = false;     // keep the original weights after packing, and the stages before kernels:
                                   // for check(), and for emit() of "graph", "compute" and "schedule"
    // "full": optimized code. "fast": a baseline that compiles in about a tenth of the time and runs several times
    // slower. "auto": optimized code if the cache has it; otherwise a baseline, until a background thread has compiled
    // optimized code. For a GPU, for another machine, and with precision "strict", "auto" means "full".
    std::string tier = "full";
    // For a target that computes parts of models beside the host: tiles that its code keeps in flight. With 1, its loads,
    // computes and stores do not overlap.
    int virtual_threads = 2;
    bool specialise = true;        // recompile on first use for sizes that decide branches and ranks
    std::optional<std::string> cache = {};  // code cache folder; none: the user's; empty: no cache
    std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
    std::shared_ptr<RunMemory> memory = {};  // shared with other executables, for runs on the CPU; null: private
    bool verify = false;  // check the graph's invariants after each pass
    const std::atomic<bool>* cancel = nullptr;  // set it to stop compile() with E0410; not read after compile() returns
    // Called after each of compile_passes() with its name, the graph after it, and whether the pass changed it.
    // Disables the cache.
    std::function<void(const std::string& pass, const Model& now, bool changed)> after = {};
};

// The interval in which one thread executed a step, in seconds since the run began.
struct ThreadSpan {
    int thread = 0;
    double begin = 0, end = 0;
};

// One step of a compiled model, as measured by profile().
struct StepProfile {
    // kind: "kernel", "control" (nested programs), "host" (the evaluator), "device" (another device) or "copy" (to it
    // or from it)
    std::string label, kind;
    std::vector<std::string> nodes;      // of the optimized graph
    double seconds = 0;                  // median of the runs
    double flops = 0, bytes = 0;         // of one run
    std::string dtype;                   // element type of most of these operations; empty if there are none
    int launches = 0;
    std::vector<std::string> ops;            // the op of each node
    std::vector<std::string> reads, writes;  // names of values, without weights
    double begin = 0, end = 0;               // in the run closest to the median, in seconds since that run began
    std::vector<ThreadSpan> threads;         // in that run; empty if the step does not run on the CPU
};

struct CompileReport {
    size_t kernels = 0, steps = 0, host_steps = 0;
    bool from_cache = false;
    std::string tier = "full";                                     // of the code that runs now: "full" or "fast"
    std::vector<std::pair<std::string, double>> phases;            // name, seconds
    std::vector<std::pair<std::string, std::string>> decisions;    // optimization remarks: what, and why
    size_t host_numbers = 0;  // host steps whose operands and results are numeric tensors, which a kernel could compute
    std::vector<std::pair<std::string, std::string>> host_reasons; // node; why no kernel computes it
    std::vector<std::string> deciding;                             // symbols whose sizes determine the model's branches
};

// Repeats one run on a GPU, with resident inputs and outputs. Not thread-safe.
class DeviceRuns {
   public:
    // Average time of a run over `runs` back-to-back runs, by the GPU's clock.
    Result<double> seconds(int runs = 1) const;

    struct State;
    explicit DeviceRuns(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

class Executable {
   public:
    // Returns the outputs in order. Thread-safe.
    Result<std::vector<Datum>> run(const NamedData& inputs, const RunOptions& options = {}) const;
    // The same with one value for each of inputs(), in order. Skips the checks if types and sizes are those of the
    // previous run. The executable keeps no references to the inputs after the call.
    Result<std::vector<Datum>> run_in_order(const std::vector<Datum>& inputs, const RunOptions& options = {}) const;
    Result<std::vector<StepProfile>> profile(const NamedData& inputs, int runs = 10) const;
    // What each part takes that an accelerator computes, by its own clock; empty if there are none. A model with dynamic
    // sizes has none until `inputs` say the sizes.
    Result<std::vector<DeviceProfile>> profile_devices(const NamedData& inputs = {}) const;
    // E0501 if the model was compiled for the CPU, or has host steps.
    Result<DeviceRuns> on_device(const NamedData& inputs) const;
    Result<double> seconds_on_device(const NamedData& inputs, int runs = 100) const;  // the average, as DeviceRuns::seconds
    // Compares each step with the evaluator on these inputs. Returns the largest difference of each step, relative to
    // the magnitude of its values. E0501 without keep_weights.
    Result<std::vector<std::pair<std::string, double>>> check(const NamedData& inputs) const;

    std::vector<Port> inputs() const;
    std::vector<Port> outputs() const;
    // With tier "auto", waits for optimized code, as profile, check, emit and save do. Returns the error if compiling
    // it failed; the baseline then remains in use.
    Status wait() const;

    const CompileReport& report() const;  // of the code that runs now
    // Memory of a run besides weights: the planned arena, for these values of symbols (1 by default).
    std::optional<int64_t> arena_bytes(const std::map<std::string, int64_t>& symbols = {}) const;
    int64_t weight_bytes() const;
    int gpu() const;  // number of the GPU that it runs on; kNoGpu: the CPU
    const std::string& target() const;  // as compile() was given it

    // A stage of compilation as text: "graph", "outline" (the graph without the data of weights), "compute" or
    // "schedule" (E0501 without keep_weights), "kernel", "llvm" or "asm" (for a GPU "ptx"), or "device": the code of
    // the parts that another device than the host runs (E0501 if there are none).
    Result<std::string> emit(std::string_view what) const;

    // Writes one file for this processor and this build of Tessera, which load() memory-maps. With host steps or a GPU as
    // target, the file contains the model, and load() recompiles it. E0105 if it cannot be written.
    Status save(const std::string& path) const;
    // On another processor or build, recompiles the model from its unchanged file, at its old path or beside this one;
    // E0605 without it, which names the processor and the build. E0101 to E0104 if the file cannot be read.
    static Result<Executable> load(const std::string& path);

    struct State;
    explicit Executable(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

Result<Executable> compile(const Model& model, const CompileOptions& options = {});
// The same, consuming the model: each weight is freed as soon as it is packed, unless it is shared or the executable
// needs the model again.
Result<Executable> compile(Model&& model, const CompileOptions& options = {});
// Memory to share between executables that run alternately: together they use as much as the largest one. Concurrent
// runs get separate memory.
std::shared_ptr<RunMemory> make_run_memory();

struct BundleOptions {
    CompileOptions compile = {.threads = 1};  // threads: maximum for a parallel run
    std::string name = {};                    // prefix of the C functions; empty: the model's name
    std::map<std::string, int64_t> sizes = {};  // values of all symbols of the model
    bool shared_library = false;              // instead of an object file; linked by $CC or cc
};
struct BundleReport {
    std::vector<std::string> files;  // in the folder
    size_t kernels = 0, calls = 0;   // kernels; kernel calls in one run
    int64_t weight_bytes = 0, arena_bytes = 0;
};
// Writes a folder for C programs without Tessera: code, header, weights, example and Makefile. The write is atomic; only
// an empty folder or a bundle is replaced. E0605 if the model cannot be bundled.
Result<BundleReport> write_bundle(const Model& model, const std::string& folder, const BundleOptions& options = {});
std::vector<std::string> compile_targets();

// All graph passes: those of the optimizer, then those of lowering.
std::vector<PassRun> compile_passes(const CompileOptions& options = {});
// The model after the first run of one of these passes.
Result<Model> graph_after(const Model& model, const std::string& pass, const CompileOptions& options = {});

}  // namespace tessera
