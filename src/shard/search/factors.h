// A sum of costs over choices of variables, minimized exactly by variable elimination. Costs are tables; equal tables
// are stored once, and equal eliminations (the layers of a transformer) are computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace tessera::shard {

inline constexpr double kForbidden = std::numeric_limits<double>::infinity();

class Factors {
  public:
    Factors();
    ~Factors();
    Factors(Factors&&) noexcept;
    Factors& operator=(Factors&&) noexcept;

    size_t add_variable(size_t choices);
    size_t variables() const;
    // A table of costs, row-major over the choices of some variables.
    using Table = size_t;
    Table table(std::vector<size_t> choices, std::vector<double> costs);
    void add(std::vector<size_t> variables, Table table);  // different variables
    void add(size_t variable, std::vector<double> costs);

    struct Solution {
        std::vector<size_t> choices;
        double cost = kForbidden;
        bool exact = true;
        size_t eliminated = 0, computed = 0;  // variables; eliminations that were not computed before
    };
    // With further costs of single variables. Where a table would have more than `most_entries`, a variable is fixed at
    // its choice in `near` (of a solution before), and the solution is not exact.
    Solution solve(const std::vector<std::pair<size_t, std::vector<double>>>& more, size_t most_entries,
                   const std::vector<size_t>& near = {});

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace tessera::shard
