// Laws of signs, tried where nothing else cancels: 1 / -a = -(1 / a), and max(a, 0) = a + max(0, -a).
#include <algorithm>

#include "discover/prove/cancel.h"

namespace tessera::prover {
namespace {

// What a summand is a multiple of, as far as names go.
std::string kind_of(const Summand& t) {
    std::vector<std::string> parts;
    for (const Factor& f : t.factors)
        parts.push_back(f.kind == Factor::Kind::Load ? fmt::format("x{}", f.slot) : f.name);
    std::sort(parts.begin(), parts.end());
    std::string text;
    for (const std::string& p : parts) text += p + " ";
    return text;
}

// Whether the first summand by kind is negative: one of a and -a is, and not the other, where that says which is first.
bool is_negative(const Sum& s) {
    std::string first;
    int sign = 0;
    for (const Summand& t : s) {
        std::string kind = kind_of(t);
        const int here = t.coefficient.numerator < 0 ? -1 : 1;
        if (sign == 0 || kind < first)
            first = std::move(kind), sign = here;
        else if (kind == first && here != sign)
            return false;
    }
    return sign < 0;
}

}  // namespace

bool Cancel::use_signs() {
    for (size_t i = 0; i < ready_.size(); ++i)
        for (size_t k = 0; k < ready_[i].term.factors.size(); ++k)
            if (negate(i, k) || shift(i, k)) return true;
    return false;
}

bool Cancel::negate(size_t i, size_t k) {
    Numbered n = ready_[i];
    Factor& f = n.term.factors[k];
    if (f.kind != Factor::Kind::Call || f.name != "inverse" || !is_negative(f.args[0])) return false;
    step(fmt::format("negate {} {}", n.id, k));
    f.args[0] = negated(std::move(f.args[0]));
    n.term.coefficient.numerator = -n.term.coefficient.numerator;
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(i));
    waiting_.push_back(std::move(n));
    return true;
}

bool Cancel::shift(size_t i, size_t k) {
    const Numbered n = ready_[i];
    const Factor& f = n.term.factors[k];
    if (f.kind != Factor::Kind::Extreme) return false;
    const Facts known = facts(n.term);
    std::optional<std::vector<const Sum*>> live = live_points(f, known);
    if (!live || live->size() != 2) return false;
    const Sum *a = (*live)[0], *zero = (*live)[1];
    if (a->empty()) std::swap(a, zero);
    if (!zero->empty() || !is_negative(*a)) return false;
    size_t which = 0;
    while (&f.args[0][which].factors[0].args[0] != a) ++which;
    step(fmt::format("shift {} {} {}", n.id, k, which));
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(i));
    const Sum by = *a, less = negated(by);
    replace_by(n, {k}, {by});
    Summand rest = n.term;
    Sum& points = rest.factors[k].args[0];
    for (size_t p = 0; p < points.size(); ++p) {
        Sum& value = points[p].factors[0].args[0];
        if (p == which)
            value.clear();
        else
            value.insert(value.end(), less.begin(), less.end());
    }
    waiting_.push_back(numbered(++next_id_, std::move(rest)));
    return true;
}

}  // namespace tessera::prover
