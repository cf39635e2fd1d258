// tessera compile: machine code for a model, its stages, and the decisions of the compiler.
#include "api/kernel_text.h"
#include "base/output_file.h"
#include "given.h"
#include "help.h"
#include "pass_flags.h"
#include "values.h"

namespace tessera::cli {
namespace {

constexpr const char* kCompileExamples =
    "Examples:\n"
    "  tessera compile model.onnx                         number of kernels, time to compile\n"
    "  tessera compile model.onnx --emit=compute | less   what each kernel computes\n"
    "  tessera compile model.onnx --emit=kernel -o k.tsk  the loop nests, as text\n"
    "  tessera compile k.tsk --emit=asm                   compiles these, after you edited them\n"
    "  tessera compile model.onnx --emit=asm -o model.s --target x86_64-avx512\n"
    "  tessera compile model.onnx --dump-dir stages       each stage in its own file\n"
    "  tessera compile model.onnx --explain --time-passes\n"
    "  tessera compile model.onnx --check --dim batch=2   compares each step with the reference\n"
    "  tessera compile model.onnx --print-after choose_winograd\n"
    "  tessera compile model.onnx --emit=bundle -o model  code, header and weights for C programs\n"
    "  tessera compile int8.onnx --target tessel --emit=device  the instructions of an accelerator\n"
    "  tessera compile int8.onnx --target tessel --explain    what it computes, and why not the rest\n"
    "  tessera compile model.onnx --emit=graph --with-weights -o optimized.tsr\n";

constexpr const char* kStages[] = {"graph", "compute", "schedule", "kernel", "llvm", "asm"};
constexpr const char* kSuffixes[] = {".tsr", ".tsc", ".schedule", ".tsk", ".ll", ".s"};
constexpr double kLargestError = 1e-3;  // of a step, relative to the largest value

// The first stage that a file reaches, by its suffix: 0 for a model.
size_t first_stage(const std::string& path) {
    if (path.ends_with(kComputeSuffix)) return 1;
    return path.ends_with(kKernelSuffix) ? 3 : 0;
}

using Emit = std::function<Result<std::string>(std::string_view stage)>;
using CheckedSteps = std::vector<std::pair<std::string, double>>;

struct Compile {
    std::string path, emit, out, dump_dir, name;
    GivenInputs inputs;
    CompileFlags flags;
    PassFlags passes;
    bool time_passes = false, explain = false, check = false, json = false, shared = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()() const;

