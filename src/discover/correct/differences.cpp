#include "discover/correct/differences.h"

#include <algorithm>

#include "discover/prove/comprehension.h"
#include "discover/prove/root.h"

namespace tessera {
namespace {

using namespace prover;

constexpr int64_t kThickest = 8;  // rows of a border
constexpr int64_t kMostTiles = 8;

struct CannotSay {
    std::string why;
};

// An index of the output, or one part of an index that was cut.
struct Coordinate {
    int variable;
    int64_t axis;
    Poly extent;
    enum class Part { Whole, High, Low } part;
    Poly divisor = 1;  // of what was cut
};

// [begin, end) of a coordinate, which are a constant apart.
struct Border {
    size_t coordinate;
    Poly begin, end;
    int64_t rows() const { return (end - begin).constant(); }
};

class BorderSearch {
  public:
    BorderSearch(const Comprehension& c, RootProof& proof) : proof_(proof), atoms_(proof.atoms()) { coordinates(c); }

    std::vector<Strip> strips() {
        std::vector<Strip> found;
        // What lies in one border only decides first.
        std::vector<std::pair<const Summand*, std::vector<Border>>> open;
        for (const Summand& t : proof_.left()) {
            const Facts known = facts(t);
            if (known.contradictory()) continue;
            std::vector<Border> borders = borders_of(t, known);
            if (borders.empty()) throw CannotSay{"the mutant differs in the whole of the output"};
            open.emplace_back(&t, std::move(borders));
        }
        std::stable_sort(open.begin(), open.end(),
                         [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
        std::vector<Border> chosen;
        for (const auto& [term, borders] : open) {
            auto taken = std::find_if(borders.begin(), borders.end(), [&](const Border& b) {
                return std::any_of(chosen.begin(), chosen.end(), [&](const Border& c) {
                    return c.coordinate == b.coordinate && c.begin == b.begin && c.end == b.end;
                });
            });
            const Border& best =
                taken != borders.end()
                    ? *taken
                    : *std::min_element(borders.begin(), borders.end(),
                                        [](const Border& a, const Border& b) { return a.rows() < b.rows(); });
            chosen.push_back(best);
            add(best, facts(*term), found);
        }
        return found;
    }

  private:
    RootProof& proof_;
    Atoms& atoms_;
    std::vector<Coordinate> coordinates_;

    Facts facts(const Summand& t) const {
        Facts known = proof_.base();
        known.add(t.guards);
        return known;
    }

    void coordinates(const Comprehension& c) {
        using Part = Coordinate::Part;
        for (int64_t d = 0; d < c.shape.rank(); ++d)
            coordinates_.push_back(
                {atoms_.variable("_o" + std::to_string(d)), d, atoms_.convert(c.shape[d]), Part::Whole});
        for (const RootProof::Cut& cut : proof_.cuts()) {
            auto whole = std::find_if(coordinates_.begin(), coordinates_.end(),
                                      [&](const Coordinate& x) { return x.variable == cut.variable; });
            if (whole == coordinates_.end() || whole->part != Part::Whole)
                throw CannotSay{"an axis is cut into more than two"};
            const Coordinate was = *whole;
            coordinates_.erase(whole);
            coordinates_.push_back({cut.high, was.axis, quotient(was.extent, cut.divisor), Part::High, cut.divisor});
            coordinates_.push_back({cut.low, was.axis, cut.divisor, Part::Low, cut.divisor});
        }
    }

    // How many times a divisor goes into an extent that is a multiple of it.
    Poly quotient(const Poly& extent, const Poly& divisor) const {
        for (int64_t n = 1; n <= kMostTiles; ++n)
            if (extent == Poly(n) * divisor) return n;
        if (divisor.is_constant() && divisor.constant() > 0) {
            Poly out = extent;
            for (Mono& m : out.terms) {
                if (m.coefficient % divisor.constant() != 0) throw CannotSay{"an axis is not cut into whole tiles"};
                m.coefficient /= divisor.constant();
            }
            return out;
        }
        throw CannotSay{"an axis is cut into an unknown number of tiles"};
    }

    std::vector<Border> borders_of(const Summand& t, const Facts& known) const {
        std::vector<Border> borders;
        for (size_t i = 0; i < coordinates_.size(); ++i) {
            const Coordinate& c = coordinates_[i];
            // A few phases or tiles are no border: which of them differ says nothing of how much does.
            if (c.part != Coordinate::Part::Whole && c.extent.is_constant() && c.extent.constant() <= kMostTiles)
                continue;
            std::vector<Poly> lows{0}, highs{c.extent - Poly(1)};
            for (const Poly& g : t.guards) bounds_by(g, t, c, lows, highs);
            std::optional<Border> best;
            for (const Poly& low : lows)
                for (const Poly& high : highs) {
                    const Poly rows = high - low + Poly(1);
                    if (!rows.is_constant() || rows.constant() < 1 || rows.constant() > kThickest) continue;
                    if (best && best->rows() <= rows.constant()) continue;
                    if (known.implies(Poly::atom(c.variable) - low) && known.implies(high - Poly::atom(c.variable)))
                        best = Border{i, low, high + Poly(1)};
                }
            if (best) borders.push_back(*best);
        }
        return borders;
    }

    // What a guard says of a coordinate, with the variables of its sum where they say least.
    void bounds_by(const Poly& guard, const Summand& t, const Coordinate& c, std::vector<Poly>& lows,
                   std::vector<Poly>& highs) const {
        const int64_t sign = guard.coefficient(static_cast<uint64_t>(c.variable));
        if (sign != 1 && sign != -1) return;
        Poly rest = guard - Poly(sign) * Poly::atom(c.variable);
        for (int v : t.variables) {
            const int64_t times = rest.coefficient(static_cast<uint64_t>(v));
            if (times == 0) continue;
            const std::optional<Poly> most = extreme_of(v, t, times > 0);
            if (!most) return;
            rest = rest - Poly(times) * Poly::atom(v) + Poly(times) * *most;
        }
        for (const Coordinate& other : coordinates_)
            if (atoms_.mentions(rest, other.variable)) return;
        for (int v : t.variables)
            if (atoms_.mentions(rest, v)) return;
        if (sign == 1)
            lows.push_back(-rest);
        else
            highs.push_back(rest);
    }

    // The largest or smallest value of a variable, by a guard of it alone.
    std::optional<Poly> extreme_of(int v, const Summand& t, bool largest) const {
        for (const Poly& g : t.guards) {
            if (g.coefficient(static_cast<uint64_t>(v)) != (largest ? -1 : 1)) continue;
            const Poly rest = largest ? g + Poly::atom(v) : Poly::atom(v) - g;
            if (rest.is_constant()) return rest;
        }
        return {};
    }

    Expr size(const Poly& p) const {
        std::optional<Expr> e = parse_dim(atoms_.print(p));
        if (!e) throw CannotSay{"a size that cannot be written: " + atoms_.print(p)};
        return *e;
    }

    void add(const Border& b, const Facts& known, std::vector<Strip>& found) const {
        const Coordinate& c = coordinates_[b.coordinate];
        const Poly &begin = b.begin, &end = b.end;
        if (c.part == Coordinate::Part::Whole) return found.push_back({c.axis, size(begin), size(end)});
        if (c.part == Coordinate::Part::High)
            return found.push_back({c.axis, size(begin * c.divisor), size(end * c.divisor)});
        // In each tile, but those that the guards leave out.
        auto high = std::find_if(coordinates_.begin(), coordinates_.end(), [&](const Coordinate& x) {
            return x.axis == c.axis && x.part == Coordinate::Part::High;
        });
        if (!high->extent.is_constant()) throw CannotSay{"it differs in every tile of an unknown number"};
        for (int64_t n = 0; n < high->extent.constant(); ++n) {
            Facts here = known;
            here.add(Poly::atom(high->variable) - Poly(n));
            here.add(Poly(n) - Poly::atom(high->variable));
            if (here.contradictory()) continue;
            const Poly first = Poly(n) * c.divisor;
            found.push_back({c.axis, size(first + begin), size(first + end)});
        }
    }
};

// In order and apart, for all sizes.
std::vector<Strip> merged(std::vector<Strip> strips) {
    Atoms atoms;
    const Facts none(atoms);
    auto at_most = [&](const Expr& a, const Expr& b) { return none.implies(atoms.convert(b - a)); };
    auto ordered = [&](const Expr& a, const Expr& b) {
        if (at_most(a, b)) return true;
        if (at_most(b, a)) return false;
        throw CannotSay{fmt::format("{} and {} cannot be ordered", to_string(a), to_string(b))};
    };
    std::vector<Strip> sorted;
    for (Strip& s : strips) {
        auto at = sorted.begin();
        while (at != sorted.end() && (at->axis < s.axis || (at->axis == s.axis && ordered(at->begin, s.begin)))) ++at;
        sorted.insert(at, std::move(s));
    }
    std::vector<Strip> out;
    for (Strip& s : sorted) {
        if (!out.empty() && out.back().axis == s.axis && ordered(s.begin, out.back().end)) {
            if (ordered(out.back().end, s.end)) out.back().end = s.end;
            continue;
        }
        out.push_back(std::move(s));
    }
    return out;
}

}  // namespace

std::vector<int64_t> Differences::axes() const {
    std::vector<int64_t> list;
    for (const Strip& s : strips)
        if (list.empty() || list.back() != s.axis) list.push_back(s.axis);
    return list;
}

Result<Differences> find_differences(const Claim& claim, const ProveOptions& options) {
    TRY(check_names(claim));
    const std::vector<Comprehension> roots = TRY(comprehend(claim));
    Differences found;
    if (roots.size() != 1) return Error(Code::E0303, "{}: it has several roots", claim.rule.name);
    try {
        RootProof proof(roots[0], options);
        std::vector<std::string> steps;
        if (proof.run(steps)) {
            found.everywhere_equal = true;
            return found;
        }
        found.strips = BorderSearch(roots[0], proof).strips();
        found.strips = merged(found.strips);
        if (found.strips.empty()) found.refused = "nothing is left of the difference that says where it is";
    } catch (const CannotSay& c) {
        found.refused = c.why;
    } catch (const Unsupported& u) {
        found.refused = u.why;
    }
    return found;
}

}  // namespace tessera
