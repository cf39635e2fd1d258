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
std::optional<Tensor> draw(const Type& type, const RandomStream& random, uint64_t& drawn) {
    auto sizes = type.tensor().shape.sizes();
    if (!sizes) return {};
    Result<Tensor> t = Tensor::zeros(type.tensor().dtype, *sizes);
    if (!t.ok() || t->elements() > 20000) return {};
    const uint64_t kind = random.bits(drawn++) % 4;
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

std::optional<bool> floats_differ(const Claim& claim) {
    RandomStream random(29, "floats");
    bool compared = false;
    uint64_t drawn = 0;
    std::set<std::string> of_shapes;
    for (const auto& [name, shape] : claim.shapes)
        for (const Dim& d : shape)
            for (std::string& s : free_symbols(d)) of_shapes.insert(std::move(s));
    for (int round = 0; round < 56; ++round) {
        Bindings sizes;
        for (const std::string& s : size_symbols(claim)) {
            const uint64_t bits = random.bits(drawn++);
            // The last ones: large shapes, into which windows fit, and small numbers for what is no shape.
            const int64_t large = of_shapes.contains(s) ? 5 + int64_t(bits % 4) : int64_t(bits % 2);
            sizes.emplace(s, round < 48 ? static_cast<int64_t>(1 + bits % (round < 24 ? 3 : 6)) : large);
        }
        Result<Sides> sides = build_sides(claim, sizes);
        if (!sides.ok()) continue;
        Graph& graph = *sides->graph;
        for (Value* v : sides->left) graph.add_output(v);
        for (Value* v : sides->right) graph.add_output(v);
        Inputs inputs;
        bool drawn_all = true;
        for (const auto& input : graph.inputs()) {
            std::optional<Tensor> t = draw(input->type(), random, drawn);
            drawn_all = drawn_all && t;
            if (t) inputs.emplace(input->name(), std::move(*t));
        }
        if (!drawn_all) continue;
        Result<std::vector<Datum>> results = evaluate(graph, inputs);
        if (!results.ok()) continue;
        const size_t n = sides->left.size();
        for (size_t k = 0; k < n; ++k)
            if (differ((*results)[k].tensor(), (*results)[n + k].tensor())) return true;
        compared = true;
    }
    if (!compared) return std::nullopt;
    return false;
}

}  // namespace tessera
