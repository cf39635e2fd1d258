#include "graph/ops/forest.h"

#include <cmath>

namespace tessera {

Forest::Forest(const OpView& op)
    : roots(op.ints("tree_roots")),
      features(op.ints("nodes_featureids")),
      on_true(op.ints("nodes_truenodeids")),
      on_false(op.ints("nodes_falsenodeids")),
      true_is_leaf(op.ints("nodes_trueleafs")),
      false_is_leaf(op.ints("nodes_falseleafs")),
      leaf_targets(op.ints("leaf_targetids")),
      modes(op.tensor_attr("nodes_modes")),
      splits(op.tensor_attr("nodes_splits")),
      leaf_weights(op.tensor_attr("leaf_weights")),
      missing_is_true(op.ints_or("nodes_missing_value_tracks_true", {})) {}

Status Forest::check(const OpView& op) {
    const size_t nodes = features.size(), leaves = leaf_targets.size();
    for (size_t n : {on_true.size(), on_false.size(), true_is_leaf.size(), false_is_leaf.size(),
                     size_t(modes.elements()), size_t(splits.elements())})
        if (n != nodes) return op.error(Code::E0212, "the nodes_* attributes have {} and {} entries", nodes, n);
    if (size_t(leaf_weights.elements()) != leaves)
        return op.error(Code::E0212, "has {} leaf_targetids and {} leaf_weights", leaves, leaf_weights.elements());
    missing_is_true.resize(nodes);
    auto inside = [&](int64_t i, size_t n) { return i >= 0 && size_t(i) < n; };
    bool ok = is_int(modes.dtype()) && is_float(splits.dtype()) && is_float(leaf_weights.dtype());
    for (int64_t r : roots) ok = ok && inside(r, nodes);
    for (int64_t t : leaf_targets) ok = ok && inside(t, size_t(std::max<int64_t>(op.integer("n_targets"), 0)));
    for (size_t i = 0; ok && i < nodes; ++i)
        ok = features[i] >= 0 && inside(modes.int_at(int64_t(i)), size_t(SplitMode::Member) + 1) &&
             inside(on_true[i], true_is_leaf[i] ? leaves : nodes) &&
             inside(on_false[i], false_is_leaf[i] ? leaves : nodes);
    if (!ok) return op.error(Code::E0212, "a node, leaf, target or mode does not exist");
    return read_members(op, nodes);
}

// The sets follow each other in the order of the nodes, each ended by a NaN.
Status Forest::read_members(const OpView& op, size_t nodes) {
    members.clear();
    const Tensor* values = op.has_attr("membership_values") ? &op.tensor_attr("membership_values") : nullptr;
    if (values && !is_float(values->dtype())) return op.error(Code::E0212, "membership_values must be floats");
    int64_t at = 0, count = values ? values->elements() : 0;
    for (size_t i = 0; i < nodes; ++i) {
        if (mode(i) != SplitMode::Member) continue;
        while (at < count && !std::isnan(values->real_at(at))) members[i].insert(values->real_at(at++));
        if (at++ >= count) return op.error(Code::E0212, "membership_values has no set for node {}", i);
    }
    return {};
}

bool Forest::goes_true(size_t node, double x) const {
    if (std::isnan(x) && missing_is_true[node]) return true;
    const double split = splits.real_at(int64_t(node));
    switch (mode(node)) {
        case SplitMode::LessEqual: return x <= split;
        case SplitMode::Less: return x < split;
        case SplitMode::GreaterEqual: return x >= split;
        case SplitMode::Greater: return x > split;
        case SplitMode::Equal: return x == split;
        case SplitMode::NotEqual: return x != split;
        default: return members.at(node).contains(x);
    }
}

std::optional<size_t> Forest::leaf_of(int64_t root, const Tensor& x, int64_t row) const {
    auto node = size_t(root);
    for (size_t steps = 0; steps <= features.size(); ++steps) {
        const bool yes = goes_true(node, x.real_at(row * x.size(1) + features[node]));
        const auto next = size_t(yes ? on_true[node] : on_false[node]);
        if (yes ? true_is_leaf[node] : false_is_leaf[node]) return next;
        node = next;
    }
    return std::nullopt;
}

}  // namespace tessera
