#include <algorithm>
#include <chrono>

#include "graph/evaluate/bind_inputs.h"
#include "runtime/run.h"

namespace tessera {
namespace {

double median(std::vector<double> times) {
    auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

std::string shown(const Node& node) { return node.name().empty() ? node.output()->name() : node.name(); }

}  // namespace

Result<std::vector<StepProfile>> LoadedProgram::profile(const NamedData& inputs, int runs) const {
    std::vector<Datum> bound = TRY(bind_inputs(*program_.graph, inputs));
    auto plan = TRY(plan_for(bound));
    std::vector<std::vector<double>> seconds(program_.steps.size());
    SymbolValues symbols;
    RunContext context;
    for (int r = -1; r < std::max(runs, 1); ++r) {  // the first warms up
        TRY(context.prepare(plan, layout_, weights_.pointers, threads_));
        RunOptions options;
        Run run(*this, context, options);
        TRY(run.begin(bound));
        for (size_t i = 0; i < program_.steps.size(); ++i) {
            const auto began = std::chrono::steady_clock::now();
            TRY(run.step(i));
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
            if (r >= 0) seconds[i].push_back(took.count());
        }
        symbols = context.symbols;
        context.clear();
    }
    std::vector<StepProfile> profiles;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        StepProfile p;
        p.seconds = median(std::move(seconds[i]));
        if (auto* step = std::get_if<KernelStep>(&program_.steps[i])) {
            p.label = step->label;
            p.kind = "kernel";
            for (const Node* node : step->nodes) p.nodes.push_back(shown(*node));
            p.flops = static_cast<double>(evaluate_int(step->flops, symbols).value_or(0));
            p.bytes = static_cast<double>(evaluate_int(step->bytes, symbols).value_or(0));
            p.launches = static_cast<int>(module_->kernels()[step->kernel].launches.size());
        } else {
            const auto& host = std::get<HostStep>(program_.steps[i]);
            const char* part = host.check_only ? "check " : host.tells() ? "sizes of " : "";
            p.label = part + host.node->op().name + " " + shown(*host.node);
            p.kind = "host";
            p.nodes.push_back(shown(*host.node));
        }
        profiles.push_back(std::move(p));
    }
    return profiles;
}

}  // namespace tessera
