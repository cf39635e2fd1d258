#include "help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/nearest.h"

namespace tessera::cli {
namespace {

// Where what follows a line goes on: below what it explains, or below its own beginning. An option explained in column
// `explanations` may fill all before it.
size_t hanging_indent(const std::string& line, size_t columns, size_t explanations) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) return 0;
    const size_t gap = line.find("  ", begin);
    if (line[begin] == '-' && gap > explanations && explanations > 0 && explanations < line.size() &&
        line[explanations - 1] == ' ')
        return explanations;
    if (gap == std::string::npos || gap > columns / 2) return begin;
    const size_t explained = line.find_first_not_of(' ', gap);
    return explained == std::string::npos || explained > columns / 2 ? begin : explained;
}

std::string wrapped_line(std::string line, size_t columns, size_t explanations) {
    const std::string indent(hanging_indent(line, columns, explanations), ' ');
    std::string out;
    while (line.size() > columns) {
        const size_t cut = line.rfind(' ', columns);
        if (cut == std::string::npos || cut <= indent.size()) break;
        out += line.substr(0, cut) + "\n";
        line = indent + line.substr(cut + 1);
    }
    return out + line;
}

std::string wrapped(const std::string& text, size_t columns, size_t explanations) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        out += wrapped_line(text.substr(at, end - at), columns, explanations);
        if (end < text.size()) out += '\n';
        at = end + 1;
    }
    return out;
}

class WrappedFormatter : public CLI::Formatter {
  public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        return wrapped(CLI::Formatter::make_help(app, std::move(name), mode), help_columns(), get_column_width());
    }
    std::string make_option_desc(const CLI::Option* option) const override {
        const bool required = option->get_required() && !option->get_positional();
        return CLI::Formatter::make_option_desc(option) + (required ? " (required)" : "");
    }
    // What a flag without a value stands for, "--search{60}", is said in its description.
    std::string make_option_name(const CLI::Option* option, bool positional) const override {
        std::string name = CLI::Formatter::make_option_name(option, positional);
        for (size_t at = name.find('{'); at != std::string::npos; at = name.find('{', at))
            name.erase(at, name.find('}', at) + 1 - at);
        return name;
    }
};

std::string in_few_digits(double n) {
    if (n == std::floor(n) && std::abs(n) < 1e15) return fmt::format("{}", static_cast<int64_t>(n));
    return fmt::format("{:g}", n);
}

CLI::Validator number(std::string wanted, std::function<bool(double)> fits) {
    return CLI::Validator(
        [wanted = std::move(wanted), fits = std::move(fits)](std::string& text) -> std::string {
            char* end = nullptr;
            const double n = std::strtod(text.c_str(), &end);
            if (end != text.c_str() && *end == 0 && std::isfinite(n) && fits(n)) return {};
            return fmt::format("expected {}, got \"{}\"", wanted, text);
        },
        "", "");
}

std::string named(const CLI::App& app) {
    return app.get_parent() ? named(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

std::vector<std::string> command_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
        if (!sub->get_name().empty()) names.push_back(sub->get_name());
    return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return !o->get_group().empty(); }))
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    return names;
}

std::string closest(const std::string& word, const std::vector<std::string>& names) {
    return nearest(word, {names.begin(), names.end()});
}

// The command that the words reach, and the first word that is no subcommand where one must stand.
struct Reached {
    const CLI::App* app;
    std::optional<std::string> unknown;
};
Reached reached(const CLI::App& app, const std::vector<std::string>& words) {
    const CLI::App* at = &app;
    for (const std::string& word : words) {
        if (word.starts_with("-")) continue;
        const std::vector<std::string> names = command_names(*at);
        if (names.empty()) break;
        if (std::find(names.begin(), names.end(), word) == names.end()) return {at, word};
        at = at->get_subcommand(word);
    }
    return {at, std::nullopt};
}

// The first word that looks like an option and is none of the command's.
std::optional<std::string> unknown_option(const CLI::App& app, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        if (word == "--") break;
        if (!word.starts_with("-") || word.size() < 2 || std::isdigit(static_cast<unsigned char>(word[1]))) continue;
        const std::string name = word.substr(0, word.find('='));
        if (!app.get_option_no_throw(name)) return name;
    }
    return std::nullopt;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
        text.replace(at, what.size(), by);
    return text;
}

// "--output: 1 required TEXT missing", as the parser of the command line says it.
std::string plain_missing(std::string text) {
    const size_t colon = text.find(": ");
    const bool missing = text.ends_with(" missing") && text.find(" required ") != std::string::npos;
    return missing && colon != std::string::npos ? text.substr(0, colon) + " needs a value" : text;
}

// "--backend: foo not in {compiled,evaluate}".
std::string plain_choice(std::string text) {
    const size_t colon = text.find(": "), choices = text.rfind(" not in {");
    if (colon == std::string::npos || choices == std::string::npos || choices < colon || !text.ends_with("}"))
        return text;
    const std::string given = text.substr(colon + 2, choices - colon - 2);
    std::string listed = replaced(text.substr(choices + 9, text.size() - choices - 10), ",", ", ");
    if (const size_t last = listed.rfind(", "); last != std::string::npos) listed.replace(last, 2, " or ");
    return fmt::format("{}: expected {}, got \"{}\"", text.substr(0, colon), listed, given);
}

