// Operators of ai.onnx.ml that are a few of ONNX's: features, linear models, support vectors, trees of older versions.
#include <algorithm>
#include <map>
#include <set>

#include "graph/ops/common.h"
#include "graph/ops/foreign.h"

namespace tessera {
namespace {

constexpr const char* kMl = "ai.onnx.ml";

Tensor floats_of(const std::vector<float>& list, Sizes sizes) { return Tensor::of<float>(std::move(sizes), list); }
Tensor vector_of(const std::vector<float>& list) { return floats_of(list, {int64_t(list.size())}); }

std::vector<std::string> strings_of(ForeignCall& c, const char* name) {
    auto attr = c.given(name);
    auto* list = attr ? std::get_if<std::vector<std::string>>(&*attr) : nullptr;
    return list ? *list : std::vector<std::string>();
}

// [N, C] in f32.
Value* rows(ForeignCall& c, size_t i) {
    Value* x = c.b.cast(c.in(i), DType::f32);
    const int64_t rank = c.rank(i);
    c.require(rank == 1 || rank == 2, "needs [N, C]");
    return rank == 1 ? c.b.unsqueeze(x, {0}) : x;
}

Value* transformed(ForeignCall& c, Value* scores, const std::string& how) {
    Builder& b = c.b;
    if (how == "NONE") return scores;
    if (how == "LOGISTIC") return b.op("sigmoid", {scores});
    if (how == "SOFTMAX") return b.op("softmax", {scores}, {{"axis", Attr(int64_t{-1})}});
    if (how == "SOFTMAX_ZERO") {  // zeros stay, the others share
        Value* zero = b.scalar(0, DType::f32);
        Value* kept = b.op("equal", {scores, zero});
        Value* most = b.reduce("reduce_max", scores, {-1});
        Value* e = b.op("where", {kept, zero, b.op("exp", {b.sub(scores, most)})});
        return b.div(e, b.op("max", {b.reduce("reduce_sum", e, {-1}), b.scalar(1e-30, DType::f32)}));
    }
    c.require(false, "post_transform \"" + how + "\" is not supported");
    return scores;
}

Status build_imputer(ForeignCall& c) {
    Builder& b = c.b;
    Value* x = c.in(0);
    const std::vector<float> reals = c.floats("imputed_value_floats");
    const std::vector<int64_t> wholes = c.ints("imputed_value_int64s");
    const float real = c.real("replaced_value_float", 0);
    const int64_t whole = c.integer("replaced_value_int64", 0);
    const bool floating = is_float(c.dtype(0));
    c.require(floating ? !reals.empty() : !wholes.empty(), "has no values to impute");
    if (b.failed()) return c.finish({});
    Value* missing = floating && real != real ? b.op("is_nan", {x})
                                              : b.op("equal", {x, b.scalar_like(floating ? real : double(whole), x)});
    Value* values = b.cast(floating ? b.constant(vector_of(reals)) : b.ints(wholes), c.dtype(0));
    return c.finish({b.op("where", {missing, values, x})});
}

Status build_scaler(ForeignCall& c) {
    Builder& b = c.b;
    const std::vector<float> offset = c.floats("offset"), scale = c.floats("scale");
    Value* y = b.cast(c.in(0), DType::f32);
    if (!offset.empty()) y = b.sub(y, b.constant(vector_of(offset)));
    if (!scale.empty()) y = b.mul(y, b.constant(vector_of(scale)));
    return c.finish({y});
}

Status build_normalizer(ForeignCall& c) {
    Builder& b = c.b;
    const std::string norm = c.string("norm", "MAX");
    Value* x = b.cast(c.in(0), DType::f32);
    c.require(norm == "MAX" || norm == "L1" || norm == "L2", "norm must be MAX, L1 or L2");
    Value* by = norm == "MAX"  ? b.reduce("reduce_max", x, {-1})
                : norm == "L1" ? b.reduce("reduce_l1", x, {-1})
                               : b.reduce("reduce_l2", x, {-1});
    Value* zero = b.op("equal", {by, b.scalar(0, DType::f32)});
    return c.finish({b.div(x, b.op("where", {zero, b.scalar(1, DType::f32), by}))});
}

Status build_feature_vectorizer(ForeignCall& c) {
    c.ints("inputdimensions");
    std::vector<Value*> parts;
    for (size_t i = 0; i < c.input_count(); ++i) parts.push_back(rows(c, i));
    return c.finish({c.b.concat(parts, 1)});
}

Status build_one_hot_encoder(ForeignCall& c) {
    Builder& b = c.b;
    const std::vector<int64_t> wholes = c.ints("cats_int64s");
    const std::vector<std::string> strings = strings_of(c, "cats_strings");
    c.integer("zeros", 1);
    Value* cats = strings.empty() ? b.ints(wholes) : b.constant(Tensor::strings({int64_t(strings.size())}, strings));
    Value* x = strings.empty() ? b.cast(c.in(0), DType::i64) : c.in(0);
    return c.finish({b.cast(b.op("equal", {b.unsqueeze(x, {-1}), cats}), DType::f32)});
}

Status build_category_mapper(ForeignCall& c) {
    const std::vector<std::string> strings = strings_of(c, "cats_strings");
    const std::vector<int64_t> numbers = c.ints("cats_int64s");
    const bool from_strings = c.dtype(0) == DType::string;
    AttrMap attrs{{from_strings ? "keys_strings" : "values_strings", Attr(strings)},
                  {from_strings ? "values_int64s" : "keys_int64s", Attr(numbers)},
                  {"default_int64", Attr(c.integer("default_int64", -1))},
                  {"default_string", Attr(c.string("default_string", "_Unused"))}};
    return c.finish({c.b.op("label_encoder", {c.in(0)}, std::move(attrs))});
}

// Names for columns. There are no dictionaries here: the columns stay as they are, in the order of the names.
Status build_zip_map(ForeignCall& c) {
    c.ints("classlabels_int64s");
    c.given("classlabels_strings");
    return c.finish({c.b.op("identity", {c.in(0)})});
}

// X times coefficients [targets, features], plus intercepts.
Value* linear(ForeignCall& c, int64_t targets) {
    Builder& b = c.b;
    const std::vector<float> weights = c.floats("coefficients"), bias = c.floats("intercepts");
    c.require(targets > 0 && !weights.empty() && int64_t(weights.size()) % targets == 0, "coefficients do not fit");
    c.require(bias.empty() || int64_t(bias.size()) == targets, "intercepts do not fit");
    if (b.failed()) return nullptr;
    const int64_t features = int64_t(weights.size()) / targets;
    Value* y = b.matmul(rows(c, 0), b.transpose(b.constant(floats_of(weights, {targets, features})), {1, 0}));
    return bias.empty() ? y : b.add(y, b.constant(vector_of(bias)));
}

Status build_linear_regressor(ForeignCall& c) {
    Value* y = linear(c, c.integer("targets", 1));
    return c.finish({transformed(c, y, c.string("post_transform", "NONE"))});
}

// The labels of classes, by number.
Value* labels(ForeignCall& c, const char* ints, const char* strings, Value* which) {
    Builder& b = c.b;
    const std::vector<std::string> names = strings_of(c, strings);
    const std::vector<int64_t> numbers = c.ints(ints);
    Value* all = names.empty() ? b.ints(numbers) : b.constant(Tensor::strings({int64_t(names.size())}, names));
    return b.op("gather", {all, which}, {{"axis", Attr(int64_t{0})}});
}

size_t label_count(ForeignCall& c, const char* ints, const char* strings) {
    return std::max(c.ints(ints).size(), strings_of(c, strings).size());
}

Value* largest(Builder& b, Value* scores) {
    return b.op("arg_max", {scores}, {{"axis", Attr(int64_t{1})}, {"keepdims", Attr(int64_t{0})}});
}

// One score [N, 1] for two classes: whether the second one is meant, and the scores of both.
struct TwoClasses {
    Value *second, *scores;
};
TwoClasses two_classes(ForeignCall& c, Value* score, const std::string& how, bool probabilities) {
    Builder& b = c.b;
    Value* one = b.scalar(1, DType::f32);
    Value* second = b.cast(b.op("greater", {score, b.scalar(probabilities ? 0.5 : 0, DType::f32)}), DType::i64);
    Value* first = probabilities       ? b.sub(one, score)
                   : how == "LOGISTIC" ? b.op("sigmoid", {b.op("neg", {score})})
                                       : b.op("neg", {score});
    Value* other = !probabilities && how == "LOGISTIC" ? b.op("sigmoid", {score}) : score;
    return {b.squeeze(second, {1}), b.concat({first, other}, 1)};
}

Status build_linear_classifier(ForeignCall& c) {
    Builder& b = c.b;
    constexpr const char *kInts = "classlabels_ints", *kStrings = "classlabels_strings";
    const std::string how = c.string("post_transform", "NONE");
    c.integer("multi_class", 0);
    const size_t classes = label_count(c, kInts, kStrings);
    const size_t intercepts = c.floats("intercepts").size();
    Value* scores = linear(c, int64_t(intercepts ? intercepts : classes));
    if (b.failed()) return c.finish({});
    if (intercepts == 1 && classes == 2) {
        TwoClasses two = two_classes(c, scores, how, false);
        if (how == "NONE") two.scores = b.concat({b.sub(b.scalar(1, DType::f32), scores), scores}, 1);
        return c.finish({labels(c, kInts, kStrings, two.second), two.scores});
    }
    return c.finish({labels(c, kInts, kStrings, largest(b, scores)), transformed(c, scores, how)});
}

Value* kernel_products(ForeignCall& c, Value* x, Value* vectors, const std::string& kind) {
    Builder& b = c.b;
    const std::vector<float> given = c.floats("kernel_params");
    auto parameter = [&](size_t i) { return b.scalar(i < given.size() ? given[i] : 0, DType::f32); };
    if (kind == "RBF") {
        Value* apart = b.sub(b.unsqueeze(x, {1}), b.unsqueeze(vectors, {0}));
        Value* squared = b.reduce("reduce_sum_square", apart, {2}, false);
        return b.op("exp", {b.op("neg", {b.mul(squared, parameter(0))})});
    }
    Value* dot = b.matmul(x, b.transpose(vectors, {1, 0}));
    if (kind == "LINEAR") return dot;
    Value* affine = b.add(b.mul(dot, parameter(0)), parameter(1));
    if (kind == "POLY") return b.op("pow", {affine, parameter(2)});
    if (kind == "SIGMOID") return b.op("tanh", {affine});
    c.require(false, "kernel_type \"" + kind + "\" is not known");
    return dot;
}

Status build_svm_regressor(ForeignCall& c) {
    Builder& b = c.b;
    const std::vector<float> weights = c.floats("coefficients"), vectors = c.floats("support_vectors");
    const std::vector<float> rho = c.floats("rho");
    const int64_t count = c.integer("n_supports", 0);
    const std::string kind = c.string("kernel_type", "LINEAR"), how = c.string("post_transform", "NONE");
    const bool one_class = c.integer("one_class", 0) != 0;
    c.floats("kernel_params");
    c.require(rho.size() == 1, "rho must have one entry");
    c.require(count >= 0 && (count == 0 || int64_t(weights.size()) == count), "coefficients do not fit");
    c.require(count == 0 || (!vectors.empty() && int64_t(vectors.size()) % count == 0), "support_vectors do not fit");
    if (b.failed()) return c.finish({});
    Value* x = rows(c, 0);
    Value* products = x;
    if (count > 0) {
        const int64_t features = int64_t(vectors.size()) / count;
        products = kernel_products(c, x, b.constant(floats_of(vectors, {count, features})), kind);
    }
    Value* y = b.matmul(products, b.constant(floats_of(weights, {int64_t(weights.size()), 1})));
    y = b.add(y, b.scalar(rho[0], DType::f32));
    if (one_class)
        y = b.op("where",
                 {b.op("greater", {y, b.scalar(0, DType::f32)}), b.scalar(1, DType::f32), b.scalar(-1, DType::f32)});
    return c.finish({transformed(c, y, how)});
}

// Trees as versions before 5 have them: nodes by tree and number, leaves among them, weights beside them.
struct OldTrees {
    std::vector<int64_t> tree, node, feature, on_true, on_false, missing;
    std::vector<std::string> modes;
    std::vector<float> splits;
    std::vector<int64_t> weight_tree, weight_node, weight_target;
    std::vector<float> weights;
};

std::vector<float> reals_of(ForeignCall& c, const std::string& name) {  // doubles from version 3 on
    if (auto attr = c.given((name + "_as_tensor").c_str())) {
        auto* t = std::get_if<Tensor>(&*attr);
        std::vector<float> list;
        for (int64_t i = 0; t && is_float(t->dtype()) && i < t->elements(); ++i) list.push_back(float(t->real_at(i)));
        return list;
    }
    return c.floats(name.c_str());
}

OldTrees read_trees(ForeignCall& c, const std::string& weight) {
    OldTrees t;
    t.tree = c.ints("nodes_treeids");
    t.node = c.ints("nodes_nodeids");
    t.feature = c.ints("nodes_featureids");
    t.on_true = c.ints("nodes_truenodeids");
    t.on_false = c.ints("nodes_falsenodeids");
    t.missing = c.ints("nodes_missing_value_tracks_true");
    t.modes = strings_of(c, "nodes_modes");
    t.splits = reals_of(c, "nodes_values");
    reals_of(c, "nodes_hitrates");
    t.weight_tree = c.ints((weight + "_treeids").c_str());
    t.weight_node = c.ints((weight + "_nodeids").c_str());
    t.weight_target = c.ints((weight + "_ids").c_str());
    t.weights = reals_of(c, weight + "_weights");
    const size_t n = t.tree.size(), w = t.weight_tree.size();
    t.missing.resize(n);
    c.require(t.node.size() == n && t.feature.size() == n && t.on_true.size() == n && t.on_false.size() == n &&
                  t.modes.size() == n && t.splits.size() == n && n > 0,
              "the nodes_* attributes differ in length");
    c.require(t.weight_node.size() == w && t.weight_target.size() == w && t.weights.size() == w,
              "the weights' attributes differ in length");
    return t;
}

// The same trees as version 5 has them. A leaf there adds to one target: a tree whose leaves add to several is there
// once for each.
class NewTrees {
  public:
    NewTrees(ForeignCall& c, const OldTrees& old, int64_t targets) : c_(c), old_(old), targets_(targets) {
        for (size_t i = 0; i < old.tree.size(); ++i) {
            c.require(at_.emplace(std::pair(old.tree[i], old.node[i]), i).second,
                      "two nodes of a tree have one number");
            trees_.emplace(old.tree[i], i);
        }
        for (size_t i = 0; i < old.weights.size(); ++i) {
            c.require(old.weight_target[i] >= 0 && old.weight_target[i] < targets, "a weight's target does not exist");
            weights_[{old.weight_tree[i], old.weight_node[i]}].emplace_back(old.weight_target[i], old.weights[i]);
        }
    }

