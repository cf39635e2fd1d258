// The library's own way to write errors: texts with arguments, checked against them at compile time, and TRY.
#pragma once

#include "tessera/error.h"

#include <fmt/format.h>

namespace tessera {

template <typename... Args>
struct detail::Format {
    template <detail::Text T>
    consteval Format(const T& text) : text(text) {}
    constexpr Format(fmt::format_string<Args...> text) : text(text) {}

    fmt::format_string<Args...> text;
};

template <typename... Args>
Error::Error(Code code, detail::Format<std::type_identity_t<Args>...> message, Args&&... args)
    : Error(code, fmt::format(message.text, std::forward<Args>(args)...)) {}

template <typename... Args>
Error&& Error::note(detail::Format<std::type_identity_t<Args>...> text, Args&&... args) && {
    return std::move(*this).note(fmt::format(text.text, std::forward<Args>(args)...));
}

template <typename... Args>
Error&& Error::hint(detail::Format<std::type_identity_t<Args>...> text, Args&&... args) && {
    return std::move(*this).hint(fmt::format(text.text, std::forward<Args>(args)...));
}

#define TRY(...) TESSERA_TRY(__VA_ARGS__)

}  // namespace tessera
