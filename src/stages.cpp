#include "stages.h"

#include <set>

#include "base/thread_pool.h"

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

Result<LowerOptions> lower_options(const CompileOptions& options, Precision precision, int threads) {
    LowerOptions lower;
    lower.machine = TRY(describe_target(options.target));
    lower.threads = threads;
    lower.fuse = options.fuse;
    lower.strict = precision == Precision::Strict;
    lower.keep_stages = options.keep_weights;
    return lower;
}

CodegenOptions codegen_options(const CompileOptions& options, Precision precision) {
    return {.target = options.target, .flush_subnormals = precision != Precision::Strict};
}

int chosen_threads(const CompileOptions& options) {
    return options.threads > 0 ? std::min(options.threads, usable_cores()) : usable_cores();
}

void describe(const std::vector<Choice>& choices, CompileReport& report) {
    for (const Choice& c : choices)
        report.decisions.emplace_back(c.subject, (c.decision ? "yes: " : "no: ") + c.decision.reason());
}

std::string print_kernels(const std::vector<Kernel>& kernels) {
    std::string text;
    for (const Kernel& kernel : kernels) text += to_string(kernel) + "\n";
    return text;
}

std::string print_stages(const std::vector<KernelStages>& stages, std::string_view what) {
    std::string text;
    std::set<std::string_view> printed;  // computes
    for (const KernelStages& s : stages)
        if (printed.insert(s.compute).second) text += (what == "compute" ? s.compute : s.schedule) + "\n";
    return text;
}

}  // namespace tessera