    size_t tree_count() const { return trees_.size(); }

    Value* build(Value* x) {
        for (const auto& [tree, root] : trees_) {
            std::set<int64_t> met;
            for (const auto& [where, list] : weights_)
                if (where.first == tree)
                    for (const auto& [target, weight] : list) met.insert(target);
            for (int64_t target : met) {
                if (c_.b.failed()) return nullptr;
                add_tree(root, target);
            }
        }
        if (c_.b.failed() || roots_.empty()) return nullptr;
        const auto nodes = int64_t(features_.size());
        AttrMap attrs{{"aggregate_function", Attr(int64_t{1})},
                      {"n_targets", Attr(targets_)},
                      {"tree_roots", Attr(roots_)},
                      {"nodes_featureids", Attr(features_)},
                      {"nodes_truenodeids", Attr(on_true_)},
                      {"nodes_falsenodeids", Attr(on_false_)},
                      {"nodes_trueleafs", Attr(true_is_leaf_)},
                      {"nodes_falseleafs", Attr(false_is_leaf_)},
                      {"nodes_missing_value_tracks_true", Attr(missing_)},
                      {"leaf_targetids", Attr(leaf_targets_)},
                      {"nodes_splits", Attr(floats_of(splits_, {nodes}))},
                      {"leaf_weights", Attr(vector_of(leaf_weights_))}};
        attrs["nodes_modes"] = Tensor::of<uint8_t>({nodes}, modes_);
        return c_.b.op("tree_ensemble", {x}, std::move(attrs));
    }

