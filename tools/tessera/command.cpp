#include "command.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <set>

namespace tessera::cli {
namespace {

std::atomic<bool> interrupt_flag{false};
ReadOptions reading;            // of every model that this process loads
std::vector<Warning> warnings;  // so far

extern "C" void on_interrupt(int) {
    interrupt_flag = true;
    std::signal(SIGINT, SIG_DFL);
}

bool colors(int fd) {
    const char* off = std::getenv("NO_COLOR");
    return isatty(fd) && !(off && *off);
}

std::string with_unit(double n, double base, std::initializer_list<const char*> units) {
    auto unit = units.begin();
    while (n >= base && unit + 1 != units.end()) {
        n /= base;
        ++unit;
    }
    bool whole = unit == units.begin();
    return whole ? fmt::format("{:.0f}{}", n, *unit) : fmt::format("{:.{}f}{}", n, n < 10 ? 2 : n < 100 ? 1 : 0, *unit);
}

}  // namespace

Json error_json(const Error& e) {
    Json j{{"code", code_name(e.code())}, {"title", code_title(e.code())}, {"message", e.message()}};
    if (!e.where().empty()) j["where"] = e.where();
    if (!e.note().empty()) j["note"] = e.note();
    if (!e.hint().empty()) j["hint"] = e.hint();
    return {{"error", j}};
}

int report(const Status& status, bool json) {
    if (status.ok()) return kDone;
    const Error& e = status.error();
    if (json) print_json(error_json(e));
    std::string text = escaped(e.to_string());
    if (colors(STDERR_FILENO) && text.starts_with("error")) text = "\033[1;31merror\033[0m" + text.substr(5);
    fmt::print(stderr, "{}\n", text);
    if (e.code() == Code::E0501) return kWrongUsage;
    if (e.code() == Code::E0801) return kOurFault;
    return e.code() == Code::E0410 ? kInterrupted : kWrongInput;
}

const std::atomic<bool>& interrupted() { return interrupt_flag; }
void watch_interrupts() { std::signal(SIGINT, on_interrupt); }

Progress::Progress(Mode mode, std::string step)
    : step_(std::move(step)),
      enabled_(mode == Mode::Always || (mode == Mode::Auto && isatty(STDERR_FILENO))),
      next_(std::chrono::steady_clock::now() + std::chrono::seconds(mode == Mode::Always ? 0 : 1)) {}

Progress::~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(std::string_view what, size_t done, size_t total) {
    if (!enabled_) return;
    say(fmt::format("{} of {}, {}", done, total, escaped(what.substr(0, 40))));
}

void Progress::say(std::string_view text) {
    if (!enabled_) return;
    auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    shown_ = true;
    fmt::print(stderr, "\r\033[K{}: {}", step_, text);
    std::fflush(stderr);
}

void add_progress_option(CLI::App& command, Progress::Mode& mode) {
    std::map<std::string, Progress::Mode> modes{
        {"auto", Progress::Mode::Auto}, {"always", Progress::Mode::Always}, {"never", Progress::Mode::Never}};
    command.add_option("--progress", mode, "Show how far it is: auto (on a terminal, after a second), always, never")
        ->transform(CLI::CheckedTransformer(modes))
        ->option_text("WHEN");
}

std::string bold(const std::string& text) { return colors(STDOUT_FILENO) ? "\033[1m" + text + "\033[0m" : text; }
std::string dim(const std::string& text) { return colors(STDOUT_FILENO) ? "\033[2m" + text + "\033[0m" : text; }

std::string human_count(double n) { return with_unit(n, 1000, {"", " k", " M", " G", " T", " P", " E"}); }
std::string human_bytes(double n) { return with_unit(n, 1000, {" B", " kB", " MB", " GB", " TB", " PB", " EB"}); }
std::string human_seconds(double s) {
    return s < 1 ? fmt::format("{:.{}f} ms", s * 1e3, s < 0.01 ? 2 : 0) : fmt::format("{:.{}f} s", s, s < 10 ? 2 : 1);
}

void print_json(const Json& json) {
    Json whole = json;
    if (whole.is_object())
        for (const Warning& w : warnings) {
            Json j{{"code", code_name(w.code)}, {"title", code_title(w.code)}, {"message", w.message}};
            if (!w.where.empty()) j["where"] = w.where;
            if (!w.hint.empty()) j["hint"] = w.hint;
            whole["warnings"].push_back(std::move(j));
        }
    fmt::print("{}\n", whole.dump(2, ' ', false, Json::error_handler_t::replace));
}

void warn(const Warning& warning) {
    fmt::print(stderr, "{}\n", escaped(warning.to_string()));
    warnings.push_back(warning);
}

void add_strict_option(CLI::App& command) {
    command.add_flag("--strict", reading.strict, "Refuse what is otherwise used with a warning");
}

Result<Model> load_model(const std::string& path) {
    Model model = TRY(Model::load(path, reading));
    for (const Warning& w : model.warnings()) warn(w);
    return model;
}

std::string escaped(std::string_view text) {
    std::string out;
    for (char c : text) {
        auto u = static_cast<unsigned char>(c);
        if ((u < 0x20 && c != '\n') || u == 0x7f)
            out += fmt::format("\\x{:02x}", u);
        else
            out += c;
    }
    return out;
}

Result<SymbolValues> parse_dims(const std::vector<std::string>& dims) {
    SymbolValues values;
    for (const std::string& d : dims) {
        size_t equals = d.rfind('=');
        int64_t n = -1;
        if (equals != std::string::npos && equals > 0) {
            const char* end = d.data() + d.size();
            auto [stop, error] = std::from_chars(d.data() + equals + 1, end, n);
            if (error != std::errc() || stop != end) n = -1;
        }
        if (n < 0) return Error(Code::E0501, "--dim {}: it takes NAME=SIZE, with a size of 0 or more", d);
        values[d.substr(0, equals)] = n;
    }
    return values;
}

Status check_dims(const SymbolValues& dims, const Model& model) {
    std::set<std::string> symbols;
    for (const Port& port : model.inputs())
        for (const std::string& d : port.dims)
            if (auto e = parse_dim(d))
                for (const std::string& name : free_symbols(*e)) symbols.insert(name);
    for (const auto& [name, size] : dims) {
        if (symbols.contains(name)) continue;
        Error error(Code::E0401, "the model has no symbolic dimension \"{}\"", name);
        if (symbols.empty()) return std::move(error).hint("all of its dimensions are fixed: leave --dim out");
        return std::move(error).hint("it has: {}", fmt::join(symbols, ", "));
    }
    return {};
}

Result<int64_t> parse_size(const std::string& text, const char* option) {
    double n = 0;
    char* end = nullptr;
    n = std::strtod(text.c_str(), &end);
    std::string unit = end;
    static const std::map<std::string, double> kUnits{{"", 1},    {"k", 1e3},  {"K", 1e3}, {"M", 1e6},
                                                      {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
    auto it = kUnits.find(unit);
    if (end == text.c_str() || it == kUnits.end() || !(n > 0) || n * it->second > 9e18)
        return Error(Code::E0501, "{} {}: it takes a number above 0, as in 500M or 4G", option, text);
    return static_cast<int64_t>(n * it->second);
}

std::optional<int64_t> value_at(const std::string& expression, const SymbolValues& dims) {
    auto e = parse_dim(expression);
    if (!e) return std::nullopt;
    SymbolValues values = dims;
    for (const std::string& name : free_symbols(*e)) values.emplace(name, 1);
    return evaluate_int(*e, values);
}

std::string at_dims(const std::vector<std::string>& symbols, const SymbolValues& dims) {
    std::string text;
    for (const std::string& s : symbols) {
        auto it = dims.find(s);
        text += fmt::format("{}{}={}", text.empty() ? " at " : ", ", s, it == dims.end() ? 1 : it->second);
    }
    return text;
}

Json port_json(const Port& port) {
    Json j{{"name", port.name}, {"type", port.type}};
    if (port.dtype) j["dtype"] = dtype_name(*port.dtype);
    if (port.ranked) {
        j["dims"] = port.dims;
        j["sizes"] = port.sizes;
    }
    if (port.has_default) j["has_default"] = true;
    return j;
}

}  // namespace tessera::cli
