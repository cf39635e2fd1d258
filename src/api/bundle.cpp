// From a model to a folder that C programs use without Tessera.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>

#include "api/bundle_text.h"
#include "api/stages.h"
#include "backends/backend.h"
#include "base/output_file.h"
#include "base/protect.h"
#include "graph/evaluate/evaluate_node.h"
#include "runtime/bundle_plan.h"
#include "runtime/code_cache.h"
#include "runtime/memory_plan.h"
#include "runtime/model_key.h"
#include "runtime/target_key.h"

extern char** environ;

namespace tessera {
namespace fs = std::filesystem;
namespace {

bool is_identifier(const std::string& name) {
    return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
           std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

Result<std::string> name_for(const Model& model, const BundleOptions& options) {
    if (!options.name.empty()) {
        if (is_identifier(options.name)) return options.name;
        return Error(Code::E0501, "\"{}\" is not a valid bundle name", options.name)
            .hint("it is the prefix of the C functions: use letters, digits and _");
    }
    const std::string& source = model.graph().info().source;
    std::string name;
    for (char c : source.empty() ? model.graph().name() : fs::path(source).stem().string())
        name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    if (!is_identifier(name)) name = "model_" + name;
    return name;
}

// The model with its symbols replaced by sizes. E0605 where one is left.
Result<Model> sized_model(const Model& model, const std::map<std::string, int64_t>& sizes) {
    std::shared_ptr<Graph> graph = model.graph().clone();
    std::set<std::string> left;
    for (const auto& v : graph->inputs()) {
        v->set_type(sized(v->type(), sizes));
        if (!v->type().is_tensor() || !v->type().tensor().shape.ranked())
            return Error(Code::E0605, "cannot make a bundle: input \"{}\" is {}", v->name(), v->type());
        for (const Dim& d : v->type().tensor().shape)
            for (const std::string& name : free_symbols(d)) left.insert(name);
    }
    if (!left.empty())
        return Error(Code::E0605, "cannot make a bundle: the size of {} is dynamic", fmt::join(left, ", "))
            .hint("a bundle is for one size: set the size of {} (`--dim` on the command line)", fmt::join(left, ", "));
    if (!sizes.empty()) TRY(graph->infer_again());
    Model fixed(std::move(graph));
    for (const std::vector<Port>& ports : {fixed.inputs(), fixed.outputs()})
        for (const Port& p : ports) {
            const bool open = std::find(p.sizes.begin(), p.sizes.end(), -1) != p.sizes.end();
            if (!p.dtype || c_type(*p.dtype).empty() || !p.ranked || open)
                return Error(Code::E0605, "cannot make a bundle: \"{}\" is {}, which has no fixed size in C", p.name,
                             p.type);
        }
    return fixed;
}

// A folder that appears whole or not at all.
class OutputFolder {
  public:
    static Result<OutputFolder> create(const fs::path& folder, const std::set<std::string>& replaceable) {
        fs::path target = folder;
        if (!target.has_filename()) target = target.parent_path();
        std::error_code failed;
        if (fs::exists(target, failed)) TRY(may_replace(target, replaceable));
        std::string temporary = target.string() + ".XXXXXX";
        if (!::mkdtemp(temporary.data()))
            return Error(Code::E0105, "cannot write \"{}\": {}", target.string(), std::strerror(errno))
                .hint("check that the parent folder exists and is writable");
        mode_t mask = ::umask(0);
        ::umask(mask);
        (void)::chmod(temporary.c_str(), 0777 & ~mask);
        return OutputFolder(target, temporary);
    }
    OutputFolder(OutputFolder&& other) noexcept
        : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})) {}
    OutputFolder& operator=(OutputFolder&&) = delete;
    ~OutputFolder() {
        std::error_code ignored;
        if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
    }

    const fs::path& path() const { return temporary_; }

    Status commit() {
        // What was there takes the temporary name, and goes with it.
        const bool there = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0;
        if (there) return {};
        std::error_code failed;
        fs::rename(temporary_, target_, failed);
        if (failed) return Error(Code::E0105, "cannot write \"{}\": {}", target_.string(), failed.message());
        temporary_.clear();
        return {};
    }

  private:
    OutputFolder(fs::path target, fs::path temporary) : target_(std::move(target)), temporary_(std::move(temporary)) {}

    static Status may_replace(const fs::path& target, const std::set<std::string>& replaceable) {
        std::error_code failed;
        if (!fs::is_directory(target, failed))
            return Error(Code::E0105, "cannot write \"{}\": it exists and is not a folder", target.string());
        for (const auto& file : fs::directory_iterator(target, failed)) {
            const std::string name = file.path().filename().string();
            if (replaceable.contains(name) || (name.starts_with("output_") && name.ends_with(".bin"))) continue;
            return Error(Code::E0105,
                         "cannot write \"{}\": it exists and contains \"{}\", which is not part of a bundle",
                         target.string(), name)
                .hint("name a new folder");
        }
        if (failed) return Error(Code::E0105, "cannot read \"{}\": {}", target.string(), failed.message());
        return {};
    }

    fs::path target_, temporary_;
};

