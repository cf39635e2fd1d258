// tessera tile: what becomes of the kernels of a script in the tile language. The language is read by Python.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "command_line.h"
#include "help.h"

namespace tessera::cli {
namespace {

constexpr const char* kTileExamples =
    "Examples:\n"
    "  tessera tile softmax.py                              the tile programs that the script launches\n"
    "  tessera tile --emit=asm --kernel softmax softmax.py\n"
    "  tessera tile --emit=object --out build softmax.py    softmax.o and softmax.h, for C\n"
    "  tessera tile --profile softmax.py                    loads, stores and arithmetic of each line\n";

struct Tile {
    std::string emit = "tile", kernel, out, target = "host", python;
    bool profile = false;
    std::vector<std::string> script;  // and its own arguments

    Status operator()() const;
};

Status Tile::operator()() const {
    if (script.empty()) return Error(Code::E0501, "no script is given").hint("tessera tile --help");
    if (std::error_code e; !std::filesystem::exists(script[0], e))
        return Error(Code::E0101, "there is no file \"{}\"", script[0]);
    const std::string& program = python.empty() ? host().python : python;
    std::vector<std::string> words = {program, "-m", "tessera.tile", "--emit=" + emit, "--target=" + target};
    if (!kernel.empty()) words.push_back("--kernel=" + kernel);
    if (profile) words.push_back("--profile");
    if (!out.empty()) words.push_back("--out=" + out);
    words.insert(words.end(), script.begin(), script.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    std::fflush(stdout);
    ::execvp(pointers[0], pointers.data());
    return Error(Code::E0501, "cannot run {}: {}", program, std::strerror(errno))
        .hint("--python names a Python that has tessera");
}

}  // namespace

void add_tile(CLI::App& app, Chosen& chosen) {
    auto tile = std::make_shared<Tile>();
    CLI::App* c = app.add_subcommand("tile", "Show the compilation stages of a script's tile kernels");
    c->add_option("--emit", tile->emit, "The stage to show (tile)")
        ->option_text("tile|kernel|llvm|asm|blocks|ptx|layouts|object")
        ->check(CLI::IsMember({"tile", "kernel", "llvm", "asm", "blocks", "ptx", "layouts", "object"}));
    c->add_flag("--profile", tile->profile, "Count the operations of each source line, and time the launches");
    c->add_option("--kernel", tile->kernel, "Show only this kernel")->option_text("NAME");
    c->add_option("--out", tile->out, "Write files into this folder instead of printing")->option_text("FOLDER");
    c->add_option("--target", tile->target, "Target of object files (host)")->option_text("NAME");
    c->add_option("--python", tile->python, "Python interpreter with the tessera package (python3)")
        ->option_text("PROGRAM");
    c->prefix_command();
    c->footer(
        fmt::format("The script and its own arguments follow the options.\n\n{}\n{}", kTileExamples, kExitStatus));
    c->callback([tile, c, &chosen] {
        tile->script = c->remaining();
        chosen = [tile] { return report((*tile)(), false); };
    });
}

}  // namespace tessera::cli
