#include "search/merge_sums.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

constexpr size_t kMostOperands = 8, kDeepest = 8;

bool associates(const Node& node, bool floats) {
    if (!node.is(Trait::Associative) || node.inputs().size() != 2 || !node.output()->type().is_tensor()) return false;
    return floats || !is_float(node.output()->type().tensor().dtype);
}

// Down to classes that have no such op; false where there are too many.
bool flatten(const EGraph& egraph, const Node& node, size_t depth, std::vector<ClassId>& operands) {
    for (const Value* v : node.inputs()) {
        const ClassId c = egraph.class_of(*v);
        const auto& members = egraph.members(c);
        auto inner = std::find_if(members.begin(), members.end(), [&](const Value* m) {
            return m->node() && &m->node()->op() == &node.op() && m->node()->inputs().size() == 2;
        });
        if (inner == members.end() || depth == 0)
            operands.push_back(c);
        else if (!flatten(egraph, *(*inner)->node(), depth - 1, operands))
            return false;
        if (operands.size() > kMostOperands) return false;
    }
    return true;
}

}  // namespace

size_t merge_sums(EGraph& egraph, bool floats) {
    std::map<std::pair<const OpDef*, std::vector<ClassId>>, Value*> known;
    std::vector<std::pair<Value*, Value*>> same;
    for (const auto& node : egraph.graph().nodes()) {
        if (!egraph.alive(*node) || !associates(*node, floats)) continue;
        std::vector<ClassId> operands;
        if (!flatten(egraph, *node, kDeepest, operands) || operands.size() < 3) continue;
        std::sort(operands.begin(), operands.end());
        auto [it, fresh] = known.try_emplace({&node->op(), std::move(operands)}, node->output());
        if (!fresh && egraph.class_of(*it->second) != egraph.class_of(*node->output()))
            same.emplace_back(it->second, node->output());
    }
    size_t merged = 0;
    for (const auto& [a, b] : same) merged += egraph.merge(*a, *b);
    egraph.rebuild();
    return merged;
}

}  // namespace tessera
