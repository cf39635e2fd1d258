#include "graph/text/scanner.h"

#include <algorithm>

#include "graph/text/literal.h"
#include "onnx/utf8.h"

namespace tessera {
namespace {

bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

size_t TextScanner::at() {
    for (; at_ < text_.size(); ++at_) {
        char c = text_[at_];
        if (c == ' ' || c == '\n' || c == '\t' || c == '\r') continue;
        if (text_.substr(at_, 2) != "//") break;
        at_ = std::min(text_.find('\n', at_), text_.size() - 1);
    }
    return at_;
}

char TextScanner::peek() { return at() < text_.size() ? text_[at_] : '\0'; }

bool TextScanner::take(std::string_view symbol) {
    if (text_.substr(at(), symbol.size()) != symbol) return false;
    at_ += symbol.size();
    return true;
}

bool TextScanner::next_is_word(std::string_view word) {
    size_t begin = at();
    if (text_.substr(begin, word.size()) != word) return false;
    return begin + word.size() >= text_.size() || !is_word(text_[begin + word.size()]);
}

bool TextScanner::take_word(std::string_view word) {
    if (!next_is_word(word)) return false;
    at_ += word.size();
    return true;
}

std::string_view TextScanner::word() {
    size_t begin = at(), end = begin;
    while (end < text_.size() && is_word(text_[end])) ++end;
    at_ = end;
    return text_.substr(begin, end - begin);
}

std::string_view TextScanner::number() {
    size_t begin = at(), end = begin;
    if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
    if (std::string_view rest = text_.substr(end); rest.starts_with("inf") || rest.starts_with("nan")) {
        end += 3;
    } else {
        if (end >= text_.size() || !((text_[end] >= '0' && text_[end] <= '9') || text_[end] == '.')) return {};
        bool hex = rest.starts_with("0x");
        while (end < text_.size() && (is_word(text_[end]) || (!hex && (text_[end] == '-' || text_[end] == '+') &&
                                                              (text_[end - 1] == 'e' || text_[end - 1] == 'E'))))
            ++end;
    }
    if (end < text_.size() && is_word(text_[end])) return {};
    at_ = end;
    return text_.substr(begin, end - begin);
}

Result<std::string> TextScanner::string() {
    size_t begin = at();
    if (!take("\"")) return syntax(begin, "a string");
    std::string out;
    while (at_ < text_.size()) {
        char c = text_[at_++];
        if (c == '"') return out;
        if (c == '\n') break;
        if (c != '\\') {
            out += c;
            continue;
        }
        char escaped = at_ < text_.size() ? text_[at_++] : '\0';
        if (escaped == 'n')
            out += '\n';
        else if (escaped == 't')
            out += '\t';
        else if (escaped == '"' || escaped == '\\')
            out += escaped;
        else if (escaped == 'x' && at_ + 2 <= text_.size() && hex_digit(text_[at_]) >= 0 &&
                 hex_digit(text_[at_ + 1]) >= 0) {
            out += static_cast<char>(hex_digit(text_[at_]) * 16 + hex_digit(text_[at_ + 1]));
            at_ += 2;
        } else
            return error(at_ - 1, Code::E0301, "unknown escape in a string; there are \\n \\t \\\" \\\\ \\xNN");
    }
    return error(begin, Code::E0301, "the string does not end on its line");
}

Result<std::string> TextScanner::prose() {
    size_t begin = at();
    std::string text = TRY(string());
    if (!onnx::is_utf8(text)) return error(begin, Code::E0301, "names and descriptions must be UTF-8");
    return text;
}

std::string_view TextScanner::until_bracket() {
    size_t begin = at_;
    bool quoted = false;
    for (; at_ < text_.size(); ++at_) {
        char c = text_[at_];
        if (quoted && c == '\\')
            ++at_;
        else if (c == '`')
            quoted = !quoted;
        else if (!quoted && (c == ']' || c == '\n'))
            break;
    }
    at_ = std::min(at_, text_.size());
    return text_.substr(begin, at_ - begin);
}

Status TextScanner::expect(std::string_view symbol) {
    if (take(symbol)) return {};
    return syntax(at(), "'" + std::string(symbol) + "'");
}

std::string TextScanner::place(size_t at) const {
    at = std::min(at, text_.size());
    std::string_view before = text_.substr(0, at);
    size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    size_t start = before.rfind('\n');
    size_t column = start == std::string_view::npos ? at : at - start - 1;
    return fmt::format("{}:{}:{}", source_, line, column + 1);
}

std::string TextScanner::caret(size_t at) const {
    constexpr size_t kWindow = 50;
    at = std::min(at, text_.size());
    size_t begin = text_.substr(0, at).rfind('\n');
    begin = begin == std::string_view::npos ? 0 : begin + 1;
    size_t end = std::min(text_.find('\n', at), text_.size());
    if (at - begin > kWindow) begin = at - kWindow;
    if (end - at > kWindow) end = at + kWindow;
    std::string line(text_.substr(begin, end - begin));
    for (char& c : line)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    return fmt::format("{}\n        {}^", line, std::string(at - begin, ' '));
}

Error TextScanner::syntax(size_t at, std::string_view expected) {
    std::string found = "the end of the text";
    if (at < text_.size()) {
        size_t end = at;
        while (end < text_.size() && end - at < 40 && is_word(text_[end])) ++end;
        found = quote(text_.substr(at, std::max<size_t>(1, end - at)));
    }
    return error(at, Code::E0301, "expected {}, found {}", expected, found);
}

}  // namespace tessera
