// The first stages of compiling, which running and bundles share.
#pragma once

#include "kernel/from_graph/from_graph.h"
#include "llvm/compile_kernels.h"
#include "rewrite/passes/optimize.h"
#include "tessera/compile.h"

namespace tessera {

Result<Precision> precision_named(const std::string& name);
// The graph, rewritten; ops that stand for smaller graphs stay whole, for lowering to see.
Result<std::shared_ptr<const Graph>> rewritten(const Graph& graph, Precision precision, bool optimize_it);
CodegenOptions codegen_options(const CompileOptions& options, Precision precision);
Result<LowerOptions> lower_options(const CompileOptions& options, Precision precision, int threads);

}  // namespace tessera
