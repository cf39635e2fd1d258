// tessera calibrate: runs a model on sample data and writes a profile of its values.
#include "help.h"
#include "samples.h"

namespace tessera::cli {
namespace {

constexpr const char* kCalibrateExamples =
    "Examples:\n"
    "  tessera calibrate model.onnx --data images.npy -o profile.json\n"
    "  tessera calibrate model.onnx --data samples/ --limit 100 -o profile.json\n"
    "      samples/*.npz, each with the inputs of one run by name\n"
    "  tessera calibrate --merge a.json --merge b.json -o profile.json\n";

struct Calibrate {
    std::string path, out;
    std::vector<std::string> merge;
    GivenSamples samples;
    CalibrateOptions options;
    bool no_optimize = false, json = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()();

  private:
    Result<tessera::Profile> profile();
    void show(const tessera::Profile& profile, double seconds) const;
};

Result<tessera::Profile> Calibrate::profile() {
    if (path.empty() && merge.empty())
        return Error(Code::E0501, "there is nothing to profile").hint("name a model, or profiles with --merge");
    if (path.empty() && samples.given())
        return Error(Code::E0501, "there is no model to run on the data").hint("name a model before --data");
    std::optional<tessera::Profile> made;
    if (!path.empty()) {
        const Model model = TRY(load_model(path));
        const std::vector<NamedData> inputs = TRY(samples.read(model));
        options.optimize = !no_optimize;
        options.cancel = &interrupted();
        Progress line(progress, "calibrate");
        options.progress = [&](size_t done, size_t total) {
            line.update(fmt::format("sample {}/{}", done + 1, total), done, total);
        };
        made = TRY(calibrate(model, inputs, options));
    }
    for (const std::string& file : merge) {
        tessera::Profile other = TRY(tessera::Profile::load(file));
        if (made)
            TRY(made->merge(other));
        else
            made = std::move(other);
    }
    return std::move(*made);
}

void Calibrate::show(const tessera::Profile& profile, double seconds) const {
    if (json) {
        Json j{{"model", path}, {"hash", profile.model}, {"samples", profile.samples}, {"seconds", seconds}};
        j["values"] = Json::object();
        for (const auto& [name, v] : profile.values)
            j["values"][name] = {{"min", v.min}, {"max", v.max}, {"count", v.count}};
        if (!out.empty()) j["out"] = out;
        return print_json(j);
    }
    fmt::print("{} of {} in {}\n", plural(double(profile.samples), "sample"),
               plural(double(profile.values.size()), "value"), human_seconds(seconds));
    fmt::print("written to {}\n", out);
}

Status Calibrate::operator()() {
    Stopwatch watch;
    const tessera::Profile made = TRY(profile());
    TRY(made.save(out));
    show(made, watch.seconds());
    return {};
}

}  // namespace

void add_calibrate(CLI::App& app, Chosen& chosen) {
    auto run = std::make_shared<Calibrate>();
    CLI::App* c = app.add_subcommand("calibrate", "Profile a model's values on sample data");
    c->add_option("model", run->path, "ONNX file, or Tessera's text form")->option_text("FILE");
    run->samples.add_options(*c);
    c->add_option("--merge", run->merge, "Merge the profile in this file")
        ->option_text("FILE")
        ->allow_extra_args(false);
    c->add_option("--out,-o", run->out, "Write the profile to this file (JSON)")->option_text("FILE")->required();
    c->add_flag("--no-optimize", run->no_optimize, "Profile the model as it is in the file");
    c->add_option("--threads", run->options.compile.threads, "Maximum number of threads (one for each core)")
        ->option_text("N")
        ->check(between(1, 4096));
    add_strict_option(*c);
    c->add_flag("--json", run->json, "Print JSON");
    add_progress_option(*c, run->progress);
    c->footer(fmt::format("{}\n{}", kCalibrateExamples, kExitStatus));
    c->callback([run, &chosen] { chosen = [run] { return report((*run)(), run->json); }; });
}

}  // namespace tessera::cli
