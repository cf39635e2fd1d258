// Compiles kernels. Each parallel loop of a kernel becomes a launch, a function over a range of its iterations; so does
// the code between parallel loops, with the range [0, 1). Only this component includes LLVM's headers.
#pragma once

#include <array>
#include <memory>

#include "base/decision.h"
#include "base/machine.h"
#include "kernel/ir/kernel.h"

namespace tessera {

// buffers: one pointer per parameter; 64-byte alignment improves speed but is not required. symbols: in the kernel's
// order. scratch: memory of the calling thread, 64-byte aligned. Runs the iterations [begin, end).
using LaunchFunction = void (*)(void* const* buffers, const int64_t* symbols, int64_t begin, int64_t end,
                                char* scratch);

// A TMA descriptor of a parameter: its layout, over the kernel's symbols, and the box that one copy transfers.
// Innermost dimension first, which must be contiguous.
struct TileMap {
    int buffer = 0;
    DType dtype = DType::f16;
    std::vector<Expr> sizes, strides;  // strides in elements, of all dimensions but the innermost
    std::vector<int64_t> box;
    // For im2col copies: the box is of channels and window positions. For x, then y: the offsets of the first and last
    // position from the first and last element, and the stride. Empty: the box has all dimensions.
    std::vector<int64_t> from = {}, to = {}, every = {};
};

// The grid and block sizes of a launch on a GPU, over the kernel's symbols.
struct LaunchShape {
    std::array<Expr, 3> grid = {1, 1, 1}, block = {1, 1, 1};  // x, y, z
    bool fixed = true;  // false: one thread for each iteration, with any block size
    // Above 0: a persistent launch, with as many blocks as the GPU runs concurrently, each processing several blocks of
    // the grid, and with this factor of the threads.
    int groups = 0;
    int together = 1;                // thread blocks in a cluster, which access each other's shared memory
    bool pairs = false;              // clusters of two blocks that share tiles they load, not output tiles
    int64_t shared_bytes = 0;        // dynamic shared memory
    std::vector<TileMap> maps = {};  // further arguments
};

struct KernelLaunch {
    std::string symbol;  // name of the function in object files
    LaunchFunction function = nullptr;
    void* handle = nullptr;  // for another device: handle of the code, instead of a function
    Expr extent;             // of its range, over the kernel's symbols
    Expr scratch_bytes;      // scratch memory of each thread
    bool parallel = false;
    LaunchShape shape = {};     // on a GPU
    bool begins_early = false;  // on a GPU: may start before preceding launches finish; its code waits for them
};

struct CompiledKernel {
    std::vector<KernelLaunch> launches;  // in order; each finishes before the next begins
};

struct CodegenOptions {
    std::string target = "host";    // or one of list_targets(); for a GPU possibly with a number of SMs, "sm_90a:114"
    int optimize = 2;               // LLVM's optimization level
    bool fast_math = true;          // FMA contraction, and reassociation of sums over a Vector loop; never no-NaN
    bool flush_subnormals = false;  // flush subnormals to zero if the CPU is slow at them (x86-64)
    int threads = 0;                // for code generation; 0: all
};

// The host, with features detected through the operating system, or a named target. E0603 for an unknown name.
Result<Machine> describe_target(std::string_view name);
std::vector<std::string> list_targets();

// Whether code generation supports every element type, function and intrinsic of the kernel, for GPUs or for CPUs.
bool can_compute(DType dtype);
Decision can_compile(const Kernel& kernel, bool blocks = false);

// Whether two parameters, one read and one written, may be the same buffer: each element is read only to write that
// same element, or before it is written. Generated code assumes that any other two parameters do not alias if one of
// them is written.
bool may_share_memory(const Kernel& kernel, size_t read, size_t written);

// The launches of each kernel without functions, by their names in object files, for a GPU or for any CPU.
// E0604 if a kernel cannot be compiled.
Result<std::vector<CompiledKernel>> list_launches(const std::vector<Kernel>& kernels, const Machine& machine = {});

// Machine code linked into this process for the lifetime of the object, or assembly for a device to load.
class CompiledModule {
  public:
    virtual ~CompiledModule() = default;
    const std::vector<CompiledKernel>& kernels() const { return kernels_; }
    virtual const std::string& object() const = 0;                         // the object file, for the cache and bundles
    virtual std::vector<std::string_view> assembly() const { return {}; }  // for a device to load, in parts

  protected:
    std::vector<CompiledKernel> kernels_;
};

Result<std::shared_ptr<CompiledModule>> compile_kernels(const std::vector<Kernel>& kernels,
                                                        const CodegenOptions& options);
// Links an object that compile_kernels produced from the same kernels with the same options.
Result<std::shared_ptr<CompiledModule>> load_object(const std::vector<Kernel>& kernels, std::string object,
                                                    const CodegenOptions& options);

// Returns the code pages of LLVM and Tessera that startup and compilation have touched (tens of megabytes) to the
// system. They are paged in again on demand.
void let_go_of_compiler();

// For cross compilation and inspection.
Result<std::string> emit_object(const std::vector<Kernel>& kernels, const CodegenOptions& options);
Result<std::string> emit_llvm(const std::vector<Kernel>& kernels,
                              const CodegenOptions& options);  // optimized IR, as text
Result<std::string> emit_assembly(const std::vector<Kernel>& kernels, const CodegenOptions& options);

}  // namespace tessera
