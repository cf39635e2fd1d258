// tessera run: computes a model's outputs.
#include "base/memory.h"
#include "given.h"
#include "help.h"
#include "runtime/code_cache.h"
#include "shard_flags.h"
#include "values.h"

namespace tessera::cli {
namespace {

constexpr const char* kRunExamples =
    "Examples:\n"
    "  tessera run\n"
    "      the built-in ResNet-50 on a random image\n"
    "  tessera run model.onnx --input x=x.npy --output y=y.npy\n"
    "  tessera run model.onnx --random --dim N=4 --json\n"
    "  tessera run model.onnx --random --backend=evaluate\n"
    "  mpirun -n 4 tessera run model.onnx --random --mesh data=2,model=2 --shard 'x=data,_'\n";

// A folder that is made for the outputs, and goes again where the run fails.
class OutputFolder {
  public:
    Status make(const std::filesystem::path& path) {
        std::error_code error;
        std::filesystem::path whole = std::filesystem::absolute(path, error);
        for (auto p = whole; p.has_relative_path() && !std::filesystem::exists(p, error); p = p.parent_path())
            made_.push_back(p);
        std::filesystem::create_directories(whole, error);
        if (error) return Error(Code::E0105, "cannot make the folder \"{}\": {}", path.string(), error.message());
        return {};
    }
    OutputFolder() = default;
    OutputFolder(OutputFolder&& other) noexcept : made_(std::exchange(other.made_, {})) {}
    OutputFolder& operator=(OutputFolder&&) = delete;
    ~OutputFolder() {
        std::error_code ignored;
        for (const auto& p : made_) std::filesystem::remove(p, ignored);  // only where empty
    }
    void keep() { made_.clear(); }

  private:
    std::vector<std::filesystem::path> made_;  // innermost first
};

struct Outputs {
    OutputFolder folder;
    std::vector<std::pair<size_t, ValueFile>> files;  // by the output's number
};

struct Run {
    std::string path, backend = "compiled";
    GivenInputs inputs;
    CompileFlags flags;
    ShardFlags shards;
    double patience = 6;  // seconds
    std::string collectives = "auto";
    std::vector<std::string> outputs;
    std::string output_dir, memory_limit, max_work;
    std::vector<std::string> compile_only;  // options that were given and are of compiling
    bool random = false, json = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()();

  private:
    struct Times {
        double load = 0, inputs = 0, run = 0;
        std::optional<double> compile;
        std::string collectives;  // of a mesh: "host" or "nccl"
    };

    // What is said of a model, which itself is gone by then.
    struct About {
        Summary summary;
        SymbolValues sizes;
        std::vector<Port> outputs;
    };

