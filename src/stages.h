// The first stages of compiling, which running and bundles share.
#pragma once

#include "kernel/from_graph/from_graph.h"
#include "llvm/compile_kernels.h"
#include "rewrite/passes/optimize.h"
#include "tessera/compile.h"

namespace tessera {

Result<Precision> precision_named(const std::string& name);
// The graph, rewritten; ops that stand for smaller graphs stay whole, for lowering to see.
Result<std::shared_ptr<const Graph>> rewritten(const Graph& graph, Precision precision, const CompileOptions& options,
                                               const std::string& stop_after = {});
Result<LowerOptions> lower_options(const CompileOptions& options, Precision precision, int threads);
CodegenOptions codegen_options(const CompileOptions& options, Precision precision);
void make_baseline(LowerOptions& lower, CodegenOptions& codegen);  // code that is soon there
bool runs_here(const std::string& target);  // the host itself, or a processor of its kind that has nothing more than it
int chosen_threads(const CompileOptions& options);  // of a run: at most as many as there are cores

void describe(const std::vector<Choice>& choices, CompileReport& report);  // as decisions

// Stages as text: kernels; and "compute" or "schedule" of what was kept of each kernel, equal ones once.
std::string print_kernels(const std::vector<Kernel>& kernels);
std::string print_stages(const std::vector<KernelStages>& stages, std::string_view what);

}  // namespace tessera
