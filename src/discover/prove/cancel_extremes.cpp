// Maxima and minima: lists of points, compared by which are among the others'.
#include <fmt/ranges.h>

#include <algorithm>

#include "discover/prove/cancel.h"

namespace tessera::prover {
namespace {

constexpr size_t kMaxPoints = 40;  // of a maximum that may be a single value

// The number that a sum is where the facts hold: terms whose guards they refute are none.
std::optional<Rational> number_under(const Facts& known, const Sum& s) {
    Rational total{0, 1};
    for (const Summand& t : s) {
        if (std::any_of(t.guards.begin(), t.guards.end(), [&](const Poly& g) { return known.refutes(g); })) continue;
        if (!t.variables.empty() || !t.factors.empty()) return {};
        if (!std::all_of(t.guards.begin(), t.guards.end(), [&](const Poly& g) { return known.implies(g); })) return {};
        total = total + t.coefficient;
    }
    return total;
}

}  // namespace

bool Cancel::included(const Factor& extreme, const Sum& others, const Facts& known, std::vector<std::string>& proof) {
    const std::string margin(static_cast<size_t>(depth_) * 2, ' ');
    proof.push_back(margin + "[");
    const bool largest = extreme.name == "max";
    if (!within_budget(
            [&] { return Cancel(search_, known, proof, depth_ + 1).run_inside(extreme.args[0], others, largest); }))
        return false;
    proof.push_back(margin + "]");
    return true;
}

bool Cancel::run_inside(const Sum& points, const Sum& others, bool largest) {
    for (const Summand& t : points) waiting_.push_back(numbered(++next_id_, t));
    std::reverse(waiting_.begin(), waiting_.end());
    while (!waiting_.empty()) {
        Numbered n = std::move(waiting_.back());
        waiting_.pop_back();
        split_choices_ = n.undecided;
        settle(std::move(n));
        for (Numbered& ready : ready_) {
            bool found = false;
            for (size_t j = 0; j < others.size() && !found; ++j) found = is_inside(ready, others[j], j, largest);
            if (!found && !ready.undecided) return false;
            if (!found) waiting_.push_back(std::move(ready));
        }
        ready_.clear();
    }
    return true;
}

// A value for each variable of the other, by which it is this point, or a number beyond that which this point is.
bool Cancel::is_inside(const Numbered& n, const Summand& other, size_t which, bool largest) {
    Atoms::Map solved;
    std::vector<std::pair<Poly, Poly>> equations;
    if (n.term.factors.size() != 1 || other.factors.size() != 1) return false;
    solve(n.term, other, {0}, solved, equations);
    Facts known = facts(n.term);
    const std::optional<Rational> mine = number_under(known, n.term.factors[0].args[0]);
    // What the values leave open may be anything that the guards allow.
    for (int64_t open = 0; open < (solved.size() < other.variables.size() ? 3 : 1); ++open) {
        Atoms::Map map = solved;
        for (int v : other.variables) map.try_emplace(v, Poly(open));
        Summand there = other;
        substitute(there, map);
        if (!std::all_of(there.guards.begin(), there.guards.end(), [&](const Poly& g) { return known.implies(g); }))
            continue;
        std::vector<std::string> values, proof;
        for (int v : other.variables) values.push_back(fmt::format("{} = {}", atoms_[v].name, atoms_.print(map.at(v))));
        const std::optional<Rational> theirs = mine ? number_under(known, there.factors[0].args[0]) : std::nullopt;
        if (mine && theirs) {
            Rational more = *theirs + Rational{-mine->numerator, mine->denominator};
            if (largest ? more.numerator < 0 : more.numerator > 0) continue;
            step(fmt::format("beyond {} {} with {}", n.id, which, fmt::join(values, "; ")));
            return true;
        }
        if (!arguments_agree(n.term, there, {0}, known, proof)) continue;
        step(fmt::format("inside {} {} with {}", n.id, which, fmt::join(values, "; ")));
        steps_.insert(steps_.end(), proof.begin(), proof.end());
        return true;
    }
    return false;
}

// The term with some of its factors replaced by a product of sums.
void Cancel::replace_by(const Numbered& n, std::vector<size_t> factors, const std::vector<Sum>& sums) {
    Sum made{n.term};
    std::sort(factors.rbegin(), factors.rend());
    for (size_t k : factors) made[0].factors.erase(made[0].factors.begin() + static_cast<std::ptrdiff_t>(k));
    for (const Sum& s : sums) {
        Sum next;
        for (const Summand& t : made)
            for (const Summand& v : s) {
                next.push_back(t);
                Summand& to = next.back();
                to.coefficient = to.coefficient * v.coefficient;
                to.variables.insert(to.variables.end(), v.variables.begin(), v.variables.end());
                to.guards.insert(to.guards.end(), v.guards.begin(), v.guards.end());
                to.factors.insert(to.factors.end(), v.factors.begin(), v.factors.end());
            }
        made = std::move(next);
    }
    for (Summand& t : made) waiting_.push_back(numbered(++next_id_, std::move(t)));
}

// The values of a maximum's points, where each is certain to be there or not to be there, and one only.
std::optional<std::vector<const Sum*>> Cancel::live_points(const Factor& extreme, const Facts& known) const {
    std::vector<const Sum*> live;
    for (const Summand& point : extreme.args[0]) {
        bool refuted = false, implied = point.variables.empty();
        for (const Poly& g : point.guards) {
            refuted = refuted || known.refutes(g);
            implied = implied && !refuted && known.implies(g);
        }
        if (refuted) continue;
        if (!implied) return {};
        live.push_back(&point.factors[0].args[0]);
    }
    return live;
}

// A maximum or minimum of which one point is not below (above) the others is that value.
Cancel::Outcome Cancel::collapse(Numbered& n) {
    for (size_t k = 0; k < n.term.factors.size(); ++k) {
        const Factor& f = n.term.factors[k];
        if (f.kind != Factor::Kind::Extreme || f.args[0].size() > kMaxPoints) continue;
        Facts known = facts(n.term);
        std::optional<std::vector<const Sum*>> live = live_points(f, known);
        if (!live || live->empty()) continue;
        for (size_t j = 0; j < f.args[0].size(); ++j) {
            if (std::find(live->begin(), live->end(), &f.args[0][j].factors[0].args[0]) == live->end()) continue;
            // Only numbers, and what is written the same, are compared.
            const Sum& value = f.args[0][j].factors[0].args[0];
            const bool number = number_under(known, value).has_value();
            if (!std::all_of(live->begin(), live->end(),
                             [&](const Sum* s) { return *s == value || (number && number_under(known, *s)); }))
                break;
            const Sum only{f.args[0][j]};
            std::vector<std::string> proof;
            if (!included(f, only, known, proof)) continue;
            step(fmt::format("collapse {} {} {}", n.id, k, j));
            steps_.insert(steps_.end(), proof.begin(), proof.end());
            replace_by(n, {k}, {value});
            return Outcome::Split;
        }
    }
    return Outcome::Nothing;
}

// r * r = r * p + r * q - p * q for the larger or smaller r of p and q.
Cancel::Outcome Cancel::square(Numbered& n) {
    for (size_t k = 0; k < n.term.factors.size(); ++k)
        for (size_t l = k + 1; l < n.term.factors.size(); ++l) {
            const Factor &r = n.term.factors[k], &other = n.term.factors[l];
            if (r.kind != Factor::Kind::Extreme || other.kind != r.kind || other.name != r.name) continue;
            Facts known = facts(n.term);
            std::optional<std::vector<const Sum*>> live = live_points(other, known);  // their variables go with it
            if (!live || live->size() != 2) continue;
            std::vector<std::string> proof;
            Summand left{{}, {}, {}, {r}}, right{{}, {}, {}, {other}};
            if (!arguments_agree(left, right, {0}, known, proof)) continue;
            step(fmt::format("square {} {} {}", n.id, k, l));
            steps_.insert(steps_.end(), proof.begin(), proof.end());
            const Sum p = *(*live)[0], q = *(*live)[1];
            replace_by(n, {l}, {p});
            replace_by(n, {l}, {q});
            replace_by(n, {k, l}, {p, negated(q)});
            return Outcome::Split;
        }
    return Outcome::Nothing;
}

}  // namespace tessera::prover
