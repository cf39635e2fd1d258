#include "base/nearest.h"

#include <algorithm>
#include <cctype>

namespace tessera {
namespace {

constexpr size_t kMaxLength = 64;

// Edits (insert, drop, change, swap of neighbours) from a to b; letters that differ only in case are half price.
// Counted in halves.
size_t distance(std::string_view a, std::string_view b) {
    std::vector<size_t> before, last(b.size() + 1), now(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) last[j] = 2 * j;
    auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    for (size_t i = 1; i <= a.size(); ++i) {
        now[0] = 2 * i;
        for (size_t j = 1; j <= b.size(); ++j) {
            size_t change = a[i - 1] == b[j - 1] ? 0 : lower(a[i - 1]) == lower(b[j - 1]) ? 1 : 2;
            now[j] = std::min({last[j] + 2, now[j - 1] + 2, last[j - 1] + change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = std::min(now[j], before[j - 2] + 2);
        }
        before = last;
        last = now;
    }
    return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view wanted, const std::vector<std::string_view>& candidates) {
    if (wanted.empty() || wanted.size() > kMaxLength) return {};
    std::string_view best;
    size_t best_distance = 2 * ((wanted.size() + 2) / 3) + 1;
    for (std::string_view c : candidates) {
        if (c.empty() || c.size() > kMaxLength) continue;
        size_t longer = std::max(c.size(), wanted.size()), shorter = std::min(c.size(), wanted.size());
        if (2 * (longer - shorter) >= best_distance) continue;
        if (size_t d = distance(wanted, c); d < best_distance) {
            best_distance = d;
            best = c;
        }
    }
    return std::string(best);
}

}  // namespace tessera
