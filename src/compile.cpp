// The table of contents: from a model to machine code that runs, each step by name.
#include "tessera/compile.h"

#include <malloc.h>

#include <chrono>

#include "base/protect.h"
#include "base/usable_cores.h"
#include "executable_state.h"
#include "graph/text/print.h"
#include "kernel/from_graph/from_graph.h"
#include "llvm/compile_kernels.h"
#include "onnx/file.h"
#include "relax.h"
#include "rewrite/fix_sizes.h"
#include "runtime/cached_code.h"
#include "runtime/loaded_program.h"
#include "runtime/model_key.h"
#include "runtime/stored_program.h"
#include "runtime/target_key.h"
#include "specialised.h"
#include "stages.h"

namespace tessera {
namespace {

// Names and times the phases of a compilation.
class Phases {
  public:
    Phases(const CompileOptions& options, CompileReport& report) : options_(options), report_(report) {}
    template <typename F>
    auto run(std::string name, F&& f) {
        if (options_.progress) options_.progress(name, report_.phases.size(), kCount);
        const auto began = std::chrono::steady_clock::now();
        auto result = f();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        report_.phases.emplace_back(std::move(name), took.count());
        return result;
    }

  private:
    static constexpr size_t kCount = 7;
    const CompileOptions& options_;
    CompileReport& report_;
};

// Of all kernels, with what the report says of it.
Result<std::shared_ptr<CompiledModule>> machine_code(const std::vector<Kernel>& kernels, const CodegenOptions& codegen,
                                                     const CodeCache& cache, CompileReport& report) {
    CachedCode code = TRY(cached_code(kernels, codegen, cache));
    report.from_cache = code.found;
    if (!code.kept.ok()) report.decisions.emplace_back("keep the code", "no: " + code.kept.error().message());
    return std::move(code.module);
}

// All that a compiled program depends on.
std::string program_key(const Model& model, const CompileOptions& options, const LowerOptions& lower,
                        const CodegenOptions& codegen) {
    std::vector<std::string> parts = machine_parts(codegen);
    parts.push_back(
        fmt::format("{} {} {} {} {}", options.precision, options.optimize, lower.threads, lower.fuse, lower.schedule));
    parts.push_back(model_key(model.graph()));
    return code_key(parts);
}

// The program and its code: read, and not needed again but for people.
void let_go_of_head(const ProgramEntry& entry) {
    onnx::MappedFile::let_go_of_pages(entry.program.data(), entry.program.size() + entry.code.size());
}

// A program that was kept, ready to run.
struct Found {
    ProgramEntry entry;
    std::unique_ptr<LoadedProgram> loaded;
    CompileReport report;
};
std::optional<Found> find_program(const CodeCache& cache, const std::string& key, const Model& model,
                                  const CodegenOptions& codegen, const LoadOptions& load) {
    auto entry = cache.find_program(key);
    if (!entry) return {};
    auto restored = [&]() -> Result<Found> {
        StoredProgram stored = TRY(unpack_program(entry->program, model.graph().info().source));
        auto module = TRY(load_object(stored.program.kernels, std::string(entry->code), codegen));
        auto loaded = TRY(
            LoadedProgram::restore(std::move(stored.program), std::move(module), entry->weights, entry->file, load));
        let_go_of_head(*entry);
        return Found{std::move(*entry), std::move(loaded), std::move(stored.report)};
    }();
    if (restored.ok()) return std::move(*restored);
    cache.drop_program(key);
    return {};
}

// Keeps a program, which goes on with the weights that were kept: a file's, and not this process's own.
std::optional<ProgramEntry> keep_program(const CodeCache& cache, const std::string& key, std::string_view packed,
                                         LoadedProgram& loaded, CompileReport& report) {
    auto keep = [&]() -> Status {
        return cache.store_program(key, packed, loaded.module().object(), TRY(loaded.weight_pieces()));
    };
    if (Status kept = keep(); !kept.ok()) {
        report.decisions.emplace_back("keep the program", "no: " + kept.error().message());
        return {};
    }
    auto entry = cache.find_program(key);
    if (!entry || !loaded.read_weights(entry->weights, entry->file).ok()) return {};
    let_go_of_head(*entry);
    return entry;
}

// What only compiling needed goes back to the system.
void let_go_of_memory() {
    let_go_of_compiler();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void gather_stages(const Program& program, std::vector<KernelStages>& all) {
    all.insert(all.end(), program.stages.begin(), program.stages.end());
    for (const NestedProgram& n : program.nested) gather_stages(*n.program, all);
}

// Neither strings, nor sequences, nor optionals.
bool of_numbers(const Node& node) {
    auto numbers = [](const Value* v) {
        return !v || (v->type().is_tensor() && v->type().tensor().dtype != DType::string);
    };
    bool all = std::all_of(node.inputs().begin(), node.inputs().end(), numbers);
    for (size_t i = 0; i < node.output_count(); ++i) all &= numbers(node.output(i));
    return all;
}

void describe(const Program& program, CompileReport& report) {
    report.kernels = program.kernels.size();
    report.steps += program.steps.size();
    describe(program.choices, report);
    for (const Step& step : program.steps)
        if (auto* host = std::get_if<HostStep>(&step)) {
            ++report.host_steps;
            report.host_numbers += of_numbers(*host->node);
            const std::string& name = host->node->name();
            report.host_reasons.emplace_back(name.empty() ? host->node->op().name : name, host->reason);
        }
    for (const NestedProgram& n : program.nested) describe(*n.program, report);
}

// Where sizes decide how the model goes on, it is compiled again for those that come.
void keep_for_sizes(const Model& model, const CompileOptions& options, Executable::State& state) {
    const CompileReport& report = state.report;
    if (report.deciding.empty() || report.host_steps == 0) return;
    state.specialised = std::make_unique<Specialised>(model, options, report.deciding, report.host_steps);
    state.origin = model;
}

}  // namespace

namespace {

// Constants of a graph that lie in mapped files, by place alone: whoever has the file decides whether it stays mapped.
std::vector<std::pair<const void*, size_t>> places_of_constants(const Graph& graph) {
    std::vector<std::pair<const void*, size_t>> places;
    for (const auto& v : graph.constants())
        places.emplace_back(v->tensor()->data(), static_cast<size_t>(v->tensor()->bytes()));
    return places;
}

// `own` goes before weights are prepared, where the executable has no use for it: then the program alone has them, and
// they go as they are packed.
Result<Executable> compile_model(std::optional<Model>& own, const CompileOptions& given) {
    const Model& model = *own;
    CompileOptions options = given;
    Device* device = nullptr;  // other than the processor
    if (Device& chosen = *TRY(device_for(options.target)); !chosen.shares_memory()) {
        device = &chosen;
        options.target = device->target();
    }
    auto state = std::make_shared<Executable::State>();
    state->options = given;
    state->options.progress = {};
    state->options.after = {};
    if (!model.strict() && (can_be_contradicted(model) || has_dynamic_pools(model.graph()))) state->model = model;
    state->inputs = model.inputs();
    state->outputs = model.outputs();
    const Precision precision = TRY(precision_named(options.precision));
    state->codegen = codegen_options(options, precision);
    const CodeCache cache = TRY(CodeCache::open(options.cache));
    const LowerOptions lower = TRY(lower_options(options, precision, chosen_threads(options)));

    Phases phases(options, state->report);
    const bool here = device || runs_here(options.target);
    const LoadOptions load{
        .threads = lower.threads, .keep_constants = options.keep_weights, .device = device, .memory = options.memory};
    std::string key;
    if (here && !device && cache.enabled() && !options.keep_weights && !options.after) {
        key = phases.run("look it up", [&] { return program_key(model, options, lower, state->codegen); });
        auto found = phases.run("load", [&] { return find_program(cache, key, model, state->codegen, load); });
        if (found) {
            found->report.from_cache = true;
            found->report.phases = std::move(state->report.phases);
            state->report = std::move(found->report);
            state->loaded = std::move(found->loaded);
            state->entry = std::move(found->entry);
            keep_for_sizes(model, given, *state);
            let_go_of_memory();
            return Executable(std::move(state));
        }
    }
    auto graph = TRY(phases.run("rewrite", [&] { return rewritten(model.graph(), precision, options); }));
    if (options.specialise) state->report.deciding = deciding_sizes(*graph);
    Program program = TRY(phases.run("lower", [&] { return from_graph(std::move(graph), lower); }));
    describe(program, state->report);
    if (!here) {
        state->foreign = std::move(program);
        state->origin = model;
        return Executable(std::move(state));
    }
    auto module = TRY(phases.run("generate code",
                                 [&] { return machine_code(program.kernels, state->codegen, cache, state->report); }));
    if (device) module = TRY(phases.run("load it", [&] { return device->load(module); }));
    let_go_of_memory();  // before the weights take theirs
    const Decision storable = device ? no("it is a device's") : can_store(program);
    if (storable)
        state->packed = pack_program(program, state->report);
    else
        state->origin = model;
    keep_for_sizes(model, given, *state);
    const auto read_by_rewriting = places_of_constants(model.graph());
    own.reset();
    state->loaded = TRY(phases.run("prepare weights",
                                   [&] { return LoadedProgram::load(std::move(program), std::move(module), load); }));
    if (storable && !key.empty()) {
        state->entry = phases.run(
            "keep it", [&] { return keep_program(cache, key, state->packed, *state->loaded, state->report); });
        if (state->entry) state->packed = {};
    } else if (!key.empty()) {
        state->report.decisions.emplace_back("keep the program", "no: " + storable.reason());
    }
    let_go_of_memory();
    for (const auto& [data, bytes] : read_by_rewriting)  // a run reads its own
        onnx::MappedFile::let_go_of_pages(data, bytes);
    return Executable(std::move(state));
}

}  // namespace

Result<Executable> compile(const Model& model, const CompileOptions& options) {
    std::optional<Model> shared = model;
    return protect("compile", {.text = [&] { return model.to_text(); }},
                   [&] { return compile_model(shared, options); });
}

Result<Executable> compile(Model&& model, const CompileOptions& options) {
    std::optional<Model> own = std::move(model);
    return protect("compile", {.text = [&] { return own ? own->to_text() : "// the model was gone already\n"; }},
                   [&] { return compile_model(own, options); });
}

std::vector<std::string> compile_targets() {
    std::vector<std::string> targets = list_targets();
    targets.insert(targets.begin() + 1, "cuda");
    return targets;
}

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
        auto results = TRY(next->state_->here(inputs))->run(inputs, run_options);
        if (!results.ok() && contradicts_sizes(results.error())) continue;
        if (!results.ok()) return results;
        settle(inputs, *next, warning_of_run(because));
        if (run_options.warnings) run_options.warnings->push_back(warning_of_run(because));
        return results;
    }
    auto last = fixed_for(inputs);
    if (!last.ok()) return because;
    auto results = TRY(last->state_->here(inputs))->run(inputs, run_options);
    if (results.ok()) settle(inputs, *last, {});
    return results.ok() || !contradicts_sizes(results.error()) ? std::move(results) : because;
}

