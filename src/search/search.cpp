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
constexpr double kBestShare = 0.5;    // of the time to extract
constexpr double kLittle = 0.1;       // of what the input costs
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

// Whether a step, or one that it builds on, is of one of these rules.
bool comes_of(size_t step, const std::set<std::string>& rules, const Saturation& saturation) {
    const Derivation& s = saturation.steps[step];
    return rules.contains(s.rule->name) || std::any_of(s.after.begin(), s.after.end(), [&](size_t before) {
               return comes_of(before, rules, saturation);
           });
}

struct Doubt {
    std::string what;
    std::set<std::string> rules;
    bool grow = false;  // they do: no other one that does comes in their place
};

// Rules that a search may well do without, `before` being what the input costs. First those that grow and are in the
// best graph, together where they gain little: what they move and put together again costs more than single nodes show.
// Then those that gain most.
std::vector<Doubt> rules_to_doubt(const Extraction& best, const Extractor& extractor, const Saturation& saturation,
                                  double before) {
    std::set<std::string> grown;
    for (size_t step : best.steps)
        if (saturation.steps[step].rule->grows) grown.insert(saturation.steps[step].rule->name);
    std::map<std::string, double> gains;
    for (const std::string& rule : grown) gains[rule] = 0;
    for (const auto& a : extractor.alternatives())
        if (a.gain > 0) gains[saturation.steps[a.steps[0]].rule->name] += a.gain;
    std::vector<std::string> rules;
    for (const auto& [rule, gain] : gains) rules.push_back(rule);
    std::stable_sort(rules.begin(), rules.end(), [&](const std::string& a, const std::string& b) {
        return std::pair(grown.contains(a), gains[a]) > std::pair(grown.contains(b), gains[b]);
    });
    std::vector<Doubt> doubts;
    Doubt small{"those that gain little", {}, true};
    for (const std::string& rule : grown)
        if (gains[rule] < kLittle * before) small.rules.insert(rule);
    if (small.rules.size() > 1) doubts.push_back(std::move(small));
    for (const std::string& rule : rules)
        if (doubts.size() < kRules) doubts.push_back({rule, {rule}, grown.contains(rule)});
    return doubts;
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
    Extractor extractor(egraph, saturation, cost, options.margin);
    const double before = extractor.input().cost;
    found.candidates.push_back({graph.clone(), before, {}, "input"});
    auto add = [&](const Extraction& e, std::string what) {
        if (!(e.cost < before) || e.steps.empty()) return;
        for (const Candidate& c : found.candidates)
            if (std::abs(c.cost - e.cost) < kAlike * e.cost) return;
        found.candidates.push_back(
            {extractor.build(e), e.cost, uses_of(e.steps, saturation, extractor), std::move(what)});
    };
    const Deadline extracting = options.until.within(options.extract_seconds);
    const Extraction best = extractor.best({.until = extracting.share(kBestShare)});
    add(best, "all profitable rules");
    // Each rule alone, and all but one: single nodes' costs may be wrong about any of them.
    const auto& alternatives = extractor.alternatives();
    const std::vector<Doubt> doubted = rules_to_doubt(best, extractor, saturation, before);
    size_t left = 2 * doubted.size();
    auto turn = [&] { return ExtractOptions{.until = extracting.share(1.0 / double(left--))}; };
    for (const auto& [what, doubt, grow] : doubted) {
        std::vector<size_t> only, others, rest;
        for (size_t s : best.steps)
            if (!comes_of(s, doubt, saturation)) rest.push_back(s);
        for (size_t i = 0; i < alternatives.size(); ++i) {
            const auto& steps = alternatives[i].steps;
            const Rule& rule = *saturation.steps[steps[0]].rule;
            if (doubt.contains(rule.name)) only.push_back(i);
            if (grow && rule.grows) continue;
            if (std::none_of(steps.begin(), steps.end(), [&](size_t s) { return comes_of(s, doubt, saturation); }))
                others.push_back(i);
        }
        add(extractor.cheapest_of(only, {}, turn()), "only " + what);
        add(extractor.cheapest_of(others, rest, turn()), "all but " + what);
    }
    return found;
}

// Where the cost model knows what fused groups cost, that ranks the candidates.
void weigh_groups(std::vector<Candidate>& candidates, CostModel& cost, const Deadline& until) {
    size_t weighed = 0;
    for (; weighed < candidates.size() && !until.passed(); ++weighed) {
        auto groups = cost.groups(*candidates[weighed].graph);
        if (!groups) return;
        candidates[weighed].group_cost = *groups;
    }
    if (weighed < 2) return;
    candidates.resize(weighed);
    for (Candidate& c : candidates) c.cost = *c.group_cost;
}

void sort_by_cost(std::vector<Candidate>& candidates) {  // the input stays first
    std::stable_sort(candidates.begin() + 1, candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
}

}  // namespace

Search search(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
              const SearchOptions& options) {
    const auto began = std::chrono::steady_clock::now();
    Search found = options.strategy == Strategy::EGraph ? search_egraph(graph, rules, cost, options)
                                                        : backtrack(graph, rules, cost, options);
    sort_by_cost(found.candidates);
    if (found.candidates.size() > 1) weigh_groups(found.candidates, cost, options.until);
    sort_by_cost(found.candidates);
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return found;
}

}  // namespace tessera
