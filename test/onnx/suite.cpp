// Runs ONNX's backend tests from the files that dump_suite.py writes: DIR/<kind>/<test>/model.onnx with its data sets.
// Each test runs in a process of its own, so that a crash or a hang is one failure and not the end.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "graph/evaluate/evaluate.h"
#include "graph/onnx/from_onnx.h"
#include "graph/onnx/to_onnx.h"
#include "graph/onnx/values.h"
#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "graph/verify.h"
#include "kernel/from_graph/from_graph.h"
#include "kernel/from_graph/op_lowering.h"
#include "onnx/read.h"
#include "onnx/write.h"
#include "rewrite/passes/optimize.h"
#include "runtime/interpreted_module.h"
#include "runtime/loaded_program.h"
#include "tessera/compile.h"

namespace fs = std::filesystem;
using namespace tessera;

namespace {

struct Options {
    fs::path folder;
    std::string filter = ".*";
    std::string target = "host";
    fs::path excluded, write;
    bool round_trip = false, optimize = false, compiled = false, interpreted = false, list = false, verbose = false;
    int jobs = 2;
    size_t batch = 1;            // tests a process
    size_t part = 0, parts = 0;  // each so-many-th test from one on, all in this process; 0: in processes of their own
    int timeout = 300;           // seconds a test
};

struct Tolerance {
    double rtol = 1e-3, atol = 1e-7;
};

std::set<std::string> ops_of(const Graph& graph) {
    std::set<std::string> names;
    std::vector<const Graph*> open = {&graph};
    while (!open.empty()) {
        const Graph* g = open.back();
        open.pop_back();
        for (const auto& node : g->nodes()) {
            names.insert(node->op().name);
            for (const auto& [_, attr] : node->attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr)) open.push_back(nested->get());
        }
    }
    return names;
}

