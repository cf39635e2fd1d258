// Reads words off a text, with the place of each for messages. White space and // comments stand between words.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace tessera {

class TextScanner {
  public:
    TextScanner(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {}

    size_t at();  // where the next token begins
    void go_to(size_t at) { at_ = at; }
    bool done() { return at() >= text_.size(); }
    char peek();                            // the next word's first character, or 0
    bool take(std::string_view symbol);     // if it is next
    bool take_word(std::string_view word);  // if it is next and ends there
    bool next_is_word(std::string_view word);

    std::string_view word();       // letters, digits, _ and .; may be empty
    std::string_view number();     // with sign, point, exponent or 0x; inf, nan; may be empty
    Result<std::string> string();  // a quoted one
    Result<std::string> prose();   // a quoted one that is UTF-8: names and what people wrote
    std::string_view
    until_bracket();  // up to the ] that closes a [ already taken, which stays; the rest if there is none

    std::string_view since(size_t at) const { return text_.substr(at, at_ - at); }

    Status expect(std::string_view symbol);

    std::string place(size_t at) const;  // source:3:14
    std::string caret(size_t at) const;  // the line, and a ^ below the place
    template <typename... Args>
    Error error(size_t at, Code code, fmt::format_string<Args...> text, Args&&... args) const {
        return Error(code, "{}", fmt::format(text, std::forward<Args>(args)...)).at(place(at)).note("{}", caret(at));
    }
    Error syntax(size_t at, std::string_view expected);  // "expected a name, found ')'"

  private:
    std::string_view text_;
    std::string source_;
    size_t at_ = 0;
};

}  // namespace tessera
