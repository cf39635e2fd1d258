#include "shard/prepare.h"

#include "onnx/file.h"
#include "rewrite/fix_sizes.h"
#include "rewrite/passes/lowering_passes.h"
#include "rewrite/passes/optimize.h"

namespace tessera::shard {

Result<std::shared_ptr<Graph>> graph_to_shard(const Graph& graph, const SymbolValues& sizes, bool optimized) {
    std::shared_ptr<Graph> own = graph.clone();
    fix_sizes(*own, sizes);
    for (const auto& v : own->inputs()) {
        if (!v->type().is_tensor() || !v->type().tensor().shape.ranked()) continue;
        for (const Dim& d : v->type().tensor().shape)
            for (const std::string& name : free_symbols(d))
                return Error(Code::E0501, "input {} has the size {}, which is not given", v->name(), to_string(d))
                    .hint("give it: --dim {}=SIZE", name);
    }
    TRY(own->infer_again());
    if (optimized) TRY(optimize(*own, {.last_phase = Phase::Rewrite}));
    PassContext context;
    TRY(expand_composites(*own, context));
    if (optimized) TRY(optimize(*own, {.last_phase = Phase::Rewrite}));
    TRY(expand_composites(*own, context));
    own->erase_unused();
    for (const auto& c : own->constants())  // rewriting looked at samples of them
        if (c->type().tensor().dtype != DType::string)
            onnx::MappedFile::release_pages(c->tensor()->data(), size_t(c->tensor()->bytes()));
    return own;
}

}  // namespace tessera::shard