  private:
    static constexpr size_t kMostNodes = 1 << 22;

    bool is_leaf(size_t i) const { return old_.modes[i] == "LEAF"; }

    int64_t add_leaf(size_t i, int64_t target) {
        float weight = 0;
        auto found = weights_.find({old_.tree[i], old_.node[i]});
        if (found != weights_.end())
            for (const auto& [t, w] : found->second)
                if (t == target) weight += w;
        leaf_targets_.push_back(target);
        leaf_weights_.push_back(weight);
        return int64_t(leaf_targets_.size()) - 1;
    }

    int64_t add_node(size_t i) {
        static const std::map<std::string, uint8_t> kModes{{"BRANCH_LEQ", 0}, {"BRANCH_LT", 1}, {"BRANCH_GTE", 2},
                                                           {"BRANCH_GT", 3},  {"BRANCH_EQ", 4}, {"BRANCH_NEQ", 5}};
        auto mode = kModes.find(old_.modes[i]);
        c_.require(mode != kModes.end(), "a node's mode is not known");
        modes_.push_back(mode == kModes.end() ? 0 : mode->second);
        features_.push_back(old_.feature[i]);
        splits_.push_back(old_.splits[i]);
        missing_.push_back(old_.missing[i]);
        for (auto* list : {&on_true_, &on_false_, &true_is_leaf_, &false_is_leaf_}) list->push_back(0);
        return int64_t(features_.size()) - 1;
    }

