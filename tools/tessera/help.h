// How the command line explains itself: help that fits a terminal, ranges in few digits, and what a misspelt word most
// likely meant.
#pragma once

#include "command.h"

namespace tessera::cli {

inline constexpr size_t kHelpColumns = 100;

// Wraps what is longer than kHelpColumns; what explains an option stays in its column.
void use_wrapped_help(CLI::App& app);
std::string wrapped(const std::string& text, size_t columns);

// Numbers that an option takes: "expected a number from 1 to 4, got 9".
CLI::Validator between(double low, double high);
CLI::Validator at_least(double low);
CLI::Validator above_zero();

// The words after the program's name, with "--dim A=1 B=2" written as "--dim A=1 --dim B=2".
std::vector<std::string> arguments(int argc, char** argv);

// What was wrong with the words, which command it was of, and what was meant.
Error usage_error(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words);

}  // namespace tessera::cli
