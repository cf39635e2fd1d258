// An executable as one file, and back.
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "api/executable_state.h"
#include "api/stages.h"
#include "llvm/targets/target.h"
#include "runtime/model_key.h"
#include "runtime/target_key.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr const char* kSavedKey = "executable in a file of its own";
constexpr size_t kBuildDigits = 8;  // of a build's key, that name it

// This build and this processor, for people.
std::string maker() {
    return fmt::format("Tessera {} (build {})", version(), code_key({kSavedKey}).substr(0, kBuildDigits));
}
std::string processor_text(const std::vector<std::string>& parts) {
    return parts.size() > 1 ? fmt::format("{} ({})", parts[1], parts[0].substr(0, parts[0].find('-'))) : "another one";
}

Json port_to_json(const Port& p) {
    return {{"name", p.name},
            {"type", p.type},
            {"dtype", p.dtype ? static_cast<int>(*p.dtype) : -1},
            {"ranked", p.ranked},
            {"dims", p.dims},
            {"sizes", p.sizes},
            {"has_default", p.has_default}};
}

Port port_from_json(const Json& j) {
    Port p;
    p.name = j.at("name");
    p.type = j.at("type");
    if (const int dtype = j.at("dtype"); dtype >= 0 && dtype < kDTypeCount) p.dtype = static_cast<DType>(dtype);
    p.ranked = j.at("ranked");
    p.dims = j.at("dims").get<std::vector<std::string>>();
    p.sizes = j.at("sizes").get<std::vector<int64_t>>();
    p.has_default = j.at("has_default");
    return p;
}

Json ports_to_json(const std::vector<Port>& ports) {
    Json list = Json::array();
    for (const Port& p : ports) list.push_back(port_to_json(p));
    return list;
}

Json options_to_json(const CompileOptions& o) {
    Json j{{"target", o.target},         {"threads", o.threads}, {"precision", o.precision},
           {"optimize", o.optimize},     {"fuse", o.fuse},       {"keep_weights", o.keep_weights},
           {"specialise", o.specialise}, {"tier", o.tier},       {"virtual_threads", o.virtual_threads}};
    if (o.cache) j["cache"] = *o.cache;
    return j;
}

CompileOptions options_from_json(const Json& j) {
    CompileOptions o{.target = j.at("target"), .threads = j.at("threads"), .precision = j.at("precision")};
    o.optimize = j.at("optimize");
    o.fuse = j.at("fuse");
    o.keep_weights = j.at("keep_weights");
    o.specialise = j.at("specialise");
    o.tier = j.at("tier");
    o.virtual_threads = j.value("virtual_threads", o.virtual_threads);
    if (j.contains("cache")) o.cache = j.at("cache").get<std::string>();
    return o;
}

// What is known of the executable stands after the program, and its length at last.
std::string with_trailer(std::string_view program, const Json& about) {
    std::string out(program);
    std::string text;
    Json::to_cbor(about, text);
    const uint64_t bytes = text.size();
    out += text;
    out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    return out;
}

Result<Json> split_trailer(std::string_view& program, const std::string& path) {
    uint64_t bytes = 0;
    if (program.size() >= sizeof bytes)
        std::memcpy(&bytes, program.data() + program.size() - sizeof bytes, sizeof bytes);
    if (bytes == 0 || bytes > program.size() - sizeof bytes)
        return Error(Code::E0605, "\"{}\" is not a saved executable", path).hint("Executable::save writes one");
    const size_t at = program.size() - sizeof bytes - bytes;
    Json about = Json::from_cbor(program.substr(at, bytes), true, false);
    if (!about.is_object()) return Error(Code::E0605, "\"{}\" is not a saved executable", path);
    program = program.substr(0, at);
    return about;
}

// The same, by the parts of a saved executable.
Result<std::shared_ptr<Executable::State>> restored(ProgramEntry entry, const Json& about, const std::string& path) {
    auto state = std::make_shared<Executable::State>();
    state->options = options_from_json(about.at("options"));
    const Precision precision = TRY(precision_named(state->options.precision));
    state->codegen = codegen_options(state->options, precision);
    LowerOptions lower;
    if (state->options.tier == kFast) make_baseline(lower, state->codegen);
    for (const Json& j : about.at("inputs")) state->inputs.push_back(port_from_json(j));
    for (const Json& j : about.at("outputs")) state->outputs.push_back(port_from_json(j));
    StoredProgram stored = TRY(unpack_program(entry.program, path));
    auto module = TRY(load_object(stored.program.kernels, std::string(entry.code), state->codegen));
    const LoadOptions load{.threads = about.at("threads")};
    state->loaded =
        TRY(LoadedProgram::restore(std::move(stored.program), std::move(module), entry.weights, entry.file, load));
    state->report = std::move(stored.report);
    state->report.from_cache = true;
    if (about.contains("source")) {
        state->source = about["source"].value("path", "");
        state->source_key = about["source"].value("key", "");
    }
    if (state->options.tier == kFast) state->report.tier = kFast;
    state->entry = std::move(entry);
    return state;
}

}  // namespace

