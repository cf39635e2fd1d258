// Laws of signs, tried where nothing else cancels: 1 / -a = -(1 / a), max(a, 0) = a + max(0, -a), and a * (1 / a) = 1.
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

// a * (1 / a) = 1.
Cancel::Outcome Cancel::unit(Numbered& n) {
    const std::vector<Factor>& factors = n.term.factors;
    for (size_t l = 0; l < factors.size(); ++l) {
        const Factor& below = factors[l];
        if (below.kind != Factor::Kind::Call || below.name != "inverse" || below.args[0].size() != 1) continue;
        const Summand& only = below.args[0][0];
        if (!only.variables.empty() || !only.guards.empty() || only.factors.size() != 1 ||
            !(only.coefficient == Rational{}))
            continue;
        for (size_t k = 0; k < factors.size(); ++k) {
            const Factor &a = factors[k], &b = only.factors[0];
            if (k == l || a.kind != b.kind || a.slot != b.slot || a.name != b.name ||
                a.index.size() != b.index.size() || a.args.size() != b.args.size())
                continue;
            const Facts known = facts(n.term);
            bool same = true;
            for (size_t d = 0; same && d < a.index.size(); ++d) same = known.equal(a.index[d], b.index[d]);
            std::vector<std::string> proof;
            if (!same || !arguments_agree({{}, {}, {}, {a}}, {{}, {}, {}, {b}}, {0}, known, proof)) continue;
            step(fmt::format("unit {} {} {}", n.id, k, l));
            steps_.insert(steps_.end(), proof.begin(), proof.end());
            n.term.factors.erase(n.term.factors.begin() + static_cast<std::ptrdiff_t>(std::max(k, l)));
            n.term.factors.erase(n.term.factors.begin() + static_cast<std::ptrdiff_t>(std::min(k, l)));
            return Outcome::Changed;
        }
    }
    return Outcome::Nothing;
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
