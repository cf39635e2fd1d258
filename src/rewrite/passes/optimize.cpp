#include "rewrite/passes/optimize.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "rewrite/rules/apply_rules.h"

namespace tessera {

namespace {

using Phases = std::vector<Phase>;

Pass rule_pass(std::string name, std::string purpose, std::shared_ptr<const RuleSet> rules,
               Phases phases = {Phase::Rewrite}) {
    return {std::move(name), std::move(purpose),
            [rules](Graph& graph, PassContext& context) { return apply_rules(graph, *rules, context); },
            std::move(phases)};
}

// One of rules/*.rules, read once.
Pass built_in(const std::string& file, const std::string& purpose, Phases phases = {Phase::Rewrite}) {
    static std::mutex mutex;
    static std::map<std::string, std::shared_ptr<const RuleSet>> sets;
    std::lock_guard lock(mutex);
    auto& set = sets[file];
    if (!set) set = std::make_shared<const RuleSet>(built_in_rules(file));
    return rule_pass(file, purpose, set, std::move(phases));
}

Pass optional(Pass pass) {
    pass.optional = true;
    return pass;
}

}  // namespace

std::vector<Pass> pass_table(const Rules& user_rules) {
    const Phases both = {Phase::Rewrite, Phase::WriteOut};
    std::vector<Pass> table = {
        {"refine_types", "infers types again where input types became more precise", refine_types},
        {"canonicalise", "normalizes attributes and operands to one canonical form", canonicalise},
        {"fold_constants", "replaces nodes with constant inputs by their values", fold_constants},
        {"inline_branches", "replaces an if with a constant condition by its branch", inline_branches},
        {"fold_shapes", "replaces computed shapes by constants that the op can complete", fold_shapes},
        built_in("older", "expands ops that the model's opset lacks, by rules", {Phase::WriteOut}),
        {"write_out", "expands ops that ONNX lacks", write_out, {Phase::WriteOut}},
        {"share_common", "merges identical nodes (CSE)", share_common, both},
        {.name = "share_sizes",
         .purpose = "computes equal integers once, in the cheapest way",
         .run = share_sizes,
         .by_order = true},
        {"drop_unused", "removes unused nodes (DCE)", drop_unused, both},
        rule_pass("user_rules", "your own rules", std::make_shared<const RuleSet>(user_rules)),
        built_in("patterns", "replaces subgraphs by the single op that they compute"),
        built_in("cleanup", "removes identities and inverse pairs", both),
        optional(built_in("siblings", "merges products that share an input, then splits the result")),
        built_in("merge", "merges adjacent nodes into one", both),
        built_in("fold", "folds scales and additions into weights"),
        built_in("linear", "reorders products and sums to cost less"),
        built_in("scales", "folds scalar factors of a product into its constants", both),
        built_in("strength", "strength reduction: cheaper ops for the same function"),
        optional(built_in("native", "ops that the machine has but ONNX lacks")),
        built_in("motion", "moves transposes, slices and the like to where they cancel", both),
        {"slices_to_split", "replaces slices that cover a value by one split", slices_to_split, {Phase::WriteOut}},
        {"tidy", "sorts and names nodes by the graph alone", tidy, {Phase::Tidy}},
    };
    if (user_rules.empty()) std::erase_if(table, [](const Pass& p) { return p.name == "user_rules"; });
    return table;
}

namespace {

constexpr int kMostAgain = 4;

struct Once {
    PipelineReport report;
    bool at_rest;
};

// All phases, one after the other.
Result<Once> optimize_once(Graph& graph, const PipelineOptions& options) {
    std::vector<Pass> passes = pass_table(options.user_rules);
    if (!options.watch.stop_after.empty()) TRY(check_pass_name(options.watch.stop_after, passes));
    for (const std::string& name : options.with) TRY(check_pass_name(name, passes));
    PassContext context;
    context.precision = options.precision;
    context.fold_limit = options.fold_limit;
    context.record = options.record;
    context.cancel = options.cancel;
    Pipeline pipeline(graph, std::move(passes), context, options.watch);
    for (Phase phase : {Phase::Rewrite, Phase::WriteOut, Phase::Tidy})
        if (phase <= options.last_phase) TRY(pipeline.run_phase(phase, options.with));
    const bool at_rest = TRY(pipeline.at_rest());
    return Once{{pipeline.times(), std::move(context.applications), pipeline.iterations(), pipeline.settled()},
                at_rest || pipeline.stopped()};
}

void add_times(PipelineReport& to, const PipelineReport& from) {
    for (size_t i = 0; i < to.passes.size(); ++i) {
        to.passes[i].runs += from.passes[i].runs;
        to.passes[i].seconds += from.passes[i].seconds;
    }
}

}  // namespace

Result<PipelineReport> optimize(Graph& graph, const PipelineOptions& options) {
    Once done = TRY(optimize_once(graph, options));
    PipelineReport& report = done.report;
    // What the last phases wrote may be read in another way: until a further run would leave all as it is.
    for (int again = 0; again < kMostAgain && !done.at_rest; ++again) {
        std::unique_ptr<Graph> trial = graph.clone();
        PipelineOptions quiet = options;
        quiet.record = false;
        quiet.watch = {.verify = options.watch.verify};
        add_times(report, TRY(optimize_once(*trial, quiet)).report);
        if (identical(graph, *trial)) return std::move(report);
        Once more = TRY(optimize_once(graph, options));
        done.at_rest = more.at_rest;
        add_times(report, more.report);
        for (size_t i = 0; i < report.passes.size(); ++i) report.passes[i].rewrites += more.report.passes[i].rewrites;
        report.rounds += more.report.rounds;
        std::move(more.report.applications.begin(), more.report.applications.end(),
                  std::back_inserter(report.applications));
    }
    report.settled &= done.at_rest;
    return std::move(report);
}

Status recognise_ops(Graph& graph) {
    const std::set<std::string> wanted{"canonicalise", "drop_unused", "patterns"};
    std::vector<Pass> passes = pass_table();
    std::erase_if(passes, [&](const Pass& p) { return !wanted.contains(p.name); });
    PassContext context;
    const PassWatch watch;
    return Pipeline(graph, std::move(passes), context, watch).run_phase(Phase::Rewrite);
}

}  // namespace tessera
