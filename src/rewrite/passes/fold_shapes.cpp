#include <algorithm>
#include <limits>

#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

// Whether the operand's contents are known and not constant yet.
bool is_open(const Value* v) { return v && !v->is_constant() && v->contents(); }

Changed fold_operand(Node& node, size_t operand, PassContext& context) {
    auto constants = node.op().constant_operand(node.view(), operand, node.attrs());
    if (!constants) return false;
    Value* was = node.input(operand);
    auto tensor = Tensor::zeros(was->type().tensor().dtype, {int64_t(constants->size())});
    if (!tensor.ok()) return false;
    for (size_t i = 0; i < constants->size(); ++i) {
        bool narrow = tensor->dtype() == DType::i32;
        int64_t most = narrow ? std::numeric_limits<int32_t>::max() : INT64_MAX;
        tensor->set_int(int64_t(i), std::min((*constants)[i], most));
    }
    Rewriting rewriting(context, "fold shape", {&node});
    Graph& graph = node.graph();
    graph.set_input(node, operand, graph.constant(std::move(*tensor)));
    if (!agrees(node)) {
        graph.set_input(node, operand, was);
        return false;
    }
    rewriting.done({&node});
    return true;
}

}  // namespace

Result<Changed> fold_shapes(Graph& graph, PassContext& context) {
    Changed changed = false;
    for (Graph* g : all_graphs(graph))
        for (const auto& node : g->nodes()) {
            if (!node->op().constant_operand) continue;
            for (size_t i = 0; i < node->inputs().size(); ++i)
                if (is_open(node->input(i))) changed |= fold_operand(*node, i, context);
        }
    if (changed) sweep(graph);
    return changed;
}

}  // namespace tessera
