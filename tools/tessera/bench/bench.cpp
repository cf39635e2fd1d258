// tessera bench: the compiled model against other runtimes, in turn.
#include "bench/bench.h"

#include <cmath>

#include "base/usable_cores.h"
#include "bench/child.h"
#include "command_line.h"
#include "embedded.h"
#include "given.h"
#include "help.h"
#include "in_f64.h"
#include "values.h"

namespace tessera::cli {
namespace {

constexpr const char* kBenchExamples =
    "Examples:\n"
    "  tessera bench model.onnx\n"
    "  tessera bench model.onnx --against onnxruntime,torch --threads 1,all --json\n"
    "  tessera bench model.onnx --against onnxruntime --python ~/venv/bin/python --seconds 10\n"
    "  tessera bench after.onnx --against before.onnx\n"
    "\nEach competitor runs in its own process. The processes take turns: while one runs, the others are\n"
    "stopped. A ratio is the competitor's time divided by Tessera's, taken in each turn: above 1, Tessera\n"
    "is faster. onnxruntime and torch need a Python that has them: --python, or TESSERA_BENCH_PYTHON, or\n"
    "python3. A model file given to --against is compiled with the same options and run on the same\n"
    "inputs. The exit status is 1 if a competitor fails.\n";

constexpr double kTurnSeconds = 0.1;
constexpr int kMostInTurn = 1000;

struct Runner {
    RunnerTimes times;
    bool compiled = false;         // by us; otherwise in Python
    std::string model;             // its file
    std::filesystem::path folder;  // of its log and its outputs
    std::optional<Child> process;

    bool alive() const { return times.failed.empty(); }
    double total = 0;  // seconds of all turns

    double typical() const { return times.turns.empty() ? 0 : times.turns.back(); }
};

struct Bench {
    std::string path, python, clock = "wall", torch;
    std::vector<std::string> against, expected, threads = {"1", "all"};
    GivenInputs inputs;
    CompileFlags flags;
    size_t runs = 10;
    double seconds = 2;
    bool accuracy = false, json = false, serve = false;
    Progress::Mode progress = Progress::Mode::Auto;

    bool printed = false;  // what was measured; an error after it is of a peer

    Status operator()();

