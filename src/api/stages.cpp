#include "api/stages.h"

#include <algorithm>
#include <set>

#include "backends/backend.h"
#include "base/cancel_scope.h"
#include "base/protect.h"
#include "base/usable_cores.h"
#include "llvm/targets/target.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera {

Result<Precision> precision_named(const std::string& name) {
    for (Precision p : {Precision::Strict, Precision::Default, Precision::Fast})
        if (name_of(p) == name) return p;
    return Error(Code::E0501, "there is no precision \"{}\"", name).hint("there are: strict, default, fast");
}

namespace {

PassWatch watch_of(const CompileOptions& options) {
    PassWatch watch{.verify = options.verify};
    if (options.after)
        watch.after = [after = options.after](const std::string& pass, const Graph& graph, Changed changed) {
            after(pass, Model(graph.clone()), changed);
        };
    return watch;
}

std::vector<Pass> optimizing_passes() {
    std::vector<Pass> passes = pass_table();
    std::erase_if(passes, [](const Pass& p) { return p.optional || p.phases[0] != Phase::Rewrite; });
    return passes;
}

}  // namespace

Result<std::shared_ptr<const Graph>> rewritten(const Graph& graph, Precision precision, const CompileOptions& options,
                                               const std::string& stop_after) {
    std::shared_ptr<Graph> own = graph.clone();
    PipelineOptions pipeline{.precision = precision,
                             .last_phase = Phase::Rewrite,
                             .watch = watch_of(options),
                             .cancel = CancelScope::current()};
    pipeline.watch.stop_after = stop_after;
    if (options.optimize) TRY(optimize(*own, pipeline));
    return std::shared_ptr<const Graph>(std::move(own));
}

std::vector<PassRun> compile_passes(const CompileOptions& options) {
    std::vector<PassRun> runs;
    auto list = [&](const std::vector<Pass>& passes) {
        for (const Pass& p : passes) runs.push_back({p.name, p.purpose});
    };
    if (options.optimize) list(optimizing_passes());
    const auto lower = lower_options(options, Precision::Default, 1);
    list(lower.ok() ? all_lowering_passes(*lower) : lowering_passes({}, options.fuse));
    return runs;
}

Result<Model> graph_after(const Model& model, const std::string& pass, const CompileOptions& options) {
    return protect("graph_after", {.text = [&] { return model.to_text(); }}, [&]() -> Result<Model> {
        const Precision precision = TRY(precision_named(options.precision));
        LowerOptions lower = TRY(lower_options(options, precision, 1));
        std::vector<Pass> first, then = all_lowering_passes(lower);
        if (options.optimize) first = optimizing_passes();
        std::vector<Pass> all = first;
        all.insert(all.end(), then.begin(), then.end());
        TRY(check_pass_name(pass, all));
        auto has = [&](const std::vector<Pass>& table) {
            return std::any_of(table.begin(), table.end(), [&](const Pass& p) { return p.name == pass; });
        };
        auto graph = TRY(rewritten(model.graph(), precision, options, has(first) ? pass : std::string()));
        if (has(first)) return Model(graph->clone());
        lower.watch.stop_after = pass;
        PassContext context;
        return Model(TRY(prepare_graph(*graph, lower, context)));
    });
}

Result<LowerOptions> lower_options(const CompileOptions& options, Precision precision, int threads) {
    LowerOptions lower;
    const Backend& backend = *TRY(find_backend(options.target));
    lower.offloading = TRY(backend.offloading(options.target, {.virtual_threads = options.virtual_threads}));
    lower.machine = TRY(backend.machine(options.target));
    lower.scheduling = &backend.scheduling();
    lower.threads = threads;
    lower.fuse = options.fuse;
    lower.strict = precision == Precision::Strict;
    lower.fast = precision == Precision::Fast;
    lower.keep_stages = options.keep_weights;
    lower.watch = watch_of(options);
    return lower;
}

CodegenOptions codegen_options(const CompileOptions& options, Precision precision) {
    return {.target = options.target, .flush_subnormals = precision != Precision::Strict};
}

void make_baseline(LowerOptions& lower, CodegenOptions& codegen) {
    lower.baseline = true;
    codegen.optimize = 1;
}

bool runs_here(const std::string& name) {
    if (name == "host") return true;
    auto host = codegen::find_target("host"), target = codegen::find_target(name);
    if (!host.ok() || !target.ok()) return false;
    if (host->triple.substr(0, host->triple.find('-')) != target->triple.substr(0, target->triple.find('-')))
        return false;
    const std::vector<std::string>& wanted = target->machine.features;
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& f) { return host->machine.has(f); });
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
