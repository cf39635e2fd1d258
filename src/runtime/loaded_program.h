// A program and its machine code, ready to run: weights are packed, and constants that are no longer needed are
// released. Runs may be concurrent, each in a context of its own.
#pragma once

#include "runtime/prepare_weights.h"
#include "runtime/run_context.h"
#include "tessera/compile.h"

namespace tessera {

struct LoadOptions {
    int threads = 0;                         // of a run, at most; 0: as many as the pool has
    bool keep_constants = false;             // for check(), also those that only the preparation reads
    Device* device = nullptr;                // where it runs; null: the CPU
    std::vector<Device*> others = {};        // of Program::devices; empty: those that find_backend knows by the names
    std::shared_ptr<RunMemory> memory = {};  // that runs on the processor share with others; null: its own
};

// A run that was captured: its inputs lie on the device, and its outputs stay there. The program outlives it.
class RunsOnDevice {
  public:
    RunsOnDevice(std::unique_ptr<RunContext> context, RunMemory& from) : context_(std::move(context), from) {}
    Result<double> seconds(int runs);  // of one of so many, one launched after the other, by the device's clock

  private:
    friend class LoadedProgram;
    Borrowed context_;
};

class LoadedProgram {
  public:
    static Result<std::unique_ptr<LoadedProgram>> load(Program program, std::shared_ptr<CompiledModule> module,
                                                       const LoadOptions& options = {});
    // With weights that were prepared before: see read_weights.
    static Result<std::unique_ptr<LoadedProgram>> restore(Program program, std::shared_ptr<CompiledModule> module,
                                                          std::string_view weights, std::shared_ptr<const void> owner,
                                                          const LoadOptions& options = {});

    // From here on the weights are these, as place_weights lays them out; `owner` keeps them, and memory that the
    // program has of its own goes. Where no size is open, the plan is made and the kernels' loops, which nobody needs
    // then, go too. Before the first run. E0605: they are not this program's.
    Status read_weights(std::string_view weights, std::shared_ptr<const void> owner);

    Result<std::vector<Datum>> run(const NamedData& inputs, const RunOptions& options = {}) const;
    Result<std::vector<Datum>> run_bound(const std::vector<Datum>& inputs,
                                         const RunOptions& options) const;  // in order
    // In the order of the graph's inputs, of which every one is given. Those of types met in the run before are not
    // checked again.
    Result<std::vector<Datum>> run_in_order(const std::vector<Datum>& inputs, const RunOptions& options) const;
    bool takes(const std::vector<Port>& ports, size_t count) const;  // so many inputs, in this order
    Result<std::vector<StepProfile>> profile(const NamedData& inputs, int runs) const;
    Result<std::vector<std::pair<std::string, double>>> check(const NamedData& inputs) const;
    // Repeated runs on a device with its own memory. E0501 if the device is the CPU, or there are host
    // steps.
    Result<std::unique_ptr<RunsOnDevice>> on_device(const NamedData& inputs) const;

    Result<int64_t> arena_bytes(const SymbolValues& symbols) const;  // scratch included
    int64_t weight_bytes() const { return weights_.bytes; }
    const Program& program() const { return program_; }
    // What read_weights takes: one piece for each weight, in order.
    Result<std::vector<std::string_view>> weight_pieces() const;
    const CompiledModule& module() const { return *module_; }
    bool complete() const { return complete_; }  // constants that only preparing reads were kept
    int threads() const { return threads_; }
    int gpu() const { return device_.gpu(); }  // kNoGpu: it runs on the processor

  private:
    friend class Run;
    struct Nested {
        const Graph* graph;
        std::vector<const Value*> captured;
        std::unique_ptr<LoadedProgram> loaded;
    };
    LoadedProgram(Program program, std::shared_ptr<CompiledModule> module, const LoadOptions& options);
    static std::unique_ptr<LoadedProgram> without_weights(Program program, std::shared_ptr<CompiledModule> module,
                                                          const LoadOptions& options);
    Status take_weights(std::string_view& weights, const std::shared_ptr<const void>& owner);  // from the front
    Result<int64_t> stored_bytes() const;  // of weights, nested programs included
    Result<std::shared_ptr<const RunPlan>> plan(const SymbolValues& symbols) const;
    Result<std::shared_ptr<const RunPlan>> plan_for(const std::vector<Datum>& inputs) const;
    Result<std::unique_ptr<RunContext>> take_context() const { return memory_->take(device_, threads_); }
    Result<std::vector<Datum>> run_planned(const std::vector<Datum>& inputs, std::shared_ptr<const RunPlan> plan,
                                           const RunOptions& options) const;
    // Of inputs that have the element types and sizes of those met last; null where they have others.
    std::shared_ptr<const RunPlan> plan_met(const std::vector<Datum>& inputs) const;
    void meet(const std::vector<Datum>& inputs, std::shared_ptr<const RunPlan> plan) const;
    // Of a run with these sizes, without weights. Callers' device arrays count as if they were copied.
    Result<int64_t> bytes_on_device(const SymbolValues& symbols) const;
    // E0408 of a device with memory of its own gets a hint: what the run needs, and sizes for which there is room.
    Error with_what_fits(Error error, const std::vector<Datum>& inputs) const;
    const Nested* nested_of(const Graph& graph) const;
    StepProfile describe_step(const Step& step, const SymbolValues& symbols) const;  // without times
    void describe_values(const Step& step, StepProfile& into) const;

    Status find_devices(const std::vector<Device*>& given);
    Status prepare(RunContext& context, std::shared_ptr<const RunPlan> plan) const;

    Program program_;
    std::vector<Device*> others_;                                      // of Program::devices
    std::unordered_map<const DeviceCode*, std::shared_ptr<void>> code_;  // that they loaded
    std::shared_ptr<CompiledModule> module_;
    ProgramLayout layout_;
    Device& device_;
    int threads_;
    std::shared_ptr<RunMemory> memory_;
    Weights weights_;
    std::vector<Nested> nested_;
    bool complete_ = true;  // all constants are still there

    mutable std::mutex mutex_;                                                                    // over what follows
    mutable std::vector<std::pair<std::vector<int64_t>, std::shared_ptr<const RunPlan>>> plans_;  // newest use last
    struct Met {
        std::vector<std::pair<DType, Sizes>> types;  // of all inputs
        std::shared_ptr<const RunPlan> plan;         // null: nothing was met
    };
    mutable Met met_;  // in order, last
    std::shared_ptr<OutputMemory> outputs_ = std::make_shared<OutputMemory>(device_);
    std::shared_ptr<OutputMemory> device_outputs_ = std::make_shared<OutputMemory>(device_, true);
};

}  // namespace tessera
