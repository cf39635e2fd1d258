// The optimizer as users see it: a model in, another out, and a report of what was done.
#include "tessera/optimize.h"

#include <chrono>

#include "api/accepted_rules.h"
#include "api/stages.h"
#include "base/protect.h"
#include "graph/graph.h"
#include "rewrite/passes/optimize.h"

namespace tessera {
namespace {

// What is said of each rule by whoever wrote it, and of each pass.
std::map<std::string, std::string> reasons(const Rules& user_rules) {
    std::map<std::string, std::string> why;
    auto add = [&](const Rules& rules) {
        for (const Rule& rule : rules) why.emplace(rule.name, rule.comment);
    };
    add(user_rules);
    for (const RuleFile& file : built_in_rule_files()) add(built_in_rules(file.name));
    return why;
}

std::vector<NodeText> texts(const std::vector<Application::NodeText>& nodes) {
    std::vector<NodeText> out;
    for (const auto& n : nodes) out.push_back({n.op, n.attrs, n.inputs, n.outputs, n.to_string()});
    return out;
}

std::vector<PassRun> pass_runs(const std::vector<Pass>& table) {
    std::vector<PassRun> runs;
    for (const Pass& p : table) runs.push_back({p.name, p.purpose, p.optional});
    return runs;
}

}  // namespace

std::vector<PassRun> optimizer_passes() { return pass_runs(pass_table()); }

namespace {

Result<Optimized> optimize_model(const Model& model, const OptimizeOptions& options) {
    auto began = std::chrono::steady_clock::now();
    PipelineOptions pipeline;
    pipeline.precision = TRY(precision_named(options.precision));
    pipeline.user_rules = TRY(accepted_rules(options.rules, options.refute_rules, options.cache, options.cancel));
    pipeline.fold_limit = options.fold_limit;
    pipeline.with = options.with;
    pipeline.record = options.record;
    pipeline.watch.stop_after = options.stop_after;
    pipeline.watch.verify = options.verify;
    pipeline.cancel = options.cancel;
    std::shared_ptr<Graph> graph = model.graph().clone();
    if (options.opset) graph->info().opset = options.opset;
    Model optimized = model.rewritten(graph);
    if (options.after)
        pipeline.watch.after = [&](const std::string& pass, const Graph&, Changed changed) {
            options.after(pass, optimized, changed);
        };
    PipelineReport done = TRY(optimize(*graph, pipeline));

    OptimizeReport report;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    report.passes = pass_runs(pass_table(pipeline.user_rules));
    for (size_t i = 0; i < report.passes.size(); ++i) {
        const PassTime& time = done.passes[i];
        report.passes[i].runs = int64_t(time.runs);
        report.passes[i].rewrites = int64_t(time.rewrites);
        report.passes[i].seconds = time.seconds;
        report.rewrite_count += int64_t(time.rewrites);
    }
    report.rounds = done.rounds;
    report.settled = done.settled;
    std::map<std::string, std::string> why;
    if (options.record) why = reasons(pipeline.user_rules);
    std::map<std::string, std::string> purposes;
    for (const PassRun& p : report.passes) purposes.emplace(p.pass, p.purpose);
    for (const Application& a : done.applications) {
        auto reason = why.find(a.rule);
        report.rewrites.push_back({a.pass, a.rule, std::string(name_of(a.exactness)),
                                   reason != why.end() ? reason->second : purposes[a.pass], a.where, texts(a.removed),
                                   texts(a.added), a.replaced});
    }
    report.before = model.summary();
    report.after = optimized.summary();
    return Optimized{std::move(optimized), std::move(report)};
}

}  // namespace

Result<Optimized> optimize(const Model& model, const OptimizeOptions& options) {
    return protect("optimize", {.text = [&] { return model.to_text(); }},
                   [&] { return optimize_model(model, options); });
}

}  // namespace tessera
