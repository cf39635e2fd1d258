#include "kernel/ir/linear_system.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/gcd.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kLargest = int64_t{1} << 50;  // of coefficients and constants
constexpr size_t kMostSums = 400;
constexpr int kMostPasses = 20;

using Wide = __int128;

LinearSum negated(const LinearSum& sum) {
    LinearSum out;
    out.add(sum, -1);
    return out;
}

Wide ceil_quotient(Wide a, Wide positive) { return a >= 0 ? (a + positive - 1) / positive : -(-a / positive); }

struct Range {
    std::optional<int64_t> low, high;
    bool empty() const { return low && high && *low > *high; }
};

// The most that a term can be; empty where there is no end.
std::optional<Wide> most(const Range& range, int64_t coefficient) {
    const std::optional<int64_t>& end = coefficient > 0 ? range.high : range.low;
    return end ? std::optional<Wide>(Wide{*end} * coefficient) : std::nullopt;
}

// What follows for an unknown whose term is at least `least`. Whether its range is narrower than before.
bool narrow_one(Range& range, int64_t coefficient, Wide least) {
    const Wide bound = ceil_quotient(least, coefficient > 0 ? coefficient : -coefficient);
    if (bound > kLargest || bound < -kLargest) return false;
    const auto value = static_cast<int64_t>(bound);
    if (coefficient > 0 ? range.low && *range.low >= value : range.high && *range.high <= -value) return false;
    (coefficient > 0 ? range.low : range.high) = coefficient > 0 ? value : -value;
    return true;
}

}  // namespace

void LinearSum::add(const LinearSum& other, int64_t factor) {
    known &= other.known;
    auto plus = [&](int64_t& to, int64_t value) {
        std::optional<int64_t> product = checked_mul(value, factor);
        std::optional<int64_t> sum = product ? checked_add(to, *product) : std::nullopt;
        known &= sum && *sum > -kLargest && *sum < kLargest;
        if (sum) to = *sum;
    };
    plus(constant, other.constant);
    for (const auto& [name, coefficient] : other.terms) {
        int64_t& mine = terms[name];
        plus(mine, coefficient);
        if (mine == 0) terms.erase(name);
    }
}

LinearSum LinearSystem::unknown(std::optional<int64_t> low, std::optional<int64_t> high) {
    LinearSum value;
    value.terms[unknowns_++] = 1;
    if (low) require_not_negative(value - LinearSum{{}, *low});
    if (high) require_not_negative(LinearSum{{}, *high} - value);
    return value;
}

// Divides by what all coefficients share. False where the constraint cannot hold.
bool LinearSystem::reduce(Constraint& c) {
    int64_t divisor = 0;
    for (const auto& term : c.sum.terms) divisor = gcd_of(divisor, term.second);
    if (divisor == 0) return c.zero ? c.sum.constant == 0 : c.sum.constant >= 0;
    if (c.zero && c.sum.constant % divisor != 0) return false;
    for (auto& term : c.sum.terms) term.second /= divisor;
    c.sum.constant = floor_quotient(c.sum.constant, divisor);
    return true;
}

// Places of rows and columns: where what does not divide by d is less than d either way, it is 0 by itself, and so is
// what does.
void LinearSystem::split_equalities(std::vector<Constraint>& all) {
    std::map<int, Range> ranges;
    for (const Constraint& c : all) {
        if (c.sum.terms.size() != 1) continue;
        const auto& [name, coefficient] = *c.sum.terms.begin();
        for (const int64_t sign : c.zero ? std::vector<int64_t>{1, -1} : std::vector<int64_t>{1})
            narrow_one(ranges[name], sign * coefficient, -Wide{sign} * c.sum.constant);
    }
    const auto split = [&](const LinearSum& sum, int64_t divisor) -> std::optional<std::pair<LinearSum, LinearSum>> {
        LinearSum whole, rest{{}, sum.constant};
        Wide high = sum.constant, low = sum.constant;
        for (const auto& [name, coefficient] : sum.terms) {
            LinearSum& part = coefficient % divisor == 0 ? whole : rest;
            part.terms.emplace(name, coefficient);
            if (&part == &whole) continue;
            const auto up = most(ranges[name], coefficient), down = most(ranges[name], -coefficient);
            if (!up || !down) return std::nullopt;
            high += *up;
            low -= *down;
        }
        if (rest.terms.empty() || high >= divisor || low <= -divisor) return std::nullopt;
        return std::pair(whole, rest);
    };
    for (size_t i = 0; i < all.size(); ++i) {
        if (!all[i].zero) continue;
        std::set<int64_t> divisors;
        for (const auto& term : all[i].sum.terms) divisors.insert(std::abs(term.second));
        for (const int64_t divisor : divisors)
            if (auto parts = divisor > 1 ? split(all[i].sum, divisor) : std::nullopt) {
                all[i].sum = parts->first;
                all.push_back({parts->second, true});
                break;
            }
    }
}

