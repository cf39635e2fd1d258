#include "rewrite/passes/optimize.h"

#include <map>
#include <memory>
#include <mutex>

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
        {"refine_types", "types anew, where a node's inputs became better known", refine_types},
        {"canonicalise", "one way to write what can be written in several", canonicalise},
        {"fold_constants", "a node whose inputs are constant is its value", fold_constants},
        {"inline_branches", "an if whose condition is constant is its branch", inline_branches},
        {"fold_shapes", "a shape that the op can find itself need not be computed", fold_shapes},
        built_in("older", "ops that the model's opset has not, written out", {Phase::WriteOut}),
        {"write_out", "ops that ONNX has not, as the graphs they stand for", write_out, {Phase::WriteOut}},
        {"share_common", "nodes that do the same are one", share_common, both},
        {.name = "share_sizes",
         .purpose = "equal integers are computed once, in the cheapest way",
         .run = share_sizes,
         .by_order = true},
        {"drop_unused", "what nobody uses goes", drop_unused, both},
        rule_pass("user_rules", "your own rules", std::make_shared<const RuleSet>(user_rules)),
        built_in("patterns", "several nodes that are one known op"),
        built_in("cleanup", "what does nothing, or undoes itself", both),
        optional(built_in("siblings", "products that share an input are one, cut in parts")),
        built_in("merge", "neighbours that one node can do", both),
        built_in("fold", "what weights can take in"),
        built_in("linear", "products and sums in their cheapest order"),
        built_in("scales", "numbers that scale a product go into its constants", both),
        built_in("strength", "cheaper ops for the same function"),
        optional(built_in("native", "ops that a machine has and ONNX has not")),
        built_in("motion", "moves what moves elements to where it cancels", both),
        {"slices_to_split", "slices that are all parts of a value are one split", slices_to_split, {Phase::WriteOut}},
        {"tidy", "an order and names that follow from the graph alone", tidy, {Phase::Tidy}},
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

}  // namespace tessera
