// Kernels to machine code. Each parallel loop of a kernel is one launch, a function over a range of its iterations; so is
// what stands between them, over [0, 1). Headers of LLVM stay inside this folder.
#pragma once

#include <array>
#include <memory>

#include "base/decision.h"
#include "base/machine.h"
#include "kernel/ir/kernel.h"

namespace tessera {

// buffers: one pointer per parameter, best aligned to 64 bytes, but nothing relies on that; symbols: in the kernel's order;
// scratch: of this thread alone, aligned to 64 bytes. Runs the iterations [begin, end).
using LaunchFunction = void (*)(void* const* buffers, const int64_t* symbols, int64_t begin, int64_t end, char* scratch);

// A parameter that the hardware copies tiles of: how it lies, over the kernel's symbols, and the part of it that one
// copy takes. Innermost first; elements of the innermost dimension lie together.
struct TileMap {
    int buffer = 0;
    DType dtype = DType::f16;
    std::vector<Expr> sizes, strides;  // strides in elements, of all dimensions but the innermost
    std::vector<int64_t> box;
    // Of copies by places: the box is of channels and places; of x, then y, where the first and the last place is,
    // counted from the first and the last element, and how far apart places are. Empty: the box has all dimensions.
    std::vector<int64_t> from = {}, to = {}, every = {};
};

// Of a launch on a target with blocks: how many there are, and of how many threads each, over the kernel's symbols.
struct LaunchShape {
    std::array<Expr, 3> grid = {1, 1, 1}, block = {1, 1, 1};  // x, y, z
    bool fixed = true;  // false: as many threads as there are iterations, however they are cut into blocks
    // Above 0: only so many blocks as the GPU runs at once, which take the others one after the other, each with so many
    // times the threads.
    int groups = 0;
    int together = 1;                // blocks that share each of those: they reach each other's shared memory
    int64_t shared_bytes = 0;        // that come with the launch
    std::vector<TileMap> maps = {};  // further arguments
};

struct KernelLaunch {
    std::string symbol;           // of the function, in object files
    LaunchFunction function = nullptr;
    void* handle = nullptr;       // of the code on another device, instead
    Expr extent;                  // of its range, over the kernel's symbols
    Expr scratch_bytes;           // that each thread needs
    bool parallel = false;
    LaunchShape shape = {};       // on a target with blocks
    bool begins_early = false;    // on a GPU: while launches before it still run, for which its code waits
};

struct CompiledKernel {
    std::vector<KernelLaunch> launches;  // in order, each finished before the next
};

struct CodegenOptions {
    std::string target = "host";   // or a name that list_targets gives; of a GPU also with its SMs, "sm_90a:114"
    int optimize = 2;              // LLVM's level
    bool fast_math = true;         // contraction to FMA and reassociation of sums that a Vector loop combines; never no-NaN
    bool flush_subnormals = false; // to zero, where the processor is slow at them (x86-64)
    int threads = 0;               // that generate code at once; 0: all
};

// The host, its features read from the operating system; or a named target. E0603: there is no such target, with those there are.
Result<Machine> describe_target(std::string_view name);
std::vector<std::string> list_targets();

// Whether code generation knows every element type, function and intrinsic in it, for targets with blocks or without.
bool can_compute(DType dtype);
Decision can_compile(const Kernel& kernel, bool blocks = false);

// Whether a launch may be given one pointer for a parameter it reads and one it writes: each element is read only to
// write the same element. Generated code counts on any other two parameters, of which one is written, being apart.
bool may_share_memory(const Kernel& kernel, size_t read, size_t written);

// The launches of each kernel without their functions, as they are named in objects: for a GPU, or for any processor.
// E0604: cannot be compiled.
Result<std::vector<CompiledKernel>> list_launches(const std::vector<Kernel>& kernels, const Machine& machine = {});

// Machine code in this process, alive as long as the object is; or assembly that a device has yet to load.
class CompiledModule {
   public:
    virtual ~CompiledModule() = default;
    const std::vector<CompiledKernel>& kernels() const { return kernels_; }
    virtual const std::string& object() const = 0;  // the object file it was loaded from, to be kept (cache, bundle)
    virtual std::vector<std::string_view> assembly() const { return {}; }  // what a device is to load, one text for each part

   protected:
    std::vector<CompiledKernel> kernels_;
};

Result<std::shared_ptr<CompiledModule>> compile_kernels(const std::vector<Kernel>& kernels, const CodegenOptions& options);
// From an object that compile_kernels made of the same kernels with the same options.
Result<std::shared_ptr<CompiledModule>> load_object(const std::vector<Kernel>& kernels, std::string object,
                                                    const CodegenOptions& options);

// Lets the system take back the pages of LLVM's and our own code, tens of megabytes that starting and compiling have
// touched; they are read again should somebody need them.
void let_go_of_compiler();

// For other machines, and for people.
Result<std::string> emit_object(const std::vector<Kernel>& kernels, const CodegenOptions& options);
Result<std::string> emit_llvm(const std::vector<Kernel>& kernels, const CodegenOptions& options);      // optimized IR, as text
Result<std::string> emit_assembly(const std::vector<Kernel>& kernels, const CodegenOptions& options);

}  // namespace tessera