  private:
    Status check_usage() const;
    Status check_ending() const;
    Status bundle() const;
    Status from_text() const;
    Status write_stages(const Emit& emit_stage) const;
    Status print_stage(const Emit& emit_stage) const;
    Status print_stopped(const Model& model, const CompileOptions& chosen) const;
    Json to_json(const Executable& executable, double seconds, const SymbolValues& sizes,
                 const std::optional<CheckedSteps>& checked) const;
    void show(const Executable& executable, double seconds, const SymbolValues& sizes,
              const std::optional<CheckedSteps>& checked) const;
    void show_rest(const CompileReport& report) const;
    void add_rest(Json& json, const CompileReport& report) const;
};

// Endings that say what else a file is.
constexpr const char* kOtherEndings[] = {".onnx", ".npy", ".pb", ".html", ".json", ".rules", ".o", ".so", ".a"};

Status Compile::check_ending() const {
    std::vector<std::string> others(std::begin(kOtherEndings), std::end(kOtherEndings));
    std::string own = emit == "ptx" ? ".ptx" : emit == "device" ? ".txt" : "";
    for (size_t i = 0; i < std::size(kStages); ++i) {
        if (emit == kStages[i]) own = kSuffixes[i];
        if (emit != kStages[i] && emit != "ptx" && emit != "device") others.push_back(kSuffixes[i]);
    }
    const std::string ending = std::filesystem::path(out).extension().string();
    if (std::find(others.begin(), others.end(), ending) == others.end()) return {};
    if (own.empty())
        return Error(Code::E0501, "-o {}: --emit={} makes a folder", out, emit).hint("name it without {}", ending);
    Error wrong(Code::E0501, "-o {}: --emit={} writes text, not a {} file", out, emit, ending);
    if (emit == "graph" && ending == ".onnx") return std::move(wrong).hint("tessera optimize -o FILE.onnx writes ONNX");
    return std::move(wrong).hint("end it in {}", own);
}

Status Compile::check_usage() const {
    TRY(inputs.check_files());
    if (!out.empty() && emit.empty()) {
        Error error(Code::E0501, "-o {} needs --emit, which says what to write", out);
        if (!out.ends_with(".tessera")) return std::move(error).hint("for example --emit=asm");
        return std::move(error).hint(
            "the interfaces of Python, C++ and C save compiled models (Executable.save); --emit=bundle writes one for "
            "C");
    }
    if (!out.empty()) TRY(check_ending());
    if (out.empty() && !emit.empty() && json)
        return Error(Code::E0501, "--emit and --json both write to standard output").hint("give --emit a file with -o");
    if (emit == "bundle" && out.empty()) return Error(Code::E0501, "--emit=bundle needs -o FOLDER");
    if (emit == "bundle" && (check || !dump_dir.empty()))
        return Error(Code::E0501, "--emit=bundle does nothing but write a bundle")
            .hint("leave --check and --dump-dir out");
    if (emit != "bundle" && (shared || !name.empty()))
        return Error(Code::E0501, "--name and --shared are options of --emit=bundle");
    if (!passes.stop_after.empty() && ((!emit.empty() && emit != "graph") || check || json || !dump_dir.empty()))
        return Error(Code::E0501, "after --stop-after {} there is only a graph", passes.stop_after)
            .hint("leave --check, --dump-dir, --json and other stages than --emit=graph out");
    const size_t first = first_stage(path);
    if (first == 0) return {};
    const std::string_view held = first == 1 ? "computes" : "kernels";
    if (check || flags.search > 0 || !inputs.files.empty() || !inputs.dims.empty())
        return Error(Code::E0501, "{} holds {}, not a model", path, held)
            .hint("leave out --check, --search, --input and --dim, which are for models");
    const auto asked =
        std::find(std::begin(kStages), std::end(kStages), emit == "ptx" ? "asm" : emit) - std::begin(kStages);
    if (emit == "bundle" || emit == "device" || static_cast<size_t>(asked) < first)
        return Error(Code::E0501, "--emit={} precedes the stage of the input: {} holds {}", emit, path, held)
            .hint("the later stages are: {}", fmt::join(std::begin(kStages) + first, std::end(kStages), ", "));
    return {};
}

// ---- what is printed

std::vector<std::string> grouped_reasons(const CompileReport& report) {
    std::map<std::string, int> groups;
    for (const auto& [node, why] : report.host_reasons) ++groups[why];
    std::vector<std::string> lines;
    for (const auto& [why, n] : groups) lines.push_back(fmt::format("{} x  {}", n, why));
    return lines;
}

void Compile::show(const Executable& executable, double seconds, const SymbolValues& sizes,
                   const std::optional<CheckedSteps>& checked) const {
    const CompileReport& r = executable.report();
    fmt::print("{}\n", bold(shown_path(path)));
    fmt::print("  kernels      {}, in {} and the preparation of weights", r.kernels, plural(double(r.steps), "step"));
    if (r.host_steps) fmt::print(", {} left to the reference", plural(double(r.host_steps), "step"));
    fmt::print("\n  weights      {}\n", human_bytes(double(executable.weight_bytes())));
    if (auto n = executable.arena_bytes(sizes)) fmt::print("  arena        {}\n", human_bytes(double(*n)));
    fmt::print("  compiled in  {}{}\n", human_seconds(seconds), r.from_cache ? ", from the cache" : "");
    for (const std::string& line : grouped_reasons(r)) fmt::print("  reference    {}\n", escaped(line));
    if (!r.deciding.empty())
        fmt::print("  decided by   {}: the first run with other sizes of these recompiles\n",
                   escaped(fmt::format("{}", fmt::join(r.deciding, ", "))));
    if (checked) {
        double most = 0;
        for (const auto& [step, error] : *checked) most = std::max(most, error);
        fmt::print("  checked      {}, largest relative error {:.2g}\n", plural(double(checked->size()), "step"), most);
    }
    if (time_passes) {
        fmt::print("{}\n", bold("phases"));
        for (const auto& [name, s] : r.phases) fmt::print("  {:<24} {:>10}\n", name, human_seconds(s));
    }
    show_rest(r);
}

void Compile::show_rest(const CompileReport& r) const {
    if (explain) {
        fmt::print("{}\n", bold("decisions"));
        for (const auto& [what, why] : r.decisions) fmt::print("  {}\n      {}\n", escaped(what), escaped(why));
        if (!r.host_reasons.empty()) fmt::print("{}\n", bold("left to the reference"));
        for (const auto& [node, why] : r.host_reasons) fmt::print("  {}\n      {}\n", escaped(node), escaped(why));
    }
    if (!out.empty()) fmt::print("  written to {}\n", escaped(out));
    if (!dump_dir.empty()) fmt::print("  every stage is in {}\n", escaped(dump_dir));
}

Json Compile::to_json(const Executable& executable, double seconds, const SymbolValues& sizes,
                      const std::optional<CheckedSteps>& checked) const {
    const CompileReport& r = executable.report();
    Json j{{"model", path.empty() ? "resnet50" : path}, {"target", flags.options.target}};
    j["kernels"] = r.kernels;
    j["steps"] = r.steps;
    j["host_steps"] = r.host_steps;
    j["weight_bytes"] = executable.weight_bytes();
    if (auto n = executable.arena_bytes(sizes)) j["arena_bytes"] = *n;
    j["seconds"] = seconds;
    j["from_cache"] = r.from_cache;
    j["deciding"] = r.deciding;
    j["phases"] = Json::array();
    for (const auto& [name, s] : r.phases) j["phases"].push_back({{"phase", name}, {"seconds", s}});
    j["host_reasons"] = Json::array();
    for (const auto& [node, why] : r.host_reasons) j["host_reasons"].push_back({{"node", node}, {"why", why}});
    if (checked) {
        j["check"] = Json::array();
        for (const auto& [step, error] : *checked) j["check"].push_back({{"step", step}, {"error", error}});
    }
    add_rest(j, r);
    return j;
}

void Compile::add_rest(Json& j, const CompileReport& r) const {
    if (explain) {
        j["decisions"] = Json::array();
        for (const auto& [what, why] : r.decisions) j["decisions"].push_back({{"what", what}, {"why", why}});
    }
    if (!out.empty()) j["to"] = out;
    if (!dump_dir.empty()) j["dump_dir"] = dump_dir;
}

// ---- the command

Status Compile::write_stages(const Emit& emit_stage) const {
    if (!out.empty()) {
        std::string text = TRY(emit_stage(emit));
        TRY(write_file(out, text));
    }
    if (dump_dir.empty()) return {};
    std::error_code error;
    std::filesystem::create_directories(dump_dir, error);
    if (error) return Error(Code::E0105, "cannot make the folder \"{}\": {}", dump_dir, error.message());
    std::string stem = path.empty() ? "resnet50" : path == "-" ? "model" : std::filesystem::path(path).stem().string();
    for (size_t i = first_stage(path); i < std::size(kStages); ++i) {
        std::string text = TRY(emit_stage(kStages[i]));
        TRY(write_file(std::filesystem::path(dump_dir) / (stem + kSuffixes[i]), text));
    }
    return {};
}

Status Compile::print_stage(const Emit& emit_stage) const {
    std::string text = TRY(emit_stage(emit));
    fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
    return {};
}

// From computes or kernels on.
Status Compile::from_text() const {
    CompileOptions chosen = TRY(flags.chosen());
    Stopwatch compiling;
    TextStages made = TRY(compile_text(path, chosen));
    if (emit.empty()) TRY(emit_object(made.kernels, made.codegen));
    double seconds = compiling.seconds();
    Emit emit_stage = [&](std::string_view stage) { return made.emit(stage); };
    TRY(write_stages(emit_stage));
    if (!emit.empty() && out.empty()) return print_stage(emit_stage);
    if (json) {
        Json j{{"model", path}, {"target", flags.options.target}};
        j["kernels"] = made.kernels.size();
        j["seconds"] = seconds;
        add_rest(j, made.report);
        print_json(j);
        return {};
    }
    fmt::print("{}\n", bold(shown_path(path)));
    fmt::print("  kernels      {}\n", made.kernels.size());
    fmt::print("  compiled in  {}\n", human_seconds(seconds));
    show_rest(made.report);
    return {};
}

Status check_errors(const CheckedSteps& steps) {
    std::vector<std::string> wrong;
    for (const auto& [step, error] : steps)
        if (!(error <= kLargestError)) wrong.push_back(fmt::format("{} by {:.3g}", step, error));
    if (wrong.empty()) return {};
    size_t count = wrong.size();
    if (count > 5) wrong.resize(5);
    return Error(Code::E0407, "{} of {} steps differ from the reference: {}{}", count, steps.size(),
                 fmt::join(wrong, "; "), count > 5 ? "; ..." : "")
        .note("the largest difference relative to the largest value; allowed is {:.3g}", kLargestError)
        .hint("this is a bug in Tessera, not in your model; please report it");
}

std::string kind_of_target(const std::string& target) { return target.substr(0, target.find('-')); }

// What to do with a bundle: here, or where it belongs.
std::vector<std::string> how_to_run(const std::string& target, const std::string& folder) {
#if defined(__x86_64__)
    const std::string here = "x86_64";
#else
    const std::string here = "aarch64";
#endif
    const std::string kind = kind_of_target(target);
    if (target == "host" || kind == here)
        return {fmt::format("try it       make -C {0} && cd {0} && ./example", folder)};
    if (kind == "wasm32")
        return {fmt::format("for wasm32   wasm-ld --no-entry --export-dynamic --allow-undefined {}/*.o -o model.wasm",
                            folder),
                "             then load it with memcpy and the functions of libm that it imports: docs/bundles.md"};
    const std::string compiler = kind == "x86_64" ? "x86_64-linux-gnu-gcc" : "aarch64-linux-gnu-gcc";
    return {fmt::format("for {:<8} copy {} to such a machine, then make && ./example there", kind, folder),
            fmt::format("             or build it here: make -C {} CC={}", folder, compiler)};
}

Status Compile::bundle() const {
    BundleOptions chosen;
    chosen.compile = TRY(flags.chosen());
    chosen.name = name;
    chosen.shared_library = shared;
    Model model = TRY(load_or_demo(path, inputs.seed));
    chosen.sizes = TRY(parse_dims(inputs.dims));
    TRY(check_dims(chosen.sizes, model));
    model = TRY(flags.searched(model, chosen.sizes, progress));
    Stopwatch compiling;
    BundleReport r = TRY(write_bundle(model, out, chosen));
    double seconds = compiling.seconds();
    if (json) {
        Json j{{"model", path.empty() ? "resnet50" : path}, {"target", flags.options.target}, {"to", out}};
        j["files"] = r.files;
        j["kernels"] = r.kernels;
        j["calls"] = r.calls;
        j["weight_bytes"] = r.weight_bytes;
        j["arena_bytes"] = r.arena_bytes;
        j["seconds"] = seconds;
        print_json(j);
        return {};
    }
    fmt::print("{}\n", bold(shown_path(path)));
    fmt::print("  kernels      {}, {} in a run\n", r.kernels, plural(double(r.calls), "call"));
    fmt::print("  weights      {}\n", human_bytes(double(r.weight_bytes)));
    fmt::print("  arena        {}\n", human_bytes(double(r.arena_bytes)));
    fmt::print("  written to   {}: {}\n", escaped(out), fmt::join(r.files, ", "));
    for (const std::string& line : how_to_run(flags.options.target, out)) fmt::print("  {}\n", escaped(line));
    return {};
}

// The graph where compiling was told to stop.
Status Compile::print_stopped(const Model& model, const CompileOptions& chosen) const {
    const std::string text = outline(TRY(graph_after(model, passes.stop_after, chosen)).graph(), passes.with_weights);
    if (!out.empty()) return write_file(out, text);
    fmt::print("{}", text);
    return {};
}

Status Compile::operator()() const {
    CompileOptions chosen = TRY(flags.chosen());
    if (passes.list) {
        print_passes(compile_passes(chosen), json);
        return {};
    }
    TRY(check_usage());
    TRY(passes.check(compile_passes(chosen)));
    if (emit == "bundle") return bundle();
    if (first_stage(path) > 0) return from_text();
    chosen.verify = passes.verify;
    chosen.after = passes.printer();
    const bool before_kernels = emit == "graph" || emit == "compute" || emit == "schedule";
    chosen.keep_weights = check || before_kernels || !dump_dir.empty();
    Model model = TRY(load_or_demo(path, inputs.seed));
    SymbolValues sizes = TRY(parse_dims(inputs.dims));
    TRY(check_dims(sizes, model));
    if (flags.search > 0) sizes = with_suggested_sizes(model, std::move(sizes));
    model = TRY(flags.searched(model, sizes, progress));
    if (!passes.stop_after.empty()) return print_stopped(model, chosen);
    Stopwatch compiling;
    Executable executable = TRY(compile_with_progress(model, chosen, progress));
    double seconds = compiling.seconds();
    Emit emit_stage = [&](std::string_view stage) {
        return executable.emit(stage == "graph" && !passes.with_weights ? "outline" : stage);
    };
    TRY(write_stages(emit_stage));
    std::optional<CheckedSteps> checked;
    if (check) {
        NamedData given = TRY(inputs.gather(model, path));
        checked = TRY(executable.check(given));
        TRY(check_errors(*checked));
    }
    if (!emit.empty() && out.empty()) {
        return print_stage(emit_stage);
    } else if (json) {
        print_json(to_json(executable, seconds, sizes, checked));
    } else {
        show(executable, seconds, sizes, checked);
    }
    return {};
}

}  // namespace

void add_compile(CLI::App& app, Chosen& chosen) {
    auto compile = std::make_shared<Compile>();
    CLI::App* c = app.add_subcommand("compile", "Generate machine code for a model, and show it");
    c->add_option(
         "model", compile->path,
         "ONNX file, or text: a graph (.tsr), computes (.tsc) or kernels (.tsk); - for standard input; without "
         "it, the built-in ResNet-50")
        ->option_text("FILE");
    std::vector<std::string> forms(std::begin(kStages), std::end(kStages));
    forms.push_back("ptx");
    forms.push_back("device");
    forms.push_back("bundle");
    c->add_option(
         "--emit", compile->emit,
         "Print a stage: the optimized graph, the computes, their schedules, the kernels' loop nests, LLVM IR, "
         "assembly, a GPU's PTX or an accelerator's instructions; or write a bundle for C programs")
        ->option_text("graph|compute|schedule|kernel|llvm|asm|ptx|device|bundle")
        ->check(CLI::IsMember(forms));
    c->add_option("-o,--output", compile->out, "Where --emit writes (standard output)")->option_text("FILE");
    c->add_option("--name", compile->name, "Prefix of a bundle's functions (the model's name)")->option_text("NAME");
    c->add_flag("--shared", compile->shared, "Build the bundle as a shared library, linked by $CC or cc");
    c->add_option("--dump-dir", compile->dump_dir, "Write every stage to this folder")->option_text("DIR");
    compile->flags.add_threads(*c);
    compile->flags.add_tier(*c, "full");
    compile->flags.add_options(*c);
    compile->flags.add_search(*c);
    compile->passes.add_options(*c);
    c->add_flag("--time-passes", compile->time_passes, "Print the time of each phase");
    c->add_flag("--explain", compile->explain, "Print optimization decisions and their reasons");
    c->add_flag("--check", compile->check, "Run each step and compare it with the reference");
    compile->inputs.add_options(*c);
    add_strict_option(*c);
    c->add_flag("--json", compile->json, "Print JSON");
    add_progress_option(*c, compile->progress);
    c->footer(fmt::format("Targets: {}\n\n{}\n{}", fmt::join(compile_targets(), ", "), kCompileExamples, kExitStatus));
    c->callback([compile, &chosen] { chosen = [compile] { return report((*compile)(), compile->json); }; });
}

}  // namespace tessera::cli
