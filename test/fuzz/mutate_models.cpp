// Damages the models of a folder and does with each what a user would: load, optimize, compile, run, and evaluate. Each
// has a process of its own with limits. An error or a result is fine; a crash, a hang or more memory than allowed is
// not, and the model that did it is kept. Every ten seconds it says how far it is, and at the end, or where it is
// interrupted, what was counted. usage: mutate_models FOLDER [--count N] [--seed S] [--skip N] [--seconds T]
// [--largest BYTES] [--keep FOLDER]
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>

#include "base/memory.h"
#include "fuzz/mutate.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr rlim_t kMemory = rlim_t{2} << 30;
constexpr rlim_t kProcessorSeconds = 120;
constexpr int64_t kTensorMemory = int64_t{1} << 30;
constexpr int64_t kWork = 200'000'000;
constexpr double kSecondsOfSilence = 10;

volatile std::sig_atomic_t interrupted = 0;

// How a process ended, beside what the system says.
enum Outcome { kRan, kRefused, kNotRun, kFault, kOutcomes };
constexpr const char* kOutcomeNames[] = {"ran", "did not load", "loaded and did not run",
                                         "met a fault of ours (E0801)"};

struct Options {
    std::string folder, keep = ".";
    size_t count = 1000, skip = 0;
    uint64_t seed = 1;
    double seconds = 1e9;
    uintmax_t largest = uintmax_t{64} << 20;
};

bool is_fault(const Error& e) {
    if (e.code() == Code::E0801) fprintf(stderr, "%s\n", e.to_string().c_str());
    return e.code() == Code::E0801;
}

Outcome use(const std::string& bytes) {
    set_memory_limit(kTensorMemory);
    auto model = Model::from_onnx(bytes);
    if (!model.ok()) return is_fault(model.error()) ? kFault : kRefused;
    (void)model->summary();
    auto inputs = model->random_inputs(1);
    bool fault = false, ran = false;
    auto look = [&](const auto& result) {
        fault |= !result.ok() && is_fault(result.error());
        return result.ok();
    };
    RunOptions options{.max_work = kWork};
    auto smaller = optimize(*model);
    look(smaller);
    auto fast = compile(*model, {.threads = 1, .cache = ""});
    if (look(fast) && look(inputs)) ran = look(fast->run(*inputs, options));
    if (inputs.ok()) look(model->run(*inputs, options));
    return fault ? kFault : ran ? kRan : kNotRun;
}

// The child's part: never returns.
[[noreturn]] void child(const std::string& bytes) {
    const rlimit memory{kMemory, kMemory}, seconds{kProcessorSeconds, kProcessorSeconds}, none{0, 0};
    for (int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &none);
    try {
        _exit(use(bytes));
    } catch (const std::bad_alloc&) {
        _exit(kRefused);
    } catch (const std::exception& e) {
        fprintf(stderr, "%s\n", e.what());
        _exit(kFault);
    }
}

std::vector<fs::path> models_of(const Options& o) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::recursive_directory_iterator(o.folder))
        if (entry.path().extension() == ".onnx" && entry.file_size() <= o.largest) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// What was counted, in one line.
struct Tally {
    std::map<std::string, size_t> counts;
    size_t tried = 0, bad = 0;

    std::string to_string() const {
        std::string line;
        for (const auto& [what, n] : counts) line += std::to_string(n) + " " + what + ", ";
        return line + std::to_string(bad) + " bad";
    }
};

// Waits for the child, also where a signal comes in between.
std::optional<int> status_of(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR) return std::nullopt;
    return status;
}

int run(const Options& o) {
    const std::vector<fs::path> paths = models_of(o);
    if (paths.empty()) {
        fprintf(stderr, "no models in %s\n", o.folder.c_str());
        return 2;
    }
    std::map<fs::path, std::string> read;
    Tally tally;
    const auto began = std::chrono::steady_clock::now();
    double said = 0;
    for (size_t i = o.skip; i < o.skip + o.count && !interrupted; ++i) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        if (seconds > o.seconds) break;
        if (seconds > said + kSecondsOfSilence) {
            said = seconds;
            fprintf(stderr, "%zu of %zu after %.0f s: %s\n", tally.tried, o.count, seconds, tally.to_string().c_str());
        }
        std::mt19937_64 random(o.seed * 1'000'003 + i);  // each by itself, so that one can be made again
        const fs::path& path = paths[random() % paths.size()];
        auto [it, fresh] = read.try_emplace(path);
        if (fresh) it->second = read_file(path);
        const std::string bytes =
            random() % 4 == 0 ? mutate_bytes(it->second, random) : mutate_meaning(it->second, random);
        fflush(nullptr);
        const pid_t pid = fork();
        if (pid == 0) child(bytes);
        const auto ended = pid < 0 ? std::nullopt : status_of(pid);
        if (!ended) return 2;
        if (interrupted) break;  // the child may be, too
        const int status = *ended;
        ++tally.tried;
        const bool exited = WIFEXITED(status) && WEXITSTATUS(status) < kOutcomes;
        std::string what = exited ? kOutcomeNames[WEXITSTATUS(status)] : "CRASHED OR HUNG";
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) what = "HUNG";
        ++tally.counts[what];
        if (exited && WEXITSTATUS(status) != kFault) continue;
        tally.bad += !exited;
        const fs::path kept =
            fs::path(o.keep) / ("damaged-" + std::to_string(o.seed) + "-" + std::to_string(i) + ".onnx");
        std::ofstream(kept, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
        printf("%zu: %s (status %d): %s, kept as %s\n", i, what.c_str(), status, path.filename().c_str(), kept.c_str());
        fflush(stdout);
    }
    printf("%zu damaged models, seed %llu: %s\n", tally.tried, static_cast<unsigned long long>(o.seed),
           tally.to_string().c_str());
    return tally.bad ? 1 : 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
    tessera::Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        auto next = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
        if (word == "--count")
            o.count = std::stoull(next());
        else if (word == "--seed")
            o.seed = std::stoull(next());
        else if (word == "--skip")
            o.skip = std::stoull(next());
        else if (word == "--seconds")
            o.seconds = std::stod(next());
        else if (word == "--largest")
            o.largest = std::stoull(next());
        else if (word == "--keep")
            o.keep = next();
        else
            o.folder = word;
    }
    if (o.folder.empty() || !std::filesystem::is_directory(o.folder)) {
        fprintf(stderr,
                "usage: mutate_models FOLDER [--count N] [--seed S] [--skip N] [--seconds T]\n"
                "    [--largest BYTES] [--keep FOLDER]\n");
        return 2;
    }
    for (int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { tessera::interrupted = 1; });
    return tessera::run(o);
}
