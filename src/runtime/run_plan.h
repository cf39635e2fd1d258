// A program for given sizes: the size of each buffer, its offset in the arena, and the range of each launch.
#pragma once

#include "runtime/devices/bind_launches.h"
#include "runtime/program_layout.h"

namespace tessera {

struct BoundStep {
    bool bound = false;            // false: not a kernel step, or sizes are defined by an earlier step
    std::vector<int64_t> symbols;  // of the kernel
    std::vector<Launch> launches;
};

struct RunPlan {
    SymbolValues symbols;
    std::vector<int64_t> bytes;    // by buffer; -1: a step defines the size
    std::vector<int64_t> offsets;  // by root: in the arena, of the kernels' device or of its own; -1: not there
    std::vector<Sizes> sizes;      // by buffer, where the bytes are known
    std::vector<BoundStep> steps;
    // Pairs (output, input) of roots: kernels may write the output where the input lies, which nothing reads
    // afterwards.
    std::vector<std::pair<int, int>> overwrites;
    int64_t block_bytes = 0;    // of the arena
    std::vector<int64_t> device_bytes;  // of the arenas of Program::devices
    int64_t scratch_bytes = 0;  // of one thread, the most of any step
};

struct PlanOptions {
    int threads = 1;
    bool reuse = true;  // memory, after its last use
};

// E0108 where a size is negative or overflows.
Result<RunPlan> plan_run(const Program& program, const ProgramLayout& layout, const CompiledModule& module,
                         const SymbolValues& symbols, const PlanOptions& options);

// The values of a step's kernel's symbols, in their order; false where one of them is not known.
bool step_symbols(const Program& program, const KernelStep& step, const SymbolValues& symbols,
                  std::vector<int64_t>& into);

// One kernel step with these sizes; unbound if one of them is unknown.
Result<BoundStep> bind_step(const Program& program, const KernelStep& step, const CompiledModule& module,
                            const SymbolValues& symbols);

// Nothing where a symbol is not known; E0108 where the product overflows or a size is negative.
Result<std::optional<Sizes>> buffer_sizes(const ProgramBuffer& buffer, const SymbolValues& symbols);
Result<int64_t> buffer_bytes(const ProgramBuffer& buffer, const Sizes& sizes);

// In launch_order.cpp: which steps have to wait for which. Others may run side by side.

// The last launch of a step that has something to do; nothing where none has.
std::optional<size_t> last_launch(const BoundStep& step);

// By step: the steps with which it has a data hazard, without those that another of them already waits for. Steps
// without launches are omitted.
std::vector<std::vector<size_t>> steps_before(const Program& program, const ProgramLayout& layout, const RunPlan& plan);

// Those that no other waits for.
std::vector<size_t> last_steps(const RunPlan& plan, const std::vector<std::vector<size_t>>& before);

}  // namespace tessera
