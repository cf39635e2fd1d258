#include "discover/discover_bound.h"

#include <cmath>
#include <set>

#include "base/random.h"
#include "discover/prove/comprehension.h"
#include "graph/evaluate/evaluate.h"
#include "rewrite/refute/field.h"

namespace tessera {
namespace {

constexpr double kElements = 512;  // of a tensor in one assignment (EnumerateOptions::max_elements)

// Degrees of a quotient of polynomials in the elements of the variables and in the values of unknown functions.
struct Degree {
    double above = 0, below = 0;
};

struct NoBound {};

class Degrees {
  public:
    Degree of(const Expr& e) {
        if (!e.node().reads && !is_float(e.dtype())) return {};  // an index
        switch (e.kind()) {
            case ExprKind::Const: return {};
            case ExprKind::Load: return {1, 0};
            case ExprKind::Neg: return of(e.arg(0));
            case ExprKind::Cast: return e.arg(0).node().reads ? of(e.arg(0)) : Degree{};
            case ExprKind::Add:
            case ExprKind::Sub: return sum(of(e.arg(0)), of(e.arg(1)));
            case ExprKind::Mul: return product(of(e.arg(0)), of(e.arg(1)));
            case ExprKind::Div: {
                const Degree below = of(e.arg(1));
                return product(of(e.arg(0)), {below.below, below.above});
            }
            case ExprKind::Select: {
                if (e.arg(0).node().reads) throw NoBound{};
                const Degree a = of(e.arg(1)), b = of(e.arg(2));
                return {std::max(a.above, b.above), std::max(a.below, b.below)};
            }
            case ExprKind::Reduce: {
                if (e.node().reduce_op != ReduceOp::Sum) throw NoBound{};
                const Degree each = of(e.arg(0));
                return {each.above + (kElements - 1) * each.below, kElements * each.below};
            }
            case ExprKind::Pow:
            case ExprKind::Call: {
                // A random function: its values are new unknowns, unless arguments that differ meet.
                double here = 1;
                for (const Expr& a : e.args()) {
                    const Degree d = of(a);
                    here += d.above + d.below;
                }
                argument_ = std::max(argument_, 2 * here);
                ++calls_;
                return {1, 0};
            }
            default: throw NoBound{};
        }
    }

    // Of what both sides' difference is a multiple of, and of all differences of arguments.
    double difference(const Degree& l, const Degree& r) const {
        const double instances = calls_ * kElements;
        return std::max(l.above + r.below, r.above + l.below) + instances * instances / 2 * argument_;
    }

  private:
    double calls_ = 0, argument_ = 0;

    static Degree sum(Degree a, Degree b) {
        return {std::max(a.above + b.below, b.above + a.below), a.below + b.below};
    }
    static Degree product(Degree a, Degree b) { return {a.above + b.above, a.below + b.below}; }
};

// Each tensor's numbers are of one sign, or of both.
std::optional<Tensor> draw(const Type& type, const RandomStream& random, uint64_t& drawn, bool one_sign) {
    auto sizes = type.tensor().shape.sizes();
    if (!sizes) return {};
    Result<Tensor> t = Tensor::zeros(type.tensor().dtype, *sizes);
    if (!t.ok() || t->elements() > 20000) return {};
    const uint64_t kind = random.bits(drawn++) % (one_sign ? 2 : 4);
    for (int64_t i = 0; i < t->elements(); ++i) {
        const double number = 0.25 + 2 * random.uniform(drawn++);
        const bool negative = kind == 0 || (kind > 1 && random.bits(drawn++) % 2);
        t->set_real(i, negative ? -number : number);
    }
    return std::move(*t);
}

bool differ(const Tensor& l, const Tensor& r) {
    double largest = 1;
    for (int64_t i = 0; i < l.elements(); ++i)
        if (std::isfinite(l.real_at(i))) largest = std::max(largest, std::fabs(l.real_at(i)));
    for (int64_t i = 0; i < l.elements(); ++i) {
        const double a = l.real_at(i), b = r.real_at(i);
        if (std::isfinite(a) && !(std::fabs(a - b) <= 1e-3 * largest)) return true;
    }
    return false;
}

}  // namespace

TestBound test_bound(const Claim& claim, int sizes) {
    TestBound bound{sizes};
    Result<std::vector<Comprehension>> roots = comprehend(claim);
    if (!roots.ok()) return bound;
    try {
        double degree = 1;
        for (const Comprehension& c : *roots) {
            Degrees degrees;
            const Degree left = degrees.of(c.left), right = degrees.of(c.right);
            degree = std::max(degree, degrees.difference(left, right));
        }
        // No number is drawn with a chance of more than 3 / (2 p).
        bound.per_size = std::log2(degree * 1.5) - std::log2(static_cast<double>(kFieldPrime));
    } catch (const NoBound&) {
    }
    return bound;
}

std::string to_string(const TestBound& bound) {
    std::string text = fmt::format("tested at {} {}", bound.sizes, bound.sizes == 1 ? "size" : "sizes");
    if (!bound.per_size) return text + "; no bound, since a maximum or a comparison is taken";
    return text + fmt::format("; a difference at one of them is missed with a chance below 2^{:.0f}",
                              std::ceil(*bound.per_size));
}

namespace {

// Both sides at random sizes on random floats.
class FloatTrials {
  public:
    explicit FloatTrials(const Claim& claim) : claim_(claim), symbols_(size_symbols(claim)) {
        for (const auto& [name, shape] : claim.shapes)
            for (const Dim& d : shape)
                for (std::string& s : free_symbols(d)) of_shapes_.insert(std::move(s));
    }

