#include "discover/truth.h"

#include <cmath>
#include <set>

#include "discover/prove/comprehension.h"
#include "graph/evaluate/evaluate.h"

namespace tessera {
namespace {

double element(int kind, const RandomStream& random, uint64_t& drawn) {
    if (kind == 0) return 4 * random.uniform(drawn++) - 2;
    if (kind == 1) return static_cast<double>(random.bits(drawn++) % 5) - 2;
    return 0.25 + 2 * random.uniform(drawn++);
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

Truth evaluated_at(const Claim& claim, const Bindings& sizes, int kind, const RandomStream& random, uint64_t& drawn) {
    Result<Sides> sides = build_sides(claim, sizes);
    if (!sides.ok()) return Truth::Senseless;
    Graph& graph = *sides->graph;
    for (Value* v : sides->left) graph.add_output(v);
    for (Value* v : sides->right) graph.add_output(v);
    Inputs inputs;
    for (const auto& input : graph.inputs()) {
        auto shape = input->type().tensor().shape.sizes();
        if (!shape || !is_float(input->type().tensor().dtype)) return Truth::Senseless;
        Result<Tensor> t = Tensor::zeros(input->type().tensor().dtype, *shape);
        if (!t.ok() || t->elements() > 50000) return Truth::Senseless;
        for (int64_t i = 0; i < t->elements(); ++i) t->set_real(i, element(kind, random, drawn));
        inputs.emplace(input->name(), std::move(*t));
    }
    Result<std::vector<Datum>> results = evaluate(graph, inputs);
    if (!results.ok()) return Truth::Senseless;
    const size_t n = sides->left.size();
    for (size_t k = 0; k < n; ++k)
        if (differ((*results)[k].tensor(), (*results)[n + k].tensor())) return Truth::Differs;
    return Truth::Agrees;
}

}  // namespace

Truth evaluated(const Claim& claim, uint64_t seed, int rounds) {
    RandomStream random(seed, "truth");
    uint64_t drawn = 0;
    Truth truth = Truth::Senseless;
    std::set<std::string> of_sizes;
    for (const auto& [name, shape] : claim.shapes)
        for (const Dim& d : shape)
            for (std::string& s : free_symbols(d)) of_sizes.insert(std::move(s));
    for (int round = 0; round < rounds; ++round) {
        Bindings sizes;
        for (const std::string& s : size_symbols(claim)) {
            // 0 to 7; large ones, into which windows fit; small ones.
            const int how = of_sizes.contains(s) ? round % 3 : 2;
            const uint64_t bits = random.bits(drawn++);
            sizes.emplace(s, static_cast<int64_t>(how == 0 ? bits % 8 : how == 1 ? 4 + bits % 4 : bits % 3));
        }
        const Truth here = evaluated_at(claim, sizes, round / 3 % 3, random, drawn);
        if (here == Truth::Differs) return here;
        if (here == Truth::Agrees) truth = here;
    }
    return truth;
}

}  // namespace tessera
