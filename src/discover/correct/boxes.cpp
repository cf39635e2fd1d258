#include "discover/correct/boxes.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "discover/correct/point_value.h"
#include "discover/prove/comprehension.h"
#include "discover/prove/normalise.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

using namespace prover;

struct Range {
    int64_t low = 0, high = 0;  // both inclusive
};

struct NoBoxes {
    std::string why;
};

// Intervals of polynomials where each variable has one.
class Intervals {
  public:
    explicit Intervals(Atoms& atoms) : atoms_(atoms) {}
    std::unordered_map<int, Range> variables;

    Range of(const Poly& p) const {
        Range sum;
        for (const Mono& m : p.terms) {
            Range product{1, 1};
            for (int id : atoms_of(m.key)) product = times(product, atom(id));
            const Range term = times({m.coefficient, m.coefficient}, product);
            sum = {sum.low + term.low, sum.high + term.high};
        }
        return sum;
    }

    // What a quotient is, where it is one number.
    Range quotient(const Atom& a) const {
        const Range x = of(a.args[0]), y = of(a.args[1]);
        if (y.low != y.high || y.low < 1) throw NoBoxes{"a quotient by a size that is no number"};
        return {floor_quotient(x.low, y.low), floor_quotient(x.high, y.low)};
    }

  private:
    Atoms& atoms_;

    static Range times(Range a, Range b) {
        const int64_t all[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
        return {*std::min_element(all, all + 4), *std::max_element(all, all + 4)};
    }

    Range atom(int id) const {
        const Atom& a = atoms_[id];
        switch (a.kind) {
            case Atom::Kind::Var: {
                auto found = variables.find(id);
                if (found == variables.end()) throw NoBoxes{a.name + " has no bounds"};
                return found->second;
            }
            case Atom::Kind::Div: return quotient(a);
            case Atom::Kind::Mod: {
                const Range q = quotient(a), x = of(a.args[0]);
                const int64_t d = of(a.args[1]).low;
                if (q.low == q.high) return {x.low - q.low * d, x.high - q.low * d};
                return {0, d - 1};
            }
            case Atom::Kind::Min: {
                const Range x = of(a.args[0]), y = of(a.args[1]);
                return {std::min(x.low, y.low), std::min(x.high, y.high)};
            }
            case Atom::Kind::Max: {
                const Range x = of(a.args[0]), y = of(a.args[1]);
                return {std::max(x.low, y.low), std::max(x.high, y.high)};
            }
            case Atom::Kind::Select: throw NoBoxes{"a choice of sizes"};
        }
        return {};
    }
};

class Splitter {
  public:
    Splitter(const Comprehension& c, const Sizes& sizes) : sizes_(sizes), intervals_(atoms_) {
        for (size_t d = 0; d < sizes.size(); ++d) {
            outputs_.push_back(atoms_.variable("_o" + std::to_string(d)));
            intervals_.variables[outputs_.back()] = {0, sizes[d] - 1};
        }
        Expansion expansion(atoms_, 400);
        for (const Expr& side : {c.left, c.right})
            for (const Summand& t : expansion.expand(side)) add(t);
    }

    // The begins of an axis' intervals, and its end.
    std::vector<int64_t> cuts(size_t axis) {
        std::vector<const Guard*> of_axis;
        for (const Guard& g : guards_)
            if (atoms_.mentions(g.p, outputs_[axis])) of_axis.push_back(&g);
        std::vector<int> quotients;
        for (int id : quotients_)
            if (atoms_.mentions(atoms_[id].args[0], outputs_[axis])) quotients.push_back(id);
        std::vector<int64_t> begins{0};
        std::vector<Range> before;
        for (int64_t at = 0; at < sizes_[axis]; ++at) {
            intervals_.variables[outputs_[axis]] = {at, at};
            std::vector<Range> here;
            for (const Guard* g : of_axis) {
                for (const auto& [v, r] : g->bounds) intervals_.variables[v] = r;
                const Range r = intervals_.of(g->p);
                here.push_back(r.low >= 0 ? Range{1, 1} : r.high < 0 ? Range{-1, -1} : r);
            }
            for (int id : quotients) {
                for (const auto& [v, r] : all_bounds_) intervals_.variables[v] = r;
                const Range q = intervals_.quotient(atoms_[id]);
                here.push_back(q);
                if (q.low != q.high) here.push_back(intervals_.of(atoms_[id].args[0]));
            }
            auto same = [](const Range& a, const Range& b) { return a.low == b.low && a.high == b.high; };
            if (at > 0 && !std::equal(here.begin(), here.end(), before.begin(), before.end(), same))
                begins.push_back(at);
            before = std::move(here);
        }
        intervals_.variables[outputs_[axis]] = {0, sizes_[axis] - 1};
        begins.push_back(sizes_[axis]);
        return begins;
    }

  private:
    struct Guard {
        Poly p;
        std::vector<std::pair<int, Range>> bounds;  // of the variables of its sum
    };
    const Sizes& sizes_;
    Atoms atoms_;
    Intervals intervals_;
    std::vector<int> outputs_;
    std::vector<Guard> guards_;
    std::vector<int> quotients_;
    std::vector<std::pair<int, Range>> all_bounds_;

