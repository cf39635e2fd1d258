// From a model to the fastest of the candidates that a search found for it.
#include <chrono>

#include "accepted_rules.h"
#include "base/protect.h"
#include "discover/correct/mutate.h"
#include "discover/correct/picture.h"
#include "rewrite/passes/optimize.h"
#include "search/search.h"
#include "search/search_rules.h"
#include "stages.h"
#include "tessera/search.h"
#include "tune/clock.h"
#include "tune/cost_at_sizes.h"
#include "tune/measured_cost.h"
#include "tune/time_candidates.h"

namespace tessera {
namespace {

constexpr int64_t kFoldLimit = int64_t{1} << 40;  // weights are computed, whatever they take
constexpr size_t kMostTimed = 5;                  // candidates, the input among them
constexpr double kExploreShare = 0.5;             // of the time

int ops_of(const Term& term) {
    int n = term.form == Term::Form::Op;
    for (const Term& arg : term.args) n += ops_of(arg);
    return n;
}

struct ChosenRules {
    Rules own, made;
    std::vector<const Rule*> all;
};

Result<ChosenRules> choose_rules(const ModelSearchOptions& options) {
    ChosenRules chosen;
    chosen.own = TRY(accepted_rules(options.rules, options.refute_rules, options.cancel));
    std::vector<const Rule*> all;
    for (const Rule& rule : chosen.own) all.push_back(&rule);
    if (options.built_in_rules)
        for (const Rule* rule : search_rules(options.mutate > 0))
            if (options.tested_rules || rule->evidence != Evidence::Tested) all.push_back(rule);
    for (const Rule* rule : all) {
        int ops = 0;
        for (const Term& root : rule->pattern) ops += ops_of(root);
        if (options.max_rule_ops == 0 || ops <= options.max_rule_ops) chosen.all.push_back(rule);
    }
    return chosen;
}

Result<std::unique_ptr<CostModel>> choose_cost(const ModelSearchOptions& options, Precision precision) {
    if (options.cost == "estimate") return estimated_cost();
    if (options.cost != "measured" && options.cost != "sum")
        return Error(Code::E0501, "there is no cost \"{}\"", options.cost).hint("there are: measured, estimate, sum");
    MeasureOptions measure{.cache = options.cache, .target = options.target, .precision = precision};
    measure.fused = options.cost == "measured";
    measure.budget = kExploreShare * options.seconds;
    measure.progress = options.progress;
    measure.cancel = options.cancel;
    std::unique_ptr<CostModel> cost = TRY(MeasuredCost::open(measure));
    return cost;
}

Result<Strategy> strategy_named(const std::string& name) {
    if (name == "egraph") return Strategy::EGraph;
    if (name == "backtrack") return Strategy::Backtrack;
    return Error(Code::E0501, "there is no strategy \"{}\"", name).hint("there are: egraph, backtrack");
}

SearchedCandidate described(const Candidate& candidate, const std::vector<const Rule*>& rules) {
    SearchedCandidate out{candidate.what, candidate.cost, 0, 0, 0, {}};
    for (const RuleUse& use : candidate.uses) {
        std::string why;
        for (const Rule* rule : rules)
            if (rule->name == use.rule) why = rule->comment;
        out.rules.push_back({use.rule, why, use.where, use.gain});
    }
    return out;
}

// Rules for the graph's own products, which join those of the search.
Status add_mutants(const Graph& graph, const ModelSearchOptions& options, ChosenRules& rules, SearchReport& report) {
    if (options.mutate <= 0) return {};
    MutateOptions how{.seconds = options.mutate, .cancel = options.cancel};
    if (options.progress)
        how.progress = [&](std::string_view target, size_t done, size_t total) {
            options.progress(fmt::format("mutate {}", target), done, total);
        };
    Mutation found = TRY(mutate(graph, how));
    report.mutate_targets = found.targets;
    report.mutate_candidates = found.mutants;
    report.mutate_refused = std::move(found.refused);
    report.mutate_seconds = found.seconds;
    report.mutate_complete = found.complete;
    rules.made.reserve(found.rules.size());  // pointers to them stay
    for (MutantRule& m : found.rules) {
        m.rule.comment = boxes_text(m.corrected);
        report.mutants.push_back({m.rule.name, to_string(m.rule), boxes_text(m.corrected),
                                  shapes_text(m.corrected.claim), m.share, m.for_all_sizes,
                                  m.corrected.proof.certificate.text, boxes_picture(m.corrected, m.sizes), m.where});
        rules.made.push_back(std::move(m.rule));
        rules.all.push_back(&rules.made.back());
    }
    return {};
}

// Of a candidate's results from the input's: rounding may differ, and more of it where numbers are short.
double most_difference(const Model& model, Precision precision) {
    double most = 1e-4;
    for (const Port& port : model.outputs())
        if (port.dtype && is_float(*port.dtype) && dtype_bytes(*port.dtype) < 4) most = 5e-2;
    return precision == Precision::Fast ? 10 * most : most;
}

double since(std::chrono::steady_clock::time_point began) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

Result<Searched> search_model(const Model& model, const ModelSearchOptions& options) {
    const auto began = std::chrono::steady_clock::now();
    const Precision precision = TRY(precision_named(options.precision));
    SearchOptions how;
    how.strategy = TRY(strategy_named(options.strategy));
    how.limits.precision = precision;
    how.limits.max_nodes = options.max_nodes;
    how.limits.seconds = kExploreShare * options.seconds;
    how.limits.cancel = options.cancel;
    how.extract_seconds = kExploreShare * options.seconds;
    how.alpha = options.alpha;
    how.budget = options.budget;
    ChosenRules rules = TRY(choose_rules(options));
    std::unique_ptr<CostModel> cost = TRY(choose_cost(options, precision));
    auto tell = [&](std::string_view what, size_t done, size_t total) {
        if (options.progress) options.progress(what, done, total);
    };

    tell("rewrite", 0, 3);
    PipelineOptions pipeline;
    pipeline.precision = precision;
    pipeline.fold_limit = kFoldLimit;
    pipeline.cancel = options.cancel;
    std::unique_ptr<Graph> graph = model.graph().clone();
    pipeline.last_phase = Phase::Rewrite;
    TRY(optimize(*graph, pipeline));
    Searched out{model, {}};
    SearchReport& report = out.report;
    TRY(add_mutants(*graph, options, rules, report));
    tell("search", 1, 3);
    const double processor = processor_seconds();
    const std::unique_ptr<CostModel> guide = estimated_cost();
    const SymbolValues& sizes = options.sizes;
    CostAtSizes cost_at(*cost, sizes), guide_at(*guide, sizes);
    if (!sizes.empty()) how.guide = &guide_at;
    Search found = search(*graph, rules.all, sizes.empty() ? *cost : cost_at, how);

    report.strategy = options.strategy;
    report.cost = cost->name();
    report.nodes = found.nodes;
    report.classes = found.classes;
    report.steps = found.steps;
    report.complete = found.complete;
    report.stopped_by = found.stopped_by;
    double searching = processor_seconds();
    if (auto* measured = dynamic_cast<MeasuredCost*>(cost.get())) {
        report.measure_seconds = measured->spent();
        searching -= measured->spent_processor();
        report.measured = measured->measured();
        measured->save();
    }
    report.search_seconds = found.seconds - report.measure_seconds;
    report.search_processor_seconds = searching - processor;
    for (const Candidate& c : found.candidates) report.candidates.push_back(described(c, rules.all));

    pipeline.last_phase = Phase::Tidy;
    auto made = [&](size_t i) -> Result<Model> {
        tell(i == 0 ? "compile the input" : fmt::format("time {}", found.candidates[i].what), i,
             std::min(found.candidates.size(), kMostTimed));
        std::shared_ptr<Graph> copy = found.candidates[i].graph->clone();
        TRY(optimize(*copy, pipeline));
        return model.rewritten(copy);
    };
    const auto timing = std::chrono::steady_clock::now();
    if (options.time_candidates && found.candidates.size() > 1) {
        Timed timed = TRY(time_candidates(std::min(found.candidates.size(), kMostTimed), made,
                                          {.target = options.target,
                                           .precision = options.precision == "strict" ? "strict" : "default",
                                           .threads = options.threads,
                                           .seconds = std::max(options.seconds - since(began), 0.0),
                                           .most_difference = most_difference(model, precision),
                                           .sizes = options.sizes,
                                           .cancel = options.cancel}));
        for (size_t i = 0; i < timed.seconds.size(); ++i) {
            report.candidates[i].seconds = timed.seconds[i];
            report.candidates[i].speedup = timed.speedup[i];
            report.candidates[i].difference = timed.difference[i];
        }
        report.chosen = timed.fastest;
        report.speedup = timed.fastest ? timed.speedup[timed.fastest] : 1;
    } else if (found.candidates.size() > 1) {
        report.chosen = 1;
    }
    report.timing_seconds = since(timing);
    if (report.chosen) out.model = TRY(made(report.chosen));
    return out;
}

}  // namespace

Result<Searched> search(const Model& model, const ModelSearchOptions& options) {
    return protect("search", {.text = [&] { return model.to_text(); }}, [&] { return search_model(model, options); });
}

}  // namespace tessera