std::string op_names(const Graph& graph) {
    const std::string text = fmt::format("{}", fmt::join(ops_of(graph), ", "));
    return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

// Why they differ; empty where they do not. The rule is that of ONNX's own runner.
std::string difference(const Tensor& got, const Tensor& want, Tolerance t) {
    if (got.dtype() != want.dtype())
        return fmt::format("element type {} instead of {}", dtype_name(got.dtype()), dtype_name(want.dtype()));
    if (got.sizes() != want.sizes())
        return fmt::format("shape {} instead of {}", to_string(got.sizes()), to_string(want.sizes()));
    if (got.dtype() == DType::string) {
        for (int64_t i = 0; i < got.elements(); ++i)
            if (got.as_strings()[i] != want.as_strings()[i])
                return fmt::format("element {} is \"{}\" instead of \"{}\"", i, got.as_strings()[i],
                                   want.as_strings()[i]);
        return {};
    }
    if (got.dtype() == DType::bf16) t.rtol = std::max(t.rtol, 0x1p-6);
    int64_t wrong = 0;
    std::string first;
    auto compare = [&](auto g, auto w, int64_t i) {
        if (g == w || (g != g && w != w)) return;
        if (!(std::isinf(std::abs(w)) || std::isinf(std::abs(g))) && std::abs(g - w) <= t.atol + t.rtol * std::abs(w))
            return;
        if (wrong++ == 0) {
            if constexpr (std::is_same_v<decltype(g), double>)
                first = fmt::format("element {} is {} instead of {}", i, g, w);
            else
                first =
                    fmt::format("element {} is {}+{}i instead of {}+{}i", i, g.real(), g.imag(), w.real(), w.imag());
        }
    };
    using C = std::complex<double>;
    for (int64_t i = 0; i < got.elements(); ++i) {
        if (got.dtype() == DType::c64)
            compare(C(got.as<std::complex<float>>()[i]), C(want.as<std::complex<float>>()[i]), i);
        else if (got.dtype() == DType::c128)
            compare(got.as<C>()[i], want.as<C>()[i], i);
        else if (got.dtype() == DType::i64 || got.dtype() == DType::u64) {
            if (got.int_at(i) != want.int_at(i)) compare(got.real_at(i), want.real_at(i), i);
        } else
            compare(got.real_at(i), want.real_at(i), i);
    }
    return wrong ? fmt::format("{} ({} of {} differ)", first, wrong, got.elements()) : "";
}

std::string difference(const Datum& got, const Datum& want, Tolerance t) {
    if (got.kind() != want.kind()) {
        static constexpr const char* kKinds[] = {"a tensor", "a sequence", "an optional"};
        return fmt::format("{} instead of {}", kKinds[int(got.kind())], kKinds[int(want.kind())]);
    }
    if (got.is_tensor()) return difference(got.tensor(), want.tensor(), t);
    if (got.items().size() != want.items().size())
        return fmt::format("{} items instead of {}", got.items().size(), want.items().size());
    for (size_t i = 0; i < got.items().size(); ++i)
        if (auto d = difference(got.items()[i], want.items()[i], t); !d.empty())
            return fmt::format("item {}: {}", i, d);
    return {};
}

Result<Datum> read_datum(const fs::path& file, const onnx::Type& type) {
    switch (type.kind) {
        case onnx::Type::Kind::Sequence: return datum_from_onnx(TRY(onnx::read_sequence_file(file)));
        case onnx::Type::Kind::Optional: return datum_from_onnx(TRY(onnx::read_optional_file(file)));
        default: return Datum(TRY(tensor_from_onnx(TRY(onnx::read_tensor_file(file)))));
    }
}

// What ONNX's runner feeds a model that comes without inputs: 0, 1/n, 2/n, ...
Result<Datum> counting_input(const Type& type) {
    Sizes sizes;
    for (const Dim& d : type.tensor().shape) sizes.push_back(d.as_int().value_or(1));
    Tensor t = TRY(Tensor::zeros(DType::f32, sizes));
    for (int64_t i = 0; i < t.elements(); ++i)
        t.mutable_as<float>()[i] = static_cast<float>(static_cast<double>(i) / static_cast<double>(t.elements()));
    return Datum(t);
}

struct DataSet {
    Inputs inputs;
    std::vector<Datum> outputs;
};

Result<DataSet> read_data_set(const fs::path& folder, const onnx::Graph& graph, const Graph& ours) {
    DataSet set;
    for (size_t j = 0; j < graph.inputs.size(); ++j) {
        fs::path file = folder / fmt::format("input_{}.pb", j);
        if (!fs::exists(file)) break;
        Value* v = ours.find_value(graph.inputs[j].name);
        if (!v || v->kind() != Value::Kind::Input) continue;  // a weight of an old model
        set.inputs[graph.inputs[j].name] = TRY(read_datum(file, graph.inputs[j].type));
    }
    if (set.inputs.empty() && folder.parent_path().parent_path().filename() == "light")
        for (const auto& v : ours.inputs())
            if (!v->tensor()) set.inputs[v->name()] = TRY(counting_input(v->type()));
    for (size_t j = 0; j < graph.outputs.size(); ++j) {
        fs::path file = folder / fmt::format("output_{}.pb", j);
        if (!fs::exists(file)) break;
        set.outputs.push_back(TRY(read_datum(file, graph.outputs[j].type)));
    }
    return set;
}

// What a graph should be, and how far it is from that; empty where it is that.
std::string compare(const Result<std::unique_ptr<Graph>>& got, const Graph& want, std::string_view step) {
    if (!got.ok())
        return fmt::format("round trip, {}: {} {}", step, code_name(got.error().code()), got.error().message());
    std::string d;
    if (!identical(want, **got, &d)) return fmt::format("round trip, {}: {}", step, d);
    return {};
}

// ONNX -> graph -> text -> graph -> ONNX -> graph: gives the last one, or why it is not the first one.
Result<std::unique_ptr<Graph>> round_trip(const Graph& graph, const fs::path& folder, const Options& options) {
    auto fail = [](const std::string& why) { return Error(Code::E0501, "{}", why); };
    if (auto list = violations(graph); !list.empty()) return fail("round trip, verify: " + list[0]);
    auto parsed = parse(print(graph));
    if (auto why = compare(parsed, graph, "text"); !why.empty()) return fail(why);
    if (!(graph.info() == (*parsed)->info())) return fail("round trip, text: model info differs");
    auto written = to_onnx(**parsed);
    if (!written.ok()) return fail(fmt::format("round trip, to ONNX: {}", written.error().message()));
    auto bytes = onnx::write_model(*written);
    if (!bytes.ok()) return fail("round trip, writing: " + bytes.error().message());
    if (!options.write.empty()) {
        fs::path to = options.write / folder.parent_path().filename() / folder.filename();
        fs::create_directories(to);
        std::ofstream(to / "model.onnx", std::ios::binary) << *bytes;
    }
    auto held = std::make_shared<const std::string>(std::move(*bytes));
    auto read = onnx::read_model(*held, held);
    if (!read.ok()) return fail("round trip, reading: " + read.error().message());
    auto again = from_onnx(*read);
    if (auto why = compare(again, graph, "from ONNX"); !why.empty()) return fail(why);
    return again;
}

// The bytes of the optimized model.
Result<std::string> optimized_bytes(Graph& graph) {
    TRY(optimize(graph, {.watch = {.verify = true}}));
    return onnx::write_model(TRY(to_onnx(graph)));
}

// What the optimizer makes of a graph, as it comes back from a file; optimizing it again must change nothing.
Result<std::unique_ptr<Graph>> optimized(const Graph& graph) {
    auto fail = [](std::string_view step, const std::string& why) {
        return Error(Code::E0501, "optimizing, {}: {}", step, why);
    };
    auto copy = graph.clone();
    auto bytes = optimized_bytes(*copy);
    if (!bytes.ok()) return fail("the first time", bytes.error().message());
    auto held = std::make_shared<const std::string>(std::move(*bytes));
    auto read = onnx::read_model(*held, held);
    if (!read.ok()) return fail("reading", read.error().message());
    auto once = from_onnx(*read), twice = from_onnx(*read);
    if (!once.ok()) return fail("importing", once.error().message());
    auto again = optimized_bytes(**twice);
    if (!again.ok()) return fail("the second time", again.error().message());
    if (*again != *held) return fail("the second time", "it changed something");
    return once;
}

// The model with its integer inputs, by which shapes and axes are given, as constants.
onnx::Model with_constants(const onnx::Model& model, const Inputs& values) {
    onnx::Model out = model;
    std::erase_if(out.graph.inputs, [&](const onnx::ValueInfo& v) {
        auto it = values.find(v.name);
        if (it == values.end() || !it->second.is_tensor()) return false;
        const Tensor& t = it->second.tensor();
        if (!is_int(t.dtype()) || t.elements() > 64) return false;
        out.graph.initializers.push_back(tensor_to_onnx(t, v.name));
        return true;
    });
    return out;
}

using RunModel = std::function<Result<std::vector<Datum>>(const Inputs&)>;

// How the outputs differ from those that the test has; empty where they do not.
std::string check_outputs(const Graph& graph, const RunModel& run, const DataSet& set, const std::string& ops,
                          const Tolerance& tolerance) {
    Inputs inputs;
    for (const auto& v : graph.inputs())
        if (auto it = set.inputs.find(v->name()); it != set.inputs.end()) inputs.insert(*it);
    auto outputs = run(inputs);
    if (!outputs.ok())
        return fmt::format("running ({}): {} {}", ops, code_name(outputs.error().code()), outputs.error().message());
    if (outputs->size() < set.outputs.size())
        return fmt::format("wrong result ({}): {} outputs instead of {}", ops, outputs->size(), set.outputs.size());
    for (size_t i = 0; i < set.outputs.size(); ++i) {
        auto d = difference((*outputs)[i], set.outputs[i], tolerance);
        if (!d.empty()) return fmt::format("wrong result ({}): output {}: {}", ops, i, d);
    }
    return {};
}

RunModel evaluated(const Graph& graph) {
    return [&graph](const Inputs& inputs) { return evaluate(graph, inputs); };
}

// Kernels as they are written, every access checked.
RunModel interpreted(const Graph& graph, const std::string& target) {
    auto copy = graph.clone();
    auto done = optimize(*copy, {.last_phase = Phase::Rewrite});
    if (!done.ok()) return [error = done.error()](const Inputs&) { return error; };
    LowerOptions lower;
    if (target != "host") {
        auto machine = describe_target(target);
        if (!machine.ok()) return [error = machine.error()](const Inputs&) { return error; };
        lower.machine = *machine;
    }
    auto program = from_graph(std::shared_ptr<const Graph>(std::move(copy)), lower);
    if (!program.ok()) return [error = program.error()](const Inputs&) { return error; };
    auto module = std::make_shared<test::InterpretedModule>(program->kernels);
    auto loaded = LoadedProgram::load(std::move(*program), module, {.threads = 1});
    if (!loaded.ok()) return [error = loaded.error()](const Inputs&) { return error; };
    std::shared_ptr<LoadedProgram> kept = std::move(*loaded);
    return [kept](const Inputs& inputs) { return kept->run(inputs); };
}

// What a test leaves to the evaluator, as "op: why"; where that is nothing, "ops" and the ops that it has. nullopt
// until something was compiled.
using HostSteps = std::optional<std::set<std::string>>;

RunModel compiled(const Graph& graph, const std::string& target, HostSteps& hosts) {
    auto executable = compile(Model(graph.clone()), {.target = target, .threads = 2, .cache = ""});
    if (!executable.ok()) return [error = executable.error()](const Inputs&) { return error; };
    std::set<std::string> left;
    for (const auto& [node, why] : executable->report().host_reasons) left.insert(node + ": " + why);
    if (!executable->report().host_numbers) left.insert("no numbers");
    if (left == std::set<std::string>{"no numbers"}) left.insert(fmt::format("ops {}", fmt::join(ops_of(graph), " ")));
    auto count = [](const std::set<std::string>& s) { return s.rbegin()->starts_with("ops ") ? 0 : s.size(); };
    if (!hosts || count(left) < count(*hosts)) hosts = std::move(left);
    return [executable = std::move(*executable)](const Inputs& inputs) { return executable.run(inputs); };
}

RunModel runner(const Graph& graph, const Options& options, HostSteps& hosts) {
    if (options.compiled) return compiled(graph, options.target, hosts);
    if (options.interpreted) return interpreted(graph, options.target);
    return evaluated(graph);
}

// Empty: passed. Otherwise one line of why, ops in it, so that equal reasons group. Of a test that is compiled both
// with its integer inputs and with them as constants, `hosts` is what the better of the two leaves.
std::string run_test(const fs::path& folder, const Options& options, HostSteps& hosts) {
    auto model = onnx::read_model_file(folder / "model.onnx");
    if (!model.ok()) return "reading: " + model.error().to_string();
    auto imported = from_onnx(*model);
    if (!imported.ok())
        return fmt::format("importing: {} {}", code_name(imported.error().code()), imported.error().message());
    std::string ops = op_names(**imported);
    if (options.round_trip) {
        imported = round_trip(**imported, folder, options);
        if (!imported.ok()) return imported.error().message();
    }
    if (options.optimize) {
        imported = optimized(**imported);
        if (!imported.ok()) return imported.error().message();
    }
    const Graph& graph = **imported;

    const bool lowered = options.compiled || options.interpreted;
    Tolerance tolerance;
    if (std::ifstream file(folder / "tolerance.json"); file) {
        auto json = nlohmann::json::parse(file, nullptr, false);
        if (json.is_object()) tolerance = {json.value("rtol", 1e-3), json.value("atol", 1e-7)};
    }
    if (options.optimize || lowered) tolerance.rtol *= 2;  // rules reassociate, which the tests in f16 can see
    const RunModel run = runner(graph, options, hosts);
    std::vector<fs::path> sets;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_directory() && entry.path().filename().string().starts_with("test_data_set"))
            sets.push_back(entry.path());
    std::sort(sets.begin(), sets.end());
    for (const fs::path& path : sets) {
        auto set = read_data_set(path, model->graph, graph);
        if (!set.ok()) return "test data: " + set.error().to_string();
        if (auto why = check_outputs(graph, run, *set, ops, tolerance); !why.empty()) return why;
        if (!options.optimize && !lowered) continue;
        onnx::Model known = with_constants(*model, set->inputs);
        if (lowered && known.graph.inputs.size() == model->graph.inputs.size()) continue;
        auto constant = from_onnx(known);
        if (!constant.ok()) continue;  // an output that is an initializer, say
        auto smaller = options.optimize ? optimized(**constant) : std::move(constant);
        if (!smaller.ok()) return smaller.error().message();
        auto why = check_outputs(**smaller, runner(**smaller, options, hosts), *set, ops, tolerance);
        if (!why.empty()) return "with constants, " + why;
    }
    return {};
}

