#include "shard/search/homes.h"

#include <algorithm>
#include <map>
#include <set>

#include "shard/cost.h"

namespace tessera::shard {
namespace {

constexpr size_t kMostAtOnce = 1 << 21;  // entries of a unit's table; beyond, its division becomes a variable

// Homes of values of the same sizes and annotations.
struct List {
    std::vector<Sharding> shardings;
    std::vector<Placement> boxes;
    std::vector<int64_t> elements;  // of a rank's part, at most
};

// What units of a kind cost: values around it are its result, then its operands, each once.
struct Kind {
    std::vector<Division> divisions;
    std::vector<double> seconds;              // of computation, by division
    std::vector<uint64_t> axes;               // that divide, as bits
    std::vector<size_t> lists;                // of the values
    std::vector<std::vector<double>> moves;   // by value: of division and home
    std::vector<std::vector<uint64_t>> has;   // axes of the division that divide this value alike
    std::vector<std::vector<double>> copies;  // bytes of the value that are held beside those at home
    double operations = 0;
};

struct Around {
    size_t kind = Homes::kNoKind;
    std::vector<const Value*> values;
};

int64_t most_elements(const Placement& boxes) {
    int64_t most = 0;
    for (const Box& b : boxes) most = std::max(most, volume(b));
    return most;
}

std::vector<Sharding> list_shardings(const Sizes& sizes, const Sharding* given, const Mesh& mesh,
                                     const std::vector<size_t>& axes) {
    Sharding start;
    start.dims.assign(sizes.size(), DimSharding{{}, true});
    if (given) start = *given;
    auto parts = [&](const Sharding& s, size_t d) {
        int64_t n = 1;
        for (size_t a : s.dims[d].axes) n *= mesh.size(a);
        return n;
    };
    std::vector<Sharding> all{start};
    for (size_t a : axes) {
        if (start.uses(a) || mesh.size(a) < 2) continue;
        const size_t before = all.size();
        for (size_t i = 0; i < before; ++i)
            for (size_t d = 0; d < sizes.size(); ++d) {
                if (!start.dims[d].open || sizes[d] < parts(all[i], d) * mesh.size(a)) continue;
                all.push_back(all[i]);
                all.back().dims[d].axes.push_back(a);
            }
    }
    for (Sharding& s : all)
        for (DimSharding& d : s.dims) d.open = false;
    return all;
}

}  // namespace

struct Homes::State {
    const Graph& graph;
    const std::vector<Unit>& units;
    const Mesh& mesh;
    const Shardings& given;
    const Rates rates;
    const HomeOptions options;

    std::vector<List> lists;
    std::map<std::string, size_t> lists_by_text;
    std::unordered_map<const Value*, size_t> list_of;
    std::unordered_map<const Value*, size_t> variable_of;
    std::vector<Kind> kinds;
    std::map<std::vector<uint64_t>, size_t> kinds_by_key;
    std::vector<Around> around;  // units
    std::set<std::pair<size_t, size_t>> forbidden;
    int64_t small_constant = 0;
    Factors factors;
    std::vector<size_t> near;                                       // of the solution before
    std::map<std::pair<size_t, std::vector<bool>>, size_t> tables;  // by kind, and the values whose copies have a price
    Prices prices;

    void add_value(const Value* v) {
        const auto sizes = divisible_sizes(*v);
        if (!sizes) return;
        const auto found = given.find(v);
        const bool fixed = found == given.end() && v->is_constant() && bytes_of(*v) <= small_constant;
        std::string text = fixed ? "fixed " : "";
        for (int64_t n : *sizes) text += fmt::format("{},", n);
        if (found != given.end()) text += to_string(found->second, mesh);
        const auto [at, is_new] = lists_by_text.emplace(text, lists.size());
        if (is_new) {
            List& list = lists.emplace_back();
            list.shardings = list_shardings(*sizes, found == given.end() ? nullptr : &found->second, mesh,
                                            fixed ? std::vector<size_t>() : options.axes);
            for (const Sharding& s : list.shardings) {
                list.boxes.push_back(place(*sizes, s, mesh));
                list.elements.push_back(most_elements(list.boxes.back()));
            }
        }
        list_of[v] = at->second;
    }

