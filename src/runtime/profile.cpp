#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/thread_trace.h"
#include "graph/count.h"
#include "graph/evaluate/bind_inputs.h"
#include "runtime/run.h"

namespace tessera {
namespace {

double median(std::vector<double> times) {
    auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

}  // namespace

Result<std::unique_ptr<RunsOnDevice>> LoadedProgram::on_device(const NamedData& inputs) const {
    TRY(check_places(inputs, device_.gpu()));
    std::vector<Datum> bound = TRY(bind_inputs(*program_.graph, inputs));
    auto plan = TRY(plan_for(bound));
    auto made = std::make_unique<RunsOnDevice>(TRY(take_context()), *memory_);
    RunContext& context = *made->context_;
    TRY(prepare(context, std::move(plan)));
    const RunOptions options;
    Run run(*this, context, options);
    TRY(run.begin(bound));
    context.replay->ran = true;  // so that it is captured at once
    if (!TRY(run.replay()))
        return Error(Code::E0501, "runs cannot be timed on {} alone", device_.name())
            .hint("this needs a GPU, and a model without host steps");
    TRY(context.stream->synchronize());
    return made;
}

Result<double> RunsOnDevice::seconds(int runs) {
    runs = std::max(runs, 1);
    Stream& stream = *context_->stream;
    const auto began = TRY(stream.record(true));
    for (int r = 0; r < runs; ++r) TRY(stream.replay(*context_->replay->recording));
    const auto ended = TRY(stream.record(true));
    TRY(ended->wait());
    return TRY(ended->seconds_since(*began)) / runs;
}

namespace {

using Clock = std::chrono::steady_clock;

// The steps of one run: when each began and ended, and which threads worked on it.
struct Timeline {
    struct Entry {
        Clock::time_point begin, end;
        std::vector<Worked> threads;
    };
    std::vector<Entry> steps;
    double seconds = 0;
};

double since(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

// Of those that were kept, the one that took about as long as half of them.
const Timeline& typical(const std::vector<Timeline>& kept) {
    std::vector<double> totals;
    for (const Timeline& t : kept) totals.push_back(t.seconds);
    const double middle = median(totals);
    return *std::min_element(kept.begin(), kept.end(), [&](const Timeline& a, const Timeline& b) {
        return std::abs(a.seconds - middle) < std::abs(b.seconds - middle);
    });
}

void place_in_time(const Timeline& line, size_t i, StepProfile& p) {
    const auto began = line.steps.front().begin;
    const Timeline::Entry& entry = line.steps[i];
    p.begin = since(began, entry.begin);
    p.end = since(began, entry.end);
    for (const Worked& w : entry.threads) p.threads.push_back({w.thread, since(began, w.begin), since(began, w.end)});
    if (p.threads.empty()) p.threads.push_back({0, p.begin, p.end});  // no pool was asked
}

}  // namespace

void LoadedProgram::describe_values(const Step& step, StepProfile& p) const {
    auto name = [&](int buffer) -> std::optional<std::string> {
        if (buffer < 0) return {};
        const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(buffer)]);
        const ProgramBuffer& b = program_.buffers[root];
        if (b.role == BufferRole::Constant || b.role == BufferRole::Prepared) return {};
        return b.name.empty() ? fmt::format("buffer {}", root) : b.name;
    };
    auto add = [](std::vector<std::string>& list, std::optional<std::string> value) {
        if (value && std::find(list.begin(), list.end(), *value) == list.end()) list.push_back(std::move(*value));
    };
    if (auto* kernel = std::get_if<KernelStep>(&step)) {
        const KernelAccess& access = layout_.access[kernel->kernel];
        for (size_t k = 0; k < kernel->args.size(); ++k) {
            if (access.writes[k])
                add(p.writes, name(kernel->args[k]));
            else if (access.reads[k])
                add(p.reads, name(kernel->args[k]));
        }
        return;
    }
    for (int buffer : inputs_of(step)) add(p.reads, name(buffer));
    for (int buffer : values_made(step)) add(p.writes, name(buffer));
    if (const auto* copy = std::get_if<CopyStep>(&step)) add(p.writes, name(copy->to));
    if (const auto* own = std::get_if<DeviceStep>(&step))
        for (int buffer : own->outputs) add(p.writes, name(buffer));
}

StepProfile LoadedProgram::describe_step(const Step& step, const SymbolValues& symbols) const {
    StepProfile p;
    describe_values(step, p);
    if (auto* kernel = std::get_if<KernelStep>(&step)) {
        p.label = kernel->label;
        p.kind = "kernel";
        int64_t most = 0;
        for (const Node* node : kernel->nodes) {
            p.nodes.push_back(shown(*node));
            p.ops.push_back(node->op().name);
            const int64_t flops = evaluate_int(count(*node).flops, symbols).value_or(0);
            if (flops <= most || node->inputs().empty() || !node->inputs()[0]->type().is_tensor()) continue;
            most = flops;
            p.dtype = dtype_name(node->inputs()[0]->type().tensor().dtype);
        }
        p.flops = static_cast<double>(evaluate_int(kernel->flops, symbols).value_or(0));
        p.bytes = static_cast<double>(evaluate_int(kernel->bytes, symbols).value_or(0));
        p.launches = static_cast<int>(module_->kernels()[kernel->kernel].launches.size());
        return p;
    }
    const Node& node = *node_of(step);
    const std::string_view kind = kind_of(step);
    p.label = fmt::format("{}{} {}",
                          kind == "check"   ? "check "
                          : kind == "sizes" ? "sizes of "
                          : kind == "copy"  ? "copy for "
                                            : "",
                          node.op().name, shown(node));
    const bool as_said = kind == "control" || kind == "copy" || kind == "device";
    p.kind = as_said ? kind : "host";
    p.nodes.push_back(shown(node));
    p.ops.push_back(node.op().name);
    return p;
}

Result<std::vector<StepProfile>> LoadedProgram::profile(const NamedData& inputs, int runs) const {
    constexpr size_t kMostKept = 100;  // timelines
    TRY(check_places(inputs, device_.gpu()));
    std::vector<Datum> bound = TRY(bind_inputs(*program_.graph, inputs));
    auto plan = TRY(plan_for(bound));
    std::vector<std::vector<double>> seconds(program_.steps.size());
    std::vector<Timeline> kept;
    ThreadTrace trace;
    SymbolValues symbols;
    auto owned = TRY(RunContext::make(device_, threads_));
    RunContext& context = *owned;
    for (int r = -1; r < std::max(runs, 1); ++r) {  // the first warms up
        TRY(prepare(context, plan));
        RunOptions options;
        Run run(*this, context, options);
        TRY(run.begin(bound));
        Timeline line;
        for (size_t i = 0; i < program_.steps.size(); ++i) {
            trace.take();
            const bool own_clock = !device_.shares_memory() && std::holds_alternative<KernelStep>(program_.steps[i]);
            std::shared_ptr<const Event> launched, done;
            const auto began = Clock::now();
            if (own_clock) launched = TRY(context.stream->record(true));
            TRY(run.step(i));
            if (own_clock) done = TRY(context.stream->record(true));
            TRY(run.finish(i));
            const auto ended = Clock::now();
            if (r < 0) continue;
            seconds[i].push_back(own_clock ? TRY(done->seconds_since(*launched)) : since(began, ended));
            line.seconds += seconds[i].back();
            if (kept.size() < kMostKept) line.steps.push_back({began, ended, trace.take()});
        }
        if (r >= 0 && kept.size() < kMostKept) kept.push_back(std::move(line));
        symbols = context.symbols;
        context.clear();
    }
    std::vector<StepProfile> profiles;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        StepProfile p = describe_step(program_.steps[i], symbols);
        p.seconds = median(std::move(seconds[i]));
        if (device_.shares_memory()) place_in_time(typical(kept), i, p);
        profiles.push_back(std::move(p));
    }
    return profiles;
}

}  // namespace tessera
