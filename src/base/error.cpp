#include "base/error.h"

#include <cstdlib>

namespace tessera {
namespace {

struct CodeText {
    std::string_view name, title;
};
constexpr CodeText kCodes[] = {
#define TESSERA_CODE(name, title) {#name, title},
#include "tessera/codes.def"
#undef TESSERA_CODE
};

}  // namespace

std::string_view code_name(Code code) { return kCodes[static_cast<int>(code)].name; }
std::string_view code_title(Code code) { return kCodes[static_cast<int>(code)].title; }

std::vector<Code> all_codes() {
    std::vector<Code> codes;
    for (int i = 0; i < static_cast<int>(std::size(kCodes)); ++i) codes.push_back(static_cast<Code>(i));
    return codes;
}

void detail::used_without_value(const Error& error) {
    fmt::print(stderr, "tessera: the value of a Result was used, but it holds an error; check ok() first\n{}\n",
               error.to_string());
    std::abort();
}

void detail::used_without_error() {
    fmt::print(stderr, "tessera: error() was called on a Result that holds a value; check ok() first\n");
    std::abort();
}

std::string Error::to_string() const {
    if (!data_) return "an error that was moved from";

    std::string text = fmt::format("error {}: {}", code_name(code()), message());
    if (!where().empty()) text += fmt::format("\n  at {}", where());
    if (!note().empty()) text += fmt::format("\n  note: {}", note());
    if (!hint().empty()) text += fmt::format("\n  hint: {}", hint());
    return text;
}

std::string Warning::to_string() const {
    std::string text = fmt::format("warning {}: {}", code_name(code), message);
    if (!where.empty()) text += fmt::format("\n  at {}", where);
    if (!hint.empty()) text += fmt::format("\n  hint: {}", hint);
    return text;
}

}  // namespace tessera
