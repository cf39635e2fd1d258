#include "discover/check/check_cancellation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "discover/check/check_meaning.h"

namespace tessera {
namespace checker {
namespace {

constexpr double kMostTimes =
    16;  // that a term may be as large as on the left: floats of 16 bits have 8 digits at least

// The size of a product, whatever the indices: its factors in order. Of a number: none.
using Magnitude = std::vector<std::string>;

std::string text_of(const Items& sum);

Magnitude magnitude_of(const Item& item) {
    Magnitude out;
    for (const Part& p : item.parts) {
        if (p.what == "number") continue;  // a size
        if (p.what == "inverse" && text_of(p.of[0]).empty()) continue;
        std::vector<std::string> inside;
        for (const Items& of : p.of) inside.push_back(text_of(of));
        out.push_back(inside.empty() ? p.what : fmt::format("{}({})", p.what, fmt::join(inside, ", ")));
    }
    // a (1 / a) = 1
    for (size_t i = 0; i < out.size();) {
        const std::string factor = out[i];
        auto inverse = std::find(out.begin(), out.end(), fmt::format("inverse({})", factor));
        if (inverse == out.end()) {
            ++i;
            continue;
        }
        out.erase(inverse);
        out.erase(std::find(out.begin(), out.end(), factor));
        i = 0;
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::string text_of(const Magnitude& m) { return fmt::format("{}", fmt::join(m, " * ")); }

std::string text_of(const Items& sum) {
    std::set<std::string> terms;
    for (const Item& item : sum) terms.insert(text_of(magnitude_of(item)));
    return fmt::format("{}", fmt::join(terms, " + "));
}

// Of each sum, those inside of functions too.
template <typename Visit>
void each_sum(const Items& sum, const Visit& visit) {
    visit(sum);
    for (const Item& item : sum)
        for (const Part& p : item.parts)
            for (const Items& inside : p.of) each_sum(inside, visit);
}

Magnitude joined_factors(const Magnitude& a, const Magnitude& b) {
    Magnitude out = a;
    append(out, b);
    std::sort(out.begin(), out.end());
    return out;
}

// One of these, or at most the larger of two of them: its square is their product.
bool is_bounded(const Magnitude& m, const std::set<Magnitude>& by) {
    if (by.contains(m)) return true;
    const Magnitude square = joined_factors(m, m);
    return std::any_of(by.begin(), by.end(), [&](const Magnitude& a) {
        return std::any_of(by.begin(), by.end(), [&](const Magnitude& b) { return joined_factors(a, b) == square; });
    });
}

double factor_of(const Item& item) {
    return std::abs(static_cast<double>(item.scale.above) / static_cast<double>(item.scale.below));
}

// Empty, or what the right side adds and subtracts.
std::string cancelled_terms(const ElementOfSides& root) {
    Names names;
    std::set<Magnitude> formed;
    double largest = 1;
    visit(root.left, [&](const Expr& e) {
        if (e.is(ExprKind::Load)) formed.insert({fmt::format("x{}", e.node().slot)});
    });
    each_sum(Meaning(names).of(root.left), [&](const Items& sum) {
        for (const Item& item : sum) {
            formed.insert(magnitude_of(item));
            largest = std::max(largest, factor_of(item));
        }
    });
    std::string out;
    each_sum(Meaning(names).of(root.right), [&](const Items& sum) {
        struct Sign {
            bool above = false, below = false;
            double factor = 0;
        };
        std::map<Magnitude, Sign> signs;
        for (const Item& item : sum) {
            Sign& sign = signs[magnitude_of(item)];
            (item.scale.above > 0 ? sign.above : sign.below) = true;
            sign.factor = std::max(sign.factor, factor_of(item));
        }
        for (const auto& [magnitude, sign] : signs)
            if (sign.above && sign.below && (!is_bounded(magnitude, formed) || sign.factor > kMostTimes * largest))
                out = magnitude.empty() ? "numbers" : text_of(magnitude);
    });
    return out;
}

}  // namespace
}  // namespace checker

Status check_cancellation(const Claim& claim, const std::vector<ElementOfSides>& roots) {
    if (claim.rule.exactness == Exactness::Approximates) return {};
    try {
        for (const ElementOfSides& root : roots)
            if (const std::string terms = checker::cancelled_terms(root); !terms.empty())
                return Error(Code::E0305,
                             "{}: its right side adds and subtracts {} beyond what the left side computes with",
                             claim.rule.name, terms);
    } catch (const checker::Refused& refused) {
        return Error(Code::E0305, "{}: {}", claim.rule.name, refused.why);
    }
    return {};
}

}  // namespace tessera
