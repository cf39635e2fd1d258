#include "rewrite/passes/optimize.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "base/nearest.h"
#include "graph/text/print.h"
#include "graph/verify.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera {

namespace {

using Phases = std::vector<int>;

Pass rule_pass(std::string name, std::string purpose, std::shared_ptr<const RuleSet> rules, Phases phases = {1}) {
    return {std::move(name), std::move(purpose),
            [rules](Graph& graph, PassContext& context) { return apply_rules(graph, *rules, context); },
            std::move(phases)};
}

// One of rules/*.rules, read once.
Pass built_in(const std::string& file, const std::string& purpose, Phases phases = {1}) {
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
    std::vector<Pass> table = {
        {"refine_types", "types anew, where a node's inputs became better known", refine_types},
        {"canonicalise", "one way to write what can be written in several", canonicalise},
        {"fold_constants", "a node whose inputs are constant is its value", fold_constants},
        {"inline_branches", "an if whose condition is constant is its branch", inline_branches},
        {"fold_shapes", "a shape that the op can find itself need not be computed", fold_shapes},
        built_in("older", "ops that the model's opset has not, written out", {2}),
        {"write_out", "ops that ONNX has not, as the graphs they stand for", write_out, {2}},
        {"share_common", "nodes that do the same are one", share_common, {1, 2}},
        {"share_sizes", "equal integers are computed once, in the cheapest way", share_sizes},
        {"drop_unused", "what nobody uses goes", drop_unused, {1, 2}},
        rule_pass("user_rules", "your own rules", std::make_shared<const RuleSet>(user_rules)),
        built_in("patterns", "several nodes that are one known op"),
        built_in("cleanup", "what does nothing, or undoes itself", {1, 2}),
        optional(built_in("siblings", "products that share an input are one, cut in parts")),
        built_in("merge", "neighbours that one node can do", {1, 2}),
        built_in("fold", "what weights can take in"),
        built_in("linear", "products and sums in their cheapest order"),
        built_in("scales", "numbers that scale a product go into its constants", {1, 2}),
        built_in("strength", "cheaper ops for the same function"),
        optional(built_in("native", "ops that a machine has and ONNX has not")),
        built_in("motion", "moves what moves elements to where it cancels", {1, 2}),
        {"slices_to_split", "slices that are all parts of a value are one split", slices_to_split, {2}},
        {"tidy", "an order and names that follow from the graph alone", tidy, {3}},
    };
    if (user_rules.empty()) std::erase_if(table, [](const Pass& p) { return p.name == "user_rules"; });
    return table;
}

namespace {

class Pipeline {
  public:
    Pipeline(Graph& graph, const PipelineOptions& options)
        : graph_(graph), options_(options), passes_(pass_table(options.user_rules)) {
        context_.precision = options.precision;
        context_.fold_limit = options.fold_limit;
        context_.record = options.record;
        context_.cancel = options.cancel;
        for (const Pass& p : passes_) report_.passes.push_back({p.name});
    }

    Result<PipelineReport> run() {
        if (!options_.stop_after.empty()) TRY(check_name(options_.stop_after));
        for (const std::string& name : options_.with) TRY(check_name(name));
        for (int phase = 1; phase <= options_.last_phase; ++phase) TRY(run_phase(phase));
        report_.applications = std::move(context_.applications);
        return std::move(report_);
    }

  private:
    Status check_name(const std::string& name) const {
        std::vector<std::string_view> names;
        for (const Pass& p : passes_) names.push_back(p.name);
        if (std::find(names.begin(), names.end(), name) != names.end()) return {};
        Error error(Code::E0501, "there is no pass \"{}\"", name);
        std::string near = nearest(name, names);
        if (near.empty()) return std::move(error).hint("there are: {}", fmt::join(names, ", "));
        return std::move(error).hint("did you mean {}?", near);
    }

    Status run_phase(int phase) {
        Changed changed = true;
        int rounds = 0;
        while (changed && !stopped_ && rounds++ < options_.max_rounds) {
            changed = false;
            if (phase == 1) ++report_.rounds;
            for (size_t i = 0; i < passes_.size() && !stopped_; ++i) {
                if (!wanted(passes_[i])) continue;
                const Phases& in = passes_[i].phases;
                if (std::find(in.begin(), in.end(), phase) != in.end() && stale(i)) changed |= TRY(run_pass(i));
            }
            if (phase == 3) return {};
        }
        report_.settled &= !changed || stopped_;
        return {};
    }

    bool wanted(const Pass& pass) const {
        const auto& with = options_.with;
        return !pass.optional || std::find(with.begin(), with.end(), pass.name) != with.end();
    }

    // Whether the graph has changed since the pass last looked at it.
    bool stale(size_t i) const { return i >= seen_.size() || seen_[i] != version_; }

    Result<Changed> run_pass(size_t i) {
        const Pass& pass = passes_[i];
        if (options_.cancel && *options_.cancel) return Error(Code::E0410, "optimizing was cancelled");
        CheckScope scope(pass.name, [&] { return print(graph_); });
        context_.pass = pass.name;
        size_t before = context_.rewrites;
        auto began = std::chrono::steady_clock::now();
        Changed changed = TRY(pass.run(graph_, context_));
        PassTime& time = report_.passes[i];
        time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        time.rewrites += context_.rewrites - before;
        ++time.runs;
        if (changed) ++version_;
        if (seen_.size() <= i) seen_.resize(passes_.size(), ~size_t{0});
        if (!changed) seen_[i] = version_;
        check();
        if (options_.after) options_.after(pass.name, graph_, changed);
        stopped_ = pass.name == options_.stop_after;
        return changed;
    }

    void check() const {
#ifdef NDEBUG
        if (!options_.verify) return;
#endif
        verify(graph_);
    }

    Graph& graph_;
    const PipelineOptions& options_;
    std::vector<Pass> passes_;
    PassContext context_;
    PipelineReport report_;
    std::vector<size_t> seen_;  // by pass: the graph's version after which it had nothing to do
    size_t version_ = 0;
    bool stopped_ = false;
};

constexpr int kMostAgain = 4;

void add_times(PipelineReport& to, const PipelineReport& from) {
    for (size_t i = 0; i < to.passes.size(); ++i) {
        to.passes[i].runs += from.passes[i].runs;
        to.passes[i].seconds += from.passes[i].seconds;
    }
}

}  // namespace

Result<PipelineReport> optimize(Graph& graph, const PipelineOptions& options) {
    PipelineReport report = TRY(Pipeline(graph, options).run());
    if (!options.stop_after.empty()) return report;
    // What the last phases wrote may be read in another way: until a further run would leave all as it is.
    for (int again = 0; again < kMostAgain; ++again) {
        std::unique_ptr<Graph> trial = graph.clone();
        PipelineOptions quiet = options;
        quiet.record = false;
        quiet.after = {};
        add_times(report, TRY(Pipeline(*trial, quiet).run()));
        if (identical(graph, *trial)) return report;
        PipelineReport more = TRY(Pipeline(graph, options).run());
        add_times(report, more);
        for (size_t i = 0; i < report.passes.size(); ++i) report.passes[i].rewrites += more.passes[i].rewrites;
        report.rounds += more.rounds;
        std::move(more.applications.begin(), more.applications.end(), std::back_inserter(report.applications));
    }
    report.settled = false;
    return report;
}

}  // namespace tessera
