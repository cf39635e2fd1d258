// Decision trees as ONNX's TreeEnsemble has them, and as kernels walk them.
#pragma once

#include <map>
#include <set>

#include "graph/op_def.h"
#include "graph/op_view.h"

namespace tessera {

// How a node compares a feature with its split.
enum class SplitMode : uint8_t { LessEqual, Less, GreaterEqual, Greater, Equal, NotEqual, Member };

// The attributes of a TreeEnsemble.
struct Forest {
    const std::vector<int64_t>&roots, &features, &on_true, &on_false, &true_is_leaf, &false_is_leaf, &leaf_targets;
    const Tensor &modes, &splits, &leaf_weights;
    std::vector<int64_t> missing_is_true;
    std::map<size_t, std::set<double>> members = {};  // of nodes of mode Member

    explicit Forest(const OpView& op);
    Status check(const OpView& op);  // lengths that fit together and indices that exist
    SplitMode mode(size_t node) const { return SplitMode(modes.int_at(int64_t(node))); }
    // The leaf that a row ends in; nullopt where the nodes go in a circle.
    std::optional<size_t> leaf_of(int64_t root, const Tensor& x, int64_t row) const;

  private:
    Status read_members(const OpView& op, size_t nodes);
    bool goes_true(size_t node, double x) const;
};

// A tree_ensemble as one walk_trees and what its scores go through after it; nothing where its trees have no tables.
Result<std::vector<Value*>> trees_by_tables(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
// walk_trees: the sums of the leaves that rows end in, by tables.
//   nodes [n, 4]: the feature, the bits of a split in f32, and the successors where the feature is at most the split
//     and where it is not. A leaf is a node whose successors are itself. In inner nodes, the sign bit of the feature
//     says that NaN is at most the split; kNegatedFeature, added to it, that the feature is negated before it is
//     compared. A leaf has, in place of the split, its weight in f32 or its row of `weights`.
//   trees [t, 4]: the root, the first leaf (those of a tree follow its inner nodes), the most steps to a leaf, and the
//     target that all its leaves add to. kTreesAtOnce divides t, and no tree is deeper than the next.
//   weights [leaves, targets]: what leaves add to all targets; not given where a leaf's weight is in its node.
std::vector<OpDef> forest_ops();
constexpr int64_t kTreesAtOnce = 8;
constexpr int32_t kNegatedFeature = 1 << 30;

}  // namespace tessera
