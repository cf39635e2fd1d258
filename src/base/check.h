// CHECK(condition, ...) asserts an internal invariant. A failure throws InternalError, which only protect() catches, at
// the public API (base/protect.h). In debug builds, and with TESSERA_ABORT=1, it aborts instead: it prints the current
// pass and writes a reproducer if one is set.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace tessera {

class InternalError : public std::logic_error {
   public:
    using std::logic_error::logic_error;
};

bool aborts_on_fault();
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

// While it exists, a failing CHECK on this thread names `pass` and writes the result of `reproducer` to a file.
class CheckScope {
   public:
    CheckScope(std::string pass, std::function<std::string()> reproducer);
    ~CheckScope();
    CheckScope(const CheckScope&) = delete;
    CheckScope& operator=(const CheckScope&) = delete;

    const std::string pass;
    const std::function<std::string()> reproducer;

   private:
    CheckScope* outer_;
};

#define CHECK(condition, ...)                                                                        \
    do {                                                                                             \
        if (!(condition)) [[unlikely]]                                                               \
            ::tessera::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    } while (0)

}  // namespace tessera
