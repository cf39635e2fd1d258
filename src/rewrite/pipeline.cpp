#include "rewrite/pipeline.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/nearest.h"
#include "graph/text/print.h"
#include "graph/verify.h"

namespace tessera {
namespace {

constexpr int kMostIterations = 30;

void check_graph(const Graph& graph, [[maybe_unused]] const PassWatch& watch) {
#ifdef NDEBUG
    if (!watch.verify) return;
#endif
    verify(graph);
}

}  // namespace

Status check_pass_name(const std::string& name, const std::vector<Pass>& table) {
    std::vector<std::string_view> names;
    for (const Pass& p : table) names.push_back(p.name);
    if (std::find(names.begin(), names.end(), name) != names.end()) return {};
    Error error(Code::E0501, "there is no pass \"{}\"", name);
    std::string near = nearest(name, names);
    if (near.empty()) return std::move(error).hint("there are: {}", fmt::join(names, ", "));
    return std::move(error).hint("did you mean {}?", near);
}

Pipeline::Pipeline(Graph& graph, std::vector<Pass> passes, PassContext& context, const PassWatch& watch)
    : graph_(graph), passes_(std::move(passes)), context_(context), watch_(watch) {
    for (const Pass& p : passes_) times_.push_back({p.name});
    seen_.assign(passes_.size(), ~size_t{0});
}

bool Pipeline::is_in(size_t i, Phase phase) const {
    const std::vector<Phase>& in = passes_[i].phases;
    return std::find(in.begin(), in.end(), phase) != in.end();
}

Status Pipeline::run_phase(Phase phase, const std::vector<std::string>& with) {
    auto named = [&](const Pass& p) { return std::find(with.begin(), with.end(), p.name) != with.end(); };
    Changed changed = true, ever = false;
    for (int n = 0; changed && !stopped_ && n < kMostIterations; ++n) {
        changed = false;
        if (phase == Phase::Rewrite) ++iterations_;
        for (size_t i = 0; i < passes_.size() && !stopped_; ++i) {
            if (!is_in(i, phase) || !stale(i) || (passes_[i].optional && !named(passes_[i]))) continue;
            changed |= TRY(run_pass(i, watch_));
        }
        ever |= changed;
        if (phase == Phase::Tidy) break;
    }
    if (phase == Phase::Tidy) {
        tidied_ |= ever;
        return {};
    }
    if (phase == Phase::WriteOut) written_out_ |= ever;
    settled_ &= !changed || stopped_;
    return {};
}

Result<bool> Pipeline::at_rest() {
    if (!settled_ || stopped_ || written_out_) return false;
    if (!tidied_) return true;
    // Tidying moved and renamed, and did nothing else: what no node had a match for before, none has now.
    const PassWatch quietly{.verify = watch_.verify};
    for (size_t i = 0; i < passes_.size(); ++i)
        if ((passes_[i].by_order || is_in(i, Phase::Tidy)) && TRY(run_pass(i, quietly))) return false;
    return true;
}

Result<Changed> Pipeline::run_pass(size_t i, const PassWatch& watch) {
    const Pass& pass = passes_[i];
    if (context_.cancel && *context_.cancel) return Error(Code::E0410, "{} was cancelled", pass.name);
    CheckScope scope(pass.name, [&] { return print(graph_); });
    context_.pass = pass.name;
    const size_t before = context_.rewrites;
    const auto began = std::chrono::steady_clock::now();
    Changed changed = TRY(pass.run(graph_, context_));
    PassTime& time = times_[i];
    time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    time.rewrites += context_.rewrites - before;
    ++time.runs;
    if (changed)
        ++version_;
    else
        seen_[i] = version_;
    check_graph(graph_, watch);
    if (watch.after) watch.after(pass.name, graph_, changed);
    stopped_ |= pass.name == watch.stop_after;
    return changed;
}

}  // namespace tessera