    void add(const Summand& t) {
        for (const Factor& f : t.factors)
            if (f.kind != Factor::Kind::Load) throw NoBoxes{"it is not multi-linear: " + f.name};
        for (size_t i = 0; i < t.factors.size(); ++i)
            for (size_t j = 0; j < i; ++j)
                if (t.factors[i].slot == t.factors[j].slot)
                    throw NoBoxes{"it is not multi-linear: it squares an input"};
        std::vector<std::pair<int, Range>> bounds;
        for (int v : t.variables) bounds.emplace_back(v, bounds_of(v, t));
        all_bounds_.insert(all_bounds_.end(), bounds.begin(), bounds.end());
        std::vector<int> ids;
        for (const Poly& g : t.guards) {
            guards_.push_back({g, bounds});
            atoms_.collect(g, ids);
        }
        for (const Factor& f : t.factors)
            for (const Poly& p : f.index) atoms_.collect(p, ids);
        for (int id : ids)
            if (atoms_[id].kind == Atom::Kind::Div || atoms_[id].kind == Atom::Kind::Mod) quotients_.push_back(id);
    }

    // A reduction's range is a pair of guards.
    Range bounds_of(int v, const Summand& t) const {
        std::optional<int64_t> low, high;
        for (const Poly& g : t.guards) {
            const int64_t c = g.coefficient(static_cast<uint64_t>(v));
            const Poly rest = g - Poly(c) * Poly::atom(v);
            if ((c != 1 && c != -1) || !rest.is_constant()) continue;
            if (c == 1) low = std::max(low.value_or(-rest.constant()), -rest.constant());
            if (c == -1) high = std::min(high.value_or(rest.constant()), rest.constant());
        }
        if (!low || !high) throw NoBoxes{"a sum without bounds"};
        return {*low, *high};
    }
};

// Every combination of one interval of each axis.
void each_box(const std::vector<std::vector<int64_t>>& cuts, const std::function<void(Box)>& f) {
    std::vector<size_t> at(cuts.size(), 0);
    for (;;) {
        Box box;
        for (size_t d = 0; d < cuts.size(); ++d) box.ranges.emplace_back(cuts[d][at[d]], cuts[d][at[d] + 1]);
        f(std::move(box));
        size_t d = 0;
        while (d < at.size() && ++at[d] + 1 == cuts[d].size()) at[d++] = 0;
        if (d == at.size()) return;
    }
}

}  // namespace

int64_t Box::elements() const {
    int64_t n = 1;
    for (const auto& [first, last] : ranges) n *= last - first;
    return n;
}

bool Boxes::equal() const {
    return std::all_of(all.begin(), all.end(), [](const Box& b) { return b.equal; });
}

int64_t Boxes::differing() const {
    int64_t n = 0;
    for (const Box& b : all) n += b.equal ? 0 : b.elements();
    return n;
}

Result<Boxes> compare_boxes(const Claim& claim, const BoxOptions& options) {
    const std::vector<Comprehension> roots = TRY(comprehend(claim));
    auto refused = [&](std::string why) { return Error(Code::E0303, "{}: {}", claim.rule.name, why); };
    Boxes boxes;
    if (roots.size() != 1) return refused("it has several roots");
    const std::optional<Sizes> sizes = roots[0].shape.sizes();
    if (!sizes) return refused("its sizes are no numbers");
    if (std::any_of(sizes->begin(), sizes->end(), [](int64_t n) { return n == 0; })) return boxes;
    try {
        Splitter split(roots[0], *sizes);
        std::vector<std::vector<int64_t>> cuts;
        size_t count = 1;
        for (size_t d = 0; d < sizes->size(); ++d) {
            cuts.push_back(split.cuts(d));
            count *= cuts.back().size() - 1;
            if (count > options.most_boxes) return refused(fmt::format("more than {} boxes", options.most_boxes));
        }
        PointValue left(roots[0].left, options.seed), right(roots[0].right, options.seed);
        int64_t steps = options.most_steps;
        auto agree = [&](const std::vector<int64_t>& at) {
            ++boxes.points;
            if (options.until.passed()) throw NoBoxes{"there was no more time"};
            return left.at(at, steps) == right.at(at, steps);
        };
        each_box(cuts, [&](Box box) {
            std::vector<int64_t> corner;
            for (const auto& r : box.ranges) corner.push_back(r.first);
            box.equal = agree(corner);
            for (size_t d = 0; d < corner.size() && box.equal; ++d) {
                if (box.ranges[d].second - box.ranges[d].first < 2) continue;
                ++corner[d];
                box.equal = agree(corner);
                --corner[d];
            }
            boxes.all.push_back(std::move(box));
        });
    } catch (const NoBoxes& n) {
        return refused(n.why);
    } catch (const Unsupported& u) {
        return refused(u.why);
    } catch (const PointValue::Stop& s) {
        return refused(s.why);
    }
    return boxes;
}

}  // namespace tessera
