// Handwritten kernels: a computation as text, a schedule as a list of primitives, and the resulting machine code.
// docs/schedules.md describes the text form and the primitives.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/tensor.h"

namespace tessera {

struct KernelArgument {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::string> shape;  // numbers, or expressions over sizes bound by the arguments' shapes
    bool written = false;            // the kernel writes to it
};

// Caller-owned memory: dense, row-major.
struct ArrayRef {
    DType dtype = DType::f32;
    Sizes sizes;
    void* data = nullptr;
};

// A compiled kernel. Concurrent calls are serialized.
class KernelFunction {
   public:
    const std::vector<KernelArgument>& arguments() const;  // those not bound at build time
    // Element types, shapes and overlaps are checked: E0402 to E0405, E0407.
    Status run(const std::vector<ArrayRef>& arguments) const;
    // "kernel", "llvm" or "asm".
    Result<std::string> emit(std::string_view what) const;

    struct State;
    explicit KernelFunction(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

// A computation and its schedule. Copies are independent; a rejected primitive changes nothing.
class KernelSchedule {
   public:
    static Result<KernelSchedule> parse(std::string_view compute);  // plain loops
    static Result<KernelSchedule> automatic(std::string_view compute, int threads = 1);  // the default schedule
    static Result<KernelSchedule> replay(std::string_view compute, std::string_view trace);

    // Applies a primitive by name and returns the loops and stages that it created. E0602 if it is not legal.
    Result<std::vector<std::string>> apply(const std::string& primitive, const std::vector<std::string>& args);

    std::string compute() const;
    std::string trace() const;
    std::vector<std::string> stages() const;
    Result<std::vector<std::pair<std::string, std::string>>> loops(std::string_view stage) const;  // names, extents
    Result<std::string> lower() const;  // the kernel's text
    // `threads`: maximum for a run (0: one for each core). `known`: values of the parameters declared constant; work on
    // constants alone is done here, once.
    Result<KernelFunction> build(int threads = 1, const std::map<std::string, Tensor>& known = {}) const;

    struct State;
    explicit KernelSchedule(std::shared_ptr<const State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<const State> state_;
};

// The machine description for choosing schedules: vector_bytes, vector_registers, lane_multiply, ... of a target.
Result<std::map<std::string, int64_t>> describe_processor(std::string_view target = "host");

}  // namespace tessera
