#include "search/backtrack.h"

#include <algorithm>
#include <chrono>
#include <queue>
#include <unordered_set>

#include "base/hash.h"
#include "graph/evaluate/evaluate_node.h"
#include "graph/text/print.h"
#include "rewrite/edit.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera {
namespace {

struct State {
    std::shared_ptr<Graph> graph;
    double cost;
    std::vector<RuleUse> uses;
    size_t number;  // of two that cost the same, the older one first
};

struct Dearer {
    bool operator()(const State& a, const State& b) const {
        return a.cost != b.cost ? a.cost > b.cost : a.number > b.number;
    }
};

// Of the structure: names do not count, and neither does the order of what is independent.
uint64_t structure(const Graph& graph) {
    std::unordered_map<const Value*, uint64_t> hashes;
    for (const auto& v : graph.inputs()) hashes[v.get()] = mix(1, v->index());
    auto of = [&](const Value* v) -> uint64_t {
        if (!v) return 2;
        auto it = hashes.find(v);
        if (it != hashes.end()) return it->second;
        return hashes[v] = v->is_constant() ? v->tensor()->content_hash() : 3;
    };
    for (const auto& n : graph.nodes()) {
        uint64_t h = mix(reinterpret_cast<uintptr_t>(&n->op()), std::hash<std::string>{}(describe(*n).attrs));
        for (const Value* v : n->inputs()) h = mix(h, of(v));
        if (has_nested(*n))
            for (const Value* v : captured_values(*n)) h = mix(h, of(v));
        for (size_t i = 0; i < n->output_count(); ++i) hashes[n->output(i)] = mix(h, i);
    }
    uint64_t h = 0;
    for (const Value* v : graph.outputs()) h = mix(h, of(v));
    return h;
}

void add_use(std::vector<RuleUse>& uses, const Rule& rule, std::string where, double gain) {
    auto it = std::find_if(uses.begin(), uses.end(), [&](const RuleUse& u) { return u.rule == rule.name; });
    if (it == uses.end()) it = uses.insert(it, RuleUse{rule.name, {}, 0});
    it->where.push_back(std::move(where));
    it->gain += gain;
}

}  // namespace

Search backtrack(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
                 const SearchOptions& options) {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    Search found;
    std::priority_queue<State, std::vector<State>, Dearer> open;
    std::unordered_set<uint64_t> seen = {structure(graph)};
    State first{graph.clone(), cost.graph(graph), {}, 0};
    State best = first;
    const double before = first.cost;
    open.push(std::move(first));
    auto stopped = [&] {
        if (!found.stopped_by.empty()) return true;
        if (seen.size() > options.budget) found.stopped_by = fmt::format("{} graphs", options.budget);
        if (std::chrono::duration<double>(Clock::now() - began).count() > options.limits.seconds)
            found.stopped_by = fmt::format("{:.3g} s", options.limits.seconds);
        if (options.limits.cancel && *options.limits.cancel) found.stopped_by = "interrupted";
        return !found.stopped_by.empty();
    };
    while (!open.empty() && !stopped()) {
        State state = open.top();
        open.pop();
        for (const Rule* rule : rules) {
            if (!admits(options.limits.precision, rule->exactness)) continue;
            for (size_t i = 0; i < state.graph->nodes().size() && !stopped(); ++i) {
                const Node& node = *state.graph->nodes()[i];
                const auto output = size_t(rule->pattern[0].output);
                if (&node.op() != rule->pattern[0].op || output >= node.output_count()) continue;
                std::shared_ptr<Graph> next = state.graph->clone();
                Value* root = next->nodes()[i]->output(output);
                std::string where = node.name().empty() ? root->name() : node.name();
                PassContext context;
                context.precision = options.limits.precision;
                context.pass = "search";
                if (!apply_rule(*rule, *root, context, true)) continue;
                next->sort();
                next->erase_unused();
                ++found.steps;
                if (!seen.insert(structure(*next)).second) continue;
                State made{next, cost.graph(*next), state.uses, seen.size()};
                add_use(made.uses, *rule, std::move(where), state.cost - made.cost);
                if (made.cost >= options.alpha * best.cost) continue;
                if (made.cost < best.cost) best = made;
                open.push(std::move(made));
            }
        }
    }
    found.nodes = seen.size();
    found.complete = found.stopped_by.empty();
    found.candidates.push_back({graph.clone(), before, {}, "input"});
    if (best.cost < before) found.candidates.push_back({best.graph->clone(), best.cost, best.uses, "backtracking"});
    return found;
}

}  // namespace tessera
