#include "base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

namespace tessera {
namespace {

thread_local CheckScope* current_scope = nullptr;

void write_reproducer(const CheckScope& scope) {
    std::error_code ignored;
    auto path = std::filesystem::temp_directory_path(ignored) / fmt::format("tessera-reproducer-{}.txt", getpid());
    std::string text = scope.reproducer();
    FILE* file = std::fopen(path.c_str(), "w");
    if (!file) return;
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
    fmt::print(stderr, "  reproducer: {}\n", path.string());
}

}  // namespace

CheckScope::CheckScope(std::string pass_name, std::function<std::string()> make_reproducer)
    : pass(std::move(pass_name)), reproducer(std::move(make_reproducer)), outer_(current_scope) {
    current_scope = this;
}
CheckScope::~CheckScope() { current_scope = outer_; }

bool aborts_on_fault() {
#ifdef NDEBUG
    static const bool aborts = [] {
        const char* set = std::getenv("TESSERA_ABORT");
        return set && *set && std::string_view(set) != "0";
    }();
    return aborts;
#else
    return true;
#endif
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
    if (!aborts_on_fault())
        throw InternalError(fmt::format("{}:{}: {}{}{}{}", file, line, condition, message.empty() ? "" : ": ", message,
                                        current_scope ? ", in " + current_scope->pass : ""));
    fmt::print(stderr, "internal error: {}:{}: {}{}{}\n", file, line, condition, message.empty() ? "" : ": ", message);
    if (CheckScope* scope = std::exchange(current_scope, nullptr)) {  // a CHECK inside the reproducer must not recurse
        fmt::print(stderr, "  in pass: {}\n", scope->pass);
        if (scope->reproducer) write_reproducer(*scope);
    }
    fmt::print(stderr, "  this is a bug in Tessera, not in your input; please report it with the reproducer\n");
    std::abort();
}

}  // namespace tessera
