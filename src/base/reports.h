// What kernels say while they run: lines that are printed, and conditions that did not hold. A kernel names what it
// says by a number, which holds in this process alone, and gives the values: integers, or floats as the bits of a
// double.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace tessera {

constexpr std::string_view kReport = "report";  // the intrinsic: its arguments are the number and the values

struct Report {
    bool asserts = false;  // true: an assertion, and `text` is its message; false: a line to print
    std::string text;
    // Values come in this order: three places in the grid, one index for each of `sizes`, and what is printed.
    std::vector<int64_t> sizes = {};
    std::vector<DType> types = {};
    bool hex = false;
};

int64_t add_report(Report report);  // its number
bool has_reports();                 // any at all
// For printf: a line of what is said, with three places in the grid, the indices, and the value of one operand, if
// there are any. Each is of 64 bits.
std::string printf_format(int64_t number, size_t operand);
Report report_of(int64_t number);
// The first assertion of this process that failed since this was last asked.
std::optional<std::string> take_failure();

extern "C" void tessera_report(int64_t number, const int64_t* values);

}  // namespace tessera