struct Job {
    std::vector<fs::path> folders;
    pid_t pid;
    int pipe;
    std::chrono::steady_clock::time_point deadline;
    std::string text;
};

constexpr char kEnd = '\0';  // of a test's text

// "ok" and what is left to the host, or "x" and what is wrong.
std::string outcome_of(const fs::path& folder, const Options& options) {
    HostSteps hosts;
    std::string text = run_test(folder, options, hosts);
    text = text.empty() ? "ok" : "x" + text;
    if (text == "ok" && hosts) text += fmt::format("\n{}", fmt::join(*hosts, "\n"));
    return text;
}

Job start(std::vector<fs::path> folders, const Options& options) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    std::fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        if (!options.verbose && !std::freopen("/dev/null", "w", stderr)) std::abort();
        for (const fs::path& folder : folders) {
            std::string text = outcome_of(folder, options);
            if (folders.size() > 1) text += kEnd;
            size_t at = 0;
            while (at < text.size()) {
                ssize_t n = write(ends[1], text.data() + at, text.size() - at);
                if (n <= 0) break;
                at += static_cast<size_t>(n);
            }
        }
        _exit(0);
    }
    close(ends[1]);
    const auto most = std::chrono::seconds(options.timeout) * folders.size();
    return {std::move(folders), pid, ends[0], std::chrono::steady_clock::now() + most, {}};
}