    void add_tree(size_t root, int64_t target) {
        if (is_leaf(root)) {  // one node whose branches are the same leaf
            const int64_t leaf = add_leaf(root, target);
            modes_.push_back(0);
            features_.push_back(0);
            splits_.push_back(0);
            missing_.push_back(0);
            for (auto* list : {&on_true_, &on_false_}) list->push_back(leaf);
            for (auto* list : {&true_is_leaf_, &false_is_leaf_}) list->push_back(1);
            roots_.push_back(int64_t(features_.size()) - 1);
            return;
        }
        std::map<size_t, int64_t> made;
        std::vector<size_t> open{root};
        made[root] = add_node(root);
        roots_.push_back(made[root]);
        while (!open.empty() && !c_.b.failed()) {
            const size_t i = open.back();
            open.pop_back();
            const auto here = size_t(made[i]);
            for (bool yes : {true, false}) {
                auto next = at_.find({old_.tree[i], yes ? old_.on_true[i] : old_.on_false[i]});
                c_.require(next != at_.end() && features_.size() < kMostNodes, "a branch leads nowhere");
                if (c_.b.failed()) return;
                const bool leaf = is_leaf(next->second);
                (yes ? true_is_leaf_ : false_is_leaf_)[here] = leaf;
                if (leaf) {
                    (yes ? on_true_ : on_false_)[here] = add_leaf(next->second, target);
                    continue;
                }
                c_.require(!made.contains(next->second), "the nodes of a tree form a cycle");
                if (c_.b.failed()) return;
                const int64_t number = made[next->second] = add_node(next->second);
                (yes ? on_true_ : on_false_)[here] = number;
                open.push_back(next->second);
            }
        }
    }

