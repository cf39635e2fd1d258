// The command line as a function: of the program `tessera`, and of the Python package's command of that name.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// Where the command line runs.
struct Host {
    std::vector<std::string> again = {"/proc/self/exe"};  // the words that start it once more, before its arguments
    std::string python = "python3";                       // with the package, unless --python names another
};
const Host& host();

// Runs a command and gives its exit status. Takes over signals; once in a process.
int command_line(int argc, char** argv, const Host& host = {});

}  // namespace tessera::cli