// True when the job is over; its text then says how.
bool advance(Job& job) {
    pollfd p{job.pipe, POLLIN, 0};
    if (poll(&p, 1, 5) > 0) {
        char buffer[4096];
        ssize_t n = read(job.pipe, buffer, sizeof buffer);
        if (n > 0) {
            job.text.append(buffer, static_cast<size_t>(n));
            return false;
        }
    } else if (std::chrono::steady_clock::now() < job.deadline) {
        return false;
    } else {
        kill(job.pid, SIGKILL);
        job.text += "xtook too long";
    }
    close(job.pipe);
    int status = 0;
    waitpid(job.pid, &status, 0);
    if (!job.text.empty() && (job.folders.size() == 1 || job.text.back() != kEnd)) return true;
    if (WIFSIGNALED(status))
        job.text += fmt::format("xcrashed: {}", strsignal(WTERMSIG(status)));
    else if (job.text.empty() || WEXITSTATUS(status) != 0)
        job.text += fmt::format("xended with status {}", WEXITSTATUS(status));
    return true;
}

// What the job says of one of its tests.
std::string text_of(const Job& job, size_t number) {
    size_t at = 0;
    for (size_t i = 0; i < number && at < job.text.size(); ++i)
        at = std::min(job.text.find(kEnd, at), job.text.size() - 1) + 1;
    if (at >= job.text.size()) return "xa test before it, in the same process, did not end";
    return job.text.substr(at, std::min(job.text.find(kEnd, at), job.text.size()) - at);
}

