#include "search/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "search/backtrack.h"
#include "search/extract.h"

namespace tessera {
namespace {

constexpr double kLeastShare = 1e-3;  // of the whole: what a rule that grows starts from
constexpr double kAlike = 1e-3;       // candidates whose costs differ by less are taken for the same
constexpr size_t kRules = 5;          // that are candidates on their own, and that are left out of the best in turn

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

// Whether a step, or one that it builds on, is of this rule.
bool comes_of(size_t step, const std::string& rule, const Saturation& saturation) {
    const Derivation& s = saturation.steps[step];
    return s.rule->name == rule || std::any_of(s.after.begin(), s.after.end(),
                                               [&](size_t before) { return comes_of(before, rule, saturation); });
}

// The names of rules that a search may well do without, those that gain most first.
std::vector<std::string> rules_by_gain(const Extractor& extractor, const Saturation& saturation) {
    std::map<std::string, double> gains;
    for (const auto& a : extractor.alternatives())
        if (a.gain > 0) gains[saturation.steps[a.steps[0]].rule->name] += a.gain;
    std::vector<std::string> rules;
    for (const auto& [rule, gain] : gains) rules.push_back(rule);
    std::stable_sort(rules.begin(), rules.end(),
                     [&](const std::string& a, const std::string& b) { return gains[a] > gains[b]; });
    if (rules.size() > kRules) rules.resize(kRules);
    return rules;
}

Search search_egraph(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
                     const SearchOptions& options) {
    Search found;
    EGraph egraph(graph.clone());
    std::unique_ptr<CostModel> estimate = estimated_cost();
    CostModel& guide = options.guide ? *options.guide : *estimate;
    const double least = kLeastShare * guide.graph(graph);
    SaturateOptions limits = options.limits;
    limits.worthwhile = [&](const std::vector<Node*>& nodes) {
        double sum = 0;
        for (const Node* n : nodes) sum += guide.node(*n);
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
    const ExtractOptions extract{.seconds = options.extract_seconds};
    add(extractor.best(extract), "all that pays");
    // Each rule alone, and all but one: single nodes' costs may be wrong about any of them.
    const auto& alternatives = extractor.alternatives();
    for (const std::string& rule : rules_by_gain(extractor, saturation)) {
        std::vector<size_t> only, others;
        for (size_t i = 0; i < alternatives.size(); ++i) {
            const auto& steps = alternatives[i].steps;
            if (saturation.steps[steps[0]].rule->name == rule) only.push_back(i);
            if (std::none_of(steps.begin(), steps.end(), [&](size_t s) { return comes_of(s, rule, saturation); }))
                others.push_back(i);
        }
        add(extractor.cheapest_of(only, extract), "only " + rule);
        add(extractor.cheapest_of(others, extract), "all but " + rule);
    }
    return found;
}

// Where the cost model knows what fused groups cost, that ranks the candidates.
void weigh_groups(std::vector<Candidate>& candidates, CostModel& cost) {
    for (Candidate& c : candidates) {
        auto groups = cost.groups(*c.graph);
        if (!groups) return;
        c.group_cost = *groups;
    }
    for (Candidate& c : candidates) c.cost = *c.group_cost;
}

}  // namespace

Search search(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
              const SearchOptions& options) {
    const auto began = std::chrono::steady_clock::now();
    Search found = options.strategy == Strategy::EGraph ? search_egraph(graph, rules, cost, options)
                                                        : backtrack(graph, rules, cost, options);
    if (found.candidates.size() > 1) weigh_groups(found.candidates, cost);
    std::stable_sort(found.candidates.begin() + 1, found.candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return found;
}

}  // namespace tessera
