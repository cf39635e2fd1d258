// What inference says of symbolic sizes holds for every number: each op on drawn inputs and attributes, with a symbol
// for each size, then with other numbers in the place of the symbols. What one number gives, the formula must give.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "discover/prove/prove.h"
#include "discover/truth.h"
#include "graph/ops/conv_window.h"
#include "graph/text/print.h"
#include "rewrite/refute/sample.h"

namespace tessera::symbolic_sizes_test {
namespace {

// Every op as a pattern that leaves all else free: op(x0, x1?, axis=a_axis, ..r).
std::vector<Rule> patterns() {
    std::vector<Rule> all;
    for (const OpDef* op : all_ops()) {
        std::string text, right;
        for (size_t i = 0; i < op->inputs.size(); ++i) {
            const ParamDef& p = op->inputs[i];
            text += fmt::format("{}x{}{}", text.empty() ? "" : ", ", i, p.variadic ? "..." : p.optional ? "?" : "");
        }
        for (const AttrDef& a : op->attrs)
            if (a.is_required) text += fmt::format("{0}{1}=a_{1}", text.empty() ? "" : ", ", a.name);
        right = text;
        if (!op->attrs.empty()) text += text.empty() ? "..r" : ", ..r";
        Result<Rules> rules = read_rules(fmt::format("{0}: {0}({1}) => {0}({2})", op->name, text, right), "test");
        if (rules.ok()) all.push_back((*rules)[0]);
    }
    return all;
}

// Gives every input the sizes that `size` gives for it; false where inference refuses them.
bool resize(Graph& graph, const std::function<Dim(const Value&, int64_t)>& size) {
    for (const auto& v : graph.inputs()) {
        TensorType t = v->type().tensor();
        for (int64_t d = 0; d < t.rank(); ++d) t.shape[d] = size(*v, d);
        v->set_type(Type(std::move(t)));
    }
    return graph.infer_again().ok();
}

struct Counts {
    int64_t compared = 0, of_ops = 0;
    std::map<std::string, int> differ;  // by op
    std::map<std::string, std::string> examples;
};

void compare(const Graph& symbolic, const Graph& known, const SymbolValues& values, const std::string& op,
             Counts& counts) {
    for (size_t i = 0; i < symbolic.outputs().size(); ++i) {
        const Type &s = symbolic.outputs()[i]->type(), &k = known.outputs()[i]->type();
        if (!s.is_tensor() || !k.is_tensor() || !s.tensor().shape.ranked() || !k.tensor().shape.ranked()) continue;
        bool same = s.tensor().rank() == k.tensor().rank() && s.tensor().dtype == k.tensor().dtype;
        for (int64_t d = 0; same && d < s.tensor().rank(); ++d) {
            const std::optional<int64_t> n = k.tensor().dim(d).as_int(), m = evaluate_int(s.tensor().dim(d), values);
            if (!n || !m) continue;  // only a run knows it
            same = *n == *m;
            ++counts.compared;
        }
        if (!same && counts.differ[op]++ == 0) {
            std::string sizes;
            for (const auto& [name, n] : values) sizes += fmt::format(" {}={}", name, n);
            counts.examples[op] =
                fmt::format("{} by the formula, {} by numbers, at{}\n{}", s, k, sizes, print(symbolic));
        }
    }
}

Counts draw_all(uint64_t seed, int draws) {
    Counts counts;
    for (const Rule& rule : patterns()) {
        const std::string& op = rule.pattern[0].op->name;
        const Sampler sampler(rule);
        const int64_t before = counts.compared;
        for (int i = 0; i < draws; ++i) {
            Draw draw(seed, fmt::format("{}/{}", op, i));
            std::optional<Sample> sample = sampler.draw(draw, {.floats = DType::f32, .mixed = true});
            if (!sample) continue;
            // Equal sizes are one symbol, or each has a symbol of its own, and some remain numbers.
            std::unique_ptr<Graph> symbolic = sample->graph->clone(), known = sample->graph->clone();
            const bool shared = draw.chance(60);
            const int numbers = draw.chance(50) ? 30 : 0;
            SymbolValues values;
            auto name_of = [&](const Value& v, int64_t d) {
                return shared ? fmt::format("N{}", sample->sizes.at(v.name())[static_cast<size_t>(d)])
                              : fmt::format("N_{}_{}", v.name(), d);
            };
            for (const auto& v : symbolic->inputs())
                for (int64_t d = 0; d < static_cast<int64_t>(sample->sizes.at(v->name()).size()); ++d)
                    if (!draw.chance(numbers) && !sample->fixed.contains(v->name()))
                        values.emplace(name_of(*v, d), sample->sizes.at(v->name())[static_cast<size_t>(d)]);
            const bool fits = resize(*symbolic, [&](const Value& v, int64_t d) {
                const std::string name = name_of(v, d);
                return values.contains(name) && !sample->fixed.contains(v.name())
                           ? symbol(name)
                           : Dim(sample->sizes.at(v.name())[static_cast<size_t>(d)]);
            });
            if (!fits) continue;
            for (int again = 0; again < 6; ++again) {
                if (again)
                    for (auto& [name, n] : values)
                        if (again == 1 || draw.chance(40)) n = draw.chance(80) ? draw.below(9) : draw.below(40);
                const bool right = resize(*known, [&](const Value& v, int64_t d) {
                    auto n = values.find(name_of(v, d));
                    return n != values.end() && !sample->fixed.contains(v.name())
                               ? Dim(n->second)
                               : Dim(sample->sizes.at(v.name())[static_cast<size_t>(d)]);
                });
                if (right) compare(*symbolic, *known, values, op, counts);
            }
        }
        counts.of_ops += counts.compared > before;
    }
    return counts;
}

void expect_equal(const Counts& counts, const std::set<std::string>& assumed) {
    for (const auto& [op, n] : counts.differ)
        if (!assumed.contains(op)) ADD_FAILURE() << op << ": " << n << " differ\n" << counts.examples.at(op);
    for (const std::string& op : assumed)
        EXPECT_TRUE(counts.differ.contains(op)) << op << " assumes nothing: take it off the list";
    EXPECT_GE(counts.of_ops, 150);
    printf("%lld sizes of %lld ops\n", static_cast<long long>(counts.compared), static_cast<long long>(counts.of_ops));
}

TEST(SymbolicSizes, OfProofsAreWhatNumbersGive) {
    SymbolicWindows windows;
    expect_equal(draw_all(1, 150), {});
}

// A compiled graph assumes that windows fit: a run for which one does not is compiled for its sizes (src/api/relax.h).
TEST(SymbolicSizes, OfGraphsAreWhatNumbersGiveWhereWindowsFit) {
    expect_equal(draw_all(2, 150), {"average_pool", "max_pool", "lp_pool", "conv", "conv_integer"});
}

// A pool rounds its sizes towards zero: of an input that is smaller than its window it gives one element, not none. Two
// pools in a row see less of such an input than one does.
TEST(SymbolicSizes, PoolsOfInputsSmallerThanTheirWindowsAreNoLarger) {
    int refused = 0, proved = 0;
    for (const char* pool : {"max_pool", "average_pool", "lp_pool"})
        for (int k = 1; k <= 4; ++k)
            for (int s = 1; s <= 3; ++s)
                for (int k2 = 1; k2 <= 3; ++k2)
                    for (int s2 = 1; s2 <= 3; ++s2) {
                        Result<Claim> claim = read_claim(
                            fmt::format("pools: {0}({0}(x, kernel_shape=[{1}], strides=[{2}]), kernel_shape=[{3}], "
                                        "strides=[{4}]) => {0}(x, kernel_shape=[{5}], strides=[{6}]) where x: [N,C,H]",
                                        pool, k, s, k2, s2, (k2 - 1) * s + k, s * s2));
                        ASSERT_TRUE(claim.ok()) << claim.error().to_string();
                        Result<Proof> proof = prove(*claim, {.certificate = false});
                        const bool believed = proof.ok() && proof->proved(),
                                   holds = evaluated(*claim, 5, 300) != Truth::Differs;
                        EXPECT_TRUE(holds || !believed) << to_string(*claim);
                        refused += !holds;
                        proved += believed;
                    }
    EXPECT_GE(refused, 100);
    EXPECT_GE(proved, 20);
    printf("%d are false, %d are proved\n", refused, proved);
}

}  // namespace
}  // namespace tessera::symbolic_sizes_test