// Numbers vary within one cause; without them equal causes group.
std::string cause(const std::string& text) {
    static const std::regex numbers("-?[0-9][0-9.e+-]*|\\bnan\\b|-?\\binf\\b");
    std::string line = text.substr(0, text.find('\n'));
    if (line.starts_with("wrong result")) return line.substr(0, line.find("):") + 1);
    return std::regex_replace(line, numbers, "#");
}

bool uses(const fs::path& model, const std::string& op) {
    auto read = onnx::read_model_file(model);
    if (!read.ok()) return false;
    auto graph = from_onnx(*read);
    return graph.ok() && ops_of(**graph).contains(op);
}

struct Counts {
    int passed = 0, failed = 0, excluded = 0;
};

// What came of all tests.
struct Outcome {
    std::map<std::string, Counts> counts;                                              // by kind
    std::map<std::string, std::vector<std::pair<std::string, std::string>>> failures;  // cause -> (test, text)
    std::map<std::string, std::vector<std::string>> left;                              // host step -> tests
    int numbers = 0;                                                                   // without one that computes
    int whole = 0;                                                                     // compiled without any
    std::set<std::string> without;                                                     // the ops of those
};

std::vector<fs::path> find_tests(const Options& options, Outcome& outcome) {
    std::set<std::string> excluded;  // a name a line, then the reason
    if (std::ifstream file(options.excluded); file)
        for (std::string line; std::getline(file, line);)
            if (!line.empty() && line[0] != '#') excluded.insert(line.substr(0, line.find(' ')));
    std::regex filter(options.filter);
    std::vector<fs::path> tests;
    for (const auto& kind : fs::directory_iterator(options.folder)) {
        if (!kind.is_directory()) continue;
        for (const auto& test : fs::directory_iterator(kind.path())) {
            if (!fs::exists(test.path() / "model.onnx")) continue;
            std::string name = test.path().filename().string();
            if (!std::regex_search(name, filter)) continue;
            if (excluded.count(name))
                ++outcome.counts[kind.path().filename().string()].excluded;
            else
                tests.push_back(test.path());
        }
    }
    std::sort(tests.begin(), tests.end());
    return tests;
}