    // Structure that costs depend on.
    std::vector<uint64_t> key_of(const Unit& unit, const std::vector<const Value*>& values) const {
        std::vector<uint64_t> key{unit.body->hash(), unit.variables.size()};
        for (const Variable& v : unit.variables) key.push_back(uint64_t(v.extent) * 2 + (v.reduced ? 1 : 0));
        for (const Value* v : values) {
            key.push_back(list_of.at(v));
            key.push_back(uint64_t(v->type().tensor().dtype));
        }
        for (const Value* in : unit.node->inputs())
            key.push_back(in ? uint64_t(std::find(values.begin(), values.end(), in) - values.begin()) : ~uint64_t(0));
        return key;
    }

    Kind make_kind(const Unit& unit, const std::vector<const Value*>& values) const {
        const UnitDivider divider(unit, mesh, rates);
        const auto ties = ties_of(unit);
        Kind kind{.divisions = {}, .operations = divider.operations()};
        for (const Division& d : divider.divisions()) {
            uint64_t used = 0;
            bool allowed = true;
            for (const auto& axes : d)
                for (size_t a : axes) {
                    used |= uint64_t(1) << a;
                    allowed &= can_divide(a);
                }
            if (!allowed) continue;
            kind.divisions.push_back(d);
            kind.axes.push_back(used);
        }
        std::vector<Divided> divided;
        for (const Division& d : kind.divisions) {
            divided.push_back(divider.divide(d));
            kind.seconds.push_back(divided.back().seconds);
        }
        for (size_t i = 0; i < values.size(); ++i) {
            const List& list = lists[list_of.at(values[i])];
            kind.lists.push_back(list_of.at(values[i]));
            std::vector<double>& moves = kind.moves.emplace_back();
            std::vector<uint64_t>& has = kind.has.emplace_back();
            std::vector<double>& copies = kind.copies.emplace_back();
            const auto bytes = double(element_bytes(values[i]->type().tensor().dtype));
            for (size_t d = 0; d < divided.size(); ++d)
                for (size_t h = 0; h < list.shardings.size(); ++h) {
                    double seconds = 0, copied = 0;
                    if (i == 0) {
                        seconds = divider.result_seconds(divided[d], list.boxes[h]);
                        if (divided[d].made != list.boxes[h]) copied += bytes * double(most_elements(divided[d].made));
                    }
                    for (const auto& [slot, need] : divided[d].needs)
                        if (unit.node->input(slot) == values[i] && i > 0) {
                            const double move = divider.operand_seconds(slot, list.boxes[h], need);
                            seconds += move;
                            if (move > 0 || !contains(list.boxes[h], need))
                                copied += bytes * double(most_elements(need));
                        }
                    moves.push_back(seconds);
                    copies.push_back(copied);
                    uint64_t axes = 0;
                    for (size_t v = 0; v < ties.size(); ++v)
                        for (const Tie& tie : ties[v])
                            if (tie.value == values[i])
                                for (size_t a : list.shardings[h].dims[tie.dim].axes) {
                                    const auto& own = kind.divisions[d][v];
                                    if (std::find(own.begin(), own.end(), a) != own.end()) axes |= uint64_t(1) << a;
                                }
                    has.push_back(axes);
                }
        }
        return kind;
    }

    // Axes that are not to be decided here divide only where what is given does.
    bool can_divide(size_t axis) const {
        if (std::find(options.axes.begin(), options.axes.end(), axis) != options.axes.end()) return true;
        return std::any_of(given.begin(), given.end(), [&](const auto& g) { return g.second.uses(axis); });
    }

    void add_unit(const Unit& unit) {
        Around& a = around.emplace_back();
        if (!unit.body) return;
        a.values.push_back(unit.value());
        for (size_t slot : slots_of(unit.reads))
            if (const Value* v = unit.node->input(slot);
                std::find(a.values.begin() + 1, a.values.end(), v) == a.values.end())
                a.values.push_back(v);
        const auto [found, is_new] = kinds_by_key.emplace(key_of(unit, a.values), kinds.size());
        if (is_new) kinds.push_back(make_kind(unit, a.values));
        a.kind = found->second;
    }

    size_t choices(const Value* v) const { return lists[list_of.at(v)].shardings.size(); }

