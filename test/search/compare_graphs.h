// Random numbers for graphs, and whether two graphs compute the same on random inputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "graph/evaluate/evaluate.h"
#include "graph/text/print.h"

namespace tessera {

class Dice {
  public:
    explicit Dice(uint64_t seed) : stream_(seed, "search_test") {}
    int64_t below(int64_t n) { return int64_t(stream_.bits(next_++) % uint64_t(n)); }
    bool chance(int percent) { return below(100) < percent; }
    template <typename T>
    T one_of(std::initializer_list<T> list) {
        return list.begin()[below(int64_t(list.size()))];
    }
    Tensor tensor(const Sizes& sizes) {
        int64_t n = 1;
        for (int64_t s : sizes) n *= s;
        std::vector<float> v;
        for (int64_t i = 0; i < n; ++i) v.push_back(float(below(2001) - 1000) / 1000);
        return Tensor::of<float>(sizes, v);
    }

  private:
    RandomStream stream_;
    uint64_t next_ = 0;
};

inline void expect_same(const Graph& a, const Graph& b, Dice& dice, const std::string& what) {
    Inputs inputs;
    for (const auto& v : a.inputs()) {
        Sizes sizes;
        for (const Expr& d : v->type().tensor().shape.dims()) sizes.push_back(*d.as_int());
        inputs.emplace(v->name(), dice.tensor(sizes));
    }
    auto x = evaluate(a, inputs), y = evaluate(b, inputs);
    ASSERT_TRUE(x.ok() && y.ok()) << what;
    ASSERT_EQ(x->size(), y->size());
    for (size_t i = 0; i < x->size(); ++i) {
        const Tensor &s = (*x)[i].tensor(), &t = (*y)[i].tensor();
        ASSERT_EQ(s.sizes(), t.sizes()) << what;
        double largest = 1;
        for (int64_t k = 0; k < s.elements(); ++k) largest = std::max(largest, std::abs(s.real_at(k)));
        for (int64_t k = 0; k < s.elements(); ++k)
            ASSERT_NEAR(s.real_at(k), t.real_at(k), 1e-4 * largest) << what << "\n" << print(a) << print(b);
    }
}

}  // namespace tessera