    bool demo() const { return path.empty(); }
    Status check_usage() const;
    // `made`: what was compiled, where something was.
    Result<std::vector<Datum>> compute(Model model, const NamedData& given, Times& times,
                                       std::optional<Executable>& made) const;
    // On all ranks of a mesh: processes that mpirun started, or else threads.
    Result<std::vector<Datum>> compute_sharded(const Model& model, const NamedData& given, Times& times) const;
    Status keep_code(const Executable& executable) const;
    Result<Outputs> open_outputs(const Model& model) const;
    void show(const About& about, const NamedData& given, const std::vector<Datum>& results,
              const std::vector<std::pair<size_t, ValueFile>>& files, const Times& times) const;
};

Status Run::check_usage() const {
    TRY(inputs.check_files());
    for (const std::string& text : outputs) TRY(ValueFile::check_ending(text));
    if (!shards.given() && !shards.annotations.empty())
        return Error(Code::E0501, "--shard divides values over a mesh, and there is none").hint("add --mesh AXIS=SIZE");
    if (shards.given() && (flags.search > 0 || flags.mutate > 0))
        return Error(Code::E0501, "--search does not know meshes").hint("leave --mesh or --search out");
    if (backend == "evaluate" && !compile_only.empty())
        return Error(Code::E0501, "--backend=evaluate compiles nothing and has no use for {}", compile_only[0])
            .hint("leave {} out", compile_only[0]);
    return {};
}

Result<Outputs> Run::open_outputs(const Model& model) const {
    Outputs opened;
    std::vector<Port> ports = model.outputs();
    for (const std::string& text : outputs) {
        Assignment a = TRY(parse_assignment(text, ports, "--output"));
        opened.files.emplace_back(a.port, TRY(ValueFile::create(a.file)));
    }
    if (output_dir.empty()) return opened;
    TRY(opened.folder.make(output_dir));
    for (size_t i = 0; i < ports.size(); ++i)
        opened.files.emplace_back(i, TRY(ValueFile::create(std::filesystem::path(output_dir) / file_name(ports[i]))));
    return opened;
}

Json top5_json(const Tensor& logits) {
    std::vector<int64_t> order(logits.elements());
    for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
    size_t n = std::min<size_t>(5, order.size());
    std::partial_sort(order.begin(), order.begin() + n, order.end(),
                      [&](int64_t a, int64_t b) { return logits.real_at(a) > logits.real_at(b); });
    Json top = Json::array();
    for (size_t i = 0; i < n; ++i) top.push_back({{"class", order[i]}, {"value", logits.real_at(order[i])}});
    return top;
}

void Run::show(const About& about, const NamedData& given, const std::vector<Datum>& results,
               const std::vector<std::pair<size_t, ValueFile>>& files, const Times& times) const {
    const Summary& s = about.summary;
    const SymbolValues& sizes = about.sizes;
    std::optional<double> flops = about_at(s.flops, sizes);
    const std::vector<Port>& ports = about.outputs;
    std::optional<Json> top;
    if (demo() && results[0].tensor().size(0) > 0)
        top = top5_json(results[0].tensor().reshaped({results[0].tensor().elements()}));
    if (json) {
        Json j{
            {"model", demo() ? "resnet50" : path}, {"name", s.name}, {"nodes", s.nodes}, {"parameters", s.parameters}};
        j["dims"] = Json::object();
        for (auto& [name, size] : sizes) j["dims"][name] = size;
        if (Json n = number_at(s.flops, sizes); !n.is_null()) j["flops"] = n;
        if (Json n = number_at(s.bytes, sizes); !n.is_null()) j["bytes"] = n;
        j["counts_complete"] = s.complete;
        j["backend"] = backend;
        j["seconds"] = {{"load", times.load}, {"inputs", times.inputs}, {"run", times.run}};
        if (times.compile) j["seconds"]["compile"] = *times.compile;
        if (!times.collectives.empty()) j["collectives"] = times.collectives;
        j["inputs"] = Json::object();
        for (auto& [name, value] : given) j["inputs"][name] = value_json(value);
        j["outputs"] = Json::array();
        for (size_t i = 0; i < results.size(); ++i) {
            Json o{{"name", ports[i].name}, {"type", ports[i].type}};
            o.update(value_json(results[i]));
            for (auto& [port, file] : files)
                if (port == i) o["files"].push_back(file.path().string());
            j["outputs"].push_back(std::move(o));
        }
        if (top) j["top5"] = *top;
        return print_json(j);
    }
    fmt::print("{}  {}, {} parameter{} ({})", bold(shown_path(path)), plural(double(s.nodes), "node"),
               human_count(double(s.parameters)), s.parameters == 1 ? "" : "s", human_bytes(double(s.parameter_bytes)));
    if (flops)
        fmt::print(", {}{}FLOP{}", s.complete ? "" : "at least ", human_count(*flops) + (*flops < 1000 ? " " : ""),
                   at_dims(s.symbols, sizes));
    fmt::print("\n");
    for (auto& [name, value] : given) fmt::print("  in   {}  {}\n", escaped(name), escaped(value_text(value)));
    for (size_t i = 0; i < results.size(); ++i) {
        fmt::print("  out  {}  {}\n", escaped(ports[i].name), escaped(value_text(results[i])));
        for (auto& [port, file] : files)
            if (port == i) fmt::print("       written to {}\n", file.path().string());
    }
    if (top) {
        fmt::print("  top 5:");
        for (const Json& t : *top)
            fmt::print("  class {} ({:.3f})", t["class"].get<int64_t>(), t["value"].get<double>());
        fmt::print("\n");
    }
    fmt::print("{} {}, inputs {}, ", demo() ? "build" : "load", human_seconds(times.load), human_seconds(times.inputs));
    if (times.compile) fmt::print("compile {}, ", human_seconds(*times.compile));
    fmt::print("run {}", human_seconds(times.run));
    if (flops && *flops > 0 && times.run > 0) fmt::print(" ({}FLOP/s)", human_count(*flops / times.run));
    if (times.collectives == "nccl") fmt::print(", collectives by NCCL");
    fmt::print("\n");
}

Result<std::vector<Datum>> Run::compute(Model model, const NamedData& given, Times& times,
                                        std::optional<Executable>& made) const {
    if (shards.given()) return compute_sharded(model, given, times);
    std::vector<Warning> found;
    RunOptions options{.seed = inputs.seed, .cancel = &interrupted(), .warnings = &found};
    if (!max_work.empty()) options.max_work = TRY(parse_size(max_work, "--max-work"));
    Progress line(progress, "run");
    options.progress = [&](std::string_view node, size_t done, size_t total) { line.update(node, done, total); };
    if (backend == "evaluate") {
        Stopwatch running;
        auto results = model.run(given, options);
        times.run = running.seconds();
        for (const Warning& w : found) warn(w);
        return results;
    }
    CompileOptions chosen = TRY(flags.chosen());
    Stopwatch compiling;
    model = TRY(flags.searched(model, sizes_of(model.graph(), given), progress));
    made = TRY(compile_with_progress(model, chosen, progress));
    times.compile = compiling.seconds();
    { Model gone = std::move(model); }  // with its weights: the executable has its own
    Stopwatch running;
    auto results = made->run(given, options);
    times.run = running.seconds();
    for (const Warning& w : found) warn(w);
    return results;
}

Result<std::vector<Datum>> Run::compute_sharded(const Model& model, const NamedData& given, Times& times) const {
    const auto made = TRY(ShardedModel::make(model, TRY(shards.chosen(sizes_of(model.graph(), given)))));
    const ShardRunOptions options{.compile = TRY(flags.chosen()),
                                  .evaluate = backend == "evaluate",
                                  .patience = patience,
                                  .collectives = collectives};
    ShardTimes spent;
    auto results = rank_of_mpirun() ? made.run_with_mpi(given, options, &spent) : made.run(given, options, &spent);
    times.run = spent.run;
    times.collectives = spent.collectives;
    if (!options.evaluate) times.compile = spent.compile;
    return results;
}

// Optimized code, which is still being compiled where a baseline has answered, goes into the cache for the next time.
Status Run::keep_code(const Executable& executable) const {
    const CodeCache cache = TRY(CodeCache::open(TRY(flags.chosen()).cache));
    if (!cache.enabled()) return {};
    std::fflush(stdout);
    const EndAtOnce compiling;
    (void)executable.wait();  // the answer is there without it
    return {};
}

Status Run::operator()() {
    TRY(check_usage());
    if (!memory_limit.empty()) set_memory_limit(TRY(parse_size(memory_limit, "--memory-limit")));
    inputs.random = random || demo();
    Times times;
    Stopwatch loading;
    Model model = TRY(load_or_demo(path, inputs.seed));
    times.load = loading.seconds();
    Stopwatch drawing;
    NamedData given = TRY(inputs.gather(model, path));
    const bool first = !shards.given() || rank_of_mpirun().value_or(0) == 0;  // the only one to say anything
    Outputs opened = first ? TRY(open_outputs(model)) : Outputs();
    times.inputs = drawing.seconds();
    const About about{model.summary(), sizes_of(model.graph(), given), model.outputs()};
    std::optional<Executable> executable;
    std::vector<Datum> results = TRY(compute(std::move(model), given, times, executable));
    if (!first) return {};
    for (auto& [port, file] : opened.files) TRY(file.write(results[port], about.outputs[port].name));
    for (auto& [port, file] : opened.files) TRY(file.commit());
    opened.folder.keep();
    show(about, given, results, opened.files, times);
    return executable ? keep_code(*executable) : Status();
}

}  // namespace

void add_run(CLI::App& app, Chosen& chosen) {
    auto run = std::make_shared<Run>();
    CLI::App* c = app.add_subcommand("run", "Compute a model's outputs");
    c->add_option("model", run->path,
                  "ONNX file, Tessera's text form, or - for standard input; without it, the built-in ResNet-50")
        ->option_text("FILE");
    run->inputs.add_options(*c);
    c->add_flag("--random", run->random, "Use random values for inputs that are not given");
    c->add_option("--output,-o", run->outputs, "Write an output to a .npy or .pb file")
        ->option_text("NAME=FILE ...")
        ->allow_extra_args(false);
    c->add_option("--output-dir", run->output_dir, "Write every output to this folder")->option_text("DIR");
    c->add_option("--memory-limit", run->memory_limit,
                  "Memory limit for tensors, such as 4G (three quarters of the machine's)")
        ->option_text("BYTES");
    c->add_option("--max-work", run->max_work,
                  "Limit on the scalar operations of the evaluator and of loops, such as 500G")
        ->option_text("COUNT");
    c->add_option("--backend", run->backend, "compiled: machine code; evaluate: the reference evaluator, which is slow")
        ->option_text("compiled|evaluate")
        ->check(CLI::IsMember({"compiled", "evaluate"}));
    run->flags.add_threads(*c);
    run->flags.add_tier(*c, "full");
    run->flags.add_options(*c);
    run->flags.add_search(*c);
    run->shards.add_options(*c, "--shard");
    c->add_option("--patience", run->patience, "Seconds to wait for another rank in a collective (6)")
        ->option_text("SECONDS")
        ->check(CLI::PositiveNumber);
    c->add_option("--collectives", run->collectives,
                  "What moves data between ranks: auto, host (through host memory) or nccl (one GPU for each rank)")
        ->option_text("KIND")
        ->check(CLI::IsMember({"auto", "host", "nccl"}));
    add_strict_option(*c);
    c->add_flag("--json", run->json, "Print JSON");
    add_progress_option(*c, run->progress);
    c->footer(fmt::format("{}\n{}", kRunExamples, kExitStatus));
    c->callback([run, c, &chosen] {
        for (const char* name : {"--threads", "--tier", "--target", "--precision", "--cache-dir", "--no-cache",
                                 "--no-optimize", "--no-fuse", "--search", "--mutate"})
            if (c->count(name) > 0) run->compile_only.push_back(name);
        chosen = [run] { return report((*run)(), run->json); };
    });
}

}  // namespace tessera::cli