Status write_weights(const fs::path& path, uint64_t id, const BundlePlan& plan) {
    const std::string padding(kBlockAlignment, '\0');
    auto each = [&](auto f) -> Status {
        for (std::string_view w : plan.weights) {
            const size_t whole = w.size() / 8 * 8;
            std::string rest(w.substr(whole));
            rest.resize(static_cast<size_t>(aligned(static_cast<int64_t>(w.size()))) - whole);
            TRY(f(w.substr(0, whole)));
            TRY(f(rest));
        }
        return {};
    };
    uint64_t fields[3] = {id, 0, 0};
    TRY(each([&](std::string_view piece) -> Status {
        fields[1] += piece.size();
        fields[2] = bundle_checksum(piece, fields[2]);
        return {};
    }));
    std::string header(64, '\0');
    header.replace(0, kWeightsMagic.size(), kWeightsMagic);
    std::memcpy(header.data() + 8, &kBundleVersion, sizeof kBundleVersion);
    std::memcpy(header.data() + 16, fields, sizeof fields);
    OutputFile file = TRY(OutputFile::create(path));
    TRY(file.write(header));
    TRY(each([&](std::string_view piece) { return file.write(piece); }));
    return file.commit();
}

Status link_library(const fs::path& library, const fs::path& object) {
    const char* named = std::getenv("CC");
    const std::string compiler = named && *named ? named : "cc";
    std::vector<std::string> words = {compiler, "-shared", "-o", library.string(), object.string(), "-lm"};
    std::vector<char*> args;
    for (std::string& w : words) args.push_back(w.data());
    args.push_back(nullptr);
    pid_t child = 0;
    int status = 0;
    const int failed = ::posix_spawnp(&child, compiler.c_str(), nullptr, nullptr, args.data(), environ);
    if (failed == 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return {};
    return Error(Code::E0604, "{} could not link the shared library{}{}", compiler, failed ? ": " : "",
                 failed ? std::strerror(failed) : "")
        .hint("name a C compiler for the target with CC, or leave the object file as it is");
}

}  // namespace

Result<BundleReport> write_bundle(const Model& model, const std::string& folder, const BundleOptions& options) {
    return protect("bundle", {.text = [&] { return model.to_text(); }}, [&]() -> Result<BundleReport> {
        const CompileOptions& chosen = options.compile;
        const int threads = std::max(1, chosen.threads);
        const Precision precision = TRY(precision_named(chosen.precision));
        if (!TRY(find_backend(chosen.target))->makes_objects())
            return Error(Code::E0605, "cannot make a bundle: {} is not a CPU, and bundles are C code for CPUs",
                         chosen.target);
        LowerOptions lower = TRY(lower_options(chosen, precision, threads));
        lower.unrolled = INT64_MAX;  // bundles have no control steps
        BundleText text;
        text.name = TRY(name_for(model, options));
        text.model = model.graph().info().source;
        text.target = chosen.target;
        const std::string object_file = text.name + ".o", library = "lib" + text.name + ".so";
        text.code_file = options.shared_library ? library : object_file;
        const std::set<std::string> own = {object_file, library,    text.name + ".h", text.name + ".weights",
                                           "example.c", "Makefile", "example"};
        OutputFolder out = TRY(OutputFolder::create(folder, own));

        const Model fixed = TRY(sized_model(model, options.sizes));
        auto graph = TRY(rewritten(fixed.graph(), precision, chosen));
        Program program = TRY(from_graph(std::move(graph), lower));
        const CodegenOptions codegen = codegen_options(chosen, precision);
        BundlePlan plan = TRY(plan_bundle(program, threads, codegen));

        std::vector<std::string> parts = target_parts(codegen);
        for (std::string part : {chosen.precision, fmt::format("{} {} {}", chosen.optimize, chosen.fuse, threads),
                                 text.name, std::to_string(kBundleVersion), model_key(fixed.graph())})
            parts.push_back(std::move(part));
        const std::string key = code_key(parts);
        std::from_chars(key.data(), key.data() + 16, text.id, 16);
        text.inputs = fixed.inputs();
        text.outputs = fixed.outputs();
        for (std::string_view w : plan.weights) text.weight_bytes += aligned(static_cast<int64_t>(w.size()));
        text.arena_bytes = plan.arena_bytes;
        text.threads = threads;
        plan.entry.name = text.name;
        plan.entry.id = text.id;
        const std::string object = TRY(emit_bundle_object(plan.kernels, plan.entry, codegen));
        TRY(write_file(out.path() / object_file, object));
        if (options.shared_library) {
            TRY(link_library(out.path() / library, out.path() / object_file));
            fs::remove(out.path() / object_file);
        }
        TRY(write_file(out.path() / (text.name + ".h"), bundle_header(text)));
        TRY(write_file(out.path() / "example.c", bundle_example(text)));
        TRY(write_file(out.path() / "Makefile", bundle_makefile(text)));
        TRY(write_weights(out.path() / (text.name + ".weights"), text.id, plan));
        TRY(out.commit());
        BundleReport report;
        report.files = {text.code_file, text.name + ".h", text.name + ".weights", "example.c", "Makefile"};
        report.kernels = plan.kernels.size();
        report.calls = plan.entry.actions.size();
        report.weight_bytes = text.weight_bytes;
        report.arena_bytes = text.arena_bytes;
        return report;
    });
}

}  // namespace tessera
