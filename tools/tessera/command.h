// What the subcommands share: how they report an error, how far they are, and what a person can read on a terminal.
// Exit status: 0 done, 1 the model or an input is wrong, 2 wrong usage, 3 a fault of ours, 130 interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "graph/graph.h"
#include "tessera/tessera.h"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

inline constexpr int kDone = 0, kWrongInput = 1, kWrongUsage = 2, kOurFault = 3, kInterrupted = 130;
inline constexpr const char* kExitStatus =
    "Exit status: 0 done, 1 the model or an input is wrong, 2 wrong usage, 3 a fault of tessera, 130 interrupted.\n";

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

// Makes a subcommand's function out of one that may fail: prints the error, as JSON too where that is asked for.
int report(const Status& status, bool json);

// Set by Ctrl-C from watch_interrupts() on; the second one ends the process at once.
const std::atomic<bool>& interrupted();
void watch_interrupts();

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
    bool shown_ = false, enabled_;
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

std::string human_count(double n);    // 25.6 M
std::string human_bytes(double n);    // 102.4 MB
std::string human_seconds(double s);  // 3.2 ms
void print_json(const Json& json);
Json error_json(const Error& error);
std::string escaped(std::string_view text);  // control characters made visible: names in a file are anyone's

// A warning on standard error, and among "warnings" of what print_json prints.
void warn(const Warning& warning);
void add_strict_option(CLI::App& command);
Result<Model> load_model(const std::string& path);  // strictly where that was asked for; its warnings are printed

// "N=4" pairs, as --dim takes them. E0501 where one is not NAME=SIZE.
Result<SymbolValues> parse_dims(const std::vector<std::string>& dims);
// E0401 for a symbol that is in none of the model's inputs.
Status check_dims(const SymbolValues& dims, const Model& model);
// "512M", "4G", "1000000". E0501.
Result<int64_t> parse_size(const std::string& text, const char* option);

// An expression over symbols at the given sizes, 1 for those not given; nothing where that overflows.
std::optional<int64_t> value_at(const std::string& expression, const SymbolValues& dims);
std::string at_dims(const std::vector<std::string>& symbols, const SymbolValues& dims);  // " at N=1"

Json port_json(const Port& port);

}  // namespace tessera::cli