  private:
    Result<std::vector<int>> thread_counts() const;
    std::string python_to_run() const;
    Result<Runner> start(const std::string& name, Json spec, const std::filesystem::path& folder) const;
    Status check_peers() const;
    Status take_turns(std::vector<Runner>& runners, Progress& line) const;
    Status compare(std::vector<Runner>& runners, const Model& model,
                   const std::optional<std::vector<Datum>>& reference) const;
};

Result<std::vector<int>> Bench::thread_counts() const {
    std::vector<int> counts;
    for (const std::string& word : threads) {
        int n = 0;
        if (word == "all")
            n = usable_cores();
        else if (CLI::detail::lexical_cast(word, n); n < 1 || n > 4096)
            return Error(Code::E0501, "--threads {}: expected numbers from 1 to 4096 and \"all\", such as 1,all", word);
        if (std::find(counts.begin(), counts.end(), n) == counts.end()) counts.push_back(n);
    }
    return counts;
}

std::string Bench::python_to_run() const {
    if (!python.empty()) return python;
    const char* named = std::getenv("TESSERA_BENCH_PYTHON");
    return named && *named ? named : host().python;
}

bool is_python_peer(const std::string& name) { return name == "onnxruntime" || name == "torch"; }

Status Bench::check_peers() const {
    for (const std::string& name : against)
        if (clock == "device" && is_python_peer(name))
            return Error(Code::E0501, "--clock device times models that tessera compiled, and {} is none", name)
                .hint("leave --clock out");
    for (const std::string& name : against)
        if (std::error_code e; !is_python_peer(name) && !std::filesystem::exists(name, e))
            return Error(Code::E0501, "--against {}: there is no such peer, and no such file", name)
                .hint("peers are onnxruntime, torch, and any model's file");
    return {};
}

// What went wrong in a process of ours: the user's fault as it is, or a fault of ours.
Error ours_failed(const Json& answer, const std::string& model) {
    const Json& e = answer["error"];
    std::string where = e.value("where", "");
    for (Code code : all_codes())
        if (code_name(code) == e.value("code", ""))
            return Error(code, "{}", e.value("message", ""))
                .at(where.empty() ? model : where)
                .hint("{}", e.value("hint", ""));
    throw std::runtime_error(e.value("message", "the compiled model's process gave no answer"));
}

// What the runner answers. A peer in Python that fails has said why in `times.failed`; one that we compiled must not.
Result<Json> asked(Runner& runner, const Json& question) {
    auto answer = runner.process->ask(question);
    if (!answer.ok() && answer.error().code() == Code::E0410) return answer.error();
    if (!runner.compiled) {
        runner.times.failed = answer.ok() ? answer->value("failed", "") : answer.error().message();
        return answer.ok() ? *answer : Json::object();
    }
    if (!answer.ok()) throw std::runtime_error("the compiled model's process " + answer.error().message());
    if (answer->contains("error")) return ours_failed(*answer, runner.model);
    return *answer;
}

Result<Runner> Bench::start(const std::string& name, Json spec, const std::filesystem::path& folder) const {
    Runner runner;
    runner.times.name = name;
    runner.compiled = !is_python_peer(name);
    runner.model = spec["model"];
    runner.folder = folder;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    std::vector<std::string> command = host().again;
    command.insert(command.end(), {"bench", "--serve"});
    if (!runner.compiled) {
        std::string source;
        for (const EmbeddedFile& file : peer_files()) source += file.text;
        command = {python_to_run(), "-u", "-c", source};
        spec["peer"] = name;
    }
    auto began = Child::start(command, folder / "log");
    if (!began.ok()) {
        if (runner.compiled) return began.error();
        return std::move(began).error().hint("--python names a Python that has {}", name);
    }
    runner.process.emplace(std::move(*began));
    Json answer = TRY(asked(runner, spec));
    runner.times.version = answer.value("version", "");
    runner.times.load = answer.value("load_s", 0.0);
    return runner;
}

// One turn: a run to warm up where that is cheap, then as many as fit. Who is first one time is last the next.
Status Bench::take_turns(std::vector<Runner>& runners, Progress& line) const {
    auto enough = [&](const Runner& r) { return !r.alive() || (r.times.seconds.size() >= runs && r.total >= seconds); };
    for (size_t turn = 0; !std::all_of(runners.begin(), runners.end(), enough); ++turn) {
        for (size_t i = 0; i < runners.size(); ++i) {
            Runner& r = runners[turn % 2 ? runners.size() - 1 - i : i];
            if (!r.alive()) continue;
            line.update(r.times.name, r.times.seconds.size(), std::max(runs, r.times.seconds.size()));
            bool first = turn == 0;
            Json question{{"warm", first || r.typical() < kTurnSeconds / 2}, {"most", kMostInTurn}};
            question["seconds"] = kTurnSeconds;
            Stopwatch whole;  // also what is around the runs, so that --seconds bounds how long it takes
            Json answer = TRY(asked(r, question));
            r.total += whole.seconds();
            if (!r.alive()) continue;
            std::vector<double> taken = answer["seconds"];
            r.times.peak_rss = answer.value("peak_rss", int64_t{0});
            r.times.turns.push_back(quartiles(taken).median);
            r.times.seconds.insert(r.times.seconds.end(), taken.begin(), taken.end());
        }
    }
    return {};
}

Result<std::vector<Datum>> outputs_of(Runner& runner, const Model& model) {
    Json answer = TRY(runner.process->ask({{"save", runner.folder.string()}}));
    std::vector<Datum> values;
    if (answer.contains("error")) return ours_failed(answer, runner.model);
    const Json& files = answer["files"];
    if (files.size() != model.graph().outputs().size()) return values;
    for (size_t i = 0; i < files.size(); ++i)
        values.push_back(TRY(read_value(files[i].get<std::string>(), model.graph().outputs()[i]->type())));
    return values;
}

std::optional<double> largest_difference(const std::vector<Datum>& a, const std::vector<Datum>& b) {
    if (a.empty() || a.size() != b.size()) return std::nullopt;
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, difference(a[i], b[i]));
    return most;
}

std::optional<double> error_to(const std::vector<Datum>& reference, const std::vector<Datum>& values) {
    std::vector<Datum> wide;
    for (const Datum& d : values) {
        auto w = in_f64(d);
        if (!w.ok()) return std::nullopt;
        wide.push_back(std::move(*w));
    }
    return largest_difference(reference, wide);
}

Status Bench::compare(std::vector<Runner>& runners, const Model& model,
                      const std::optional<std::vector<Datum>>& reference) const {
    std::vector<Datum> ours = TRY(outputs_of(runners[0], model));
    for (Runner& r : runners) {
        if (!r.alive()) continue;
        bool is_ours = &r == &runners[0];
        auto theirs = is_ours ? Result<std::vector<Datum>>(ours) : outputs_of(r, model);
        if (!theirs.ok()) continue;
        if (!is_ours) r.times.difference = largest_difference(*theirs, ours);
        if (reference) r.times.error = error_to(*reference, *theirs);
    }
    return {};
}

// Of all outputs, in order.
Result<std::vector<Datum>> expected_outputs(const std::vector<std::string>& given, const Model& model) {
    const std::vector<Port> ports = model.outputs();
    std::vector<std::optional<Datum>> found(ports.size());
    for (const std::string& text : given) {
        const Assignment a = TRY(parse_assignment(text, ports, "--expected"));
        found[a.port] = TRY(in_f64(TRY(read_value(a.file, model.graph().outputs()[a.port]->type()))));
    }
    std::vector<Datum> all;
    for (size_t i = 0; i < ports.size(); ++i) {
        if (!found[i]) return Error(Code::E0501, "--expected gives no value for output \"{}\"", ports[i].name);
        all.push_back(std::move(*found[i]));
    }
    return all;
}

// The first peer that failed, as an error.
Status peers_worked(const std::vector<ThreadTimes>& all) {
    for (const ThreadTimes& t : all)
        for (const RunnerTimes& r : t.runners) {
            if (r.failed.empty()) continue;
            Error failed(Code::E0501, "{} failed: {}", r.name, r.failed);
            if (r.failed.find("No module named") == std::string::npos) return failed;
            return std::move(failed).hint("--python names a Python that has {}: python3 -m pip install {}", r.name,
                                          r.name);
        }
    return {};
}

Status Bench::operator()() {
    if (serve) return serve_compiled();
    TRY(inputs.check_files());
    std::vector<int> counts = TRY(thread_counts());
    TRY(check_peers());
    CompileOptions chosen = TRY(flags.chosen());
    Model model = TRY(load_or_demo(path, inputs.seed));
    NamedData given = TRY(inputs.gather(model, path));
    TemporaryFolder folder = TRY(TemporaryFolder::make());

    Json spec{
        {"clock", clock}, {"precision", chosen.precision}, {"target", chosen.target}, {"optimize", chosen.optimize}};
    spec["fuse"] = chosen.fuse;
    if (chosen.cache) spec["cache"] = *chosen.cache;
    if (!torch.empty()) spec["torch"] = torch;
    bool onnx_file = path.ends_with(".onnx");
    if (!onnx_file) TRY(model.save((folder.path() / "model.onnx").string()));
    spec["model"] = onnx_file ? std::filesystem::absolute(path).string() : (folder.path() / "model.onnx").string();
    std::string ours = spec["model"];
    if (flags.search > 0) {
        ours = (folder.path() / "searched.onnx").string();
        CompileFlags timed = flags;
        timed.options.threads = counts[0];
        TRY(TRY(timed.searched(model, sizes_of(model.graph(), given), progress)).save(ours));
    }
    spec["inputs"] = Json::object();
    for (const Port& port : model.inputs()) {
        auto it = given.find(port.name);
        if (it == given.end()) continue;
        ValueFile file = TRY(ValueFile::create(folder.path() / fmt::format("in{}.npy", spec["inputs"].size())));
        TRY(file.write(it->second, port.name));
        TRY(file.commit());
        spec["inputs"][port.name] = file.path().string();
    }
    std::optional<std::vector<Datum>> reference;
    Progress line(progress, "bench");
    if (!expected.empty()) {
        reference = TRY(expected_outputs(expected, model));
    } else if (accuracy) {
        line.update("the reference in f64", 0, counts.size());
        reference = TRY(evaluate_in_f64(model, given));
    }
    std::vector<ThreadTimes> all;
    for (int n : counts) {
        spec["threads"] = n;
        std::vector<Runner> runners;
        std::vector<std::string> names = {"tessera"};
        names.insert(names.end(), against.begin(), against.end());
        for (const std::string& name : names) {
            line.update("starting " + name, all.size(), counts.size());
            Json its_own = spec;
            if (runners.empty()) its_own["model"] = ours;
            if (!runners.empty() && !is_python_peer(name)) its_own["model"] = std::filesystem::absolute(name).string();
            std::filesystem::path place = folder.path() / fmt::format("{}", runners.size());
            runners.push_back(TRY(start(name, std::move(its_own), place)));
        }
        TRY(take_turns(runners, line));
        TRY(compare(runners, model, reference));
        ThreadTimes times{n, {}};
        for (Runner& r : runners) times.runners.push_back(std::move(r.times));
        all.push_back(std::move(times));
    }
    if (json) {
        Json j{{"model", path.empty() ? "resnet50" : path}, {"clock", clock}};
        j["dims"] = sizes_of(model.graph(), given);
        j["measured"] = times_json(all);
        print_json(j);
    } else {
        fmt::print("{}\n", bold(shown_path(path)));
        print_times(all);
    }
    printed = true;
    return peers_worked(all);
}

}  // namespace

