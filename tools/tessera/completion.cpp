// tessera version, and tessera completion: scripts that complete commands, options and their words in a shell.
#include "help.h"

namespace tessera::cli {
namespace {

constexpr const char* kCompletionExamples =
    "Examples:\n"
    "  tessera completion bash > ~/.local/share/bash-completion/completions/tessera\n"
    "  tessera completion zsh > \"${fpath[1]}/_tessera\"\n"
    "  tessera completion fish > ~/.config/fish/completions/tessera.fish\n";

struct Offered {
    std::string name, what;          // "--threads"
    std::vector<std::string> words;  // that it takes, where they are few
};
struct Described {
    std::string command;  // "rules check"; empty for tessera itself
    std::vector<Offered> commands, options;
};

// The words of "graph|compute|kernel"; none for "NAME=FILE".
std::vector<std::string> choices(const std::string& text) {
    std::vector<std::string> words;
    if (text.find('|') == std::string::npos) return words;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find('|', at), text.size());
        words.push_back(text.substr(at, end - at));
        if (words.back().find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") != std::string::npos) return {};
        at = end + 1;
    }
    return words;
}

void describe(const CLI::App& app, const std::string& command, std::vector<Described>& all) {
    Described here{command, {}, {}};
    for (const CLI::Option* o : app.get_options([](const CLI::Option* o) { return !o->get_group().empty(); }))
        for (const std::string& name : o->get_lnames())
            here.options.push_back({"--" + name, o->get_description(), choices(o->get_option_text())});
    const auto subs = app.get_subcommands([](const CLI::App* s) { return !s->get_name().empty(); });
    for (const CLI::App* sub : subs) here.commands.push_back({sub->get_name(), sub->get_description(), {}});
    all.push_back(std::move(here));
    for (const CLI::App* sub : subs)
        describe(*sub, command.empty() ? sub->get_name() : command + " " + sub->get_name(), all);
}

std::string listed(const std::vector<Offered>& offered) {
    std::vector<std::string> names;
    for (const Offered& o : offered) names.push_back(o.name);
    return fmt::format("{}", fmt::join(names, " "));
}

// Both shells take the same table: what may follow a command, and what may follow an option.
std::string table(const std::vector<Described>& all) {
    std::string text = "    case \"$command\" in\n";
    for (const Described& d : all) {
        text += fmt::format("    \"{}\")\n        commands=\"{}\"\n        options=\"{}\"\n", d.command,
                            listed(d.commands), listed(d.options));
        std::string cases;
        for (const Offered& o : d.options)
            if (!o.words.empty())
                cases += fmt::format("        {}) words=\"{}\" ;;\n", o.name, fmt::join(o.words, " "));
        if (!cases.empty()) text += "        case \"$previous\" in\n" + cases + "        esac\n";
        text += "        ;;\n";
    }
    return text + "    esac\n";
}

// Which command the words before the cursor reach.
constexpr const char* kReached = R"(    local command="" word
    for word in @BEFORE@; do
        case "$command $word" in
        @KNOWN@) command="${command:+$command }$word" ;;
        esac
    done
)";

std::string reached_by(const std::vector<Described>& all, const std::string& before) {
    std::vector<std::string> known;
    for (const Described& d : all)
        for (const Offered& c : d.commands) known.push_back(fmt::format("\"{} {}\"", d.command, c.name));
    std::string text = kReached;
    text.replace(text.find("@BEFORE@"), 8, before);
    text.replace(text.find("@KNOWN@"), 7, fmt::format("{}", fmt::join(known, " | ")));
    return text;
}

std::string bash_script(const std::vector<Described>& all) {
    return R"(# Completes the command line of tessera in bash.
_tessera() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
    local commands="" options="" words=""
)" + reached_by(all, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"") +
           table(all) + R"(    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
    elif [[ -n $commands ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -o filenames -F _tessera tessera
)";
}

std::string zsh_script(const std::vector<Described>& all) {
    return R"(#compdef tessera
# Completes the command line of tessera in zsh.
_tessera() {
    local current="$words[CURRENT]" previous="$words[CURRENT-1]"
    local commands="" options="" choices=""
)" + reached_by(all, "\"${(@)words[2,CURRENT-1]}\"") +
           [&] {
               std::string text = table(all);
               for (size_t at = 0; (at = text.find(" words=\"", at)) != std::string::npos; at += 8)
                   text.replace(at, 7, " choices=");
               return text;
           }() +
           R"(    if [[ -n $choices ]]; then
        compadd -- ${=choices}
    elif [[ $current == -* ]]; then
        compadd -- ${=options}
    elif [[ -n $commands ]]; then
        compadd -- ${=commands}
    else
        _files
    fi
}
_tessera "$@"
)";
}

std::string fish_text(const std::string& text) {
    std::string out = "'";
    for (char c : text) out += c == '\'' ? std::string("\\'") : c == '\\' ? std::string("\\\\") : std::string(1, c);
    return out + "'";
}

std::string fish_script(const std::vector<Described>& all) {
    std::string text = "# Completes the command line of tessera in fish.\n";
    for (const Described& d : all) {
        std::string when = "__fish_use_subcommand";
        if (size_t space = d.command.find(' '); space != std::string::npos)
            when = fmt::format("__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}",
                               d.command.substr(0, space), d.command.substr(space + 1));
        else if (!d.command.empty())
            when = "__fish_seen_subcommand_from " + d.command;
        for (const Offered& c : d.commands)
            text += fmt::format("complete -c tessera -f -n '{}' -a {} -d {}\n", when, c.name, fish_text(c.what));
        for (const Offered& o : d.options) {
            text += fmt::format("complete -c tessera -n '{}' -l {} -d {}", when, o.name.substr(2), fish_text(o.what));
            if (!o.words.empty()) text += fmt::format(" -x -a '{}'", fmt::join(o.words, " "));
            text += "\n";
        }
    }
    return text;
}

}  // namespace

void add_version(CLI::App& app, Chosen& chosen) {
    auto json = std::make_shared<bool>(false);
    CLI::App* c = app.add_subcommand("version", "Print the version");
    c->footer(kExitStatus);
    c->add_flag("--json", *json, "Print JSON");
    c->callback([json, &chosen] {
        chosen = [json] {
            if (*json)
                print_json({{"version", TESSERA_VERSION}, {"targets", compile_targets()}});
            else
                fmt::print("tessera {}\n", TESSERA_VERSION);
            return kDone;
        };
    });
}

void add_completion(CLI::App& app, Chosen& chosen) {
    auto shell = std::make_shared<std::string>();
    CLI::App* c = app.add_subcommand("completion", "Print a script that completes commands in a shell");
    c->add_option("shell", *shell, "bash, zsh or fish")
        ->option_text("bash|zsh|fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    c->footer(fmt::format("{}\n{}", kCompletionExamples, kExitStatus));
    c->callback([shell, &app, &chosen] {
        chosen = [shell, &app] {
            std::vector<Described> all;
            describe(app, "", all);
            fmt::print("{}", *shell == "bash"  ? bash_script(all)
                             : *shell == "zsh" ? zsh_script(all)
                                               : fish_script(all));
            return kDone;
        };
    });
}

}  // namespace tessera::cli
