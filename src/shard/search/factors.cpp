#include "shard/search/factors.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/hash.h"

namespace tessera::shard {
namespace {

struct Costs {
    std::vector<size_t> shape;
    std::vector<double> values;
};

struct Factor {
    std::vector<size_t> variables;
    size_t table;
};

// The result of an elimination: a table over the neighbours, and the best choice for each of its entries.
struct Eliminated {
    size_t table = 0;
    std::vector<uint32_t> choices;
};

}  // namespace

struct Factors::State {
    std::vector<size_t> sizes;  // choices of each variable
    std::vector<Costs> tables;
    std::unordered_multimap<uint64_t, size_t> by_content;
    std::vector<Factor> factors;
    std::map<std::vector<size_t>, std::shared_ptr<const Eliminated>> known;

    size_t intern(std::vector<size_t> shape, std::vector<double> values) {
        uint64_t key = hash_bytes(values.data(), values.size() * sizeof(double));
        for (size_t n : shape) key = mix(key, n);
        const auto [begin, end] = by_content.equal_range(key);
        for (auto it = begin; it != end; ++it)
            if (tables[it->second].shape == shape && tables[it->second].values == values) return it->second;
        tables.push_back({std::move(shape), std::move(values)});
        by_content.emplace(key, tables.size() - 1);
        return tables.size() - 1;
    }
};

namespace {

// One elimination of all variables.
class Elimination {
  public:
    template <typename S>
    Elimination(const S& state, std::vector<Factor> factors) : sizes_(state.sizes), factors_(std::move(factors)) {
        of_.resize(sizes_.size());
        for (size_t f = 0; f < factors_.size(); ++f)
            for (size_t v : factors_[f].variables) of_[v].insert(f);
        for (size_t v = 0; v < sizes_.size(); ++v) queue_.insert({entries(v), v});
    }

    bool done() const { return queue_.empty(); }
    std::pair<size_t, size_t> cheapest() const { return *queue_.begin(); }  // entries, variable
    size_t most_connected() const {
        size_t best = queue_.begin()->second, most = 0;
        for (const auto& [_, v] : queue_)
            if (const size_t n = neighbours(v).size(); n > most) {
                most = n;
                best = v;
            }
        return best;
    }

    std::vector<size_t> neighbours(size_t variable) const {
        std::set<size_t> found;
        for (size_t f : of_[variable]) found.insert(factors_[f].variables.begin(), factors_[f].variables.end());
        found.erase(variable);
        return {found.begin(), found.end()};
    }
    std::vector<Factor> factors(size_t variable) const {
        std::vector<Factor> list;
        for (size_t f : of_[variable]) list.push_back(factors_[f]);
        return list;
    }
    // Replaces the factors of a variable by others, without it.
    void remove(size_t variable, const std::vector<Factor>& instead) {
        std::set<size_t> touched;
        const auto n = neighbours(variable);
        touched.insert(n.begin(), n.end());
        for (size_t v : touched) queue_.erase({entries_.at(v), v});
        queue_.erase({entries_.at(variable), variable});
        for (size_t f : std::set<size_t>(of_[variable]))
            for (size_t v : factors_[f].variables) of_[v].erase(f);
        for (const Factor& f : instead) {
            if (f.variables.empty()) continue;
            factors_.push_back(f);
            for (size_t v : f.variables) of_[v].insert(factors_.size() - 1);
        }
        for (size_t v : touched) queue_.insert({entries(v), v});
    }

  private:
    size_t entries(size_t variable) {
        double n = 1;
        for (size_t v : neighbours(variable)) n *= double(sizes_[v]);
        return entries_[variable] = size_t(std::min(n * double(sizes_[variable]), 1e15));
    }

