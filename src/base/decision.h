// A yes or no with its reason, for choices that --explain prints.
#pragma once

#include <fmt/format.h>

#include <string>

namespace tessera {

class [[nodiscard]] Decision {
   public:
    Decision(bool yes, std::string reason) : yes_(yes), reason_(std::move(reason)) {}
    explicit operator bool() const { return yes_; }
    const std::string& reason() const { return reason_; }

   private:
    bool yes_;
    std::string reason_;
};

inline Decision yes() { return {true, {}}; }

template <typename... Args>
Decision yes(fmt::format_string<Args...> reason, Args&&... args) {
    return {true, fmt::format(reason, std::forward<Args>(args)...)};
}

template <typename... Args>
Decision no(fmt::format_string<Args...> reason, Args&&... args) {
    return {false, fmt::format(reason, std::forward<Args>(args)...)};
}

struct Choice {
    std::string subject;  // "fuse relu1 into conv1"
    Decision decision;
};

}  // namespace tessera