    // The cheapest division for homes of the values around a unit; of those that are allowed. `live`: whose copies have
    // a price.
    std::pair<size_t, double> cheapest(const Kind& kind, size_t number, const std::vector<size_t>& homes, bool any,
                                       const std::vector<bool>& live) const {
        std::pair<size_t, double> best{0, kForbidden};
        for (size_t d = 0; d < kind.divisions.size(); ++d) {
            if (!any && is_forbidden(number, d)) continue;
            double seconds = kind.seconds[d];
            uint64_t has = 0;
            for (size_t i = 0; i < homes.size(); ++i) {
                const size_t at = d * lists[kind.lists[i]].shardings.size() + homes[i];
                seconds += kind.moves[i][at] + (live[i] ? prices.peak * kind.copies[i][at] : 0);
                has |= kind.has[i][at];
            }
            if (seconds < best.second && (has & kind.axes[d]) == kind.axes[d]) best = {d, seconds};
        }
        return best;
    }
    bool is_forbidden(size_t kind, size_t division) const {
        return !forbidden.empty() && forbidden.contains({kind, division});
    }

    std::vector<bool> live_of(const Around& a) const {
        std::vector<bool> live;
        for (const Value* v : a.values) live.push_back(prices.peak > 0 && prices.live && prices.live(v));
        return live;
    }

    size_t table_of(const Around& a) {
        const Kind& kind = kinds[a.kind];
        const std::vector<bool> live = live_of(a);
        const auto [known, is_new] = tables.try_emplace({a.kind, live}, 0);
        if (!is_new) return known->second;
        std::vector<size_t> shape, at(kind.lists.size(), 0);
        for (size_t list : kind.lists)
            if (lists[list].shardings.size() > 1) shape.push_back(lists[list].shardings.size());
        size_t count = 1;
        for (size_t n : shape) count *= n;
        std::vector<double> costs;
        costs.reserve(count);
        for (size_t entry = 0; entry < count; ++entry) {
            costs.push_back(cheapest(kind, a.kind, at, false, live).second);
            for (size_t i = at.size(); i-- > 0;) {
                if (++at[i] < lists[kind.lists[i]].shardings.size()) break;
                at[i] = 0;
            }
        }
        return known->second = factors.table(shape, std::move(costs));
    }

    // The division of the unit is a variable of its own, whose costs are of pairs.
    void add_pairs(const Around& a) {
        const Kind& kind = kinds[a.kind];
        const size_t division = factors.add_variable(kind.divisions.size());
        std::vector<double> own = kind.seconds;
        for (size_t d = 0; d < own.size(); ++d)
            if (is_forbidden(a.kind, d)) own[d] = kForbidden;
        const std::vector<bool> live = live_of(a);
        for (size_t i = 0; i < a.values.size(); ++i) {
            const size_t homes = choices(a.values[i]);
            std::vector<double> costs = kind.moves[i];
            for (size_t at = 0; at < costs.size() && live[i]; ++at) costs[at] += prices.peak * kind.copies[i][at];
            if (homes == 1)
                for (size_t d = 0; d < own.size(); ++d) own[d] += costs[d];
            else
                factors.add({division, variable_of.at(a.values[i])}, factors.table({own.size(), homes}, costs));
        }
        factors.add(division, own);
    }

    void add_factors() {
        factors = Factors();
        tables.clear();
        variable_of.clear();
        auto add = [&](const Value* v) {
            if (list_of.contains(v) && choices(v) > 1) variable_of[v] = factors.add_variable(choices(v));
        };
        for_each_value(add);
        for (size_t u = 0; u < units.size(); ++u) {
            const Around& a = around[u];
            if (a.kind == kNoKind) {
                for (const Value* v : units[u].node->inputs())
                    if (v && variable_of.contains(v)) add_whole(v);
                continue;
            }
            double entries = 1;
            std::vector<size_t> variables;
            for (const Value* v : a.values) {
                entries *= double(choices(v));
                if (choices(v) > 1) variables.push_back(variable_of.at(v));
            }
            if (entries > double(kMostAtOnce))
                add_pairs(a);
            else if (!variables.empty())
                factors.add(std::move(variables), table_of(a));
        }
        for (const Value* v : graph.outputs())
            if (variable_of.contains(v)) add_whole(v);
    }

