// What an executable can be asked for, by the program that answers: see executable_state.h.
#include "api/executable_state.h"
#include "api/relax.h"
#include "backends/backend.h"
#include "llvm/targets/target.h"
#include "rewrite/fix_sizes.h"

namespace tessera {
namespace {

void gather_stages(const Program& program, std::vector<KernelStages>& all) {
    all.insert(all.end(), program.stages.begin(), program.stages.end());
    for (const NestedProgram& n : program.nested) gather_stages(*n.program, all);
}

// The code of each part that another device runs.
void gather_device_code(const Program& program, std::string& text) {
    for (const Step& step : program.steps)
        if (const auto* own = std::get_if<DeviceStep>(&step)) text += own->code->text();
    for (const NestedProgram& n : program.nested) gather_device_code(*n.program, text);
}

void gather_device_profiles(const Program& program, std::vector<DeviceProfile>& all) {
    for (const Step& step : program.steps) {
        const auto* own = std::get_if<DeviceStep>(&step);
        if (!own) continue;
        if (auto found = own->code->profile()) {
            found->name = own->node->name();
            all.push_back(std::move(*found));
        }
    }
    for (const NestedProgram& n : program.nested) gather_device_profiles(*n.program, all);
}

}  // namespace

// The i-th of those that fit more and more sizes: first with the names apart that these inputs tell apart, at last with
// all of them.
Result<Executable> Executable::State::relaxed_for(size_t i, const NamedData& inputs) {
    const std::lock_guard lock(mutex);
    if (i == relaxed.size()) {
        const Graph& last = i == 0 ? *model->loaded() : *relaxed.back().graph;
        std::shared_ptr<Graph> graph = TRY(tessera::relaxed(last, inputs, i + 1 == kMostRelaxed));
        std::optional<Model> own = Model(graph);
        Executable made = TRY(compile_model(own, options));
        relaxed.push_back({std::move(graph), std::move(made)});
    }
    return relaxed[i].executable;
}

std::vector<Sizes> Executable::State::sizes_of_inputs(const NamedData& given) const {
    std::vector<Sizes> sizes;
    for (const Port& port : inputs)
        if (auto at = given.find(port.name); at != given.end() && at->second.is_tensor())
            sizes.push_back(at->second.tensor().sizes());
    return sizes;
}

Result<Executable> Executable::State::fixed_for(const NamedData& given) {
    std::vector<Sizes> sizes = sizes_of_inputs(given);
    const std::lock_guard lock(mutex);
    for (const Fixed& f : fixed)
        if (f.sizes == sizes) return f.executable;
    std::optional<Model> own = Model(TRY(for_sizes_of(*model->loaded(), given)));
    Executable made = TRY(compile_model(own, options));
    if (fixed.size() == kMostFixed) fixed.erase(fixed.begin());
    fixed.push_back({std::move(sizes), made});
    return made;
}

std::optional<Executable::State::Settled> Executable::State::settled_for(const NamedData& given) {
    if (!any_settled) return {};
    const std::vector<Sizes> sizes = sizes_of_inputs(given);
    const std::lock_guard lock(mutex);
    for (const Settled& s : settled)
        if (s.sizes == sizes) return s;
    return {};
}

void Executable::State::settle(const NamedData& given, const Executable& executable, std::optional<Warning> warning) {
    std::vector<Sizes> sizes = sizes_of_inputs(given);
    const std::lock_guard lock(mutex);
    std::erase_if(settled, [&](const Settled& s) { return s.sizes == sizes; });
    if (settled.size() == kMostSettled) settled.erase(settled.begin());
    settled.push_back({std::move(sizes), executable, std::move(warning)});
    any_settled = true;
}

// What was compiled for other sizes answers, or is compiled now: for more and more sizes, at last for these alone.
// `because` where that does not help.
Result<std::vector<Datum>> Executable::State::run_relaxed(const NamedData& inputs, const RunOptions& run_options,
                                                          const Error& because) {
    for (size_t i = 0; i < kMostRelaxed && can_be_contradicted(*model); ++i) {
        auto next = relaxed_for(i, inputs);
        if (!next.ok()) break;
        const Loaded program = TRY(next->state_->here(inputs));
        auto results = program->run(inputs, run_options);
        if (!results.ok() && contradicts_sizes(results.error())) continue;
        if (!results.ok()) return results;
        settle(inputs, *next, warning_of_run(because));
        if (run_options.warnings) run_options.warnings->push_back(warning_of_run(because));
        return results;
    }
    auto last = fixed_for(inputs);
    if (!last.ok()) return because;
    const Loaded program = TRY(last->state_->here(inputs));
    auto results = program->run(inputs, run_options);
    if (results.ok()) settle(inputs, *last, {});
    return results.ok() || !contradicts_sizes(results.error()) ? std::move(results) : because;
}

Result<std::vector<Datum>> Executable::run(const NamedData& inputs, const RunOptions& options) const {
    State& s = state_->now();
    return protect("run", s.reproducer(), [&]() -> Result<std::vector<Datum>> {
        if (const auto known = s.settled_for(inputs)) {
            const State::Loaded program = TRY(known->executable.state_->here(inputs));
            auto results = program->run(inputs, options);
            if (results.ok() && known->warning && options.warnings) options.warnings->push_back(*known->warning);
            if (results.ok() || !contradicts_sizes(results.error())) return results;
        }
        const State::Loaded program = TRY(s.here(inputs));
        auto results = program->run(inputs, options);
        if (results.ok() || !s.model || !contradicts_sizes(results.error())) return results;
        return s.run_relaxed(inputs, options, results.error());
    });
}
Result<std::vector<Datum>> Executable::run_in_order(const std::vector<Datum>& inputs, const RunOptions& options) const {
    State& s = state_->now();
    const State::Loaded program = s.specialised || s.any_settled ? nullptr : s.running();
    if (program && program->takes(s.inputs, inputs.size())) {
        auto results = protect("run", s.reproducer(), [&] { return program->run_in_order(inputs, options); });
        if (results.ok() || !s.model || !contradicts_sizes(results.error())) return results;
    }
    NamedData named;
    for (size_t i = 0; i < std::min(inputs.size(), s.inputs.size()); ++i) named.emplace(s.inputs[i].name, inputs[i]);
    return run(named, options);
}
Result<std::vector<StepProfile>> Executable::profile(const NamedData& inputs, int runs) const {
    State& s = *TRY(state_->optimized());
    return protect("profile", s.reproducer(), [&]() -> Result<std::vector<StepProfile>> {
        auto profile_settled = [&]() -> Result<std::optional<std::vector<StepProfile>>> {
            const auto known = s.settled_for(inputs);
            if (!known) return std::optional<std::vector<StepProfile>>();
            const State::Loaded program = TRY(known->executable.state_->here(inputs));
            return std::optional(TRY(program->profile(inputs, runs)));
        };
        if (auto steps = TRY(profile_settled())) return std::move(*steps);
        const State::Loaded program = TRY(s.here(inputs));
        auto steps = program->profile(inputs, runs);
        if (steps.ok() || !s.model || !contradicts_sizes(steps.error())) return steps;
        TRY(s.run_relaxed(inputs, {}, steps.error()));
        if (auto settled = TRY(profile_settled())) return std::move(*settled);
        return steps;
    });
}
struct DeviceRuns::State {
    std::shared_ptr<Executable::State> executable;  // outlives the runs
    std::unique_ptr<RunsOnDevice> runs;
};
Result<DeviceRuns> Executable::on_device(const NamedData& inputs) const {
    auto state = std::make_shared<DeviceRuns::State>();
    state->executable = state_;
    const State::Loaded program = TRY(TRY(state_->optimized())->here(inputs));
    state->runs = TRY(program->on_device(inputs));
    return DeviceRuns(std::move(state));
}
Result<double> DeviceRuns::seconds(int runs) const { return state_->runs->seconds(runs); }
Result<double> Executable::seconds_on_device(const NamedData& inputs, int runs) const {
    return TRY(on_device(inputs)).seconds(runs);
}
Result<std::vector<std::pair<std::string, double>>> Executable::check(const NamedData& inputs) const {
    State& s = *TRY(state_->optimized());
    return protect("check", s.reproducer(), [&]() -> Result<std::vector<std::pair<std::string, double>>> {
        const State::Loaded program = TRY(s.here(inputs));
        return program->check(inputs);
    });
}

Status Executable::wait() const {
    TRY(state_->optimized());
    return {};
}
std::vector<Port> Executable::inputs() const { return state_->inputs; }
std::vector<Port> Executable::outputs() const { return state_->outputs; }
const CompileReport& Executable::report() const { return state_->now().report; }
const std::string& Executable::target() const { return state_->options.target; }
int Executable::gpu() const {
    const State::Loaded program = state_->running();
    return program ? program->gpu() : kNoGpu;
}
int64_t Executable::weight_bytes() const {
    const State::Loaded program = state_->running();
    return program ? program->weight_bytes() : 0;
}
std::optional<int64_t> Executable::arena_bytes(const std::map<std::string, int64_t>& symbols) const {
    const State::Loaded program = state_->running();
    if (!program) return {};
    auto bytes = program->arena_bytes(symbols);
    return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

Result<std::vector<DeviceProfile>> Executable::profile_devices(const NamedData& inputs) const {
    State& s = *TRY(state_->optimized());
    return protect("profile_devices", s.reproducer(), [&]() -> Result<std::vector<DeviceProfile>> {
        std::vector<DeviceProfile> all;
        const State::Loaded program = inputs.empty() ? nullptr : TRY(s.here(inputs));
        gather_device_profiles(program ? program->program() : s.program(), all);
        return all;
    });
}

Result<std::string> Executable::emit(std::string_view what) const {
    State& s = *TRY(state_->optimized());
    return protect("emit", s.reproducer(), [&] { return s.emit(what); });
}

Result<std::string> Executable::State::emit(std::string_view what) const {
    const Program& program = this->program();
    if (what == "llvm") return emit_llvm(TRY(kernels()), codegen);
    const Backend& backend = *TRY(find_backend(codegen.target));
    if (what == "asm" || what == backend.assembly()) return emit_assembly(TRY(kernels()), codegen);
    for (const Backend* other : backends())
        if (what == other->assembly())
            return Error(Code::E0501, "{} has no {}: its code is {}", codegen.target, what, backend.assembly())
                .hint("compile for one of: {}", fmt::join(other->targets(), ", "));
    if (what == "kernel") return print_kernels(TRY(kernels()));
    if (what == "compute" || what == "schedule") {
        std::vector<KernelStages> stages;
        gather_stages(program, stages);
        if (!stages.empty() || program.kernels.empty()) return print_stages(stages, what);
        return Error(Code::E0501, "the stage \"{}\" was not kept", what).hint("compile with keep_weights");
    }
    if (what == "device") {
        std::string text;
        gather_device_code(program, text);
        if (!text.empty()) return text;
        return Error(Code::E0501, "no part of the model runs on another device than {}", codegen.target)
            .hint("tessera compile --explain says why, if the target computes parts of models");
    }
    if (what != "graph" && what != "outline")
        return Error(Code::E0501, "there is no stage \"{}\"", what)
            .hint("the stages are graph, outline, compute, schedule, kernel, llvm, asm, ptx and device");
    if (loaded && !loaded->complete())
        return Error(Code::E0501, "the weights of the graph were released").hint("compile with keep_weights");
    return what == "graph" ? print(*program.graph) : print(*program.graph, {.weights_file = kWeightsLeftOut});
}

}  // namespace tessera