// Each in turn gives the value of one of its unknowns: the one with the smallest coefficient c, and the youngest of
// those, since the eldest are the ones with ranges. Where c is not 1, the value has a new unknown in it, and the
// equality is left with remainders by c. False where the constraints cannot hold.
bool LinearSystem::solve_equalities(std::vector<Constraint>& all, int unknowns) {
    for (;;) {
        for (Constraint& c : all)
            if (!reduce(c)) return false;
        std::erase_if(all, [](const Constraint& c) { return c.sum.terms.empty(); });
        auto equality = std::find_if(all.begin(), all.end(), [](const Constraint& c) { return c.zero; });
        if (equality == all.end()) return true;
        LinearSum sum = equality->sum;
        auto size = [](const auto& term) { return std::abs(term.second); };
        auto least = std::min_element(sum.terms.rbegin(), sum.terms.rend(),
                                      [&](const auto& a, const auto& b) { return size(a) < size(b); });
        const int name = least->first;
        if (least->second < 0) sum = negated(sum);
        const int64_t divisor = sum.terms.at(name);
        LinearSum value{{}, -floor_quotient(sum.constant, divisor)};
        for (const auto& [other, coefficient] : sum.terms)
            if (int64_t times = floor_quotient(coefficient, divisor); other != name && times != 0)
                value.terms[other] = -times;
        if (divisor == 1)
            all.erase(equality);
        else
            value.terms[unknowns++] = 1;
        for (Constraint& c : all) {
            auto found = c.sum.terms.find(name);
            if (found == c.sum.terms.end()) continue;
            const int64_t factor = found->second;
            c.sum.terms.erase(found);
            c.sum.add(value, factor);
        }
        std::erase_if(all, [](const Constraint& c) { return !c.sum.known; });
    }
}

// Adds the ranges of unknowns that follow from sums that are at least 0. False where there are none.
bool LinearSystem::narrow(std::vector<Constraint>& all) {
    std::map<int, Range> ranges;
    bool changed = true;
    for (int pass = 0; changed && pass < kMostPasses; ++pass) {
        changed = false;
        for (const Constraint& c : all) {
            Wide total = c.sum.constant;
            int open = 0;  // terms without an end
            for (const auto& [name, coefficient] : c.sum.terms) {
                std::optional<Wide> end = most(ranges[name], coefficient);
                total += end.value_or(0);
                open += !end;
            }
            for (const auto& [name, coefficient] : c.sum.terms) {
                Range& range = ranges[name];
                std::optional<Wide> own = most(range, coefficient);
                if (open > (own ? 0 : 1)) continue;
                changed |= narrow_one(range, coefficient, own.value_or(0) - total);
                if (range.empty()) return false;
            }
        }
    }
    for (const auto& [name, range] : ranges) {
        if (range.low) all.push_back({{{{name, 1}}, -*range.low}, false});
        if (range.high) all.push_back({{{{name, -1}}, *range.high}, false});
    }
    return true;
}

// Of sums that are at least 0. False where they cannot be.
bool LinearSystem::add_up(std::vector<Constraint> all) {
    std::map<std::map<int, int64_t>, int64_t> tightest;  // by terms: the smallest constant
    while (!all.empty()) {
        tightest.clear();
        for (Constraint& c : all) {
            if (!c.sum.known) continue;
            if (!reduce(c)) return false;
            if (c.sum.terms.empty()) continue;
            auto [at, fresh] = tightest.emplace(std::move(c.sum.terms), c.sum.constant);
            if (!fresh) at->second = std::min(at->second, c.sum.constant);
        }
        std::map<int, std::pair<size_t, size_t>> signs;  // by unknown: how often it is added, and subtracted
        for (const auto& sum : tightest)
            for (const auto& [name, coefficient] : sum.first)
                ++(coefficient > 0 ? signs[name].first : signs[name].second);
        auto sums_with = [](const auto& s) { return s.second.first * s.second.second; };
        auto next = std::min_element(signs.begin(), signs.end(),
                                     [&](const auto& a, const auto& b) { return sums_with(a) < sums_with(b); });
        if (next == signs.end() || sums_with(*next) + tightest.size() > kMostSums) return true;
        all.clear();
        std::vector<LinearSum> added, subtracted;
        for (const auto& [terms, constant] : tightest) {
            auto found = terms.find(next->first);
            if (found == terms.end())
                all.push_back({{terms, constant}, false});
            else
                (found->second > 0 ? added : subtracted).push_back({terms, constant});
        }
        for (const LinearSum& plus : added)
            for (const LinearSum& minus : subtracted) {
                LinearSum sum;
                sum.add(plus, -minus.terms.at(next->first));
                sum.add(minus, plus.terms.at(next->first));
                all.push_back({std::move(sum), false});
            }
    }
    return true;
}

bool LinearSystem::impossible() const {
    std::vector<Constraint> all = constraints_;
    split_equalities(all);
    if (!solve_equalities(all, unknowns_)) return true;
    return !narrow(all) || !add_up(std::move(all));
}

}  // namespace tessera