void note_hosts(const std::string& test, const std::string& text, Outcome& outcome) {
    std::istringstream lines(text.substr(std::min<size_t>(text.size(), 3)));
    for (std::string line; std::getline(lines, line);) {
        if (line == "no numbers") {
            ++outcome.numbers;
            continue;
        }
        if (!line.starts_with("ops ")) {
            outcome.left[line].push_back(test);
            continue;
        }
        ++outcome.whole;
        std::istringstream ops(line.substr(4));
        for (std::string op; ops >> op;) outcome.without.insert(op);
    }
}

void note(const fs::path& folder, const std::string& said, const Options& options, Outcome& outcome) {
    const std::string name = folder.filename().string();
    Counts& count = outcome.counts[folder.parent_path().filename().string()];
    if (said.starts_with("ok")) {
        ++count.passed;
        if (options.verbose) fmt::print("passed {}\n", name);
        note_hosts(name, said, outcome);
    } else {
        ++count.failed;
        const std::string text = said.substr(1);
        if (options.verbose) fmt::print("FAILED {}: {}\n", name, text);
        outcome.failures[cause(text)].emplace_back(name, text);
    }
}

void run_tests(const std::vector<fs::path>& tests, const Options& options, Outcome& outcome) {
    std::vector<Job> running;
    for (size_t i = options.part; options.parts > 0 && i < tests.size(); i += options.parts) {
        note(tests[i], outcome_of(tests[i], options), options, outcome);
        std::fflush(stdout);
    }
    if (options.parts > 0) return;
    for (size_t next = 0; next < tests.size() || !running.empty();) {
        while (next < tests.size() && running.size() < static_cast<size_t>(options.jobs)) {
            const size_t end = std::min(tests.size(), next + options.batch);
            running.push_back(
                start({tests.begin() + std::ptrdiff_t(next), tests.begin() + std::ptrdiff_t(end)}, options));
            next = end;
        }
        for (size_t i = 0; i < running.size();) {
            Job& job = running[i];
            if (!advance(job)) {
                ++i;
                continue;
            }
            for (size_t k = 0; k < job.folders.size(); ++k) note(job.folders[k], text_of(job, k), options, outcome);
            running.erase(running.begin() + static_cast<ptrdiff_t>(i));
        }
    }
}

