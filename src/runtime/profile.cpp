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

Result<double> LoadedProgram::seconds_on_device(const NamedData& inputs, int runs) const {
    std::vector<Datum> bound = TRY(bind_inputs(*program_.graph, inputs));
    auto plan = TRY(plan_for(bound));
    auto context = TRY(RunContext::make(device_, threads_));
    TRY(context->prepare(std::move(plan), layout_, weights_.pointers));
    const RunOptions options;
    Run run(*this, *context, options);
    TRY(run.begin(bound));
    context->runs = 1;  // so that it is captured at once
    if (!TRY(run.replay()))
        return Error(Code::E0501, "runs cannot be timed on {} alone", device_.name())
            .hint("that needs a GPU, and a model of which no step is left to the processor");
    TRY(context->stream->synchronize());
    const auto began = std::chrono::steady_clock::now();
    for (int r = 0; r < std::max(runs, 1); ++r) TRY(context->stream->replay(*context->recording));
    TRY(context->stream->synchronize());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    return took.count() / std::max(runs, 1);
}

Result<std::vector<StepProfile>> LoadedProgram::profile(const NamedData& inputs, int runs) const {
    std::vector<Datum> bound = TRY(bind_inputs(*program_.graph, inputs));
    auto plan = TRY(plan_for(bound));
    std::vector<std::vector<double>> seconds(program_.steps.size());
    SymbolValues symbols;
    auto owned = TRY(RunContext::make(device_, threads_));
    RunContext& context = *owned;
    for (int r = -1; r < std::max(runs, 1); ++r) {  // the first warms up
        TRY(context.prepare(plan, layout_, weights_.pointers));
        RunOptions options;
        Run run(*this, context, options);
        TRY(run.begin(bound));
        for (size_t i = 0; i < program_.steps.size(); ++i) {
            const auto began = std::chrono::steady_clock::now();
            TRY(run.step(i));
            TRY(context.stream->synchronize());
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
        const Step& step = program_.steps[i];
        if (auto* kernel = std::get_if<KernelStep>(&step)) {
            p.label = kernel->label;
            p.kind = "kernel";
            for (const Node* node : kernel->nodes) p.nodes.push_back(shown(*node));
            p.flops = static_cast<double>(evaluate_int(kernel->flops, symbols).value_or(0));
            p.bytes = static_cast<double>(evaluate_int(kernel->bytes, symbols).value_or(0));
            p.launches = static_cast<int>(module_->kernels()[kernel->kernel].launches.size());
        } else {
            const Node& node = *node_of(step);
            const std::string_view kind = kind_of(step);
            p.label = fmt::format("{}{} {}",
                                  kind == "check"   ? "check "
                                  : kind == "sizes" ? "sizes of "
                                                    : "",
                                  node.op().name, shown(node));
            p.kind = kind == "control" ? "control" : "host";
            p.nodes.push_back(shown(node));
        }
        profiles.push_back(std::move(p));
    }
    return profiles;
}

}  // namespace tessera
