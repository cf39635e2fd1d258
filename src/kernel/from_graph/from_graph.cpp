#include "kernel/from_graph/from_graph.h"

#include "kernel/from_graph/build_program.h"
#include "kernel/from_graph/lower_nested.h"
#include "kernel/ir/verified.h"
#include "rewrite/passes/choose_winograd.h"
#include "rewrite/passes/expand_composites.h"

namespace tessera {

Result<Program> from_graph_apart(std::shared_ptr<const Graph> graph, const LowerOptions& options) {
    Expanded expanded = TRY(expand_composites(*graph));
    std::vector<Choice> choices;
    if (options.fuse) {
        nest_concats(*expanded.graph);
        choices = choose_winograd(*expanded.graph, options.machine);
    }
    Definitions all = define(*expanded.graph);
    Layouts layouts = choose_layouts(all, options.fuse);
    Grouping grouping = group_nodes(all, layouts, options);
    choices.insert(choices.end(), layouts.choices.begin(), layouts.choices.end());
    grouping.choices.insert(grouping.choices.begin(), choices.begin(), choices.end());
    Program program = TRY(build_program(expanded, all, layouts, std::move(grouping), options));
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
