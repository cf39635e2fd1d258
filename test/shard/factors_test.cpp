// Variable elimination against every combination of choices, on graphs of factors drawn at random.
#include "shard/search/factors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace tessera::test::shard_factors_test {

using namespace shard;

namespace {

struct Drawn {
    Factors factors;
    std::vector<size_t> sizes;
    std::vector<std::pair<std::vector<size_t>, std::vector<double>>> tables;

    explicit Drawn(uint64_t seed) {
        const RandomStream random(seed, "factors");
        uint64_t next = 0;
        auto below = [&](size_t n) { return size_t(random.bits(next++) % n); };
        for (size_t i = 0, n = 2 + below(5); i < n; ++i) sizes.push_back(1 + below(4));
        for (size_t n : sizes) factors.add_variable(n);
        for (size_t f = 0, n = 1 + below(8); f < n; ++f) {
            std::vector<size_t> variables, shape;
            for (size_t v = 0; v < sizes.size(); ++v)
                if (below(sizes.size()) < 2) variables.push_back(v);
            if (variables.empty()) variables.push_back(below(sizes.size()));
            if (below(2)) std::reverse(variables.begin(), variables.end());
            size_t count = 1;
            for (size_t v : variables) {
                shape.push_back(sizes[v]);
                count *= sizes[v];
            }
            std::vector<double> costs;
            for (size_t i = 0; i < count; ++i) costs.push_back(below(7) == 0 ? kForbidden : double(below(50)));
            factors.add(variables, factors.table(shape, costs));
            tables.emplace_back(variables, costs);
        }
    }
    double cost(const std::vector<size_t>& choices) const {
        double sum = 0;
        for (const auto& [variables, costs] : tables) {
            size_t at = 0;
            for (size_t v : variables) at = at * sizes[v] + choices[v];
            sum += costs[at];
        }
        return sum;
    }
    double least() const {
        double best = kForbidden;
        std::vector<size_t> at(sizes.size(), 0);
        for (size_t i = at.size(); i > 0;) {
            best = std::min(best, cost(at));
            for (i = at.size(); i > 0 && ++at[i - 1] == sizes[i - 1]; --i) at[i - 1] = 0;
        }
        return best;
    }
};

TEST(ShardFactors, EliminationFindsTheLeastSum) {
    int possible = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        Drawn drawn(seed);
        const auto solution = drawn.factors.solve({}, 1 << 20);
        EXPECT_TRUE(solution.exact);
        EXPECT_EQ(solution.cost, drawn.least()) << "seed " << seed;
        if (solution.cost == kForbidden) continue;
        ++possible;
        EXPECT_EQ(drawn.cost(solution.choices), solution.cost) << "seed " << seed;
    }
    EXPECT_GT(possible, 200);
}

TEST(ShardFactors, ConditionedChoicesCostWhatIsSaid) {
    int conditioned = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        Drawn drawn(seed);
        const auto solution = drawn.factors.solve({}, 12);
        conditioned += !solution.exact;
        EXPECT_GE(solution.cost, drawn.least()) << "seed " << seed;
        if (solution.cost == kForbidden) continue;
        EXPECT_EQ(drawn.cost(solution.choices), solution.cost) << "seed " << seed;
    }
    EXPECT_GT(conditioned, 20);
}

// A chain of equal links is eliminated by few computations.
TEST(ShardFactors, EqualEliminationsAreComputedOnce) {
    Factors factors;
    const size_t table = factors.table({3, 3, 3}, [] {
        std::vector<double> costs;
        for (int i = 0; i < 27; ++i) costs.push_back((i * 7) % 11);
        return costs;
    }());
    size_t last = factors.add_variable(3);
    for (int i = 0; i < 100; ++i) {
        const size_t inner = factors.add_variable(3), next = factors.add_variable(3);
        factors.add({last, inner, next}, table);
        last = next;
    }
    const auto solution = factors.solve({}, 1 << 20);
    EXPECT_EQ(solution.eliminated, 201u);
    EXPECT_LT(solution.computed, 110u);  // those within links once, and the chain
}

}  // namespace
}  // namespace tessera::test::shard_factors_test