Status Executable::save(const std::string& path) const {
    const State& s = *TRY(state_->optimized());
    Json about{{"options", options_to_json(s.options)}};
    const std::string key = code_key({kSavedKey});
    if (s.origin) {
        about["model"] = true;
        return write_program(path, key, with_trailer({}, about), s.origin->to_text(), {});
    }
    about["processor"] = target_parts(s.codegen);
    about["made_by"] = maker();
    std::error_code unknown;
    if (const auto source = std::filesystem::absolute(s.source, unknown); !s.source_key.empty() && !unknown)
        about["source"] = {{"path", source.string()}, {"key", s.source_key}};
    about["threads"] = s.loaded->threads();
    about["inputs"] = ports_to_json(s.inputs);
    about["outputs"] = ports_to_json(s.outputs);
    if (s.entry)
        return write_program(path, key, with_trailer(s.entry->program, about), s.entry->code, {s.entry->weights});
    return write_program(path, key, with_trailer(s.packed, about), s.loaded->module().object(),
                         TRY(s.loaded->weight_pieces()));
}

namespace {

// Why its code cannot run here; nothing where it can.
std::optional<Error> not_for_here(const Json& about, const std::string& key, const std::string& path) {
    const CompileOptions options = options_from_json(about.at("options"));
    CodegenOptions codegen = codegen_options(options, Precision::Default);
    if (auto precision = precision_named(options.precision); precision.ok())
        codegen = codegen_options(options, *precision);
    LowerOptions lower;
    if (options.tier == kFast) make_baseline(lower, codegen);
    const auto meant = about.at("processor").get<std::vector<std::string>>();
    if (key != code_key({kSavedKey}))
        return Error(Code::E0605, "\"{}\" was made by {}, for the processor {}; this is {}", path,
                     about.value("made_by", "another build of Tessera"), processor_text(meant), maker());
    if (const auto here = target_parts(codegen); meant != here)
        return Error(Code::E0605, "\"{}\" was compiled for the processor {}; this is {}{}", path, processor_text(meant),
                     processor_text(here), meant[1] == here[1] ? " with other features" : "");
    return std::nullopt;
}

// The model that it was made from, if its file is still there and the same: where it was, or beside the executable.
std::optional<Model> source_of(const Json& about, const std::string& path) {
    if (!about.contains("source")) return {};
    namespace fs = std::filesystem;
    const fs::path was = about["source"].value("path", "");
    for (const fs::path& at : {was, fs::path(path).parent_path() / was.filename()}) {
        std::error_code unknown;
        if (!fs::is_regular_file(at, unknown)) continue;
        auto model = Model::load(at.string());
        if (model.ok() && model_key(model->graph()) == about["source"].value("key", "")) return std::move(*model);
    }
    return {};
}

Result<Executable> compiled_again(const Json& about, Error why, const std::string& path) {
    auto model = source_of(about, path);
    const std::string was = about.contains("source") ? about["source"].value("path", "") : "";
    if (!model) return std::move(why).hint("compile {} again", was.empty() ? "the model" : was);
    return compile(std::move(*model), options_from_json(about.at("options")));
}

}  // namespace

Result<Executable> Executable::load(const std::string& path) {
    auto [key, entry] = TRY(read_program(path));
    const Json about = TRY(split_trailer(entry.program, path));
    try {
        if (about.contains("model"))
            return compile(TRY(Model::parse(entry.code, path)), options_from_json(about.at("options")));
        if (auto why = not_for_here(about, key, path)) return compiled_again(about, std::move(*why), path);
        return Executable(TRY(restored(std::move(entry), about, path)));
    } catch (const Json::exception&) {
        return Error(Code::E0605, "\"{}\" is not a saved executable", path);
    }
}

}  // namespace tessera
