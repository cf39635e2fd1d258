// An object file that needs nothing of Tessera: kernels, and a function that runs their launches in order over memory
// that its caller gives. Only that function and its two companions can be seen from outside.
#pragma once

#include <variant>

#include "llvm/compile_kernels.h"

namespace tessera {

struct BundlePointer {
    enum class From : uint8_t { Nothing, Input, Output, Weights, Arena };
    From from = From::Nothing;
    size_t index = 0;    // of an input or output
    int64_t offset = 0;  // in bytes
};
struct BundleCall {
    size_t kernel = 0, launch = 0;
    std::vector<BundlePointer> args;
    std::vector<int64_t> symbols;
    int64_t extent = 0, scratch_bytes = 0;  // scratch: of each thread
    bool parallel = false;
};
// Every step-th index from the first on is in [low, high), or the run ends with 2.
struct BundleCheck {
    BundlePointer indices;
    bool wide = true;  // 64 bits, not 32
    int64_t count = 0, first = 0, step = 1, low = 0, high = 0;
};
struct BundleCopy {
    BundlePointer from, to;
    int64_t bytes = 0;
};
struct BundleEntry {
    std::string name;  // NAME_run, NAME_run_parallel, NAME_id
    uint64_t id = 0;
    std::vector<bool> inputs, outputs;  // that must be given: those that have elements
    bool weights = false;               // must be given
    int64_t scratch_at = 0;             // in the arena, after its beginning was aligned to 64
    std::vector<std::variant<BundleCall, BundleCheck, BundleCopy>> actions;
};

//   int NAME_run(const void* const* inputs, void* const* outputs, const void* weights, void* arena)
//   int NAME_run_parallel(... the same, void (*parallel_for)(void* context, int64_t extent,
//                         void (*body)(void* data, int64_t begin, int64_t end, int thread), void* data), void* context)
//   uint64_t NAME_id(void)
// 0: done; 1: a pointer is null; 2: an index is out of range.
Result<std::string> emit_bundle_object(const std::vector<Kernel>& kernels, const BundleEntry& entry,
                                       const CodegenOptions& options);

}  // namespace tessera
