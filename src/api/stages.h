// The first stages of compilation, shared by executables and bundles.
#pragma once

#include "kernel/from_graph/from_graph.h"
#include "llvm/compile_kernels.h"
#include "rewrite/passes/optimize.h"
#include "tessera/compile.h"

namespace tessera {

Result<Precision> precision_named(const std::string& name);
// The optimized graph. Composite ops are not expanded yet, so that lowering can match them.
Result<std::shared_ptr<const Graph>> rewritten(const Graph& graph, Precision precision, const CompileOptions& options,
                                               const std::string& stop_after = {});
Result<LowerOptions> lower_options(const CompileOptions& options, Precision precision, int threads);
CodegenOptions codegen_options(const CompileOptions& options, Precision precision);
void make_baseline(LowerOptions& lower, CodegenOptions& codegen);  // options for code that compiles quickly
bool runs_here(const std::string& target);                         // whether the host can execute code for the target
int chosen_threads(const CompileOptions& options);                 // threads of a run: at most one for each core

void describe(const std::vector<Choice>& choices, CompileReport& report);  // as decisions

// Stages as text: kernels; and the "compute" or "schedule" of each kernel, without duplicates.
std::string print_kernels(const std::vector<Kernel>& kernels);
std::string print_stages(const std::vector<KernelStages>& stages, std::string_view what);

}  // namespace tessera
