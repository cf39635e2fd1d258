// What is different from one family of processors to the next: one class for each, in its own file. The defaults are
// what LLVM does everywhere.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>
#include <string>
#include <string_view>

#include "base/machine.h"

namespace tessera::codegen {

using llvm::Value;

struct NamedTarget {
    std::string_view name, triple, tune;
    std::string features;
    int64_t l1, l2, l3;  // bytes of its caches
};

class TargetCode {
  public:
    virtual ~TargetCode() = default;

    virtual void initialize() const {}  // LLVM's part for the family, before anything else of it
    virtual std::string_view baseline() const { return "generic"; }  // the processor that all others extend
    virtual std::span<const NamedTarget> named() const { return {}; }
    // Registers and costs, from the machine's features and the processor it is tuned for.
    virtual void describe(Machine& machine, std::string_view tune) const;

    // The larger (smaller) of two floats, or NaN where one is.
    virtual Value* extreme(llvm::IRBuilderBase& b, const Machine& machine, bool largest, Value* x, Value* y) const;
    // The same of x and y, or y where x is NaN; null where there is no instruction for it.
    virtual Value* extreme_of_numbers(llvm::IRBuilderBase&, const Machine&, bool, Value*, Value*) const {
        return nullptr;
    }
    // Whether non-temporal stores avoid reading the overwritten lines. They need end_streams before other threads are
    // notified.
    virtual bool streams() const { return false; }
    virtual void end_streams(llvm::IRBuilderBase&) const {}

    // Enables flush-to-zero of subnormals, on processors where they are slow. Returns where the caller's mode is saved
    // for restore_mode; null if nothing changed.
    virtual Value* flush_subnormals(llvm::IRBuilderBase&) const { return nullptr; }
    virtual void restore_mode(llvm::IRBuilderBase&, Value*) const {}

    // f32 division within two ULP that flushes subnormals; null if nothing is faster than the exact
    // one.
    virtual Value* quick_divide(llvm::IRBuilderBase&, Value*, Value*) const { return nullptr; }
    virtual Value* quick_exp2(llvm::IRBuilderBase&, Value*) const { return nullptr; }

    // x 2^n, where n is a whole number, without care for how large it is; null where there is no instruction for it.
    virtual Value* times_power(llvm::IRBuilderBase&, const Machine&, Value*, Value*) const { return nullptr; }

    // There are instructions that convert vectors of floats to integers and keep what is too large at the end.
    virtual bool converts_to_the_end() const { return true; }

    // The 16 bits of the bf16 nearest to an f32, or of each of a vector; null where there is no instruction for it.
    virtual Value* round_to_bf16(llvm::IRBuilderBase&, Value*) const { return nullptr; }

    // Its code is object files, which are linked; otherwise assembly, which a device loads.
    virtual bool makes_objects() const { return true; }

    // A launch may begin before those that it waits for are done, and waits in its code.
    virtual bool begins_early(std::string_view) const { return false; }  // on that processor

    // Of targets that run blocks of threads: a launch is a kernel that finds its place, and there is no C library.
    virtual bool has_blocks() const { return false; }
    enum class Place : uint8_t { Block, Thread, Threads, Blocks };  // which block, which thread of it, how many of both
    virtual Value* place(llvm::IRBuilderBase&, Place, int) const { return nullptr; }  // an i32 along a dimension
    virtual void barrier(llvm::IRBuilderBase&) const {}
};

std::span<const TargetCode* const> target_families();
const TargetCode& code_for(std::string_view triple);

const TargetCode& aarch64_code();
const TargetCode& nvptx_code();
const TargetCode& wasm_code();
const TargetCode& x86_code();

// Memory on the stack, made at the function's entry.
llvm::AllocaInst* stack_memory(llvm::IRBuilderBase& b, llvm::Type* type, const char* name);

}  // namespace tessera::codegen
