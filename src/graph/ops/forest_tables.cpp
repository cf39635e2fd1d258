// Trees as tables that a kernel walks without branches: every comparison is `feature <= split`, leaves lead to
// themselves, and trees of one shape are one tree whose leaves add to several targets.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <unordered_map>

#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/forest.h"

namespace tessera {
namespace {

constexpr size_t kMostWalkedNodes = size_t{1} << 24;
// Bits of a feature beside its number.
constexpr int32_t kMissingIsTrue = INT32_MIN, kNegated = kNegatedFeature;
constexpr int32_t kFeature = kNegated - 1;

// An inner node whose successors are inner nodes (from 0 up) or leaves (from -1 down) of the same tree.
struct WalkedNode {
    int32_t feature = 0;
    float split = 0;
    int32_t next[2] = {0, 0};  // where the feature is at most the split, and where it is not
};

struct WalkedTree {
    std::vector<WalkedNode> nodes;  // the root first
    std::vector<size_t> leaves;     // of the forest
    int32_t depth = 0;              // the most comparisons on the way to a leaf

    std::string shape() const {
        return std::string(reinterpret_cast<const char*>(nodes.data()), nodes.size() * sizeof(WalkedNode));
    }
};

// One tree of the forest, from its root down; false where it goes in a circle or compares in a way that has no table.
class TreeReader {
  public:
    TreeReader(const Forest& forest, size_t& budget) : forest_(forest), budget_(budget) {}

    bool read(int64_t root) {
        std::vector<Open> open{{size_t(root), -1, 0, 0}};
        while (!open.empty()) {
            const Open at = open.back();
            open.pop_back();
            if (size_t(at.depth) > 2 * forest_.features.size() || budget_ == 0) return false;
            --budget_;
            const int32_t own = int32_t(tree.nodes.size());
            if (at.parent >= 0) tree.nodes[size_t(at.parent)].next[at.side] = own;
            std::vector<Edge> edges;
            if (!add(at.node, at.depth, edges)) return false;
            // The successor where the comparison holds comes next in memory.
            for (auto e = edges.rbegin(); e != edges.rend(); ++e) {
                const auto next = size_t(e->yes ? forest_.on_true[at.node] : forest_.on_false[at.node]);
                if (e->yes ? forest_.true_is_leaf[at.node] : forest_.false_is_leaf[at.node]) {
                    tree.leaves.push_back(next);
                    tree.nodes[size_t(e->from)].next[e->side] = -int32_t(tree.leaves.size());
                    tree.depth = std::max(tree.depth, e->depth);
                } else {
                    open.push_back({next, e->from, e->side, e->depth});
                }
            }
        }
        return true;
    }

    WalkedTree tree;

  private:
    struct Open {
        size_t node;
        int32_t parent, side, depth;
    };
    struct Edge {
        int32_t from, side, depth;
        bool yes;
    };