void add_bench(CLI::App& app, Chosen& chosen) {
    auto bench = std::make_shared<Bench>();
    CLI::App* c = app.add_subcommand("bench", "Measure a compiled model, alone or against other runtimes");
    c->add_option("model", bench->path,
                  "ONNX file, Tessera's text form, or - for standard input; without it, the built-in ResNet-50")
        ->option_text("FILE");
    c->add_option("--against", bench->against, "Compare with onnxruntime, torch, or a model file")
        ->option_text("NAME,...")
        ->delimiter(',');
    c->add_option("--threads", bench->threads, "Numbers of threads (1,all)")->option_text("N,...")->delimiter(',');
    c->add_option("--runs", bench->runs, "Minimum number of runs of each (10)")
        ->option_text("N")
        ->check(between(1, 1'000'000));
    c->add_option("--seconds", bench->seconds, "Minimum seconds for each (2)")
        ->option_text("S")
        ->check(between(0, 1e6));
    c->add_option(
         "--clock", bench->clock,
         "wall: wall-clock time; processor: CPU time, for a busy machine; device: a GPU's clock, without copies (wall)")
        ->option_text("wall|processor|device")
        ->check(CLI::IsMember({"wall", "processor", "device"}));
    c->add_option("--python", bench->python,
                  "Python interpreter with the packages to compare with (TESSERA_BENCH_PYTHON, or python3)")
        ->option_text("PROGRAM");
    c->add_option("--torch", bench->torch, "For torch: a Python file whose build(NAME) returns the module")
        ->option_text("FILE.py:NAME");
    c->add_flag("--accuracy", bench->accuracy, "Measure the error of each against the reference in f64, which is slow");
    c->add_option("--expected", bench->expected, "Measure the error of each against these values of the outputs")
        ->option_text("NAME=FILE ...")
        ->allow_extra_args(false);
    bench->inputs.add_options(*c);
    bench->flags.add_options(*c);
    bench->flags.add_search(*c);
    add_strict_option(*c);
    c->add_flag("--json", bench->json, "Print JSON");
    c->add_flag("--serve", bench->serve)->group("");
    add_progress_option(*c, bench->progress);
    c->footer(fmt::format("{}\n{}", kBenchExamples, kExitStatus));
    c->callback([bench, &chosen] {
        chosen = [bench] {
            const auto done = (*bench)();  // sets `printed`
            const int status = report(done, bench->json && !bench->printed);
            return bench->printed && status == kWrongUsage ? kWrongInput : status;
        };
    });
}

}  // namespace tessera::cli
