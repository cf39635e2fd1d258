#include "kernel/from_graph/from_graph.h"

#include <algorithm>

#include "base/cancel_scope.h"
#include "kernel/cpu/cpu_scheduling.h"
#include "kernel/from_graph/build_program.h"
#include "kernel/from_graph/lower_nested.h"
#include "kernel/gpu/lower/gpu_scheduling.h"
#include "kernel/ir/verified.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera {

std::vector<Pass> all_lowering_passes(const LowerOptions& options) {
    std::vector<Pass> passes = lowering_passes(options.machine, options.fuse, options.unrolled);
    // Winograd products are several kernels each, with transforms that take long to compile.
    if (options.baseline) std::erase_if(passes, [](const Pass& p) { return p.name == "choose_winograd"; });
    if (!options.offloading) return passes;
    // It finds quantized layers as such, before passes write them for kernels.
    const auto first = std::find_if(passes.begin(), passes.end(),
                                    [](const Pass& p) { return p.phases == std::vector<Phase>{Phase::Tidy}; });
    auto take = [parts = options.offloading](Graph& g, PassContext& c) { return parts->take(g, c); };
    passes.insert(first, {"offload", "parts of the graph for another device", take, {Phase::Tidy}});
    return passes;
}

Result<std::shared_ptr<Graph>> prepare_graph(const Graph& graph, const LowerOptions& options, PassContext& context) {
    std::shared_ptr<Graph> copy = graph.clone();
    copy->erase_unused();
    copy->sort();
    if (options.strict) context.precision = Precision::Strict;
    context.cancel = CancelScope::current();
    Pipeline pipeline(*copy, all_lowering_passes(options), context, options.watch);
    for (Phase phase : {Phase::WriteOut, Phase::Tidy}) TRY(pipeline.run_phase(phase));
    return copy;
}

const Scheduling& scheduling_of(const LowerOptions& options) {
    if (options.scheduling) return *options.scheduling;
    return options.machine.blocks ? gpu_scheduling() : cpu_scheduling();
}

ScheduleOptions schedule_options(const LowerOptions& options) {
    return {options.machine, options.threads, options.strict, options.fast};
}

Result<Program> from_graph_apart(std::shared_ptr<const Graph> graph, const LowerOptions& options) {
    PassContext context;
    std::shared_ptr<Graph> prepared = TRY(prepare_graph(*graph, options, context));
    const Expanded expanded{std::move(prepared), std::move(context.origins)};
    Definitions all = define(*expanded.graph, options.machine, options.strict);
    if (options.machine.blocks && options.fuse) {
        write_positions(all);
        close_maxima(all);
    }
    Layouts layouts = choose_layouts(all, options.fuse);
    Grouping grouping = group_nodes(all, layouts, options);
    std::vector<Choice> choices = std::move(context.choices);
    choices.insert(choices.end(), layouts.choices.begin(), layouts.choices.end());
    grouping.choices.insert(grouping.choices.begin(), choices.begin(), choices.end());
    Program program = TRY(build_program(expanded, all, layouts, std::move(grouping), options));
    program.equal_sizes = std::move(context.equal_sizes);
    TRY(lower_nested(program, options));
    return program;
}

Result<Program> from_graph(std::shared_ptr<const Graph> graph, const LowerOptions& options) {
    Program program = TRY(from_graph_apart(std::move(graph), options));
    share_kernels(program);
    for (const Kernel& kernel : program.kernels) check_verified(kernel, "from_graph");
    return program;
}

}  // namespace tessera