    // The comparisons of a node, and where they lead to. x < s is x <= the number before s, and for zero, whose
    // predecessor is subnormal and may be flushed to zero, it is where -x <= 0 does not hold. NaN is at most nothing,
    // but where the flag says so. Equality is two comparisons.
    bool add(size_t node, int32_t depth, std::vector<Edge>& edges) {
        const auto split = float(forest_.splits.real_at(int64_t(node)));
        const bool missing = forest_.missing_is_true[node] != 0;
        const auto own = int32_t(tree.nodes.size());
        auto compare = [&](float with, bool nan_is_less, int32_t flags = 0) {
            const auto feature = int32_t(forest_.features[node]) | flags;
            tree.nodes.push_back({nan_is_less ? feature | kMissingIsTrue : feature, with, {0, 0}});
        };
        // The sides on which the feature is less than the split, and on which it is not.
        auto compare_less = [&](bool nan_is_less) -> std::pair<int32_t, int32_t> {
            if (split == 0) {
                compare(0, !nan_is_less, kNegated);
                return {1, 0};
            }
            compare(split == -INFINITY ? NAN : std::nextafter(split, -INFINITY), nan_is_less);
            return {0, 1};
        };
        const SplitMode mode = forest_.mode(node);
        switch (mode) {
            case SplitMode::LessEqual:
            case SplitMode::Greater: {
                const bool less_equal = mode == SplitMode::LessEqual;
                compare(split, missing == less_equal);
                edges = {{own, 0, depth + 1, less_equal}, {own, 1, depth + 1, !less_equal}};
                return less_equal || !std::isnan(split);
            }
            case SplitMode::Less:
            case SplitMode::GreaterEqual: {
                const bool less = mode == SplitMode::Less;
                const auto [yes, no] = compare_less(missing == less);
                edges = {{own, yes, depth + 1, less}, {own, no, depth + 1, !less}};
                return less || !std::isnan(split);
            }
            case SplitMode::Equal:
            case SplitMode::NotEqual: {
                const bool equal = mode == SplitMode::Equal;
                const bool nan_is_equal = equal ? missing : false;
                compare(split, nan_is_equal);  // NaN among those above where it is not equal
                tree.nodes.back().next[0] = own + 1;
                const auto [less, not_less] = compare_less(false);
                edges = {{own + 1, not_less, depth + 2, equal},
                         {own + 1, less, depth + 2, !equal},
                         {own, 1, depth + 1, !equal}};
                return !std::isnan(split);
            }
            default: return false;
        }
    }

    const Forest& forest_;
    size_t& budget_;
};

// What a leaf adds, by target.
using LeafSums = std::map<int64_t, float>;

struct MergedTree {
    WalkedTree tree;
    std::vector<LeafSums> sums;  // by leaf
};

std::optional<std::vector<MergedTree>> read_forest(const Forest& forest) {
    std::vector<MergedTree> trees;
    std::unordered_map<std::string, size_t> known;
    size_t budget = kMostWalkedNodes;
    for (int64_t root : forest.roots) {
        TreeReader reader(forest, budget);
        if (!reader.read(root)) return std::nullopt;
        auto [at, fresh] = known.try_emplace(reader.tree.shape(), trees.size());
        if (fresh) {
            trees.emplace_back();
            trees.back().sums.resize(reader.tree.leaves.size());
            trees.back().tree = reader.tree;
        }
        MergedTree& merged = trees[at->second];
        for (size_t i = 0; i < reader.tree.leaves.size(); ++i) {
            const auto leaf = reader.tree.leaves[i];
            merged.sums[i][forest.leaf_targets[leaf]] += float(forest.leaf_weights.real_at(int64_t(leaf)));
        }
    }
    std::stable_sort(trees.begin(), trees.end(),
                     [](const MergedTree& a, const MergedTree& b) { return a.tree.depth < b.tree.depth; });
    return trees;
}

// The one target that all leaves of a tree add to.
std::optional<int64_t> target_of(const MergedTree& tree) {
    const int64_t target = tree.sums.empty() || tree.sums[0].empty() ? 0 : tree.sums[0].begin()->first;
    for (const LeafSums& sums : tree.sums)
        if (sums.size() != 1 || sums.begin()->first != target) return std::nullopt;
    return target;
}

class Tables {
  public:
    Tables(const std::vector<MergedTree>& trees, int64_t targets)
        : targets_(targets),
          apart_(
              std::all_of(trees.begin(), trees.end(), [](const MergedTree& t) { return target_of(t).has_value(); })) {
        MergedTree nothing;
        nothing.sums.emplace_back();
        for (auto i = int64_t(trees.size()); i % kTreesAtOnce; ++i) add(nothing);
        for (const MergedTree& t : trees) add(t);
    }

    Value* walk(Builder& b, Value* x) {
        auto rows = [](const auto& list, int64_t width) { return Sizes{int64_t(list.size()) / width, width}; };
        Value* weights = apart_ ? nullptr : b.constant(Tensor::of<float>(rows(weights_, targets_), weights_));
        return b.op("walk_trees",
                    {x, b.constant(Tensor::of<int32_t>(rows(nodes_, 4), nodes_)),
                     b.constant(Tensor::of<int32_t>(rows(trees_, 4), trees_)), weights},
                    {{"missing", Attr(int64_t{missing_})},
                     {"n_targets", Attr(targets_)},
                     {"negated", Attr(int64_t{negated_})}});
    }

