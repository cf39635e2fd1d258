// tessera profile: where the time of a compiled model goes.
#include <cmath>
#include <limits>

#include "base/output_file.h"
#include "given.h"
#include "peak.h"

namespace tessera::cli {
namespace {

constexpr const char* kProfileExamples =
    "Examples:\n"
    "  tessera profile model.onnx\n"
    "  tessera profile model.onnx --threads 1 --nodes\n"
    "  tessera profile model.onnx --trace trace.json     for chrome://tracing or Perfetto\n"
    "  tessera profile model.onnx --dim batch=8 --json\n"
    "\n\"of peak\" is the share of what this machine can do at most: of its multiply-adds or of its memory's bytes,\n"
    "whichever a step is nearer to. Both are measured first. What stays in a cache can be above 100 %.\n";

struct Profile {
    std::string path, trace;
    GivenInputs inputs;
    CompileFlags flags;
    int runs = 20;
    size_t rows = 30;
    bool nodes = false, json = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()() const;
};

struct Measured {
    std::vector<StepProfile> steps;  // in the order they run
    Peak peak;
    double seconds = 0, flops = 0, bytes = 0;
    int host_steps = 0;
    std::optional<double> at_once;  // seconds of a run on a GPU, its steps launched together

    double of_peak(double f, double b, double s) const {
        return s > 0 ? std::max(f / peak.flops, b / peak.bytes) / s : 0;
    }
};

Json measured_json(const Measured& m, const std::string& path) {
    Json j{{"model", path.empty() ? "resnet50" : path}, {"threads", m.peak.threads}, {"seconds", m.seconds}};
    j["flops"] = m.flops;
    j["bytes"] = m.bytes;
    j["of_peak"] = m.of_peak(m.flops, m.bytes, m.seconds);
    j["peak"] = {{"flops_per_second", m.peak.flops}, {"bytes_per_second", m.peak.bytes}};
    if (m.at_once) j["device_seconds"] = *m.at_once;
    j["steps"] = Json::array();
    for (const StepProfile& s : m.steps) {
        Json step{{"label", s.label}, {"kind", s.kind}, {"seconds", s.seconds}};
        step["share"] = m.seconds > 0 ? s.seconds / m.seconds : 0;
        step["flops"] = s.flops;
        step["bytes"] = s.bytes;
        step["of_peak"] = m.of_peak(s.flops, s.bytes, s.seconds);
        step["launches"] = s.launches;
        step["nodes"] = s.nodes;
        j["steps"].push_back(std::move(step));
    }
    return j;
}

// The steps one after the other, as long as each takes.
Json trace_json(const Measured& m) {
    Json events = Json::array();
    double at = 0;
    for (const StepProfile& s : m.steps) {
        events.push_back({{"name", s.label},
                          {"cat", s.kind},
                          {"ph", "X"},
                          {"ts", at * 1e6},
                          {"dur", s.seconds * 1e6},
                          {"pid", 1},
                          {"tid", 1},
                          {"args", {{"nodes", s.nodes}, {"flops", s.flops}, {"bytes", s.bytes}}}});
        at += s.seconds;
    }
    return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

std::string rate(double amount, double seconds, const char* unit) {
    if (seconds <= 0 || amount <= 0) return "-";
    return human_count(amount / seconds) + unit;
}

void print_row(const Measured& m, double seconds, double flops, double bytes, const std::string& what) {
    double share = m.seconds > 0 ? 100 * seconds / m.seconds : 0;
    fmt::print("{:>10} {:>6.1f} % {:>13} {:>10} {:>5.0f} %  {}\n", human_seconds(seconds), share,
               rate(flops, seconds, "FLOP/s"), rate(bytes, seconds, "B/s"), 100 * m.of_peak(flops, bytes, seconds),
               what);
}

void print_table(const Measured& m, const std::string& path, size_t most, bool nodes) {
    if (std::isfinite(m.peak.flops))
        fmt::print("{}  {} threads, peak {}FLOP/s, {}B/s\n", bold(shown_path(path)), m.peak.threads,
                   human_count(m.peak.flops), human_count(m.peak.bytes));
    else
        fmt::print("{}  each step launched and waited for\n", bold(shown_path(path)));
    std::vector<const StepProfile*> order;
    for (const StepProfile& s : m.steps) order.push_back(&s);
    std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->seconds > b->seconds; });
    fmt::print("{}\n", bold(fmt::format("{:>10} {:>8} {:>13} {:>10} {:>7}  {}", "time", "share", "FLOP/s", "B/s",
                                        "of peak", "step")));
    for (size_t i = 0; i < std::min(most, order.size()); ++i) {
        const StepProfile& s = *order[i];
        std::string what = escaped(s.label);
        if (s.kind == "host") what += "  (by the reference)";
        print_row(m, s.seconds, s.flops, s.bytes, what);
        if (nodes)
            fmt::print("{}\n", dim(fmt::format("{:>53}{}", "", escaped(fmt::format("{}", fmt::join(s.nodes, ", "))))));
    }
    if (order.size() > most) {
        StepProfile rest;
        for (size_t i = most; i < order.size(); ++i) {
            rest.seconds += order[i]->seconds;
            rest.flops += order[i]->flops;
            rest.bytes += order[i]->bytes;
        }
        print_row(m, rest.seconds, rest.flops, rest.bytes, fmt::format("{} more (--rows)", order.size() - most));
    }
    print_row(m, m.seconds, m.flops, m.bytes, fmt::format("all {} steps", m.steps.size()));
    if (m.at_once) print_row(m, *m.at_once, m.flops, m.bytes, "all steps, launched at once");
}

Status Profile::operator()() const {
    CompileOptions chosen = TRY(flags.chosen());
    Model model = TRY(load_or_demo(path, inputs.seed));
    NamedData given = TRY(inputs.gather(model, path));
    std::optional<OutputFile> file;
    if (!trace.empty()) file.emplace(TRY(OutputFile::create(trace)));
    Executable executable = TRY(compile_with_progress(model, chosen, progress));
    Measured m;
    const bool gpu = chosen.target.starts_with("cuda");
    if (gpu) {  // what it can do at most is not measured
        m.peak.flops = m.peak.bytes = std::numeric_limits<double>::infinity();
        if (auto seconds = executable.seconds_on_device(given, 10 * runs); seconds.ok()) m.at_once = *seconds;
    } else {
        m.peak = measure_peak(chosen.threads);
    }
    m.steps = TRY(executable.profile(given, runs));
    for (const StepProfile& s : m.steps) {
        m.seconds += s.seconds;
        m.flops += s.flops;
        m.bytes += s.bytes;
        m.host_steps += s.kind == "host";
    }
    if (file) {
        TRY(file->write(trace_json(m).dump(-1, ' ', false, Json::error_handler_t::replace)));
        TRY(file->commit());
    }
    if (json)
        print_json(measured_json(m, path));
    else
        print_table(m, path, rows, nodes);
    if (!trace.empty() && !json) fmt::print("  the trace is in {}\n", escaped(trace));
    return {};
}

}  // namespace

void add_profile(CLI::App& app, Chosen& chosen) {
    auto profile = std::make_shared<Profile>();
    CLI::App* c = app.add_subcommand("profile", "Show where the time of a compiled model goes");
    c->add_option("model", profile->path, "An ONNX file or Tessera's text form; without it, the built-in ResNet-50");
    c->add_option("--runs", profile->runs, "Runs, of which each step's median is shown (20)")
        ->option_text("N")
        ->check(CLI::Range(1, 1'000'000));
    c->add_option("--rows", profile->rows, "Steps in the table, the longest first (30)")->option_text("N");
    c->add_flag("--nodes", profile->nodes, "Name the graph's nodes that each step holds");
    c->add_option("--trace", profile->trace, "Write a Chrome trace")->option_text("FILE.json");
    profile->inputs.add_options(*c);
    profile->flags.add_threads(*c);
    profile->flags.add_options(*c);
    add_strict_option(*c);
    c->add_flag("--json", profile->json, "Print JSON");
    add_progress_option(*c, profile->progress);
    c->footer(fmt::format("{}\n{}", kProfileExamples, kExitStatus));
    c->callback([profile, &chosen] { chosen = [profile] { return report((*profile)(), profile->json); }; });
}

}  // namespace tessera::cli
