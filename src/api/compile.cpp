// The table of contents: from a model to machine code that runs, each step by name.
#include "tessera/compile.h"

#include <malloc.h>

#include <chrono>
#include <limits>
#include <set>

#include "api/executable_state.h"
#include "api/relax.h"
#include "api/specialised.h"
#include "api/stages.h"
#include "backends/backend.h"
#include "base/cancel_scope.h"
#include "base/protect.h"
#include "base/usable_cores.h"
#include "kernel/from_graph/from_graph.h"
#include "llvm/compile_kernels.h"
#include "onnx/file.h"
#include "rewrite/fix_sizes.h"
#include "runtime/cached_code.h"
#include "runtime/loaded_program.h"
#include "runtime/model_key.h"
#include "runtime/stored_program.h"
#include "runtime/target_key.h"

namespace tessera {
namespace {

// Names and times the phases of a compilation.
class Phases {
  public:
    Phases(const CompileOptions& options, CompileReport& report) : progress_(options.progress), report_(report) {}
    template <typename F>
    auto run(std::string name, F&& f) {
        if (progress_) progress_(name, report_.phases.size(), kCount);
        const auto began = std::chrono::steady_clock::now();
        auto result = f();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        report_.phases.emplace_back(std::move(name), took.count());
        return result;
    }