  private:
    void add(const MergedTree& merged) {
        const WalkedTree& tree = merged.tree;
        const auto first = int32_t(nodes_.size() / 4), first_leaf = first + int32_t(tree.nodes.size());
        auto number = [&](int32_t next) { return next >= 0 ? first + next : first_leaf - 1 - next; };
        for (const WalkedNode& n : tree.nodes) {
            missing_ |= n.feature < 0;
            negated_ |= (n.feature & kNegated) != 0;
            nodes_.insert(nodes_.end(),
                          {n.feature, std::bit_cast<int32_t>(n.split), number(n.next[0]), number(n.next[1])});
        }
        for (size_t i = 0; i < merged.sums.size(); ++i) {
            const int32_t own = first_leaf + int32_t(i);
            nodes_.insert(nodes_.end(), {0, leaf(merged.sums[i]), own, own});
        }
        const auto target = int32_t(apart_ ? target_of(merged).value_or(0) : 0);
        trees_.insert(trees_.end(), {first, first_leaf, tree.depth, target});
    }

    int32_t leaf(const LeafSums& sums) {
        if (apart_) return std::bit_cast<int32_t>(sums.empty() ? 0.f : sums.begin()->second);
        std::vector<float> row(size_t(targets_), 0.f);
        for (const auto& [target, sum] : sums) row[size_t(target)] = sum;
        std::string bytes(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
        auto [at, fresh] = rows_.try_emplace(std::move(bytes), int32_t(weights_.size() / size_t(targets_)));
        if (fresh) weights_.insert(weights_.end(), row.begin(), row.end());
        return at->second;
    }

    int64_t targets_;
    bool apart_;  // a leaf's weight is in its node, its target in its tree
    bool missing_ = false, negated_ = false;
    std::vector<int32_t> nodes_, trees_;
    std::vector<float> weights_;
    std::unordered_map<std::string, int32_t> rows_;
};

// Whether a walk stays inside the tables, and comes to a leaf within the steps that a tree names.
Status check_tables(const OpView& op) {
    if (!op.is_constant(1) || !op.is_constant(2)) return op.error(Code::E0206, "nodes and trees must be constants");
    const Tensor *nodes = op.value(1), *trees = op.value(2);
    if (!nodes || !trees) return {};
    if (nodes->rank() != 2 || nodes->size(1) != 4 || trees->rank() != 2 || trees->size(1) != 4 ||
        trees->size(0) % kTreesAtOnce)
        return op.shape_error("tables {} and {}", op.shape(1), op.shape(2));
    const auto features = op.shape(0)[1].as_int();
    if (!features) return op.shape_error("the number of features must be constant, but x is {}", op.shape(0));
    const int64_t count = nodes->size(0), targets = op.integer("n_targets");
    const int64_t rows = op.has(3) ? op.shape(3)[0].as_int().value_or(0) : INT32_MAX;
    auto n = nodes->as<int32_t>(), t = trees->as<int32_t>();
    auto inside = [](int64_t i, int64_t size) { return i >= 0 && i < size; };
    bool ok = true;
    for (int64_t i = 0; ok && i < trees->size(0); ++i) {
        const int32_t* tree = &t[size_t(4 * i)];
        ok = inside(tree[0], count) && inside(tree[1], count) && inside(tree[3], targets) &&
             tree[2] >= (i > 0 ? tree[-2] : 0);
    }
    for (int64_t i = 0; ok && i < count; ++i) {
        const int32_t* node = &n[size_t(4 * i)];
        const bool leaf = node[2] == i && node[3] == i;
        ok = inside(node[0] & kFeature, *features) && inside(node[2], count) && inside(node[3], count) &&
             (!leaf || !op.has(3) || inside(node[1], rows));
    }
    return ok ? Status() : op.error(Code::E0212, "a node, leaf, target or feature of the tables does not exist");
}

const OpDef kWalkTrees{
    .name = "walk_trees",
    .inputs = {"x: f32", "nodes: i32", "trees: i32", "weights?: f32"},
    .outputs = {"y: f32"},
    .attrs = {int_attr("missing", 0), int_attr("n_targets").required(), int_attr("negated", 0)},
    .infer = [](const OpView& op) -> Result<Types> {
        const int64_t targets = op.integer("n_targets");
        if (op.rank(0) != 2) return op.shape_error("needs [N, features], has {}", op.shape(0));
        if (targets < 1) return op.error(Code::E0212, "n_targets is {}", targets);
        if (op.has(3) && (op.rank(3) != 2 || !op.shape(3)[1].is_int(targets)))
            return op.shape_error("weights {} do not match {} targets", op.shape(3), targets);
        TRY(check_tables(op));
        return op.like(0, {op.shape(0)[0], targets});
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor &x = ctx.tensor(0), &nodes = ctx.tensor(1), &trees = ctx.tensor(2);
        Tensor y = TRY(Tensor::zeros(DType::f32, TRY(op.out_sizes())));
        auto n = nodes.as<int32_t>(), t = trees.as<int32_t>();
        auto features = x.as<float>();
        const auto width = size_t(x.size(1));
        const int64_t targets = op.integer("n_targets");
        for (int64_t row = 0; row < x.size(0); ++row) {
            TRY(ctx.spend(trees.size(0) * 16 + targets));
            std::vector<double> sums(size_t(targets), 0.0);
            for (size_t tree = 0; tree < t.size(); tree += 4) {
                auto at = size_t(t[tree]);
                for (int32_t step = 0; step < t[tree + 2]; ++step) {
                    const int32_t* node = &n[4 * at];
                    const float f = features[size_t(row) * width + size_t(node[0] & kFeature)];
                    const float v = node[0] & kNegated ? -f : f;
                    const bool most = v <= std::bit_cast<float>(node[1]) || (std::isnan(v) && node[0] < 0);
                    at = size_t(node[most ? 2 : 3]);
                }
                const int32_t leaf = n[4 * at + 1];
                if (!op.has(3))
                    sums[size_t(t[tree + 3])] += std::bit_cast<float>(leaf);
                else
                    for (int64_t k = 0; k < targets; ++k)
                        sums[size_t(k)] += ctx.tensor(3).as<float>()[size_t(leaf * targets + k)];
            }
            for (int64_t k = 0; k < targets; ++k) y.set_real(row * targets + k, sums[size_t(k)]);
        }
        return std::vector<Datum>{y};
    },
};

}  // namespace

Result<std::vector<Value*>> trees_by_tables(const OpView& op, const std::vector<Value*>& inputs, Builder& b) {
    enum { kAverage, kSum };
    enum { kPlain, kSoftmax, kLogistic };
    const int64_t how = op.integer("aggregate_function"), after = op.integer("post_transform");
    const int64_t targets = op.integer("n_targets");
    Forest forest(op);
    TRY(forest.check(op));
    const bool f32 = op.dtype(0) == DType::f32 && forest.splits.dtype() == DType::f32;
    if (!f32 || !op.shape(0)[1].as_int() || how > kSum || after > kLogistic || targets < 1 || forest.roots.empty())
        return std::vector<Value*>{};
    const auto trees = read_forest(forest);
    if (!trees) return std::vector<Value*>{};
    Value* y = Tables(*trees, targets).walk(b, inputs[0]);
    if (how == kAverage) y = b.div(y, b.scalar(double(forest.roots.size()), DType::f32));
    if (after == kLogistic) y = b.op("sigmoid", {y});
    if (after == kSoftmax) {
        Value* e = b.op("exp", {b.sub(y, b.reduce("reduce_max", y, {1}))});
        y = b.div(e, b.reduce("reduce_sum", e, {1}));
    }
    return b.finish({y});
}

std::vector<OpDef> forest_ops() { return {kWalkTrees}; }

}  // namespace tessera