    ForeignCall& c_;
    const OldTrees& old_;
    int64_t targets_;
    std::map<std::pair<int64_t, int64_t>, size_t> at_;
    std::map<int64_t, size_t> trees_;  // the first node of each is its root
    std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, float>>> weights_;
    std::vector<int64_t> roots_, features_, on_true_, on_false_, true_is_leaf_, false_is_leaf_, missing_, leaf_targets_;
    std::vector<float> splits_, leaf_weights_;
    std::vector<uint8_t> modes_;
};

Status build_tree_regressor(ForeignCall& c) {
    Builder& b = c.b;
    const int64_t targets = c.integer("n_targets", 1);
    const std::string aggregate = c.string("aggregate_function", "SUM"), how = c.string("post_transform", "NONE");
    const std::vector<float> base = reals_of(c, "base_values");
    c.require(aggregate == "SUM" || aggregate == "AVERAGE", "aggregate_function must be SUM or AVERAGE");
    c.require(targets > 0 && (base.empty() || int64_t(base.size()) == targets), "base_values do not fit");
    const OldTrees old = read_trees(c, "target");
    if (b.failed()) return c.finish({});
    NewTrees trees(c, old, targets);
    Value* y = trees.build(rows(c, 0));
    c.require(y != nullptr, "there are no trees");
    if (b.failed()) return c.finish({});
    if (aggregate == "AVERAGE") y = b.div(y, b.scalar(double(trees.tree_count()), DType::f32));
    if (!base.empty()) y = b.add(y, b.constant(vector_of(base)));
    return c.finish({transformed(c, y, how)});
}

Status build_tree_classifier(ForeignCall& c) {
    Builder& b = c.b;
    constexpr const char *kInts = "classlabels_int64s", *kStrings = "classlabels_strings";
    const std::string how = c.string("post_transform", "NONE");
    std::vector<float> base = reals_of(c, "base_values");
    const OldTrees old = read_trees(c, "class");
    const auto classes = int64_t(label_count(c, kInts, kStrings));
    c.require(classes > 0, "has no class labels");
    if (b.failed()) return c.finish({});
    const std::set<int64_t> met(old.weight_target.begin(), old.weight_target.end());
    if (classes == 2 && met.size() == 1) {  // one score for two classes
        OldTrees single = old;
        std::fill(single.weight_target.begin(), single.weight_target.end(), 0);
        Value* score = NewTrees(c, single, 1).build(rows(c, 0));
        c.require(score != nullptr && base.size() <= 1, "there are no trees, or base_values do not fit");
        if (b.failed()) return c.finish({});
        if (!base.empty()) score = b.add(score, b.scalar(base[0], DType::f32));
        const bool positive = std::all_of(old.weights.begin(), old.weights.end(), [](float w) { return w >= 0; });
        TwoClasses two = two_classes(c, score, how, positive);
        if (met.contains(1)) {  // the first class has no score, which counts as 0
            Value* none = b.mul(score, b.scalar(0, DType::f32));
            two.scores = transformed(c, b.concat({none, score}, 1), how);
        }
        return c.finish({labels(c, kInts, kStrings, two.second), two.scores});
    }
    c.require(base.empty() || int64_t(base.size()) == classes, "base_values do not fit");
    Value* scores = NewTrees(c, old, classes).build(rows(c, 0));
    c.require(scores != nullptr, "there are no trees");
    if (b.failed()) return c.finish({});
    if (!base.empty()) scores = b.add(scores, b.constant(vector_of(base)));
    // Of two classes with a score each, ONNX Runtime asks whether the second one's is above 0.
    Value* which = nullptr;
    if (classes == 2) {
        Value* above = b.op("greater", {b.slice(scores, {1}, {2}, {1}), b.scalar(0, DType::f32)});
        which = b.squeeze(b.cast(above, DType::i64), {1});
    } else {
        which = largest(b, scores);
    }
    return c.finish({labels(c, kInts, kStrings, which), transformed(c, scores, how)});
}

}  // namespace

std::vector<ForeignOp> ml_foreign_ops() {
    return {
        {kMl, "Imputer", build_imputer, "where"},
        {kMl, "Scaler", build_scaler, "sub and mul"},
        {kMl, "Normalizer", build_normalizer, "div by a norm"},
        {kMl, "FeatureVectorizer", build_feature_vectorizer, "concat"},
        {kMl, "OneHotEncoder", build_one_hot_encoder, "equal"},
        {kMl, "CategoryMapper", build_category_mapper, "label_encoder"},
        {kMl, "ZipMap", build_zip_map, "its columns"},
        {kMl, "LinearRegressor", build_linear_regressor, "matmul"},
        {kMl, "LinearClassifier", build_linear_classifier, "matmul and arg_max"},
        {kMl, "SVMRegressor", build_svm_regressor, "products with the support vectors"},
        {kMl, "TreeEnsembleRegressor", build_tree_regressor, "tree_ensemble"},
        {kMl, "TreeEnsembleClassifier", build_tree_classifier, "tree_ensemble and arg_max"},
    };
}

}  // namespace tessera