Result<std::vector<Datum>> Executable::run(const NamedData& inputs, const RunOptions& options) const {
    return protect("run", state_->reproducer(), [&]() -> Result<std::vector<Datum>> {
        if (const auto known = state_->settled_for(inputs)) {
            auto results = TRY(known->executable.state_->here(inputs))->run(inputs, options);
            if (results.ok() && known->warning && options.warnings) options.warnings->push_back(*known->warning);
            if (results.ok() || !contradicts_sizes(results.error())) return results;
        }
        auto results = TRY(state_->here(inputs))->run(inputs, options);
        if (results.ok() || !state_->model || !contradicts_sizes(results.error())) return results;
        return state_->run_relaxed(inputs, options, results.error());
    });
}
Result<std::vector<Datum>> Executable::run_in_order(const std::vector<Datum>& inputs, const RunOptions& options) const {
    const State& s = *state_;
    if (s.loaded && !s.specialised && !s.any_settled && s.loaded->takes(s.inputs, inputs.size())) {
        auto results = protect("run", s.reproducer(), [&] { return s.loaded->run_in_order(inputs, options); });
        if (results.ok() || !s.model || !contradicts_sizes(results.error())) return results;
    }
    NamedData named;
    for (size_t i = 0; i < std::min(inputs.size(), s.inputs.size()); ++i) named.emplace(s.inputs[i].name, inputs[i]);
    return run(named, options);
}
Result<std::vector<StepProfile>> Executable::profile(const NamedData& inputs, int runs) const {
    return protect("profile", state_->reproducer(), [&]() -> Result<std::vector<StepProfile>> {
        if (const auto known = state_->settled_for(inputs))
            return TRY(known->executable.state_->here(inputs))->profile(inputs, runs);
        auto steps = TRY(state_->here(inputs))->profile(inputs, runs);
        if (steps.ok() || !state_->model || !contradicts_sizes(steps.error())) return steps;
        TRY(state_->run_relaxed(inputs, {}, steps.error()));
        const auto known = state_->settled_for(inputs);
        return known ? TRY(known->executable.state_->here(inputs))->profile(inputs, runs) : std::move(steps);
    });
}
struct DeviceRuns::State {
    std::shared_ptr<Executable::State> executable;  // outlives the runs
    std::unique_ptr<RunsOnDevice> runs;
};
Result<DeviceRuns> Executable::on_device(const NamedData& inputs) const {
    auto state = std::make_shared<DeviceRuns::State>();
    state->executable = state_;
    state->runs = TRY(TRY(state_->here(inputs))->on_device(inputs));
    return DeviceRuns(std::move(state));
}
Result<double> DeviceRuns::seconds(int runs) const { return state_->runs->seconds(runs); }
Result<double> Executable::seconds_on_device(const NamedData& inputs, int runs) const {
    return TRY(on_device(inputs)).seconds(runs);
}
Result<std::vector<std::pair<std::string, double>>> Executable::check(const NamedData& inputs) const {
    return protect("check", state_->reproducer(), [&]() -> Result<std::vector<std::pair<std::string, double>>> {
        return TRY(state_->here(inputs))->check(inputs);
    });
}