    Bindings small_sizes(uint64_t most) {
        return sizes([&](const std::string&, uint64_t bits) { return 1 + bits % most; });
    }
    // Into which windows fit, and small numbers for what is no shape.
    Bindings large_sizes(uint64_t most_of_values) {
        return sizes([&](const std::string& s, uint64_t bits) {
            return of_shapes_.contains(s) ? 5 + bits % 4 : bits % (most_of_values + 1);
        });
    }

    // Whether the sides differ. Nothing where they do not take these sizes.
    std::optional<bool> differ_at(const Bindings& sizes, bool one_sign = false) {
        Result<Sides> sides = build_sides(claim_, sizes);
        if (!sides.ok()) return {};
        Graph& graph = *sides->graph;
        for (Value* v : sides->left) graph.add_output(v);
        for (Value* v : sides->right) graph.add_output(v);
        Inputs inputs;
        for (const auto& input : graph.inputs()) {
            std::optional<Tensor> t = draw(input->type(), random_, drawn_, one_sign);
            if (!t) return {};
            inputs.emplace(input->name(), std::move(*t));
        }
        Result<std::vector<Datum>> results = evaluate(graph, inputs);
        if (!results.ok()) return {};
        const size_t n = sides->left.size();
        for (size_t k = 0; k < n; ++k)
            if (differ((*results)[k].tensor(), (*results)[n + k].tensor())) return true;
        return false;
    }

  private:
    const Claim& claim_;
    const std::vector<std::string> symbols_;
    std::set<std::string> of_shapes_;
    RandomStream random_{29, "floats"};
    uint64_t drawn_ = 0;

    template <typename F>
    Bindings sizes(const F& size_of) {
        Bindings out;
        for (const std::string& s : symbols_) out.emplace(s, static_cast<int64_t>(size_of(s, random_.bits(drawn_++))));
        return out;
    }
};

}  // namespace

std::optional<bool> floats_differ(const Claim& claim) {
    FloatTrials trials(claim);
    bool compared = false;
    for (int round = 0; round < 56; ++round) {
        const Bindings sizes = round < 24   ? trials.small_sizes(3)
                               : round < 48 ? trials.small_sizes(6)
                                            : trials.large_sizes(1);
        const std::optional<bool> differ = trials.differ_at(sizes);
        if (differ.value_or(false)) return true;
        compared = compared || differ;
    }
    if (!compared) return std::nullopt;
    return false;
}

bool floats_soon_differ(const Claim& claim) {
    constexpr int kTrials = 24;
    FloatTrials trials(claim);
    for (int i = 0; i < kTrials; ++i) {
        const Bindings sizes = i % 4 == 3 ? trials.small_sizes(4) : trials.large_sizes(1 + i % 2);
        // Of one sign, as a maximum of many numbers rarely is negative otherwise.
        if (trials.differ_at(sizes, i % 3 < 2).value_or(false)) return true;
    }
    return false;
}

}  // namespace tessera
