#include "stages.h"

namespace tessera {

Result<Precision> precision_named(const std::string& name) {
    for (Precision p : {Precision::Strict, Precision::Default, Precision::Fast})
        if (name_of(p) == name) return p;
    return Error(Code::E0501, "there is no precision \"{}\"", name).hint("there are: strict, default, fast");
}

Result<std::shared_ptr<const Graph>> rewritten(const Graph& graph, Precision precision, bool optimize_it) {
    std::shared_ptr<Graph> own = graph.clone();
    if (optimize_it) TRY(optimize(*own, {.precision = precision, .last_phase = 1}));
    return std::shared_ptr<const Graph>(std::move(own));
}

CodegenOptions codegen_options(const CompileOptions& options, Precision precision) {
    CodegenOptions codegen;
    codegen.target = options.target;
    codegen.flush_subnormals = precision != Precision::Strict;
    return codegen;
}

Result<LowerOptions> lower_options(const CompileOptions& options, Precision precision, int threads) {
    LowerOptions lower;
    lower.machine = TRY(describe_target(options.target));
    lower.threads = threads;
    lower.fuse = options.fuse;
    lower.strict = precision == Precision::Strict;
    return lower;
}

}  // namespace tessera