std::vector<Port> Executable::inputs() const { return state_->inputs; }
std::vector<Port> Executable::outputs() const { return state_->outputs; }
const CompileReport& Executable::report() const { return state_->report; }
int Executable::gpu() const { return state_->loaded ? state_->loaded->gpu() : kNoGpu; }
int64_t Executable::weight_bytes() const { return state_->loaded ? state_->loaded->weight_bytes() : 0; }
std::optional<int64_t> Executable::arena_bytes(const std::map<std::string, int64_t>& symbols) const {
    if (!state_->loaded) return {};
    auto bytes = state_->loaded->arena_bytes(symbols);
    return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

Result<std::string> Executable::emit(std::string_view what) const {
    return protect("emit", state_->reproducer(), [&] { return state_->emit(what); });
}

Result<std::string> Executable::State::emit(std::string_view what) const {
    const Program& program = this->program();
    if (what == "llvm") return emit_llvm(TRY(kernels()), codegen);
    if (what == "ptx" && !TRY(describe_target(codegen.target)).blocks)
        return Error(Code::E0501, "{} has no PTX: it is no GPU", codegen.target)
            .hint("compile for cuda, or for one of: sm_80, sm_90, sm_90a");
    if (what == "asm" || what == "ptx") return emit_assembly(TRY(kernels()), codegen);
    if (what == "kernel") return print_kernels(TRY(kernels()));
    if (what == "compute" || what == "schedule") {
        std::vector<KernelStages> stages;
        gather_stages(program, stages);
        if (!stages.empty() || program.kernels.empty()) return print_stages(stages, what);
        return Error(Code::E0501, "the stage \"{}\" was not kept", what).hint("compile with keep_weights");
    }
    if (what != "graph" && what != "outline")
        return Error(Code::E0501, "there is no stage \"{}\"", what)
            .hint("the stages are graph, outline, compute, schedule, kernel, llvm, asm and ptx");
    if (loaded && !loaded->complete())
        return Error(Code::E0501, "the graph has no weights any more").hint("compile with keep_weights");
    return what == "graph" ? print(*program.graph) : print(*program.graph, {.weights_file = kWeightsLeftOut});
}

}  // namespace tessera
