// A whole graph as kernels: buffers for its values, and the steps that fill them in order. What no kernel computes is
// left to the evaluator as host steps. Sizes are expressions over the graph's symbols; steps may define more of them.
#pragma once

#include <optional>
#include <variant>

#include "base/decision.h"
#include "graph/graph.h"
#include "kernel/backend/offload.h"
#include "kernel/ir/kernel.h"
#include "rewrite/pass.h"

namespace tessera {

enum class BufferRole : uint8_t { Input, Output, Constant, Prepared, Intermediate };

struct ProgramBuffer {
    std::string name;               // of the value that it holds, if any
    DType dtype = DType::f32;
    std::vector<Expr> shape;        // as it lies in memory, over the graph's symbols
    BufferRole role = BufferRole::Intermediate;
    const Value* value = nullptr;   // if the buffer holds exactly one value
    std::vector<int> order = {};    // its dimension d is the value's axis order[d]; empty: ONNX's order. Inputs, outputs,
                                    // constants, and what host steps read or write, are in ONNX's order
    int alias = -1;                 // another buffer, whose memory this is under another shape: the same bytes
    std::optional<Tensor> tensor = {};  // Constant
    int device = 0;                 // whose memory it is: 0: of the kernels' device; n: of Program::devices[n - 1]
};

struct KernelStep {
    size_t kernel;                  // of Program::kernels
    std::vector<int> args;          // buffers, one for each parameter
    std::vector<Expr> symbols = {}; // what each of the kernel's symbols is, over the graph's: kernels that are shared have names of their own
    std::string label = {};         // what it computes, for people: "conv+relu conv1"
    std::vector<const Node*> nodes = {};  // of the graph, that it holds
    Expr flops = 0, bytes = 0;      // useful work; bytes it must at least move
};
// A node of the graph as the evaluator computes it. Its buffers hold whole values in ONNX's order; one of a value that is
// not a tensor of numbers (strings, complex, sequences, optionals, no known rank) has no shape and only host steps use
// it. Values that its nested graphs use from outside are found by ProgramBuffer::value. Sizes that its outputs' types
// name by a symbol of their own are defined by it.
struct HostStep {
    const Node* node;
    std::vector<int> inputs;        // buffers; -1 where not given
    std::vector<int> outputs;       // buffers; -1: unused
    std::string reason = {};        // why no kernel does it
};
// A node that runs the graphs nested in it, by their programs: a branch, or a body again and again. Its buffers are as a
// host step's.
struct ControlStep {
    const Node* node;
    std::vector<int> inputs;        // buffers; -1 where not given
    std::vector<int> outputs;       // buffers; -1: unused
};
// Only the op's check of its inputs' contents, and that nothing is read of what turns out empty.
struct CheckStep {
    const Node* node;
    std::vector<int> inputs;        // buffers; -1 where it needs no contents. One more: see HostNode
};
// Infers the sizes of a node's outputs from its inputs' contents, which defines symbols, and sees that the sizes that the
// model declares hold.
struct InferStep {
    const Node* node;
    std::vector<int> inputs;             // buffers; -1 where it needs no contents
    std::vector<size_t> contents = {};   // inputs whose elements are symbols: see run_contents.h
    std::vector<std::string> sizes = {}; // symbols that inference must define
};
// Defines sizes of a node's outputs by how much the node's kernel found.
struct FoundStep {
    const Node* node;
    int count;                      // a buffer, whose first element says how much
    std::vector<int64_t> dims;      // by output: the dimension that is as large; -1 for none
};
// Bytes from the memory of one device to that of another; one of the two is that of the kernels.
struct CopyStep {
    const Node* node;               // that reads or makes the value on the other device
    int from, to;                   // buffers
};
// A node that another device computes, whose memory all of its buffers are in.
struct DeviceStep {
    const Node* node;
    std::shared_ptr<const DeviceCode> code;
    int device;                     // as a buffer's
    std::vector<int> inputs, outputs;
};
using Step =
    std::variant<KernelStep, HostStep, ControlStep, CheckStep, InferStep, FoundStep, CopyStep, DeviceStep>;

// Of every step but a kernel's: its node, and the buffers that it reads. Null and none for a kernel's.
const Node* node_of(const Step& step);
std::vector<int> inputs_of(const Step& step);
// The buffers that a copy or a device's step reads and writes. Empty for other steps.
std::vector<int> moved_by(const Step& step);
// The buffers that host and control steps fill with whole values; -1: unused. Empty for other steps.
std::vector<int> values_made(const Step& step);
// What it does with its node, for people: "host", "control", "check", "sizes", "copy" or "device"; "kernel".
std::string_view kind_of(const Step& step);

struct Program;

// A graph nested in the node of a control or host step, as a program whose kernels are the outer one's.
struct NestedProgram {
    const Graph* graph;                          // as the node has it
    std::vector<const Value*> captured;          // values from around it, which are inputs after its own
    std::shared_ptr<Program> program;
};

// How a kernel came to be, as text for people.
struct KernelStages {
    std::string compute;   // what it computes, as parse_computes reads it
    std::string schedule;  // the primitives chosen for it, as Schedule::parse_trace reads them
};

struct Program {
    std::shared_ptr<Graph> graph;        // the program's own, which the steps point into
    std::vector<ProgramBuffer> buffers;
    std::vector<std::string> devices;    // beside that of the kernels, by names that find_backend knows
    std::vector<Kernel> kernels;         // scheduled; equal ones are one
    std::vector<KernelStep> prepare;     // once, before the first run: they fill Prepared buffers from Constant ones
    std::vector<Step> steps;
    std::vector<int> inputs, outputs;    // buffers, in the order of the graph's; an output may be an input, a constant, or another output
    std::vector<EqualSizes> equal_sizes; // that are checked before a run
    std::vector<Choice> choices;         // for --explain
    std::vector<NestedProgram> nested;
    std::vector<KernelStages> stages;    // in the order of kernels, where LowerOptions::keep_stages asks for them
};

}  // namespace tessera
