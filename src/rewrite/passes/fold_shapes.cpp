#include <algorithm>
#include <limits>

#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();

using Constants = std::optional<std::vector<int64_t>>;

// The operand's contents, where they are known and not constant yet.
const std::vector<Expr>* open_contents(const Value* v) {
    return v && !v->is_constant() && v->contents() ? &*v->contents() : nullptr;
}

// 0 where a size is that of the input's dimension in the same place, -1 for one that is left. (With -1 beside a size of
// 0 there is no telling what it stands for: an empty tensor is the one input for which this says less than the sizes
// did.)
Constants reshape_constants(const Node& node) {
    const Shape *x = shape_of(node.input(0)), *y = shape_of(node.output());
    const auto* wanted = open_contents(node.input(1));
    if (!x || !y || !wanted || int64_t(wanted->size()) != y->rank()) return std::nullopt;
    std::vector<int64_t> constants;
    bool open = false;
    for (int64_t d = 0; d < y->rank(); ++d) {
        auto n = (*y)[d].as_int();
        if (n && *n == 0) return std::nullopt;  // 0 would be read as a copy
        if (n) {
            constants.push_back(*n);
        } else if (d < x->rank() && (*x)[d] == (*y)[d]) {
            constants.push_back(0);
        } else if (!open) {
            constants.push_back(-1);
            open = true;
        } else {
            return std::nullopt;
        }
    }
    return constants;
}

// 1 where the size is the input's own, which no broadcasting changes.
Constants expand_constants(const Node& node) {
    const Shape* x = shape_of(node.input(0));
    const auto* wanted = open_contents(node.input(1));
    if (!x || !wanted) return std::nullopt;
    std::vector<int64_t> constants;
    int64_t rank = int64_t(wanted->size());
    for (int64_t d = 0; d < rank; ++d) {
        const Expr& size = (*wanted)[size_t(d)];
        int64_t place = d - rank + x->rank();
        if (auto n = size.as_int())
            constants.push_back(*n);
        else if (place >= 0 && (*x)[place] == size)
            constants.push_back(1);
        else
            return std::nullopt;
    }
    return constants;
}

// A bound of a slice that counts from the end: N - 1 is -1, and N or more is to the end.
std::optional<int64_t> slice_bound(const Expr& bound, const Dim& extent, bool is_end) {
    if (auto n = bound.as_int()) return n;
    Expr beyond = bound - extent;
    if (auto k = beyond.as_int(); k && *k < 0 && (*k == -1 || bounds(extent).low.value_or(0) >= -*k)) return *k;
    if (is_end && bounds(beyond).low.value_or(-1) >= 0) return kToTheEnd;
    return std::nullopt;
}

Constants slice_constants(const Node& node, size_t operand) {
    const Shape* x = shape_of(node.input(0));
    const auto* wanted = open_contents(node.input(operand));
    OpView view = node.view();
    if (!x || !wanted || (view.has(3) && !view.constant_ints(3)) || (view.has(4) && !view.constant_ints(4)))
        return std::nullopt;
    std::vector<int64_t> axes, steps(wanted->size(), 1), constants;
    if (view.has(3)) axes = *view.constant_ints(3);
    for (int64_t d = 0; !view.has(3) && d < int64_t(wanted->size()); ++d) axes.push_back(d);
    if (view.has(4)) steps = *view.constant_ints(4);
    if (axes.size() != wanted->size() || steps.size() != wanted->size()) return std::nullopt;
    for (size_t k = 0; k < wanted->size(); ++k) {
        if (steps[k] < 1 || axes[k] < -x->rank() || axes[k] >= x->rank()) return std::nullopt;
        auto bound = slice_bound((*wanted)[k], (*x)[axes[k]], operand == 2);
        if (!bound) return std::nullopt;
        constants.push_back(*bound);
    }
    return constants;
}

Changed fold_operand(Node& node, size_t operand, const Constants& constants, PassContext& context) {
    if (!constants) return false;
    Value* was = node.input(operand);
    auto tensor = Tensor::zeros(was->type().tensor().dtype, {int64_t(constants->size())});
    if (!tensor.ok()) return false;
    for (size_t i = 0; i < constants->size(); ++i) {
        bool narrow = tensor->dtype() == DType::i32;
        int64_t most = narrow ? std::numeric_limits<int32_t>::max() : kToTheEnd;
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
            const std::string& op = node->op().name;
            if (op == "reshape") {
                Constants constants = reshape_constants(*node);
                if (constants) node->attrs().erase("allowzero");
                changed |= fold_operand(*node, 1, constants, context);
            } else if (op == "expand") {
                changed |= fold_operand(*node, 1, expand_constants(*node), context);
            } else if (op == "slice") {
                changed |= fold_operand(*node, 1, slice_constants(*node, 1), context);
                changed |= fold_operand(*node, 2, slice_constants(*node, 2), context);
            }
        }
    if (changed) sweep(graph);
    return changed;
}

}  // namespace tessera
