// One run of a loaded program: its steps in order over one context.
#pragma once

#include <map>
#include <optional>

#include "graph/evaluate/evaluate_node.h"
#include "runtime/loaded_program.h"

namespace tessera {

// A node for people: its name, or that of what it computes.
inline const std::string& shown(const Node& node) { return node.name().empty() ? node.output()->name() : node.name(); }

// The same value in memory of its own, where it lies in memory that `mark` owns.
Result<Datum> detached(Datum d, const std::shared_ptr<const void>& mark);

class Run {
  public:
    Run(const LoadedProgram& loaded, RunContext& context, const RunOptions& options);
    ~Run();  // nothing that it launched goes on after it
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    // The inputs, bound; then each step; then the outputs.
    Status begin(const std::vector<Datum>& inputs);
    Status step(size_t i);
    void report(size_t i, size_t done);  // as the run's progress
    Status finish(size_t i);             // waits for a step; E0702 names the kernel
    // All steps at once, where what was captured before can be replayed; false where they are to be run one by one.
    Result<bool> replay();
    Result<std::vector<Datum>> outputs();

    // What a buffer holds just now, as a tensor of the buffer's shape (or whatever a host step made).
    Result<Datum> datum(int buffer) const;

  private:
    // An output, and where it is to be left.
    struct Left {
        bool queried = false;          // RunOptions::place was called
        std::optional<Tensor> memory;  // where
        bool in_place = false;         // kernels write there
    };
    // Asks where output `k` is to be left, where its sizes are known and somebody says.
    Status ask_place(size_t k);
    // Memory that kernels write an output to; null where it is the run's own.
    Result<const Tensor*> output_place(size_t root, int64_t bytes);
    bool overlaps_inputs(const Tensor& t) const;
    // Whether kernels may write this output to `t`: it lies apart from all inputs, or exactly where one lies that no
    // kernel reads afterwards.
    bool may_write(size_t root, const Tensor& t) const;
    bool stays() const { return options_.stream && !context_.device.shares_memory(); }  // on the device
    Result<Tensor> device_tensor(size_t k);                                             // for an output that stays
    // Output `k` in memory of its own, where it is an input, or a step passed one on; or nothing.
    Result<std::optional<Datum>> given_output(size_t k);
    Result<Datum> apart_from_inputs(const Datum& d);
    // Output `k`, in the memory that it is to be left in. `source`: what it is, where it was looked at before.
    Result<Datum> leave_output(size_t k, const std::optional<Datum>& source);
    Status copy(const Tensor& to, const Tensor& from);
    Result<Tensor> on_device(size_t k) const;  // an output as it lies there
    bool lies_on_device(size_t root) const;
    // All steps; where `side_by_side`, those that need not wait for each other as such.
    Status capture(bool side_by_side);
    Status capture_steps(bool side_by_side);
    void remember_places();  // that are in the recording
    Status rebind();         // the recording, to where the inputs and outputs of this run lie

    Status finish_all();  // waits; E0702 says which kernels it may have been
    Error at_step(Error error, size_t i) const;

    Status run(const KernelStep& step, size_t i);
    Status run(const HostStep& step, size_t i);
    Status run(const ControlStep& step, size_t i);
    Status run(const CheckStep& step, size_t i);
    Status run(const InferStep& step, size_t i);
    Status run(const FoundStep& step, size_t i);
    Status run(const CopyStep& step, size_t i);
    Status run(const DeviceStep& step, size_t i);
    Result<void*> memory_of(int buffer);
    // For a program nested in the current step; its progress is reported as that of the step.
    RunOptions inner_options();
    NodeEvaluator& evaluator();
    // What the evaluator may ask for of a step's node: its inputs, and what its nested graphs use from outside.
    using Values = std::vector<std::pair<const Value*, Datum>>;
    Result<Values> values_of(const Node& node, const std::vector<int>& inputs, size_t i) const;
    class Repetition;
    // The results of a control step; nothing if the evaluator must execute it: sizes change between iterations, or a
    // nested program failed, for which the evaluator reports the error.
    Result<std::optional<std::vector<Datum>>> run_control(const ControlStep& step, const Values& values);
    // A graph nested in a host step by its own program; nothing where it has none or that failed.
    std::optional<std::vector<Datum>> nested(const Graph& graph, const std::vector<Datum>& inputs,
                                             const NodeEvaluator::Find& outer);
    Status keep(int buffer, Datum result);          // what a host or control step made
    void note_given(const Datum& input, int root);  // where it lies
    void order_given();
    Status bind_input(size_t i, const Datum& input);
    Status define_sizes(const Value& value, const Sizes& sizes);
    Result<const BoundStep*> bind_late(const KernelStep& step, size_t i);  // as in the last run, where sizes are equal
    Result<std::optional<Sizes>> sizes_of(size_t buffer) const;            // nothing where a step is to define one
    Status allocate(int buffer);                                           // a buffer whose size was not known before
    Result<void*> readable(size_t root, const Tensor& t);                  // by kernels: where it lies, or a copy

    const LoadedProgram& loaded_;
    const Program& program_;
    const ProgramLayout& layout_;
    RunContext& context_;
    const RunOptions& options_;
    EvaluateOptions evaluation_;
    std::optional<NodeEvaluator> evaluator_;
    size_t current_ = 0;      // step
    std::vector<Left> left_;  // by output
    // The memory of an input; its buffer's root, -1 where it is no tensor of its own. `reach`: the last end of this one
    // and of those before it.
    struct GivenMemory {
        const char *begin, *end;
        int root;
        const char* reach = nullptr;
    };
    std::vector<GivenMemory> given_;  // in the order of memory
    // The first that overlaps a tensor and fails a test; null where none does.
    template <typename Test>
    const GivenMemory* find_given(const Tensor& t, const Test& fails) const;
    std::map<const char*, std::pair<const char*, size_t>> taken_;  // memory of outputs: its end, and which
    std::vector<std::pair<size_t, size_t>> outputs_of_;            // roots and outputs, in order
    bool shared_ = false;                                          // an output is to be left in memory of an input
    bool staged_ = false;                  // something of the process's is being copied to the device
    std::shared_ptr<const Event> copied_;  // after which it was
    bool one_by_one_ = false;              // a kernel that fails is to be named
    bool waits_ = false;                   // what is copied must have been when the run ends
    bool goes_on_ = false;                 // by itself, when the call ends
};

}  // namespace tessera
