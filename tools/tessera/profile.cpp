// tessera profile: where the time of a compiled model goes.
#include <cmath>
#include <limits>

#include "accelerator_profile.h"
#include "backends/backend.h"
#include "base/output_file.h"
#include "given.h"
#include "help.h"
#include "pages/accelerator_page.h"
#include "pages/profile_page.h"
#include "peak.h"

namespace tessera::cli {
namespace {

constexpr const char* kProfileExamples =
    "Examples:\n"
    "  tessera profile model.onnx\n"
    "  tessera profile model.onnx --threads 1 --nodes\n"
    "  tessera profile model.onnx --report profile.html  timeline, roofline and graph, in the browser\n"
    "  tessera profile model.onnx --trace trace.json     for chrome://tracing or Perfetto\n"
    "  tessera profile model.onnx --dim batch=8 --json\n"
    "  tessera profile int8.onnx --target tessel --report profile.html\n"
    "      cycles of an accelerator: by unit and layer, roofline, timeline of load, compute and store with tokens\n"
    "\n\"of peak\" is the share of the machine's peak arithmetic rate or of its memory bandwidth, whichever\n"
    "is larger for the step. Both peaks are measured before the first profile and raised if a later run\n"
    "exceeds them; on a GPU, they are measured once per device, with large products of each element type\n"
    "and a copy. A step whose data stays in a cache can exceed 100 % of the memory bandwidth.\n";

struct Profile {
    std::string path, trace, report;
    GivenInputs inputs;
    CompileFlags flags;
    int runs = 20;
    size_t rows = 30;
    bool nodes = false, json = false, latency_hiding = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()() const;