    const std::vector<size_t>& sizes_;
    std::vector<Factor> factors_;
    std::vector<std::set<size_t>> of_;  // factors of each variable
    std::unordered_map<size_t, size_t> entries_;
    std::set<std::pair<size_t, size_t>> queue_;
};

// The least sum over the last variable of `local`, for all choices of those before.
template <typename S>
Eliminated eliminate(S& state, const std::vector<size_t>& local, const std::vector<Factor>& factors) {
    std::vector<size_t> shape;
    for (size_t v : local) shape.push_back(state.sizes[v]);
    const size_t own = shape.back();
    shape.pop_back();
    std::vector<std::vector<size_t>> strides;  // by factor and local variable
    std::vector<const double*> data;
    for (const Factor& f : factors) {
        auto& s = strides.emplace_back(local.size(), 0);
        size_t stride = 1;
        for (size_t i = f.variables.size(); i-- > 0;) {
            s[size_t(std::find(local.begin(), local.end(), f.variables[i]) - local.begin())] = stride;
            stride *= state.sizes[f.variables[i]];
        }
        data.push_back(state.tables[f.table].values.data());
    }
    size_t count = 1;
    for (size_t n : shape) count *= n;
    std::vector<double> least(count, kForbidden);
    Eliminated out{.choices = std::vector<uint32_t>(count, 0)};
    std::vector<size_t> at(shape.size(), 0), offsets(factors.size(), 0);
    for (size_t entry = 0; entry < count; ++entry) {
        for (size_t c = 0; c < own; ++c) {
            double sum = 0;
            for (size_t f = 0; f < factors.size(); ++f) sum += data[f][offsets[f] + c * strides[f].back()];
            if (sum < least[entry]) {
                least[entry] = sum;
                out.choices[entry] = uint32_t(c);
            }
        }
        for (size_t d = shape.size(); d-- > 0;) {
            const bool wraps = ++at[d] == shape[d];
            if (wraps) at[d] = 0;
            for (size_t f = 0; f < factors.size(); ++f)
                offsets[f] = wraps ? offsets[f] - strides[f][d] * (shape[d] - 1) : offsets[f] + strides[f][d];
            if (!wraps) break;
        }
    }
    out.table = state.intern(std::move(shape), std::move(least));
    return out;
}

}  // namespace

Factors::Factors() : state_(std::make_unique<State>()) {}
Factors::~Factors() = default;
Factors::Factors(Factors&&) noexcept = default;
Factors& Factors::operator=(Factors&&) noexcept = default;

size_t Factors::add_variable(size_t choices) {
    state_->sizes.push_back(choices);
    return state_->sizes.size() - 1;
}
size_t Factors::variables() const { return state_->sizes.size(); }

Factors::Table Factors::table(std::vector<size_t> choices, std::vector<double> costs) {
    return state_->intern(std::move(choices), std::move(costs));
}

void Factors::add(std::vector<size_t> variables, Table table) {
    state_->factors.push_back({std::move(variables), table});
}

void Factors::add(size_t variable, std::vector<double> costs) {
    const size_t n = costs.size();
    add({variable}, table({n}, std::move(costs)));
}

Factors::Solution Factors::solve(const std::vector<std::pair<size_t, std::vector<double>>>& more, size_t most_entries,
                                 const std::vector<size_t>& near) {
    State& s = *state_;
    std::vector<Factor> factors = s.factors;
    for (const auto& [variable, costs] : more) factors.push_back({{variable}, s.intern({costs.size()}, costs)});
    Elimination elimination(s, std::move(factors));
    Solution solution{.choices = std::vector<size_t>(s.sizes.size(), 0), .cost = 0};
    struct Step {
        size_t variable;
        std::vector<size_t> neighbours;
        std::shared_ptr<const Eliminated> result;
    };
    std::vector<Step> steps;
    while (!elimination.done()) {
        auto [entries, variable] = elimination.cheapest();
        if (entries > most_entries) {
            // Conditioning: the factors of the variable, at one choice.
            variable = elimination.most_connected();
            const size_t choice = variable < near.size() ? near[variable] : 0;
            solution.exact = false;
            std::vector<Factor> instead;
            for (const Factor& f : elimination.factors(variable)) {
                Factor rest{{}, 0};
                std::vector<size_t> shape;
                for (size_t v : f.variables)
                    if (v != variable) {
                        rest.variables.push_back(v);
                        shape.push_back(s.sizes[v]);
                    }
                const size_t own =
                    size_t(std::find(f.variables.begin(), f.variables.end(), variable) - f.variables.begin());
                size_t inner = 1, outer = 1;
                for (size_t i = 0; i < f.variables.size(); ++i)
                    (i < own ? outer : inner) *= i == own ? 1 : s.sizes[f.variables[i]];
                std::vector<double> values;
                for (size_t o = 0; o < outer; ++o)
                    for (size_t i = 0; i < inner; ++i)
                        values.push_back(s.tables[f.table].values[(o * s.sizes[variable] + choice) * inner + i]);
                if (rest.variables.empty()) solution.cost += values[0];
                rest.table = s.intern(std::move(shape), std::move(values));
                instead.push_back(std::move(rest));
            }
            auto fixed = std::make_shared<Eliminated>();
            fixed->choices = {uint32_t(choice)};
            steps.push_back({variable, {}, std::move(fixed)});
            elimination.remove(variable, instead);
            continue;
        }
        std::vector<size_t> local = elimination.neighbours(variable);
        const std::vector<size_t> neighbours = local;
        local.push_back(variable);
        std::vector<Factor> own = elimination.factors(variable);
        std::vector<std::vector<size_t>> parts;
        for (const Factor& f : own) {
            auto& part = parts.emplace_back(1, f.table);
            for (size_t v : f.variables)
                part.push_back(size_t(std::find(local.begin(), local.end(), v) - local.begin()));
        }
        std::sort(parts.begin(), parts.end());
        std::vector<size_t> key;
        for (size_t v : local) key.push_back(s.sizes[v]);
        for (const auto& part : parts) {
            key.push_back(part.size());
            key.insert(key.end(), part.begin(), part.end());
        }
        auto& known = s.known[key];
        ++solution.eliminated;
        if (!known) {
            ++solution.computed;
            known = std::make_shared<Eliminated>(eliminate(s, local, own));
        }
        if (neighbours.empty()) solution.cost += s.tables[known->table].values[0];
        steps.push_back({variable, neighbours, known});
        elimination.remove(variable, {Factor{neighbours, known->table}});
    }
    for (size_t i = steps.size(); i-- > 0;) {
        size_t entry = 0;
        for (size_t v : steps[i].neighbours) entry = entry * s.sizes[v] + solution.choices[v];
        solution.choices[steps[i].variable] = steps[i].result->choices[entry];
    }
    return solution;
}

}  // namespace tessera::shard
