// How the command line explains itself: help that fits a terminal, ranges in few digits, and what a misspelt word most
// likely meant.
#pragma once

#include "command.h"

namespace tessera::cli {

// The terminal's width, or COLUMNS, from 40 to 120; 100 where neither says it.
size_t help_columns();
// Wraps what is longer than help_columns(); what explains an option stays in its column.
void use_wrapped_help(CLI::App& app);
void add_help(CLI::App& app);  // tessera help [COMMAND]

// Numbers that an option takes: "expected a number from 1 to 4, got 9".
CLI::Validator between(double low, double high);
CLI::Validator at_least(double low);
CLI::Validator above_zero();

// The words after the program's name, with "--dim A=1 B=2" written as "--dim A=1 --dim B=2", and "help run" as
// "run --help".
std::vector<std::string> arguments(int argc, char** argv);

// Where a word is empty, which a shell makes of a variable that is not set. --cache-dir takes it, and so do scripts.
std::optional<Error> empty_argument(const std::vector<std::string>& words);
// Where a word stands in place of a command and is none.
std::optional<Error> unknown_command(const CLI::App& app, const std::vector<std::string>& words);
// What was wrong with the words, which command it was of, and what was meant.
Error usage_error(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words);

}  // namespace tessera::cli
