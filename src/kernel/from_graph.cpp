#include "kernel/from_graph.h"

#include "kernel/build_program.h"
#include "kernel/expand_composites.h"

namespace tessera {

Result<Program> from_graph(std::shared_ptr<const Graph> graph, const LowerOptions& options) {
    std::shared_ptr<Graph> expanded = TRY(expand_composites(*graph));
    if (options.fuse) nest_concats(*expanded);
    Definitions all = define(*expanded);
    Layouts layouts = choose_layouts(all, options.fuse);
    Grouping grouping = group_nodes(all, layouts, options.fuse);
    return build_program(expanded, all, layouts, std::move(grouping), options);
}

}  // namespace tessera
