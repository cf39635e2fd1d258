#include "command.h"

#include <sys/time.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/output_file.h"

namespace tessera::cli {
namespace {

std::atomic<bool> interrupt_flag{false};
ReadOptions reading;            // of every model that this process loads
std::vector<Warning> warnings;  // so far

using std::chrono::milliseconds;
// Until progress is shown, and between two lines of it: at once where it was asked for; seldom where each stays.
constexpr milliseconds kAtOnce{0}, kShortly{100}, kPatiently{1000}, kSeldom{10000};
constexpr int kPatience = 700;  // milliseconds for work to end by itself
std::atomic<int> patience{kPatience};
std::atomic<bool> line_shown{false};  // of progress, on standard error

void put(const char* text, size_t bytes) { [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, text, bytes); }

// Safe in a signal handler.
void end_now() {
    constexpr std::string_view kLine = "error E0410: interrupted\n", kClear = "\r\033[K";
    remove_unfinished_files();
    if (line_shown) put(kClear.data(), kClear.size());
    put(kLine.data(), kLine.size());
    _exit(kInterrupted);
}

void set_timer(int milliseconds) {
    itimerval timer{};
    timer.it_value.tv_sec = milliseconds / 1000;
    timer.it_value.tv_usec = milliseconds % 1000 * 1000;
    setitimer(ITIMER_REAL, &timer, nullptr);
}

extern "C" void on_interrupt(int) {
    if (interrupt_flag.exchange(true) || patience == 0) end_now();
    set_timer(patience);
}
extern "C" void on_timer(int) { end_now(); }

void handle(int number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
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
    if (e.code() == Code::E0410) set_timer(0);  // this is its one line
    std::string text = escaped(e.to_string());
    if (e.code() == Code::E0410) text = "error E0410: interrupted" + (e.hint().empty() ? "" : escaped("; " + e.hint()));
    if (colors(STDERR_FILENO) && text.starts_with("error")) text = "\033[1;31merror\033[0m" + text.substr(5);
    say_error(text + "\n");
    if (e.code() == Code::E0501 || e.code() == Code::E0603) return kWrongUsage;
    if (e.code() == Code::E0801 || e.code() == Code::E0802) return kOurFault;
    return e.code() == Code::E0410 ? kInterrupted : kWrongInput;
}

const std::atomic<bool>& interrupted() { return interrupt_flag; }
void watch_signals() {
    handle(SIGINT, on_interrupt);
    handle(SIGALRM, on_timer);
    handle(SIGPIPE, SIG_IGN);  // writing to a closed pipe is an error like any other
}

EndAtOnce::EndAtOnce() {
    patience = 0;
    if (interrupt_flag) end_now();
}
EndAtOnce::~EndAtOnce() { patience = kPatience; }

void say_error(const std::string& text) {
    if (line_shown.exchange(false)) std::fputs("\r\033[K", stderr);
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

void check_environment() {
    auto say = [](const char* name, const char* text, const char* wanted) {
        say_error(fmt::format("warning: {}=\"{}\" is ignored: expected {}\n", name, escaped(text), wanted));
    };
    if (const char* text = std::getenv("TESSERA_THREADS"); text && *text) {
        char* end = nullptr;
        const long n = std::strtol(text, &end, 10);
        if (*end || n < 1 || n > 1024) say("TESSERA_THREADS", text, "a number from 1 to 1024");
    }
    if (const char* text = std::getenv("TESSERA_CACHE_SIZE"); text && *text) {
        char* end = nullptr;
        const double n = std::strtod(text, &end);
        const std::string unit = end;
        const bool known = unit.empty() || (unit.size() == 1 && std::strchr("kKmMgG", unit[0]));
        if (end == text || !known || !(n >= 0)) say("TESSERA_CACHE_SIZE", text, "a size such as 500M or 4G");
    }
    for (const char* name : {"TESSERA_VERIFY", "TESSERA_ABORT"})
        if (const char* text = std::getenv(name); text && *text && std::strcmp(text, "0") && std::strcmp(text, "1"))
            say_error(fmt::format("warning: {}=\"{}\" is taken as 1: expected 0 or 1\n", name, escaped(text)));
}

Progress::Progress(Mode mode, std::string step)
    : step_(std::move(step)),
      enabled_(mode != Mode::Never),
      terminal_(isatty(STDERR_FILENO)),
      every_(terminal_ || mode == Mode::Always ? kShortly : kSeldom),
      next_(std::chrono::steady_clock::now() + (mode == Mode::Always ? kAtOnce
                                                : terminal_          ? kPatiently
                                                                     : kSeldom)) {}

Progress::~Progress() {
    if (shown_ && line_shown.exchange(false)) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::string_view what, size_t done, size_t total) {
    if (!enabled_) return;
    say(fmt::format("{} of {}, {}", done, total, escaped(what.substr(0, 40))));
}

void Progress::say(std::string_view text) {
    if (!enabled_) return;
    auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + every_;
    shown_ = line_shown = terminal_;
    const std::string line = fmt::format("{}{}: {}{}", terminal_ ? "\r\033[K" : "", step_, text, terminal_ ? "" : "\n");
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

void add_progress_option(CLI::App& command, Progress::Mode& mode) {
    std::map<std::string, Progress::Mode> modes{
        {"auto", Progress::Mode::Auto}, {"always", Progress::Mode::Always}, {"never", Progress::Mode::Never}};
    command
        .add_option(
            "--progress", mode,
            "Show progress: auto (after a second; in lines every 10 s where it is no terminal), always or never")
        ->transform(CLI::CheckedTransformer(modes))
        ->option_text("WHEN");
}

std::string bold(const std::string& text) { return colors(STDOUT_FILENO) ? "\033[1m" + text + "\033[0m" : text; }
std::string dim(const std::string& text) { return colors(STDOUT_FILENO) ? "\033[2m" + text + "\033[0m" : text; }

std::string human_count(double n) { return with_unit(n, 1000, {"", " k", " M", " G", " T", " P", " E", " Z", " Y"}); }
std::string human_bytes(double n) {
    return with_unit(n, 1000, {" B", " kB", " MB", " GB", " TB", " PB", " EB", " ZB", " YB"});
}
std::string human_seconds(double s) {
    if (!(s > 0)) return "0 s";
    if (s < 9.995e-7) return fmt::format("{:.3g} ns", s * 1e9);
    if (s < 9.995e-4) return fmt::format("{:.3g} µs", s * 1e6);
    return s < 1 ? fmt::format("{:.{}f} ms", s * 1e3, s < 0.01 ? 2 : 0) : fmt::format("{:.{}f} s", s, s < 10 ? 2 : 1);
}
std::string plural(double n, const std::string& what) {
    return fmt::format("{} {}{}", n < 1e15 ? fmt::format("{}", static_cast<int64_t>(n)) : human_count(n), what,
                       n == 1 ? "" : "s");
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
    say_error(escaped(warning.to_string()) + "\n");
    warnings.push_back(warning);
}

void add_strict_option(CLI::App& command) {
    command.add_flag("--strict", reading.strict, "Treat model warnings as errors");
}

bool reading_strictly() { return reading.strict; }

Result<std::string_view> read_standard_input() {
    static std::string bytes;  // a model that is loaded keeps views of its bytes
    if (!bytes.empty()) return std::string_view(bytes);
    char buffer[1 << 16];
    while (size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) bytes.append(buffer, n);
    if (std::ferror(stdin)) return Error(Code::E0101, "cannot read standard input: {}", std::strerror(errno));
    if (bytes.empty())
        return Error(Code::E0102, "standard input is empty").hint("pipe a model into it, or name a file");
    return std::string_view(bytes);
}

namespace {

// Text begins with a letter or a comment; no ONNX file does, whose first byte says which field follows.
bool is_text(std::string_view bytes) {
    const size_t first = bytes.find_first_not_of(" \t\r\n");
    return first != std::string::npos &&
           (std::isalpha(static_cast<unsigned char>(bytes[first])) || bytes[first] == '/');
}

Result<Model> model_from_standard_input() {
    const std::string_view bytes = TRY(read_standard_input());
    auto model = is_text(bytes) ? Model::parse(bytes, "standard input") : Model::from_onnx(bytes, reading);
    if (!model.ok()) return std::move(model).error().at("standard input");
    return model;
}

}  // namespace

std::string shown_path(const std::string& path) {
    return path.empty() ? "resnet50 (built in)" : path == "-" ? "standard input" : escaped(path);
}

Status check_model_suffix(const std::string& out) {
    if (out.ends_with(".onnx") || out.ends_with(".tsr")) return {};
    return Error(Code::E0501, "\"{}\" ends in neither .onnx nor .tsr", out)
        .hint("end it in .onnx for ONNX or in .tsr for text");
}

Result<Model> load_model(const std::string& path) {
    Model model = TRY(path == "-" ? model_from_standard_input() : Model::load(path, reading));
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
        if (n < 0) return Error(Code::E0501, "--dim {}: expected NAME=SIZE, with a size of 0 or more", d);
        const std::string name = d.substr(0, equals);
        if (const auto [at, first] = values.emplace(name, n); !first)
            return Error(Code::E0501, "--dim {} is given twice: {} and {}", name, at->second, n);
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
    double factor = 0;
    if (unit.size() == 3 && unit.ends_with("iB")) {  // powers of 1024
        const size_t power = std::string_view("KMGTP").find(unit[0]);
        if (power != std::string_view::npos) factor = std::pow(1024.0, double(power + 1));
    } else {
        if (unit.ends_with('B')) unit.pop_back();
        if (auto it = kUnits.find(unit); it != kUnits.end()) factor = it->second;
    }
    if (end == text.c_str() || factor == 0 || !(n > 0) || n * factor > 9e18)
        return Error(Code::E0501, "{} {}: expected a number above 0, such as 500M, 4G or 4GiB", option, text);
    return static_cast<int64_t>(n * factor);
}

std::optional<int64_t> value_at(const std::string& expression, const SymbolValues& dims) {
    auto e = parse_dim(expression);
    if (!e) return std::nullopt;
    SymbolValues values = dims;
    for (const std::string& name : free_symbols(*e)) values.emplace(name, 1);
    return evaluate_int(*e, values);
}

namespace {

std::optional<double> about(const Expr& e, const SymbolValues& values) {
    std::vector<double> args;
    for (const Expr& arg : e.args()) {
        auto n = about(arg, values);
        if (!n) return n;
        args.push_back(*n);
    }
    auto folded = [&](auto f) {
        double n = args[0];
        for (size_t i = 1; i < args.size(); ++i) n = f(n, args[i]);
        return n;
    };
    switch (e.kind()) {
        case ExprKind::Const: return static_cast<double>(e.node().integer);
        case ExprKind::Var: return values.contains(e.node().name) ? static_cast<double>(values.at(e.node().name)) : 1;
        case ExprKind::Add: return folded([](double a, double b) { return a + b; });
        case ExprKind::Mul: return folded([](double a, double b) { return a * b; });
        case ExprKind::Min: return folded([](double a, double b) { return std::min(a, b); });
        case ExprKind::Max: return folded([](double a, double b) { return std::max(a, b); });
        case ExprKind::FloorDiv: return args[1] == 0 ? 0 : std::floor(args[0] / args[1]);
        case ExprKind::Mod: return args[1] == 0 ? 0 : args[0] - args[1] * std::floor(args[0] / args[1]);
        case ExprKind::Pow: return std::pow(args[0], args[1]);
        default: return std::nullopt;
    }
}

}  // namespace

std::optional<double> about_at(const std::string& expression, const SymbolValues& dims) {
    if (auto exact = value_at(expression, dims)) return static_cast<double>(*exact);
    auto e = parse_dim(expression);
    return e ? about(*e, dims) : std::nullopt;
}

Json number_at(const std::string& expression, const SymbolValues& dims) {
    if (auto exact = value_at(expression, dims)) return *exact;
    auto n = about_at(expression, dims);
    return n ? Json(*n) : Json(nullptr);
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
