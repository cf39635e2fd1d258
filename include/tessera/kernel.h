// Kernels by hand: what one computes, as text; how, by schedule primitives; and the machine code of both. The text and
// the primitives are those of docs/schedules.md.
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
    std::vector<std::string> shape;  // numbers, or expressions over sizes that the arguments' shapes give
    bool written = false;
};

// Somebody's memory: dense, row-major.
struct ArrayRef {
    DType dtype = DType::f32;
    Sizes sizes;
    void* data = nullptr;
};

// A kernel as machine code. Calls from many threads wait for each other.
class KernelFunction {
   public:
    const std::vector<KernelArgument>& arguments() const;  // those that were not given when it was built
    // Element types, shapes and overlaps are checked: E0402 to E0405, E0407.
    Status run(const std::vector<ArrayRef>& arguments) const;
    // "kernel", "llvm" or "asm".
    Result<std::string> emit(std::string_view what) const;

    struct State;
    explicit KernelFunction(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

// A computation and its schedule. Copies are independent; a step that is refused changes nothing.
class KernelSchedule {
   public:
    static Result<KernelSchedule> parse(std::string_view compute);  // plain loops
    static Result<KernelSchedule> automatic(std::string_view compute, int threads = 1);  // what compile would choose
    static Result<KernelSchedule> replay(std::string_view compute, std::string_view trace);

    // One primitive by its name: the loops and stages that it made. E0602 where it is not allowed.
    Result<std::vector<std::string>> apply(const std::string& primitive, const std::vector<std::string>& args);

    std::string compute() const;
    std::string trace() const;
    std::vector<std::string> stages() const;
    Result<std::vector<std::pair<std::string, std::string>>> loops(std::string_view stage) const;  // names, extents
    Result<std::string> lower() const;  // the kernel's text
    // `threads`: of a run, at most (0: one for each core). `known`: parameters that the computation says are known; what
    // is done to those alone is done here, once.
    Result<KernelFunction> build(int threads = 1, const std::map<std::string, Tensor>& known = {}) const;

    struct State;
    explicit KernelSchedule(std::shared_ptr<const State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<const State> state_;
};

// What schedules are chosen by: vector_bytes, vector_registers, lane_multiply, l1_bytes, ... of a target.
Result<std::map<std::string, int64_t>> describe_processor(std::string_view target = "host");

}  // namespace tessera
