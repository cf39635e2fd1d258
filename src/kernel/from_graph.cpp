#include "kernel/from_graph.h"

#include "kernel/build_program.h"
#include "kernel/expand_composites.h"

namespace tessera {

Result<Program> from_graph(std::shared_ptr<const Graph> graph, const LowerOptions& options) {
    Expanded expanded = TRY(expand_composites(*graph));
    if (options.fuse) nest_concats(*expanded.graph);
    Definitions all = define(*expanded.graph);
    Layouts layouts = choose_layouts(all, options.fuse);
    Grouping grouping = group_nodes(all, layouts, options.fuse);
    return build_program(expanded, all, layouts, std::move(grouping), options);
}

}  // namespace tessera