    void add_whole(const Value* v) {
        const List& list = lists[list_of.at(v)];
        const Placement whole = place_whole(*divisible_sizes(*v), mesh);
        std::vector<double> costs;
        for (const Placement& boxes : list.boxes)
            costs.push_back(move_seconds(boxes, whole, element_bytes(v->type().tensor().dtype), mesh, rates));
        factors.add(variable_of.at(v), std::move(costs));
    }

    template <typename F>
    void for_each_value(const F& f) {
        for (const auto& v : graph.inputs()) f(v.get());
        for (const auto& v : graph.constants()) f(v.get());
        for (const auto& n : graph.nodes())
            for (size_t i = 0; i < n->output_count(); ++i) f(n->output(i));
    }
};

Homes::Homes(const Graph& graph, const std::vector<Unit>& units, const Mesh& mesh, const Shardings& given,
             const Rates& rates, HomeOptions options)
    : state_(new State{
          graph, units, mesh, given, rates, std::move(options), {}, {}, {}, {}, {}, {}, {}, {}, 0, {}, {}, {}, {}}) {
    State& s = *state_;
    int64_t weights = 0;
    for (const auto& c : graph.constants())
        if (divisible_sizes(*c)) weights += bytes_of(*c);
    s.small_constant = std::min<int64_t>(1 << 16, weights / 200);
    s.for_each_value([&](const Value* v) { s.add_value(v); });
    for (const Unit& u : units) s.add_unit(u);
}
Homes::~Homes() = default;

Homes::Chosen Homes::choose(const Prices& prices) {
    State& s = *state_;
    s.prices = prices;
    s.add_factors();
    std::vector<std::pair<size_t, std::vector<double>>> more;
    auto price = [&](const Value* v, size_t home) {
        const bool at_peak = prices.peak > 0 && (v->is_constant() || (prices.live && prices.live(v)));
        return (prices.all + (at_peak ? prices.peak : 0)) *
               double(s.lists[s.list_of.at(v)].elements[home] * element_bytes(v->type().tensor().dtype));
    };
    s.for_each_value([&](const Value* v) {
        const auto variable = s.variable_of.find(v);
        if (variable == s.variable_of.end()) return;
        std::vector<double> costs;
        for (size_t h = 0; h < s.choices(v); ++h) costs.push_back(price(v, h));
        more.emplace_back(variable->second, std::move(costs));
    });
    Factors::Solution best = s.factors.solve(more, s.options.most_entries, s.near);
    // Conditioned on choices that were arbitrary at first: again, on those that were found.
    for (int round = 0; round < 2 && !best.exact; ++round) {
        Factors::Solution next = s.factors.solve(more, s.options.most_entries, best.choices);
        next.eliminated += best.eliminated;
        next.computed += best.computed;
        if (next.cost < best.cost) best = std::move(next);
    }
    s.near = best.choices;
    Chosen chosen{.priced = best.cost, .exact = best.exact, .eliminated = best.eliminated, .computed = best.computed};
    s.for_each_value([&](const Value* v) {
        if (!s.list_of.contains(v)) return;
        const auto variable = s.variable_of.find(v);
        const size_t home = variable == s.variable_of.end() ? 0 : best.choices[variable->second];
        chosen.homes[v] = s.lists[s.list_of.at(v)].shardings[home];
    });
    return chosen;
}

size_t Homes::kind(size_t unit) const { return state_->around[unit].kind; }
const Division& Homes::division(size_t kind, size_t number) const { return state_->kinds[kind].divisions[number]; }
size_t Homes::divisions(size_t kind) const { return state_->kinds[kind].divisions.size(); }
double Homes::operations(size_t kind) const { return state_->kinds[kind].operations; }

size_t Homes::division(size_t unit, const Shardings& homes) const {
    const State& s = *state_;
    const Around& a = s.around[unit];
    std::vector<size_t> at;
    for (const Value* v : a.values) {
        const auto& all = s.lists[s.list_of.at(v)].shardings;
        at.push_back(size_t(std::find(all.begin(), all.end(), homes.at(v)) - all.begin()));
        if (at.back() == all.size()) at.back() = 0;
    }
    return s.cheapest(s.kinds[a.kind], a.kind, at, true, std::vector<bool>(at.size(), false)).first;
}

void Homes::forbid(const std::vector<std::pair<size_t, size_t>>& divisions) {
    state_->forbidden = {divisions.begin(), divisions.end()};
}

}  // namespace tessera::shard
