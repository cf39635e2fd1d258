#include "discover/corrupt.h"

#include <vector>

namespace tessera {

std::string corrupted(const std::string& text, const RandomStream& random, uint64_t& drawn) {
    std::vector<std::pair<size_t, size_t>> tokens;
    auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    for (size_t i = 0; i < text.size();) {
        size_t end = i + 1;
        if (is_word(text[i]))
            while (end < text.size() && is_word(text[end])) ++end;
        if (text[i] != ' ' && text[i] != '\n') tokens.emplace_back(i, end - i);
        i = end;
    }
    if (tokens.empty()) return text;
    auto pick = [&] { return tokens[random.bits(drawn++) % tokens.size()]; };
    const auto [at, length] = pick();
    const auto [from, size] = pick();
    std::string out = text;
    switch (random.bits(drawn++) % 4) {
        case 0: out.replace(at, length, text.substr(from, size)); break;
        case 1:
            if (std::isdigit(static_cast<unsigned char>(text[at])))
                out.replace(at, length, std::to_string(random.bits(drawn++) % 4));
            else
                out.erase(at, length);
            break;
        case 2: {
            if (at + length > from && from + size > at) break;
            const bool first = at < from;
            const auto [a, n] = first ? std::pair(at, length) : std::pair(from, size);
            const auto [b, m] = first ? std::pair(from, size) : std::pair(at, length);
            out = text.substr(0, a) + text.substr(b, m) + text.substr(a + n, b - a - n) + text.substr(a, n) +
                  text.substr(b + m);
            break;
        }
        default: out.insert(at, text.substr(from, size) + " ");
    }
    return out;
}

}  // namespace tessera