  private:
    Status check_usage() const;
    // Of a target that computes parts of models by its own clock; false: this one does not.
    Result<bool> profile_accelerator(const Model& model, const Executable& executable, const NamedData& given,
                                     const CompileOptions& chosen, std::optional<OutputFile>& page_file) const;
    Result<Measured> measure(const Executable& executable, const NamedData& given, const CompileOptions& chosen) const;
};

Json measured_json(const Measured& m, const std::string& path) {
    Json j{{"model", path.empty() ? "resnet50" : path}, {"threads", m.peak.threads}, {"seconds", m.seconds}};
    j["flops"] = m.flops;
    j["bytes"] = m.bytes;
    j["of_peak"] = m.of_peak(m.at_once.value_or(m.seconds));
    j["peak"] = {{"flops_per_second", m.peak.flops}, {"bytes_per_second", m.peak.bytes}};
    if (!m.peak.flops_by_type.empty()) j["peak"]["flops_per_second_by_type"] = m.peak.flops_by_type;
    if (m.at_once) j["device_seconds"] = *m.at_once;
    j["steps"] = Json::array();
    for (const StepProfile& s : m.steps) {
        Json step{{"label", s.label}, {"kind", s.kind}, {"seconds", s.seconds}};
        step["share"] = m.seconds > 0 ? s.seconds / m.seconds : 0;
        step["flops"] = s.flops;
        step["bytes"] = s.bytes;
        step["dtype"] = s.dtype;
        step["of_peak"] = m.of_peak(s);
        step["launches"] = s.launches;
        step["nodes"] = s.nodes;
        j["steps"].push_back(std::move(step));
    }
    return j;
}

// The steps of a typical run, by thread.
Json trace_json(const Measured& m) {
    Json events = Json::array();
    auto add = [&](const StepProfile& s, int thread, double begin, double end) {
        events.push_back({{"name", s.label},
                          {"cat", s.kind},
                          {"ph", "X"},
                          {"ts", begin * 1e6},
                          {"dur", (end - begin) * 1e6},
                          {"pid", 1},
                          {"tid", thread + 1},
                          {"args", {{"nodes", s.nodes}, {"flops", s.flops}, {"bytes", s.bytes}}}});
    };
    double at = 0;
    for (const StepProfile& s : m.steps) {
        for (const ThreadSpan& t : s.threads) add(s, t.thread, t.begin, t.end);
        if (s.threads.empty()) add(s, 0, at, at + s.seconds);
        at += s.seconds;
    }
    return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

std::string rate(double amount, double seconds, const char* unit) {
    if (seconds <= 0 || amount <= 0) return "-";
    return human_count(amount / seconds) + unit;
}

void print_row(const Measured& m, double seconds, double flops, double bytes, double of_peak, const std::string& what) {
    double share = m.seconds > 0 ? 100 * seconds / m.seconds : 0;
    fmt::print("{:>10} {:>6.1f} % {:>13} {:>10} {:>5.0f} %  {}\n", human_seconds(seconds), share,
               rate(flops, seconds, "FLOP/s"), rate(bytes, seconds, "B/s"), 100 * of_peak, what);
}

void print_table(const Measured& m, const std::string& path, size_t most, bool nodes) {
    if (!std::isfinite(m.peak.flops)) {
        fmt::print("{}  each step launched alone\n", bold(shown_path(path)));
    } else if (!m.gpu) {
        fmt::print("{}  {}, peak {}FLOP/s, {}B/s\n", bold(shown_path(path)), plural(m.peak.threads, "thread"),
                   human_count(m.peak.flops), human_count(m.peak.bytes));
    } else {
        std::string rates;
        for (const auto& [type, rate] : m.peak.flops_by_type) rates += fmt::format(" {} {}", type, human_count(rate));
        fmt::print("{}  each step launched alone, peak{}FLOP/s, {}B/s\n", bold(shown_path(path)), rates,
                   human_count(m.peak.bytes));
    }
    std::vector<const StepProfile*> order;
    for (const StepProfile& s : m.steps) order.push_back(&s);
    std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->seconds > b->seconds; });
    fmt::print("{}\n", bold(fmt::format("{:>10} {:>8} {:>13} {:>10} {:>7}  {}", "time", "share", "FLOP/s", "B/s",
                                        "of peak", "step")));
    for (size_t i = 0; i < std::min(most, order.size()); ++i) {
        const StepProfile& s = *order[i];
        std::string what = escaped(s.label);
        if (s.kind == "host") what += "  (by the reference)";
        print_row(m, s.seconds, s.flops, s.bytes, m.of_peak(s), what);
        if (nodes)
            fmt::print("{}\n", dim(fmt::format("{:>53}{}", "", escaped(fmt::format("{}", fmt::join(s.nodes, ", "))))));
    }
    if (order.size() > most) {
        Measured rest{.steps = {}, .peak = m.peak};
        for (size_t i = most; i < order.size(); ++i) {
            rest.steps.push_back(*order[i]);
            rest.seconds += order[i]->seconds;
            rest.flops += order[i]->flops;
            rest.bytes += order[i]->bytes;
        }
        print_row(m, rest.seconds, rest.flops, rest.bytes, rest.of_peak(rest.seconds),
                  fmt::format("{} more (--rows)", order.size() - most));
    }
    print_row(m, m.seconds, m.flops, m.bytes, m.of_peak(m.seconds),
              m.steps.size() == 1 ? "the one step" : fmt::format("all {} steps", m.steps.size()));
    if (m.at_once) print_row(m, *m.at_once, m.flops, m.bytes, m.of_peak(*m.at_once), "all steps, launched at once");
}

Status Profile::check_usage() const {
    TRY(inputs.check_files());
    if (!trace.empty() && !trace.ends_with(".json"))
        return Error(Code::E0501, "--trace {} writes JSON: end it in .json", trace);
    if (!report.empty() && !report.ends_with(".html"))
        return Error(Code::E0501, "--report {} writes a page: end it in .html", report);
    return {};
}

Status Profile::operator()() const {
    TRY(check_usage());
    CompileOptions chosen = TRY(flags.chosen());
    Model model = TRY(load_or_demo(path, inputs.seed));
    NamedData given = TRY(inputs.gather(model, path));
    std::optional<OutputFile> file, page_file;
    if (!trace.empty()) file.emplace(TRY(OutputFile::create(trace)));
    if (!report.empty()) page_file.emplace(TRY(OutputFile::create(report)));
    Executable executable = TRY(compile_with_progress(model, chosen, progress));
    if (TRY(profile_accelerator(model, executable, given, chosen, page_file))) return {};
    const Measured m = TRY(measure(executable, given, chosen));
    if (file) {
        TRY(file->write(trace_json(m).dump(-1, ' ', false, Json::error_handler_t::replace)));
        TRY(file->commit());
    }
    if (page_file) {
        TRY(page_file->write(profile_page(m, executable, shown_path(path), sizes_of(model.graph(), given))));
        TRY(page_file->commit());
    }
    if (json)
        print_json(measured_json(m, path));
    else
        print_table(m, path, rows, nodes);
    if (!trace.empty() && !json) fmt::print("  the trace is in {}\n", escaped(trace));
    if (!report.empty() && !json) fmt::print("  the page is in {}\n", escaped(report));
    return {};
}

Result<bool> Profile::profile_accelerator(const Model& model, const Executable& executable, const NamedData& given,
                                          const CompileOptions& chosen, std::optional<OutputFile>& page_file) const {
    AcceleratorProfile found{.parts = TRY(executable.profile_devices(given)), .without = {}};
    if (found.parts.empty()) return false;
    if (!trace.empty())
        return Error(Code::E0501, "--trace is for steps that are measured in seconds")
            .hint("--report draws the timeline of an accelerator");
    if (latency_hiding) {
        CompileOptions one = chosen;
        one.virtual_threads = 1;
        found.without = TRY(TRY(compile_with_progress(model, one, progress)).profile_devices(given));
    }
    if (page_file) {
        TRY(page_file->write(accelerator_page(found, executable, shown_path(path))));
        TRY(page_file->commit());
    }
    if (json) {
        Json j{{"model", path.empty() ? "resnet50" : path}, {"target", chosen.target}};
        j.update(accelerator_json(found));
        print_json(j);
    } else {
        print_accelerator(found, shown_path(path), rows);
    }
    if (page_file && !json) fmt::print("  the page is in {}\n", escaped(report));
    return true;
}

Result<Measured> Profile::measure(const Executable& executable, const NamedData& given,
                                  const CompileOptions& chosen) const {
    const EndAtOnce measuring;
    Measured m;
    const bool gpu = !TRY(find_backend(chosen.target))->shares_memory();
    if (gpu) {
        m.peak.flops = m.peak.bytes = std::numeric_limits<double>::infinity();  // where it cannot be measured
        if (auto peak = gpu_peak(chosen); peak.ok()) m.peak = std::move(*peak);
        if (auto seconds = executable.seconds_on_device(given, 10 * runs); seconds.ok()) m.at_once = *seconds;
    } else {
        m.peak = cpu_peak(chosen);
    }
    m.steps = TRY(executable.profile(given, runs));
    m.gpu = gpu;
    if (!gpu) raise_peak(m.peak, m.steps, chosen);
    for (const StepProfile& s : m.steps) {
        m.seconds += s.seconds;
        m.flops += s.flops;
        m.bytes += s.bytes;
        m.host_steps += s.kind == "host";
    }
    return m;
}

}  // namespace

void add_profile(CLI::App& app, Chosen& chosen) {
    auto profile = std::make_shared<Profile>();
    CLI::App* c = app.add_subcommand("profile", "Show where the time of a compiled model goes");
    c->add_option("model", profile->path,
                  "ONNX file, Tessera's text form, or - for standard input; without it, the built-in ResNet-50")
        ->option_text("FILE");
    c->add_option("--runs", profile->runs, "Number of runs; the table has each step's median (20)")
        ->option_text("N")
        ->check(between(1, 1'000'000));
    c->add_option("--rows", profile->rows, "Maximum number of table rows, slowest steps first (30)")
        ->option_text("N")
        ->check(at_least(0));
    c->add_flag("--nodes", profile->nodes, "Name the nodes that each step computes");
    c->add_option("--report", profile->report, "Write an HTML page: timeline, roofline, graph and table")
        ->option_text("FILE.html");
    c->add_flag("--latency-hiding", profile->latency_hiding,
                "For an accelerator: also show cycles without virtual threads");
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