  private:
    static constexpr size_t kCount = 7;
    std::function<void(std::string_view, size_t, size_t)> progress_;
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
std::string program_key(const std::string& model, const CompileOptions& options, const LowerOptions& lower,
                        const CodegenOptions& codegen) {
    std::vector<std::string> parts = machine_parts(codegen);
    parts.push_back(fmt::format("{} {} {} {} {} {}", options.precision, options.optimize, lower.threads, lower.fuse,
                                lower.schedule, lower.baseline));
    parts.push_back(model);
    return code_key(parts);
}

// The program and its code: read, and not needed again but for people.
void release_header_pages(const ProgramEntry& entry) {
    onnx::MappedFile::release_pages(entry.program.data(), entry.program.size() + entry.code.size());
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
        release_header_pages(*entry);
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
    release_header_pages(*entry);
    return entry;
}

// What only compiling needed goes back to the system.
void let_go_of_memory() {
    let_go_of_compiler();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
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

// Where sizes decide how the model goes on, or what another device can take, it is compiled again for those that come.
void keep_for_sizes(const Model& model, const CompileOptions& options, bool offloads, Executable::State& state) {
    const CompileReport& report = state.report;
    if (report.deciding.empty() || (report.host_steps == 0 && !offloads)) return;
    const size_t general = offloads ? std::numeric_limits<size_t>::max() : report.host_steps;
    state.specialised = std::make_unique<Specialised>(model, options, report.deciding, general);
    state.origin = model;
}

std::vector<std::string> symbols_of_inputs(const Graph& graph) {
    std::set<std::string> names;
    for (const SizeSource& source : size_sources(graph))
        for (const std::string& name : free_symbols(source.size)) names.insert(name);
    return {names.begin(), names.end()};
}

// Constants of a graph that lie in mapped files, by place alone: whoever has the file decides whether it stays mapped.
std::vector<std::pair<const void*, size_t>> places_of_constants(const Graph& graph) {
    std::vector<std::pair<const void*, size_t>> places;
    for (const auto& v : graph.constants())
        places.emplace_back(v->tensor()->data(), static_cast<size_t>(v->tensor()->bytes()));
    return places;
}

// One program of a model. With the tier "fast" a baseline: plain schedules, and LLVM's cheapest code.
class Compilation {
  public:
    static Result<Compilation> begin(const Model& model, const CompileOptions& given) {
        Compilation c(given);
        if (given.threads < 0)
            return Error(Code::E0501, "threads: expected a number of at least 0, got {}", given.threads);
        c.offloading_ =
            TRY(TRY(find_backend(given.target))->offloading(given.target, {.virtual_threads = given.virtual_threads}));
        if (c.offloading_) c.options_.target = "host";
        if (Device& chosen = *TRY(device_for(c.options_.target)); !chosen.shares_memory()) {
            c.device_ = &chosen;
            c.options_.target = chosen.target();
        }
        Executable::State& state = *c.state_;
        state.options = given;
        state.options.progress = {};
        state.options.after = {};
        state.options.cancel = nullptr;
        if (!model.strict() && (can_be_contradicted(model) || has_dynamic_pools(model.graph()))) state.model = model;
        state.source = model.graph().info().source;
        state.inputs = model.inputs();
        state.outputs = model.outputs();
        c.precision_ = TRY(precision_named(given.precision));
        c.cache_ = TRY(CodeCache::open(given.cache));
        c.here_ = c.device_ || runs_here(c.options_.target);
        c.baseline_ = given.tier == kFast && c.on_processor();
        state.codegen = codegen_options(c.options_, c.precision_);
        state.report.tier = c.baseline_ ? kFast : kFull;
        c.lower_ = TRY(lower_options(c.options_, c.precision_, chosen_threads(given)));
        c.lower_.offloading = c.offloading_;
        if (c.baseline_) make_baseline(c.lower_, state.codegen);
        c.load_ = {.threads = c.lower_.threads,
                   .keep_constants = given.keep_weights,
                   .device = c.device_,
                   .memory = given.memory};
        return c;
    }

    bool offloads() const { return offloading_ != nullptr; }
    bool on_processor() const { return here_ && !device_; }  // of this machine
    bool keeps() const {
        return on_processor() && !offloading_ && cache_.enabled() && !options_.keep_weights && !options_.after;
    }
    std::shared_ptr<Executable::State> state() const { return state_; }

    // The program that the cache has.
    std::optional<Executable> find(const Model& model) {
        if (!keeps()) return {};
        Executable::State& state = *state_;
        key_ = phases_.run("look it up", [&] {
            state.source_key = model_key(model.graph());
            return program_key(state.source_key, options_, lower_, state.codegen);
        });
        auto found = phases_.run("load", [&] { return find_program(cache_, key_, model, state.codegen, load_); });
        if (!found) return {};
        found->report.from_cache = true;
        found->report.phases = std::move(state.report.phases);
        found->report.tier = state.report.tier;
        state.report = std::move(found->report);
        state.loaded = std::move(found->loaded);
        state.entry = std::move(found->entry);
        keep_for_sizes(model, state.options, offloads(), state);
        let_go_of_memory();
        return Executable(state_);
    }

    // `own` goes before weights are prepared, where the executable has no use for it: then the program alone has them,
    // and they go as they are packed.
    Result<Executable> make(std::optional<Model>& own) {
        const Model& model = *own;
        Executable::State& state = *state_;
        TRY(go_on());
        auto graph = TRY(phases_.run("rewrite", [&] { return rewritten(model.graph(), precision_, options_); }));
        if (options_.specialise)
            state.report.deciding = offloads() ? symbols_of_inputs(*graph) : deciding_sizes(*graph);
        TRY(go_on());
        Program program = TRY(phases_.run("lower", [&] { return from_graph(std::move(graph), lower_); }));
        describe(program, state.report);
        if (!here_) {
            state.foreign = std::move(program);
            state.origin = model;
            return Executable(state_);
        }
        TRY(go_on());
        auto module = TRY(phases_.run(
            "generate code", [&] { return machine_code(program.kernels, state.codegen, cache_, state.report); }));
        if (device_) module = TRY(phases_.run("load it", [&] { return device_->load(module); }));
        let_go_of_memory();  // before the weights take theirs
        TRY(go_on());
        return load(std::move(program), std::move(module), own);
    }

  private:
    explicit Compilation(const CompileOptions& given)
        : options_(given), state_(std::make_shared<Executable::State>()), phases_(options_, state_->report) {}

    static Status go_on() {
        if (CancelScope::cancelled()) return Error(Code::E0410, "compiling was cancelled");
        return {};
    }

    Result<Executable> load(Program program, std::shared_ptr<CompiledModule> module, std::optional<Model>& own) {
        Executable::State& state = *state_;
        const Decision storable = device_ ? no("it is a device's") : can_store(program);
        if (storable)
            state.packed = pack_program(program, state.report);
        else
            state.origin = *own;
        keep_for_sizes(*own, state.options, offloads(), state);
        const auto read_by_rewriting = places_of_constants(own->graph());
        own.reset();
        state.loaded = TRY(phases_.run(
            "prepare weights", [&] { return LoadedProgram::load(std::move(program), std::move(module), load_); }));
        if (storable && !key_.empty()) {
            state.entry = phases_.run(
                "keep it", [&] { return keep_program(cache_, key_, state.packed, *state.loaded, state.report); });
            if (state.entry) state.packed = {};
        } else if (!key_.empty()) {
            state.report.decisions.emplace_back("keep the program", "no: " + storable.reason());
        }
        let_go_of_memory();
        for (const auto& [data, bytes] : read_by_rewriting)  // a run reads its own
            onnx::MappedFile::release_pages(data, bytes);
        return Executable(state_);
    }

    CompileOptions options_;
    std::shared_ptr<Executable::State> state_;
    Phases phases_;                                 // of the state's report
    Device* device_ = nullptr;                      // other than the processor
    std::shared_ptr<const Offloading> offloading_;  // what another device computes beside the processor
    bool here_ = false, baseline_ = false;
    Precision precision_ = Precision::Default;
    CodeCache cache_{{}, 0};
    LowerOptions lower_;
    LoadOptions load_;
    std::string key_;  // in the cache
};

Result<Executable> compile_once(std::optional<Model>& own, const CompileOptions& options) {
    Compilation compilation = TRY(Compilation::begin(*own, options));
    if (auto found = compilation.find(*own)) return std::move(*found);
    return compilation.make(own);
}

// Optimized code that the cache has; otherwise a baseline, which answers until a thread has compiled optimized code.
Result<Executable> compile_in_tiers(std::optional<Model>& own, const CompileOptions& options) {
    Compilation full = TRY(Compilation::begin(*own, options));
    if (auto found = full.find(*own)) return std::move(*found);
    const bool strict = options.precision == name_of(Precision::Strict);  // the same bits at every run
    if (!full.on_processor() || full.offloads() || strict || options.after) return full.make(own);
    CompileOptions fast = options;
    fast.tier = kFast;
    fast.cache = "";
    Compilation baseline = TRY(Compilation::begin(*own, fast));
    const Model model = *own;
    Executable made = TRY(baseline.make(own));
    CompileOptions then = options;
    then.progress = {};
    then.cancel = nullptr;
    baseline.state()->optimizing = BackgroundCompile::start([model, then](const std::atomic<bool>& cancelled) {
        const CancelScope scope(&cancelled);
        std::optional<Model> another = model;
        return compile_once(another, then);
    });
    return made;
}

}  // namespace

Result<Executable> compile_model(std::optional<Model>& own, const CompileOptions& options) {
    if (options.tier != kFull && options.tier != kFast && options.tier != kAuto)
        return Error(Code::E0501, "there is no tier \"{}\"", options.tier).hint("there are: full, fast, auto");
    const CancelScope scope(options.cancel ? options.cancel : CancelScope::current());
    return options.tier == kAuto ? compile_in_tiers(own, options) : compile_once(own, options);
}

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
    std::vector<std::string> targets;
    for (const Backend* b : backends())
        for (std::string& name : b->targets()) targets.push_back(std::move(name));
    return targets;
}

}  // namespace tessera
