// Decision trees by tables, on every back end: all comparisons, numbers that are missing, one target and several.
#include "kernel/every_backend.h"

namespace tessera::test::trees_test {
namespace {

constexpr int kFeatures = 5;
const std::vector<std::string> kSplits{"-1.0", "-0.0", "0.0", "0.5", "1.0", "3.0"};

class RandomForest {
  public:
    RandomForest(unsigned seed, int trees, int depth, int modes, int targets, bool several)
        : gen_(seed), modes_(modes), targets_(targets), several_(several) {
        for (int t = 0; t < trees; ++t) {
            const int target = pick(targets_);
            add_to(roots_, add(1 + pick(depth), target));
        }
    }

    std::string text(std::string_view more) const {
        return fmt::format(
            "graph g(x: f32[N,{}]) {{ %y = tree_ensemble(x, n_targets={}, tree_roots=[{}], nodes_featureids=[{}], "
            "nodes_modes=[{}]:u8[{}], nodes_splits=[{}]:f32[{}], nodes_truenodeids=[{}], nodes_trueleafs=[{}], "
            "nodes_falsenodeids=[{}], nodes_falseleafs=[{}], nodes_missing_value_tracks_true=[{}], "
            "leaf_targetids=[{}], leaf_weights=[{}]:f32[{}]{}) return %y }}",
            kFeatures, targets_, roots_, features_, all_modes_, nodes_, splits_, nodes_, on_[1], leaf_[1], on_[0],
            leaf_[0], missing_, leaf_targets_, leaf_weights_, leaves_, more);
    }

  private:
    int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(gen_); }
    static void add_to(std::string& list, const std::string& item) { list += (list.empty() ? "" : ",") + item; }
    static void add_to(std::string& list, int item) { add_to(list, std::to_string(item)); }

    // A subtree of at most this depth; the number of its root. Children come first: the lists are in that order.
    int add(int depth, int target) {
        int next[2];
        bool leaf[2];
        for (int side : {0, 1}) {
            leaf[side] = depth == 1 || pick(3) == 0;
            if (!leaf[side]) {
                next[side] = add(depth - 1, target);
                continue;
            }
            add_to(leaf_targets_, several_ ? pick(targets_) : target);
            add_to(leaf_weights_, fmt::format("{:.3f}", pick(2000) / 1000.0 - 1));
            next[side] = leaves_++;
        }
        for (int side : {0, 1}) {
            add_to(on_[side], next[side]);
            add_to(leaf_[side], int(leaf[side]));
        }
        add_to(features_, pick(kFeatures));
        add_to(all_modes_, pick(modes_));
        add_to(splits_, kSplits[size_t(pick(int(kSplits.size())))]);
        add_to(missing_, modes_ > 1 ? pick(2) : 0);
        return nodes_++;
    }

    std::mt19937 gen_;
    int modes_, targets_;
    bool several_;
    int nodes_ = 0, leaves_ = 0;
    std::string roots_, features_, all_modes_, splits_, on_[2], leaf_[2], missing_, leaf_targets_, leaf_weights_;
};

// Numbers that are splits, between them and beyond; some are missing.
void fill(Inputs& inputs, std::mt19937& gen) {
    const float values[] = {-1, -0.f, 0, 0.5f, 1, 3, -2, 0.25f, 2, 7, INFINITY, -INFINITY, NAN};
    Tensor x = *Tensor::zeros(DType::f32, inputs.at("x").tensor().sizes());
    std::uniform_int_distribution<size_t> any(0, std::size(values) - 1);
    for (int64_t i = 0; i < x.elements(); ++i) x.set_real(i, values[any(gen)]);
    inputs["x"] = Datum(x);
}

TEST(Trees, EveryComparison) {
    for (unsigned seed = 0; seed < 3; ++seed)
        for (int modes : {1, 2, 6})
            for (int64_t rows : {1, 19})
                expect_everywhere(RandomForest(seed, 5, 6, modes, 1, false).text(""), {{"N", rows}}, fill);
}

TEST(Trees, ManyRowsAndTrees) {
    for (int trees : {1, 8, 21})
        for (int64_t rows : {0, 3, 16, 50})
            expect_everywhere(RandomForest(7, trees, 9, 2, 1, false).text(""), {{"N", rows}}, fill);
}

TEST(Trees, SeveralTargets) {
    for (bool several : {false, true})
        for (int targets : {2, 3, 11})
            for (int64_t rows : {1, 33})
                expect_everywhere(RandomForest(3, 12, 4, 6, targets, several).text(""), {{"N", rows}}, fill);
}

TEST(Trees, WhatComesAfterTheSum) {
    const RandomForest forest(5, 6, 4, 2, 3, true);
    for (const char* more : {", aggregate_function=0", ", post_transform=1", ", post_transform=2"})
        expect_everywhere(forest.text(more), {{"N", 18}}, fill);
}

}  // namespace
}  // namespace tessera::test::trees_test