void print_failures(const Outcome& outcome) {
    std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>> groups(
        outcome.failures.begin(), outcome.failures.end());
    std::sort(groups.begin(), groups.end(),
              [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    for (const auto& [why, list] : groups) {
        fmt::print("{} x {}\n", list.size(), list[0].second);
        for (size_t i = 0; i < list.size() && i < 12; ++i) fmt::print("    {}\n", list[i].first);
        if (list.size() > 12) fmt::print("    ... and {} more\n", list.size() - 12);
    }
}

// What lowering says of an op must be true of at least one test; returns how many ops it is not true of.
int count_false_claims(const std::vector<fs::path>& tests, const Outcome& outcome) {
    int found = 0;
    for (const OpDef* op : all_ops()) {
        if (op->onnx.name.empty() || op_lowering(*op) == OpLowering::Host || outcome.without.contains(op->name))
            continue;
        const bool tested = std::any_of(tests.begin(), tests.end(),
                                        [&](const fs::path& test) { return uses(test / "model.onnx", op->name); });
        if (!tested) continue;
        ++found;
        fmt::print("{} is said to be compiled, but no test of it is without a host step\n", op->name);
    }
    return found;
}

int run_all(const Options& options) {
    Outcome outcome;
    const std::vector<fs::path> tests = find_tests(options, outcome);
    if (options.list) {
        for (const auto& test : tests)
            fmt::print("{}/{}\n", test.parent_path().filename().string(), test.filename().string());
        return 0;
    }
    if (tests.empty()) {
        fmt::print(stderr, "no tests under {}\n", options.folder.string());
        return 2;
    }
    run_tests(tests, options, outcome);
    print_failures(outcome);
    Counts all;
    for (const auto& [kind, c] : outcome.counts) {
        fmt::print("{}: {} passed, {} failed{}\n", kind, c.passed, c.failed,
                   c.excluded ? fmt::format(", {} excluded", c.excluded) : "");
        all.passed += c.passed;
        all.failed += c.failed;
    }
    for (const auto& [step, list] : outcome.left)
        fmt::print("left to the evaluator: {} ({})\n", step, fmt::join(list, " "));
    const bool whole = options.filter == Options().filter && options.parts == 0;
    if (options.compiled && whole) all.failed += count_false_claims(tests, outcome);
    fmt::print("all: {} passed, {} failed{}\n", all.passed, all.failed,
               options.compiled
                   ? fmt::format(", {} of them without a host step, {} without one that computes with numbers",
                                 outcome.whole, outcome.numbers)
                   : "");
    return all.failed ? 1 : 0;
}

int usage() {
    fmt::print(
        stderr,
        "usage: onnx_suite DIR [--filter REGEX] [--round-trip] [--optimize] [--compiled] [--interpreted] [--target "
        "NAME] [--list]\n"
        "                  [--jobs N] [--batch N] [--timeout SECONDS] [--exclude FILE] [--write DIR] [--verbose]\n"
        "                  [--part I/N]\n"
        "--round-trip goes ONNX -> graph -> text -> graph -> ONNX -> graph first; --write keeps those ONNX files\n"
        "--optimize optimizes the model first, and once more with its integer inputs as constants\n"
        "--compiled runs machine code, and once more with its integer inputs as constants; --interpreted runs the\n"
        "  kernels as they are written, every access checked\n"
        "--batch runs so many tests in one process, which opens a device once for all of them\n"
        "--part I/N runs each Nth test from I on in this process, for tools that watch one process\n");
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        std::string arg = argv[i];
        auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
        if (arg == "--target")
            options.target = value();
        else if (arg == "--filter")
            options.filter = value();
        else if (arg == "--exclude")
            options.excluded = value();
        else if (arg == "--write")
            options.write = value();
        else if (arg == "--jobs")
            options.jobs = std::max(1, std::atoi(value().c_str()));
        else if (arg == "--batch")
            options.batch = static_cast<size_t>(std::max(1, std::atoi(value().c_str())));
        else if (arg == "--part") {
            if (std::sscanf(value().c_str(), "%zu/%zu", &options.part, &options.parts) != 2 ||
                options.part >= options.parts)
                return usage();
        } else if (arg == "--timeout")
            options.timeout = std::max(1, std::atoi(value().c_str()));
        else if (arg == "--round-trip")
            options.round_trip = true;
        else if (arg == "--optimize")
            options.optimize = true;
        else if (arg == "--compiled")
            options.compiled = true;
        else if (arg == "--interpreted")
            options.interpreted = true;
        else if (arg == "--list")
            options.list = true;
        else if (arg == "--verbose")
            options.verbose = true;
        else if (options.folder.empty() && !arg.starts_with("-"))
            options.folder = arg;
        else
            return usage();
    }
    if (options.folder.empty() || !fs::is_directory(options.folder)) return usage();
    return run_all(options);
}
