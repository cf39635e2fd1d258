#include "search/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "rewrite/edit.h"
#include "search/backtrack.h"
#include "search/extract.h"

namespace tessera {
namespace {

constexpr double kLeastShare = 1e-3;  // of the whole: what a rule that grows starts from
constexpr double kAlike = 1e-3;       // candidates whose costs differ by less are taken for the same
constexpr size_t kSingles = 6;        // alternatives that are candidates on their own

std::vector<RuleUse> uses_of(const std::vector<size_t>& steps, const Saturation& saturation,
                             const Extractor& extractor) {
    std::map<size_t, double> gains;
    const auto& alternatives = extractor.alternatives();
    for (const auto& a : alternatives)
        for (size_t step : a.steps) gains[step] = a.gain / double(a.steps.size());
    std::vector<RuleUse> uses;
    for (size_t i : steps) {
        const Derivation& step = saturation.steps[i];
        auto it = std::find_if(uses.begin(), uses.end(), [&](const RuleUse& u) { return u.rule == step.rule->name; });
        if (it == uses.end()) it = uses.insert(it, RuleUse{step.rule->name, {}, 0});
        it->where.push_back(step.where);
        it->gain += gains[i];
    }
    return uses;
}

Search search_egraph(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
                     const SearchOptions& options) {
    Search found;
    EGraph egraph(graph.clone());
    std::unique_ptr<CostModel> estimate = estimated_cost();
    const double least = kLeastShare * estimate->graph(graph);
    SaturateOptions limits = options.limits;
    limits.worthwhile = [&](const std::vector<Node*>& nodes) {
        double sum = 0;
        for (const Node* n : nodes) sum += estimate->node(*n);
        return sum >= least;
    };
    Saturation saturation = saturate(egraph, rules, limits);
    found.nodes = egraph.node_count();
    found.classes = egraph.class_count();
    found.steps = saturation.steps.size();
    found.complete = saturation.complete;
    found.stopped_by = saturation.stopped_by;
    Extractor extractor(egraph, saturation, cost);
    const double before = extractor.input().cost;
    found.candidates.push_back({graph.clone(), before, {}, "input"});
    auto add = [&](const Extraction& e, std::string what) {
        if (!(e.cost < before) || e.steps.empty()) return;
        for (const Candidate& c : found.candidates)
            if (std::abs(c.cost - e.cost) < kAlike * e.cost) return;
        found.candidates.push_back(
            {extractor.build(e), e.cost, uses_of(e.steps, saturation, extractor), std::move(what)});
    };
    add(extractor.best({.seconds = options.extract_seconds}), "all that pays");
    // Each kind of rewrite alone: the clock may not agree with the costs about all of them.
    std::vector<size_t> order;
    const auto& alternatives = extractor.alternatives();
    for (size_t i = 0; i < alternatives.size(); ++i)
        if (alternatives[i].gain > 0) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return alternatives[a].gain > alternatives[b].gain; });
    std::set<std::string> tried;
    for (size_t i : order) {
        const Derivation& step = saturation.steps[alternatives[i].steps[0]];
        if (tried.size() < kSingles && tried.insert(step.rule->name).second)
            add(extractor.with({i}), fmt::format("{} at {}", step.rule->name, step.where));
    }
    return found;
}

}  // namespace

Result<Search> search(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
                      const SearchOptions& options) {
    for (const auto& node : graph.nodes())
        if (has_nested(*node)) return Error(Code::E0501, "a graph with control flow is not searched").at(node->where());
    const auto began = std::chrono::steady_clock::now();
    Search found = options.strategy == Strategy::EGraph ? search_egraph(graph, rules, cost, options)
                                                        : backtrack(graph, rules, cost, options);
    std::stable_sort(found.candidates.begin() + 1, found.candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return found;
}

}  // namespace tessera
