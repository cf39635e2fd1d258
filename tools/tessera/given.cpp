#include "given.h"

#include "backends/backend.h"
#include "help.h"
#include "tessera/search.h"
#include "values.h"

namespace tessera::cli {
void GivenInputs::add_options(CLI::App& command) {
    command.add_option("--input,-i", files, "Read an input from a .npy or .pb file")
        ->option_text("NAME=FILE ...")
        ->allow_extra_args(false);
    command.add_option("--seed", seed, "Seed for random inputs, random ops and the built-in model's weights (0)")
        ->option_text("N")
        ->check(at_least(0));
    command
        .add_option("--dim", dims, "Size of a symbolic dimension in random inputs (chosen by its name and position)")
        ->option_text("NAME=SIZE ...")
        ->allow_extra_args(false);
}

SymbolValues sizes_of(const Graph& graph, const NamedData& given) {
    SymbolValues symbols;
    for (const auto& v : graph.inputs())
        if (auto it = given.find(v->name()); it != given.end()) binds(v->type(), type_of(it->second), symbols);
    return symbols;
}

SymbolValues with_suggested_sizes(const Model& model, SymbolValues sizes) {
    std::vector<std::string> chosen;
    for (const auto& [name, size] : model.suggested_sizes())
        if (sizes.emplace(name, size).second) chosen.push_back(fmt::format("{}={}", name, size));
    if (!chosen.empty())
        say_error(fmt::format("sizes chosen for symbolic dimensions: {} (--dim NAME=SIZE sets them)\n",
                              escaped(fmt::format("{}", fmt::join(chosen, ", ")))));
    return sizes;
}

Status GivenInputs::check_files() const {
    for (const std::string& text : files) {
        const std::string suffix = std::filesystem::path(text).extension().string();
        if (suffix != ".npy" && suffix != ".pb")
            return Error(Code::E0110, "--input {}: expected a .npy or .pb file", text)
                .hint("save it with numpy.save, or as an onnx.TensorProto");
    }
    return {};
}

Result<NamedData> GivenInputs::gather(const Model& model, const std::string& path) const {
    NamedData given;
    std::vector<Port> ports = model.inputs();
    for (const std::string& text : files) {
        Assignment a = TRY(parse_assignment(text, ports, "--input"));
        const std::string& name = ports[a.port].name;
        if (given.contains(name)) return Error(Code::E0501, "--input {} is given twice", name);
        given.emplace(name, TRY(read_value(a.file, model.graph().inputs()[a.port]->type())));
    }
    SymbolValues sizes = TRY(parse_dims(dims));
    TRY(check_dims(sizes, model));
    for (const auto& [name, size] : sizes_of(model.graph(), given))
        if (auto it = sizes.find(name); it != sizes.end() && it->second != size)
            return Error(Code::E0405, "--dim {}={} contradicts a given input, in which {} is {}", name, it->second,
                         name, size)
                .hint("leave --dim {} out", name);
    if (random) {
        for (auto& [name, size] : sizes_of(model.graph(), given)) sizes.emplace(name, size);
        sizes = with_suggested_sizes(model, std::move(sizes));
        for (auto& [name, value] : TRY(model.random_inputs(seed, sizes))) given.emplace(name, std::move(value));
        return given;
    }
    if (!sizes.empty())
        return Error(Code::E0501, "--dim gives the sizes of random inputs, and there are none").hint("add --random");
    std::vector<std::string> missing;
    for (const Port& p : ports)
        if (!p.has_default && !given.contains(p.name)) missing.push_back(fmt::format("\"{}\" ({})", p.name, p.type));
    if (!missing.empty())
        return Error(Code::E0402, "no value for {} {}", missing.size() == 1 ? "input" : "inputs",
                     fmt::join(missing, ", "))
            .at(path)
            .hint("give each with --input NAME=FILE.npy, or use --random");
    return given;
}

void CompileFlags::add_options(CLI::App& command) {
    command
        .add_option("--target", options.target, "Target to generate code for (host); tessera compile --help lists them")
        ->option_text("NAME");
    command
        .add_option("--machine", machine,
                    "For a target that is an accelerator: the description of another machine than its usual one")
        ->option_text("FILE.json");
    command.add_flag("--rtl", rtl, "For such a target: run on its RTL, by the program <machine>-rtl or TESSERA_RTL");
    command
        .add_option("--virtual-threads", options.virtual_threads,
                    "For such a target: tiles in flight; with 1, loads, computes and stores do not overlap (2)")
        ->option_text("1|2")
        ->check(CLI::IsMember({1, 2}));
    command
        .add_option(
            "--precision", options.precision,
            "strict: bitwise independent of the number of threads; fast: allows reduced-precision f32 matrix products")
        ->option_text("default|strict|fast")
        ->check(CLI::IsMember({"default", "strict", "fast"}));
    command.add_option("--cache-dir", options.cache, "Folder of the code cache (per user)")->option_text("DIR");
    command.add_flag("--no-cache", no_cache, "Disable the code cache");
    command.add_flag("--no-optimize", no_optimize, "Skip graph optimization");
    command.add_flag("--no-fuse", no_fuse, "Disable fusion: one kernel for each node");
}

void CompileFlags::add_tier(CLI::App& command, const std::string& standard) {
    options.tier = standard;
    command
        .add_option(
            "--tier", options.tier,
            fmt::format("full: optimized code; fast: a baseline that compiles quickly and runs slower; auto: the "
                        "baseline until optimized code is ready ({})",
                        standard))
        ->option_text("full|fast|auto")
        ->check(CLI::IsMember({"full", "fast", "auto"}));
}

void CompileFlags::add_threads(CLI::App& command) {
    command.add_option("--threads", options.threads, "Maximum number of threads (one for each core)")
        ->option_text("N")
        ->check(between(0, 4096));
}

void CompileFlags::add_search(CLI::App& command) {
    command.add_flag("--search{60}", search, "First search for a faster equivalent model, for this many seconds (60)")
        ->option_text("[=SECONDS]")
        ->check(above_zero());
    command
        .add_flag("--mutate{60}", mutate,
                  "For --search: also derive rules for this model's own products, for this many more seconds (60)")
        ->option_text("[=SECONDS]")
        ->check(above_zero());
}

Result<Model> CompileFlags::searched(const Model& model, const SymbolValues& sizes, Progress::Mode mode) const {
    if (search <= 0) return model;
    const CompileOptions how = TRY(chosen());
    ModelSearchOptions o{.seconds = search, .precision = how.precision, .target = how.target};
    o.threads = how.threads;
    o.sizes = sizes;
    o.cache = how.cache;
    o.mutate = mutate;
    o.cancel = &interrupted();
    Progress line(mode, "search");
    o.progress = [&](std::string_view what, size_t done, size_t total) { line.update(what, done, total); };
    const auto began = std::chrono::steady_clock::now();
    Searched found = TRY(tessera::search(model, o));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    say_error(fmt::format("search: {}, in {}\n", escaped(found.report.outcome()), human_seconds(took.count())));
    return std::move(found.model);
}

Result<CompileOptions> CompileFlags::chosen() const {
    if (mutate > 0 && search <= 0)
        return Error(Code::E0501, "--mutate is an option of --search").hint("add --search, or leave it out");
    CompileOptions chosen = options;
    if (no_cache) chosen.cache = "";
    chosen.optimize = !no_optimize;
    chosen.fuse = !no_fuse;
    if (rtl) {
        chosen.target += ":rtl";
        if (!find_backend(chosen.target).ok())
            return Error(Code::E0501, "--rtl: {} is no target that has RTL", options.target)
                .hint("name an accelerator with --target");
    }
    if (!machine.empty()) {
        chosen.target += ":" + machine;
        if (!find_backend(chosen.target).ok())
            return Error(Code::E0501, "--machine {}: {} is no target whose machine such a file describes", machine,
                         options.target)
                .hint("name an accelerator with --target, and a file that ends in .json");
    }
    TRY(find_backend(chosen.target));
    return chosen;
}

Result<Executable> compile_with_progress(const Model& model, CompileOptions options, Progress::Mode mode) {
    Progress line(mode, "compile");
    options.progress = [&](std::string_view what, size_t done, size_t total) { line.update(what, done, total); };
    const EndAtOnce compiling;
    return compile(model, options);
}

Result<Model> load_or_demo(const std::string& path, uint64_t seed) {
    return path.empty() ? Model::demo("resnet50", seed) : load_model(path);
}

}  // namespace tessera::cli
