#include "base/reports.h"

#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <cstdio>
#include <deque>
#include <mutex>

namespace tessera {
namespace {

std::mutex lock;
std::atomic<int64_t> count = 0;
std::optional<std::string> failure;

std::deque<Report>& reports() {
    static std::deque<Report> all;
    return all;
}

std::string value_text(const Report& r, DType dtype, int64_t held) {
    if (r.hex) {
        const int digits = dtype_bits(dtype) / 4;
        const uint64_t mask = dtype_bits(dtype) < 64 ? (uint64_t{1} << dtype_bits(dtype)) - 1 : ~uint64_t{0};
        return fmt::format("0x{:0{}x}", static_cast<uint64_t>(held) & mask, digits);
    }
    if (is_float(dtype)) return fmt::format("{:f}", std::bit_cast<double>(held));
    if (dtype == DType::u64) return fmt::format("{}", static_cast<uint64_t>(held));
    return fmt::format("{}", held);
}

}  // namespace

int64_t add_report(Report report) {
    std::lock_guard guard(lock);
    reports().push_back(std::move(report));
    return count++;
}

bool has_reports() { return count > 0; }

Report report_of(int64_t number) {
    std::lock_guard guard(lock);
    return reports()[static_cast<size_t>(number)];
}

std::string printf_format(int64_t number, size_t operand) {
    const Report r = report_of(number);
    std::string text;  // as it is
    for (char c : r.text) text += c == '%' ? std::string("%%") : std::string(1, c);
    std::string place = "pid (%lld, %lld, %lld)";
    if (r.asserts) return fmt::format("{} ({})\n", text, place);
    std::string index;
    for (int64_t size : r.sizes)
        index += fmt::format("{}%{}lld", index.empty() ? "" : ", ", fmt::formatted_size("{}", size));
    place += fmt::format(" idx ({})", index);
    if (r.types.empty()) return fmt::format("{}{}\n", place, text);
    const DType dtype = r.types[operand];
    const std::string value = r.hex                 ? fmt::format("0x%0{}llx", dtype_bits(dtype) / 4)
                              : is_float(dtype)     ? "%f"
                              : dtype == DType::u64 ? "%llu"
                                                    : "%lld";
    return fmt::format("{}{}{}{}\n", place, text, r.types.size() > 1 ? fmt::format("(operand {}) ", operand) : "",
                       value);
}

std::optional<std::string> take_failure() {
    std::lock_guard guard(lock);
    return std::exchange(failure, std::nullopt);
}

extern "C" void tessera_report(int64_t number, const int64_t* values) {
    std::lock_guard guard(lock);
    const Report& r = reports()[static_cast<size_t>(number)];
    std::string place = fmt::format("pid ({}, {}, {})", values[0], values[1], values[2]);
    values += 3;
    if (r.asserts) {
        if (!failure) failure = fmt::format("{} ({})", r.text, place);
        return;
    }
    std::string index;
    for (int64_t size : r.sizes)
        index += fmt::format("{}{:{}}", index.empty() ? "" : ", ", *values++, fmt::formatted_size("{}", size));
    place += r.sizes.empty() ? " idx ()" : fmt::format(" idx ({})", index);
    for (size_t i = 0; i < r.types.size(); ++i)
        fmt::print("{}{}{}{}\n", place, r.text, r.types.size() > 1 ? fmt::format("(operand {}) ", i) : "",
                   value_text(r, r.types[i], values[i]));
    if (r.types.empty()) fmt::print("{}{}\n", place, r.text);
    std::fflush(stdout);
}

}  // namespace tessera
