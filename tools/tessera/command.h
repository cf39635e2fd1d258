// What the subcommands share: how they report an error, how far they are, and what a person can read on a terminal.
// Exit status: 0 success, 1 invalid file, model or input, 2 wrong usage, 3 internal error, 130 interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/graph.h"
#include "tessera/tessera.h"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

inline constexpr int kDone = 0, kWrongInput = 1, kWrongUsage = 2, kOurFault = 3, kInterrupted = 130;
inline constexpr const char* kExitStatus =
    "Exit status: 0 success, 1 invalid file, model or input, 2 wrong usage, 3 internal error, 130 interrupted.\n";

inline constexpr int64_t kExternalFrom = 1024;  // bytes from which --external-data puts a tensor into a file of its own

// Registers one subcommand; `chosen` is set when the command line names it.
using Chosen = std::function<int()>;
void add_run(CLI::App& app, Chosen& chosen);
void add_inspect(CLI::App& app, Chosen& chosen);
void add_convert(CLI::App& app, Chosen& chosen);
void add_optimize(CLI::App& app, Chosen& chosen);
void add_ops(CLI::App& app, Chosen& chosen);
void add_rules(CLI::App& app, Chosen& chosen);
void add_compile(CLI::App& app, Chosen& chosen);
void add_profile(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_discover(CLI::App& app, Chosen& chosen);
void add_tile(CLI::App& app, Chosen& chosen);
void add_train(CLI::App& app, Chosen& chosen);
void add_calibrate(CLI::App& app, Chosen& chosen);
void add_quantize(CLI::App& app, Chosen& chosen);
void add_explore(CLI::App& app, Chosen& chosen);
void add_shard(CLI::App& app, Chosen& chosen);
void add_simulate(CLI::App& app, Chosen& chosen);
void add_devices(CLI::App& app, Chosen& chosen);
void add_cache(CLI::App& app, Chosen& chosen);
void add_completion(CLI::App& app, Chosen& chosen);
void add_version(CLI::App& app, Chosen& chosen);

// Makes a subcommand's function out of one that may fail: prints the error, as JSON too where that is asked for.
int report(const Status& status, bool json);

// Set by Ctrl-C from watch_signals() on. What does not end by itself within a second is ended, as by a second Ctrl-C.
const std::atomic<bool>& interrupted();
void watch_signals();

// While one lives, Ctrl-C ends the process at once: for work that looks at no flag and leaves nothing to undo.
class EndAtOnce {
  public:
    EndAtOnce();
    ~EndAtOnce();
    EndAtOnce(const EndAtOnce&) = delete;
    EndAtOnce& operator=(const EndAtOnce&) = delete;
};

// Says which variables of the environment are ours and make no sense.
void check_environment();

// A line on the terminal that says how far a step is that takes over a second. Gone when it is done.
class Progress {
  public:
    enum class Mode { Auto, Always, Never };
    Progress(Mode mode, std::string step);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void update(std::string_view what, size_t done, size_t total);
    void say(std::string_view text);  // a whole line

  private:
    std::string step_;
    bool shown_ = false, enabled_, terminal_;
    std::chrono::milliseconds every_;
    std::chrono::steady_clock::time_point next_;
};
void add_progress_option(CLI::App& command, Progress::Mode& mode);

class Stopwatch {
  public:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }

  private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// On a terminal, unless NO_COLOR is set.
std::string bold(const std::string& text);
std::string dim(const std::string& text);

std::string human_count(double n);                      // 25.6 M
std::string human_bytes(double n);                      // 102.4 MB
std::string human_seconds(double s);                    // 3.2 ms
std::string plural(double n, const std::string& what);  // "1 thread", "2 threads"
void say_error(const std::string& text);                // on standard error; nothing is thrown where that is closed
void print_json(const Json& json);
Json error_json(const Error& error);
std::string escaped(std::string_view text);  // control characters made visible: names in a file are anyone's

// E0501 unless the name of a model to write ends in .onnx or .tsr.
Status check_model_suffix(const std::string& out);

// A warning on standard error, and among "warnings" of what print_json prints.
void warn(const Warning& warning);
void add_strict_option(CLI::App& command);
bool reading_strictly();
// Strictly where that was asked for; its warnings are printed. "-" is standard input.
Result<Model> load_model(const std::string& path);
Result<std::string_view> read_standard_input();   // all of it; once read, it is kept
std::string shown_path(const std::string& path);  // for people: "standard input", "resnet50 (built in)"

// "N=4" pairs, as --dim takes them. E0501 where one is not NAME=SIZE.
Result<SymbolValues> parse_dims(const std::vector<std::string>& dims);
// E0401 for a symbol that is in none of the model's inputs.
Status check_dims(const SymbolValues& dims, const Model& model);
// "512M", "4G", "1000000". E0501.
Result<int64_t> parse_size(const std::string& text, const char* option);

// An expression over symbols at the given sizes, 1 for those not given; nothing where that overflows.
std::optional<int64_t> value_at(const std::string& expression, const SymbolValues& dims);
// The same in floating point, whatever it comes to.
std::optional<double> about_at(const std::string& expression, const SymbolValues& dims);
Json number_at(const std::string& expression,
               const SymbolValues& dims);  // exact where it can be; null: it is not known
std::string at_dims(const std::vector<std::string>& symbols, const SymbolValues& dims);  // " at N=1"

Json port_json(const Port& port);

}  // namespace tessera::cli
