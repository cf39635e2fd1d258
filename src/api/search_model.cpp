// From a model to the fastest of the candidates that a search found for it.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>

#include "api/accepted_rules.h"
#include "api/stages.h"
#include "backends/backend.h"
#include "base/clock.h"
#include "base/protect.h"
#include "discover/correct/mutate.h"
#include "discover/correct/picture.h"
#include "rewrite/passes/optimize.h"
#include "runtime/code_cache.h"
#include "search/search.h"
#include "search/search_rules.h"
#include "tessera/search.h"
#include "tune/cost_at_sizes.h"
#include "tune/measured_cost.h"
#include "tune/time_candidates.h"

namespace tessera {
namespace {

constexpr int64_t kFoldLimit = int64_t{1} << 40;  // weights are computed, whatever they take
constexpr size_t kMostTimed = 5;                  // candidates, the input among them
// Of the time: to explore, until which the costs of nodes are measured, to take graphs out, and until which graphs are
// weighed. The rest is for the clock.
constexpr double kExploreShare = 0.2, kMeasureShare = 0.5, kTakeOutShare = 0.2, kCompareShare = 0.6;
// Of the time for mutants: to make their rules; of what is left then, to explore with them, until which the costs of
// nodes are measured, to take graphs out, and until which graphs are weighed. The rest is for the clock.
constexpr double kMakeShare = 0.35, kMutantShare = 0.15, kNodesShare = 0.35, kExtractShare = 0.1, kWeighShare = 0.5;
constexpr double kMutantMargin = 0.2;  // measured minutes apart on a machine with other work, kernels differ by as much

int ops_of(const Term& term) {
    int n = term.form == Term::Form::Op;
    for (const Term& arg : term.args) n += ops_of(arg);
    return n;
}

struct ChosenRules {
    Rules own, made;
    std::vector<const Rule*> all, corrected;  // those of a search without mutants, and what mutants add
};

Result<ChosenRules> choose_rules(const ModelSearchOptions& options) {
    ChosenRules chosen;
    chosen.own = TRY(accepted_rules(options.rules, options.refute_rules, options.cache, options.cancel));
    auto add = [&](const Rule& rule, std::vector<const Rule*>& to) {
        int ops = 0;
        for (const Term& root : rule.pattern) ops += ops_of(root);
        if (options.max_rule_ops == 0 || ops <= options.max_rule_ops) to.push_back(&rule);
    };
    for (const Rule& rule : chosen.own) add(rule, chosen.all);
    if (!options.built_in_rules) return chosen;
    for (const Rule* rule : search_rules())
        if (options.tested_rules || rule->evidence != Evidence::Tested) add(*rule, chosen.all);
    if (options.mutate > 0)
        for (const Rule* rule : corrected_rules()) add(*rule, chosen.corrected);
    return chosen;
}

// What the costs are of: the processor, or a GPU of this machine.
Result<Device*> timed_device(const std::string& target) {
    Device* device = TRY(device_for(target));
    if (device->shares_memory()) TRY(describe_target(target));  // there is such a target
    if (device->shares_memory() && !runs_here(target))
        return Error(Code::E0603, "costs are measured on the target, but this machine is not a {}", target)
            .hint("search for host, or for a GPU of this machine: cuda, or cuda:1 for the second");
    return device;
}

Result<std::unique_ptr<CostModel>> choose_cost(const ModelSearchOptions& options, Precision precision,
                                               const Device& device) {
    if (options.cost == "estimate") return estimated_cost(speeds_of(device));
    if (options.cost != "measured" && options.cost != "sum")
        return Error(Code::E0501, "there is no cost \"{}\"", options.cost).hint("there are: measured, estimate, sum");
    MeasureOptions measure{.cache = options.cache, .target = options.target, .precision = precision};
    measure.fused = options.cost == "measured";
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
    SearchedCandidate out{.what = candidate.what, .cost = candidate.cost};
    for (const RuleUse& use : candidate.uses) {
        std::string why;
        for (const Rule* rule : rules)
            if (rule->name == use.rule) why = rule->comment;
        out.rules.push_back({use.rule, why, use.where, use.gain});
    }
    return out;
}

// Rules for the graph's own products, which join those of the search.
Status add_mutants(const Graph& graph, const ModelSearchOptions& options, const Deadline& until, ChosenRules& rules,
                   SearchReport& report) {
    MutateOptions how{.seconds = 1e9, .until = until, .cancel = options.cancel};
    if (options.progress)
        how.progress = [&](std::string_view target, size_t done, size_t total) {
            options.progress(fmt::format("mutate {}", target), done, total);
        };
    const CodeCache cache = TRY(CodeCache::open(options.cache));
    auto entry = [](const std::string& key) { return code_key({"mutants", key}); };
    if (cache.enabled()) {
        how.recall = [&](const std::string& key) { return cache.find(entry(key)); };
        how.remember = [&](const std::string& key, const std::string& text) {
            (void)cache.store(entry(key), text);  // a folder that cannot be written to is no error
        };
    }
    Mutation found = TRY(mutate(graph, how));
    report.mutate_targets = found.targets;
    report.mutate_remembered = found.remembered;
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
        rules.corrected.push_back(&rules.made.back());
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

// The search without mutants first, as it always is; then what mutants add to it, measured against what it chose.
Status check_numbers(const ModelSearchOptions& options) {
    struct Number {
        const char* name;
        double value, least;
        bool may_be_least;
    };
    for (const Number& n : {Number{"seconds", options.seconds, 0, false},
                            {"mutate", options.mutate, 0, true},
                            {"alpha", options.alpha, 1, true},
                            {"threads", double(options.threads), 0, true}})
        if (!(n.value > n.least || (n.may_be_least && n.value == n.least)))
            return Error(Code::E0501, "search: {} is {}, not {} {}", n.name, n.value,
                         n.may_be_least ? "at least" : "above", n.least);
    return {};
}

class ModelSearch {
  public:
    ModelSearch(const Model& model, const ModelSearchOptions& options) : model_(model), options_(options) {}

    Result<Searched> run() {
        TRY(check_numbers(options_));
        const Deadline until = Deadline::in(options_.seconds);
        precision_ = TRY(precision_named(options_.precision));
        how_.strategy = TRY(strategy_named(options_.strategy));
        how_.limits.precision = precision_;
        how_.limits.max_nodes = options_.max_nodes;
        how_.limits.seconds = kExploreShare * options_.seconds;
        how_.extract_seconds = kTakeOutShare * options_.seconds;
        how_.until = until.share(kCompareShare);
        how_.limits.cancel = options_.cancel;
        how_.alpha = options_.alpha;
        how_.budget = options_.budget;
        rules_ = TRY(choose_rules(options_));
        device_ = TRY(timed_device(options_.target));
        report_.device = device_->name();
        cost_ = TRY(choose_cost(options_, precision_, *device_));
        if (auto* measured = dynamic_cast<MeasuredCost*>(cost_.get()))
            measured->stop_at(until.share(kMeasureShare), how_.until);
        tell("rewrite", 0, 3);
        pipeline_.precision = precision_;
        pipeline_.fold_limit = kFoldLimit;
        pipeline_.cancel = options_.cancel;
        graph_ = model_.graph().clone();
        pipeline_.last_phase = Phase::Rewrite;
        TRY(optimize(*graph_, pipeline_));
        pipeline_.last_phase = Phase::Tidy;
        tell("search", 1, 3);
        TRY(explore(rules_.all, {}));
        std::vector<size_t> all(candidates_.size());
        std::iota(all.begin(), all.end(), size_t{0});
        TRY(choose(std::move(all), {.seconds = until.left(), .until = until}));
        const size_t without = report_.chosen;
        if (options_.mutate > 0) TRY(with_mutants());
        Searched out{model_, std::move(report_)};
        if (out.report.chosen) out.model = TRY(made(out.report.chosen));
        if (options_.keep_without_mutants) out.without_mutants = without ? TRY(made(without)) : model_;
        return out;
    }

  private:
    const Model& model_;
    const ModelSearchOptions& options_;
    Precision precision_ = Precision::Default;
    SearchOptions how_;
    ChosenRules rules_;
    Device* device_ = nullptr;
    std::unique_ptr<CostModel> cost_;
    PipelineOptions pipeline_;
    std::unique_ptr<Graph> graph_;
    std::vector<Candidate> candidates_;  // as the report has them
    SearchReport report_;
    TimedPace pace_;  // of candidates

    void tell(std::string_view what, size_t done, size_t total) const {
        if (options_.progress) options_.progress(what, done, total);
    }

    // Adds candidates: all, or those that use one of these rules.
    Status explore(const std::vector<const Rule*>& rules, const std::set<std::string>& of) {
        auto* measured = dynamic_cast<MeasuredCost*>(cost_.get());
        const double processor = processor_seconds(), measuring = measured ? measured->spent() : 0,
                     measuring_processor = measured ? measured->spent_processor() : 0;
        const std::unique_ptr<CostModel> guide = estimated_cost(speeds_of(*device_));
        const SymbolValues& sizes = options_.sizes;
        CostAtSizes cost_at(*cost_, sizes), guide_at(*guide, sizes);
        SearchOptions how = how_;
        how.guide = sizes.empty() ? guide.get() : &guide_at;
        Search found = search(*graph_, rules, sizes.empty() ? *cost_ : cost_at, how);
        report_.strategy = options_.strategy;
        report_.cost = cost_->name();
        report_.nodes = found.nodes;
        report_.classes = found.classes;
        report_.steps = found.steps;
        report_.complete = found.complete && (of.empty() || report_.complete);
        if (!found.stopped_by.empty()) report_.stopped_by = found.stopped_by;
        double seconds = found.seconds, searching = processor_seconds() - processor;
        if (measured) {
            seconds -= measured->spent() - measuring;
            searching -= measured->spent_processor() - measuring_processor;
            report_.measure_seconds = measured->spent();
            report_.measured = measured->measured();
            measured->save();
            TRY(Status(measured->status()));
        }
        report_.search_seconds += seconds;
        report_.search_processor_seconds += searching;
        for (Candidate& c : found.candidates) {
            if (!of.empty() &&
                std::none_of(c.uses.begin(), c.uses.end(), [&](const RuleUse& use) { return of.contains(use.rule); }))
                continue;
            report_.candidates.push_back(described(c, rules));
            candidates_.push_back(std::move(c));
        }
        return {};
    }

    Result<Model> made(size_t i) {
        std::shared_ptr<Graph> copy = candidates_[i].graph->clone();
        TRY(optimize(*copy, pipeline_));
        return model_.rewritten(copy);
    }

    // The fastest of these, which must be clearly faster than the first of them; untimed, the second where it costs
    // less.
    Status choose(std::vector<size_t> of, TimeOptions how) {
        const auto began = std::chrono::steady_clock::now();
        of.resize(std::min(of.size(), kMostTimed));
        if (of.size() < 2) return {};
        if (!options_.time_candidates) {
            if (candidates_[of[1]].cost < candidates_[of[0]].cost) report_.chosen = of[1];
            return {};
        }
        auto model_of = [&](size_t i) {
            tell(i == 0 ? "compile the input" : fmt::format("time {}", candidates_[of[i]].what), i, of.size());
            return made(of[i]);
        };
        how.target = options_.target;
        how.precision = options_.precision == "strict" ? "strict" : "default";
        how.threads = options_.threads;
        how.most_difference = most_difference(model_, precision_);
        how.sizes = options_.sizes;
        how.cancel = options_.cancel;
        how.pace = pace_;
        const Timed timed = TRY(time_candidates(of.size(), model_of, how));
        pace_ = timed.pace;
        const double before = of[0] == 0 ? 1 : report_.speedup;  // of the first, over the input
        for (size_t i = of[0] == 0 ? 0 : 1; i < of.size(); ++i) {
            report_.candidates[of[i]].seconds = timed.seconds[i];
            report_.candidates[of[i]].speedup = before * timed.speedup[i];
            report_.candidates[of[i]].difference = timed.difference[i];
            report_.candidates[of[i]].refused = timed.refused[i];
        }
        if (timed.fastest) {
            report_.chosen = of[timed.fastest];
            report_.speedup = before * timed.speedup[timed.fastest];
        }
        report_.timing_seconds += since(began);
        return {};
    }

    // All of it within the seconds that are given for mutants. What they lead to is taken only where it is faster than
    // what was chosen without them.
    Status with_mutants() {
        const auto began = std::chrono::steady_clock::now();
        const Deadline until = Deadline::in(options_.mutate);
        const double speedup = report_.speedup;
        tell("mutate", 2, 3);
        TRY(add_mutants(*graph_, options_, until.share(kMakeShare), rules_, report_));
        if (!rules_.made.empty()) {
            std::set<std::string> names;
            std::vector<const Rule*> rules = rules_.all;
            for (const Rule* rule : rules_.corrected) {
                rules.push_back(rule);
                names.insert(rule->name);
            }
            how_.limits.seconds = kMutantShare * until.left();
            how_.extract_seconds = kExtractShare * until.left();
            how_.until = until.share(kWeighShare);
            how_.margin = kMutantMargin;
            if (auto* measured = dynamic_cast<MeasuredCost*>(cost_.get()))
                measured->allow(until.share(kNodesShare), how_.until);
            std::vector<size_t> of{report_.chosen};
            const size_t first = candidates_.size();
            TRY(explore(rules, names));
            for (size_t i = first; i < candidates_.size(); ++i) of.push_back(i);
            TRY(choose(std::move(of), {.seconds = until.left(), .until = until}));
        }
        report_.mutate_gain = report_.speedup / speedup;
        report_.mutate_whole_seconds = since(began);
        return {};
    }
};

}  // namespace

Result<Searched> search(const Model& model, const ModelSearchOptions& options) {
    return protect("search", {.text = [&] { return model.to_text(); }},
                   [&] { return ModelSearch(model, options).run(); });
}

}  // namespace tessera
