// The homes that every value of a graph may have (a sharding each), and what each unit costs for the homes around it,
// as a sum of tables: the least sum is the best sharding of the graph where every reader fetches from a value's home.
#pragma once

#include <functional>

#include "shard/divide.h"
#include "shard/search/factors.h"
#include "shard/propagate.h"

namespace tessera::shard {

struct HomeOptions {
    std::vector<size_t> axes;  // that divide, beyond what is given
    size_t most_entries = 1 << 22;
};

class Homes {
  public:
    Homes(const Graph& graph, const std::vector<Unit>& units, const Mesh& mesh, const Shardings& given,
          const Rates& rates, HomeOptions options);
    ~Homes();

    // Seconds a byte, added: for the parts of all values, more for those of constants and of values that live at the
    // peak, and of what is fetched or made of the latter.
    struct Prices {
        double all = 0, peak = 0;
        std::function<bool(const Value*)> live = {};
    };
    struct Chosen {
        Shardings homes;    // of every value
        double priced = 0;  // the least sum of seconds and prices
        bool exact = true;
        size_t eliminated = 0, computed = 0;
    };
    Chosen choose(const Prices& prices);

    // A unit's kind: units that are equal but for names have the same. Its divisions by number.
    size_t kind(size_t unit) const;                              // kNoKind for units that are computed whole
    size_t division(size_t unit, const Shardings& homes) const;  // the cheapest for these homes
    const Division& division(size_t kind, size_t number) const;
    size_t divisions(size_t kind) const;
    double operations(size_t kind) const;
    // Divisions that units of a kind must not have; replaces those before.
    void forbid(const std::vector<std::pair<size_t, size_t>>& divisions);
    static constexpr size_t kNoKind = ~size_t(0);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace tessera::shard
