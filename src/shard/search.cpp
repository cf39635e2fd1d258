#include "shard/search.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/hash.h"
#include "shard/report.h"

namespace tessera::shard {
namespace {

constexpr int kRounds = 4;          // of colouring: how far around a value its place in the graph is looked at
constexpr double kWorthIt = 0.999;  // of the cost before, which another annotation must stay below

// Values with equal colours have equal types and stand in equal places.
class Colours {
  public:
    explicit Colours(const Graph& graph) {
        auto start = [&](const Value* v) { colours_[v] = hash_of(tessera::to_string(v->type())); };
        for (const auto& v : graph.inputs()) start(v.get());
        for (const auto& v : graph.constants()) start(v.get());
        for (const auto& n : graph.nodes())
            for (size_t i = 0; i < n->output_count(); ++i) start(n->output(i));
        for (int round = 0; round < kRounds; ++round) {
            std::unordered_map<const Value*, uint64_t> next;
            for (const auto& [v, colour] : colours_) next[v] = around(v, colour);
            colours_ = std::move(next);
        }
    }
    uint64_t of(const Value* v) const { return colours_.at(v); }

  private:
    static uint64_t hash_of(const std::string& text) { return hash_bytes(text.data(), text.size()); }
    uint64_t of_node(const Node& n) const {
        uint64_t h = hash_of(n.op().name);
        for (const Value* in : n.inputs()) h = mix(h, in ? colours_.at(in) : 0);
        return h;
    }
    uint64_t around(const Value* v, uint64_t colour) const {
        if (v->node()) colour = mix(mix(colour, of_node(*v->node())), v->index());
        uint64_t users = 0;  // in any order
        for (const Use& use : v->uses())
            users += use.node ? mix(mix(of_node(*use.node), use.index), colours_.at(use.node->output())) : 1;
        return mix(colour, users);
    }

    std::unordered_map<const Value*, uint64_t> colours_;
};

struct Group {
    std::vector<const Value*> values;
    Sizes sizes;
    int64_t bytes = 0;
};

// Inputs and constants of more than one dimension, by colour, the largest first.
std::vector<Group> groups_of(const Graph& graph) {
    const Colours colours(graph);
    std::map<uint64_t, size_t> numbers;
    std::vector<Group> groups;
    auto add = [&](const Value* v) {
        const auto sizes = divisible_sizes(*v);
        if (!sizes || sizes->size() < 2 || v->uses().empty()) return;
        const auto [found, is_new] = numbers.emplace(colours.of(v), groups.size());
        if (is_new) groups.push_back({{}, *sizes, 0});
        Group& g = groups[found->second];
        g.values.push_back(v);
        int64_t bytes = element_bytes(v->type().tensor().dtype);
        for (int64_t n : *sizes) bytes *= n;
        g.bytes += bytes;
    };
    for (const auto& v : graph.inputs()) add(v.get());
    for (const auto& v : graph.constants()) add(v.get());
    std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
    return groups;
}

class Search {
  public:
    Search(const std::shared_ptr<const Graph>& graph, const Mesh& mesh, const SearchOptions& options)
        : graph_(graph), mesh_(mesh), options_(options), groups_(groups_of(*graph)) {}

    Result<Found> run(const Shardings& given) {
        State best = TRY(judged(given));
        while (true) {
            std::optional<State> next;
            for (const Group& group : groups_)
                for (size_t dim = 0; dim < group.sizes.size(); ++dim)
                    for (size_t axis = 0; axis < mesh_.axes().size(); ++axis) {
                        auto tried = TRY(divided(best, group, dim, axis));
                        if (tried && better(*tried, best) && (!next || preferred(*tried, *next, best)))
                            next = std::move(tried);
                    }
            if (!next) break;
            best = std::move(*next);
        }
        if (excess(best) > 0)
            return Error(Code::E0408, "a rank keeps {} bytes of weights, and {} were allowed", best.memory,
                         *options_.memory)
                .hint("add ranks to an axis of the mesh, or allow more");
        return Found{std::move(best.given), best.cost, best.memory, plans_};
    }

  private:
    struct State {
        Shardings given, all;  // annotations; what propagation makes of them
        double cost = 0;
        int64_t memory = 0;
    };

    Result<State> judged(const Shardings& given) {
        const auto plan = TRY(make_plan(graph_, mesh_, given, options_.plan));
        ++plans_;
        State s{given, plan->shardings, cost_of(*plan, options_), 0};
        for (int64_t r = 0; r < mesh_.ranks(); ++r) s.memory = std::max(s.memory, weight_bytes(*plan, r));
        return s;
    }

    // The group's values divided over the axis, where they are not divided in it, and the dimension is long enough.
    Result<std::optional<State>> divided(const State& from, const Group& group, size_t dim, size_t axis) {
        Shardings given = from.given;
        for (const Value* v : group.values) {
            const Sharding& now = from.all.at(v);
            int64_t parts = mesh_.size(axis);
            for (size_t a : now.dims[dim].axes) parts *= mesh_.size(a);
            if (now.uses(axis) || group.sizes[dim] < parts) return std::optional<State>();
            Sharding& s = given.try_emplace(v, now).first->second;
            s.dims[dim].axes.push_back(axis);
            for (DimSharding& d : s.dims) d.open = true;
        }
        return std::optional<State>(TRY(judged(given)));
    }

    int64_t excess(const State& s) const {
        return options_.memory ? std::max<int64_t>(0, s.memory - *options_.memory) : 0;
    }
    bool better(const State& a, const State& b) const {
        return excess(b) > 0 ? excess(a) < excess(b) : excess(a) == 0 && a.cost < b.cost * kWorthIt;
    }
    // Of two that are better than `from`.
    bool preferred(const State& a, const State& b, const State& from) const {
        if (excess(from) == 0) return a.cost < b.cost;
        const auto price = [&](const State& s) { return (s.cost - from.cost) / double(excess(from) - excess(s)); };
        return price(a) < price(b);
    }

    const std::shared_ptr<const Graph>& graph_;
    const Mesh& mesh_;
    const SearchOptions& options_;
    const std::vector<Group> groups_;
    int plans_ = 0;
};

}  // namespace

double cost_of(const Plan& plan, const SearchOptions& options) {
    double cost = 0;
    for (const PlanStep& step : plan.steps) {
        if (auto* c = std::get_if<ComputeStep>(&step)) {
            double operations = 1;
            if (c->ranges.empty()) continue;
            for (const Interval& i : c->ranges[0]) operations *= double(i.length());
            cost += operations / options.plan.operations_per_byte;
        } else if (is_collective(plan, step)) {
            cost += double(received_bytes(plan, step)) + options.latency_bytes;
        }
    }
    return cost;
}

Result<Found> search_shardings(const std::shared_ptr<const Graph>& graph, const Mesh& mesh, const Shardings& given,
                               const SearchOptions& options) {
    return Search(graph, mesh, options).run(given);
}

}  // namespace tessera::shard