// "--progress: Check foo value in {always->1,auto->0} OR {1,0} FAILED", of names that stand for numbers.
std::string plain_name(std::string text) {
    const size_t check = text.find(": Check "), names = text.find(" value in {"), end = text.find("} OR {");
    if (check == std::string::npos || names == std::string::npos || end == std::string::npos || names < check)
        return text;
    std::string listed = text.substr(names + 11, end - names - 11);
    for (size_t at; (at = listed.find("->")) != std::string::npos;)
        listed.erase(at, std::min(listed.find(',', at), listed.size()) - at);
    return plain_choice(
        fmt::format("{}: {} not in {{{}}}", text.substr(0, check), text.substr(check + 8, names - check - 8), listed));
}

// The commands that have such an option.
std::vector<std::string> commands_with(const CLI::App& app, const std::string& option) {
    std::vector<std::string> found;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
        if (!sub->get_name().empty() && sub->get_option_no_throw(option)) found.push_back(named(*sub));
    return found;
}

Error no_command(const CLI::App& at, const std::string& word) {
    const std::vector<std::string> names = command_names(at);
    Error wrong(Code::E0501, "\"{}\" is not a command of {}", word, named(at));
    if (const auto with = commands_with(at, "--" + word); !with.empty())
        return std::move(wrong).hint("--{} is an option of {}", word, fmt::join(with, ", "));
    const std::string meant = closest(word, names);
    if (!meant.empty()) return std::move(wrong).hint("did you mean \"{} {}\"?", named(at), meant);
    return std::move(wrong).hint("there are: {}", fmt::join(names, ", "));
}

}  // namespace

size_t help_columns() {
    constexpr long kLeast = 40, kMost = 120, kStandard = 100;
    long columns = kStandard;
    winsize size{};
    const char* text = std::getenv("COLUMNS");
    if (const long said = text ? std::strtol(text, nullptr, 10) : 0; said > 0)
        columns = said;
    else if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    return static_cast<size_t>(std::clamp(columns, kLeast, kMost));
}

void add_help(CLI::App& app) {
    CLI::App* c = app.add_subcommand("help", "Print the help of a command");  // arguments() makes it --help
    c->add_option("command", "The command; without it, tessera itself")->option_text("COMMAND");
    c->footer(kExitStatus);
}

void use_wrapped_help(CLI::App& app) { app.formatter(std::make_shared<WrappedFormatter>()); }

CLI::Validator between(double low, double high) {
    return number(fmt::format("a number from {} to {}", in_few_digits(low), in_few_digits(high)),
                  [=](double n) { return n >= low && n <= high; });
}
CLI::Validator at_least(double low) {
    return number(fmt::format("a number of at least {}", in_few_digits(low)),
                  [=](double n) { return n >= low && n <= 1.8e19; });
}
CLI::Validator above_zero() {
    return number("a number above 0", [](double n) { return n > 0; });
}

std::vector<std::string> arguments(int argc, char** argv) {
    std::vector<std::string> words;
    bool dims = false;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const size_t equals = word.rfind('=');
        const bool sizes = !word.starts_with("-") && equals != std::string::npos && equals > 0 &&
                           equals + 1 < word.size() &&
                           word.find_first_not_of("0123456789", equals + 1) == std::string::npos;
        if (dims && sizes && words.back() != "--dim") words.push_back("--dim");
        dims = word == "--dim" || word.starts_with("--dim=") || (dims && sizes);
        words.push_back(word);
    }
    if (!words.empty() && words[0] == "help" && (words.size() == 1 || !words[1].starts_with("-"))) {
        words.erase(words.begin());
        words.push_back("--help");
    }
    return words;
}

std::optional<Error> empty_argument(const std::vector<std::string>& words) {
    if (!words.empty() && words[0] == "tile") return std::nullopt;
    for (size_t i = 1; i < words.size(); ++i)
        if (words[i].empty() && words[i - 1] != "--cache-dir")
            return Error(Code::E0501, "the argument after \"{}\" is empty", words[i - 1])
                .hint("a shell expands a variable that is not set to nothing");
    return std::nullopt;
}

std::optional<Error> unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
    const auto [at, unknown] = reached(app, words);
    if (!unknown) return std::nullopt;
    return no_command(*at, *unknown);
}

Error usage_error(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words) {
    const auto [at, unknown] = reached(app, words);
    const std::string command = named(*at);
    if (unknown) return no_command(*at, *unknown);
    if (error.get_name() == "RequiredError" && !command_names(*at).empty())
        return Error(Code::E0501, "{} needs a command", command)
            .hint("there are: {}", fmt::join(command_names(*at), ", "));
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
        if (auto option = unknown_option(*at, words)) {
            Error wrong(Code::E0501, "{} has no option {}", command, *option);
            const std::string meant = closest(*option, option_names(*at));
            if (!meant.empty()) return std::move(wrong).hint("did you mean {}?", meant);
            return std::move(wrong).hint("{} --help lists them", command);
        }
        std::string text = error.what();
        return Error(Code::E0501, "{} does not take {}", command, text.substr(text.find(": ") + 2))
            .hint("{} --help says what it takes", command);
    }
    std::string text = error.what();
    if (text.starts_with("Could not convert: "))
        text = replaced(text.substr(19), " = ", ": expected a number, got \"") + "\"";
    text = plain_name(plain_choice(plain_missing(std::move(text))));
    return Error(Code::E0501, "{}", text).hint("{} --help", command);
}

}  // namespace tessera::cli
