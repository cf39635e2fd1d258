// Rules of any rank that are drawn at random and mostly false: a side, and what a careless rewriting makes of it. What
// is believed of them is tried by the refuter, and must hold. TESSERA_CAMPAIGN says how many are drawn.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/random.h"
#include "discover/prove/prove_rule.h"
#include "discover/shipped.h"
#include "rewrite/refute/refute.h"

namespace tessera::drawn_rules_test {
namespace {

uint64_t seed() {
    const char* given = std::getenv("TESSERA_SEED");
    return given ? static_cast<uint64_t>(std::atoll(given)) : 35;
}

struct Node {
    std::string head;  // an op, or a variable or literal
    std::vector<Node> args = {};
    std::string attrs = {};  // also operands that are no part of the arithmetic
};

std::string text(const Node& n) {
    if (n.args.empty()) return n.head;
    std::string out = n.head + "(";
    for (size_t i = 0; i < n.args.size(); ++i) out += (i ? ", " : "") + text(n.args[i]);
    return out + (n.attrs.empty() ? "" : ", " + n.attrs) + ")";
}

const std::vector<std::string> kUnary = {"neg",    "abs",   "relu",    "exp",      "log",  "sqrt",     "reciprocal",
                                         "round",  "floor", "sign",    "not",      "tanh", "identity", "bitwise_not",
                                         "is_nan", "ceil",  "sigmoid", "softplus", "cast"};
const std::vector<std::string> kBinary = {"add",
                                          "sub",
                                          "mul",
                                          "div",
                                          "max",
                                          "min",
                                          "pow",
                                          "mod",
                                          "less",
                                          "greater",
                                          "equal",
                                          "less_or_equal",
                                          "greater_or_equal",
                                          "and",
                                          "or",
                                          "xor",
                                          "bitwise_xor",
                                          "bitwise_and",
                                          "prelu",
                                          "sum",
                                          "mean",
                                          "matmul",
                                          "gemm"};
// Ops that move or reduce, with what they take beside their operand.
const std::vector<std::pair<std::string, std::string>> kMoves = {{"transpose", "perm=p"},
                                                                 {"transpose", "perm=q"},
                                                                 {"transpose", "perm=[1, 0]"},
                                                                 {"transpose", "..r"},
                                                                 {"transpose", "perm=inverse(p)"},
                                                                 {"transpose", "perm=permute(p, q)"},
                                                                 {"softmax", "axis=k"},
                                                                 {"softmax", "axis=-1"},
                                                                 {"softmax", "axis=p[k]"},
                                                                 {"softmax", "..r"},
                                                                 {"log_softmax", "axis=k"},
                                                                 {"reduce_sum", "a"},
                                                                 {"reduce_sum", "a, keepdims=0"},
                                                                 {"reduce_sum", "a, ..r"},
                                                                 {"reduce_max", "a"},
                                                                 {"reduce_max", "a, keepdims=0"},
                                                                 {"reduce_mean", "a"},
                                                                 {"reduce_min", "a"},
                                                                 {"reduce_l1", "a"},
                                                                 {"reduce_prod", "a"},
                                                                 {"reduce_max", "a, noop_with_empty_axes=1"},
                                                                 {"reduce_sum", "each_at(p, ints(a))"},
                                                                 {"reduce_sum", "b"},
                                                                 {"reshape", "s"},
                                                                 {"reshape", "[-1]"},
                                                                 {"flatten", "axis=k"},
                                                                 {"squeeze", "a"},
                                                                 {"unsqueeze", "a"},
                                                                 {"expand", "s"},
                                                                 {"tile", "s"},
                                                                 {"slice", "u, v, a, t"},
                                                                 {"slice", "u, v, a"},
                                                                 {"slice", "u, v"},
                                                                 {"gather", "i, axis=k"},
                                                                 {"gather", "i"},
                                                                 {"concat", "axis=k"},
                                                                 {"pad", "s"},
                                                                 {"pad", "s, v?"},
                                                                 {"cum_sum", "i"},
                                                                 {"cum_sum", "i, reverse=1"},
                                                                 {"clip", "l?, h?"},
                                                                 {"clip", "l, h"},
                                                                 {"clip", "l?"},
                                                                 {"hardmax", "axis=k"},
                                                                 {"arg_max", "axis=k"},
                                                                 {"arg_max", "axis=k, keepdims=0"},
                                                                 {"leaky_relu", "..r"},
                                                                 {"leaky_relu", "alpha=f"},
                                                                 {"elu", "..r"},
                                                                 {"cast", "to=1"},
                                                                 {"cast", "to=10"},
                                                                 {"cast", "to=11"},
                                                                 {"cast", "to=7"},
                                                                 {"cast", "..r"},
                                                                 {"depth_to_space", "blocksize=2"},
                                                                 {"dropout", "_?"},
                                                                 {"conv", "w"},
                                                                 {"conv", "w, ..r"},
                                                                 {"conv", "w, b?, ..r"},
                                                                 {"conv", "w, group=1, ..r"},
                                                                 {"gemm", "y"},
                                                                 {"gemm", "y, transA=1"},
                                                                 {"gemm", "y, ..r"},
                                                                 {"gemm", "y, z?"},
                                                                 {"gemm", "y, alpha=f"},
                                                                 {"matmul", "y"},
                                                                 {"matmul", "w"},
                                                                 {"mul", "y"},
                                                                 {"mul", "c"},
                                                                 {"add", "c"},
                                                                 {"div", "c"},
                                                                 {"sub", "c"},
                                                                 {"max_pool", "kernel_shape=[2, 2]"},
                                                                 {"average_pool", "kernel_shape=[2, 2], ..r"},
                                                                 {"global_average_pool", "..r"},
                                                                 {"conv_transpose", "w"},
                                                                 {"prelu", "c"},
                                                                 {"max", "c"},
                                                                 {"min", "c"},
                                                                 {"where", "y, y"},
                                                                 {"where", "x, y"}};
const std::vector<std::string> kConditions = {"const(y)",
                                              "rank(y) == 0",
                                              "count(y) == 1",
                                              "same_dims(x, y)",
                                              "rank(x) == rank(y)",
                                              "all_true(y)",
                                              "all_false(y)",
                                              "number(y) == 0.0",
                                              "number(y) == 1.0",
                                              "number(y) > 0.0",
                                              "invertible(y)",
                                              "positive(y)",
                                              "non_negative(y)",
                                              "power_of_two(y)",
                                              "fits_into(y, x)",
                                              "same_dims_after(x, y)",
                                              "is_identity(p)",
                                              "ints(t) == [1]",
                                              "length(ints(a)) == 1",
                                              "all_equal(ints(s), 0)",
                                              "all_equal(ints(s), 1)",
                                              "rank(i) == 0",
                                              "rank(x) == 2",
                                              "rank(y) == 2",
                                              "count(x) > 0",
                                              "axes_in(ints(a), rank(x)) == [axis_in(k, rank(x))]",
                                              "rank(y) <= rank(x)",
                                              "dims(x) == dims(y)",
                                              "not given(l)",
                                              "k >= 0",
                                              "rank(x) >= 1",
                                              "axis_in(k, rank(x)) == 0",
                                              "varies_only_along(y, 1, rank(x))",
                                              "varies_only_along(c, 1, rank(w))",
                                              "same_dims_after(x, c)",
                                              "const(w, c)",
                                              "count(c) == 1",
                                              "rank(c) == 0",
                                              "rank(c) <= rank(w)",
                                              "number(c) == 1.0",
                                              "number(c) == 0.0",
                                              "rank(w) == 2",
                                              "all_true(c)",
                                              "power_of_two(c)",
                                              "invertible(c)",
                                              "element_bits(x) <= 32",
                                              "finite(y)"};
const std::vector<std::string> kTypes = {"",     "",     ":float", ":float", ":float", ":int",
                                         ":f32", ":f16", ":i64",   ":bool",  ":f64"};

class Drawing {
  public:
    explicit Drawing(uint64_t seed) : random_(seed, "drawn rules") {}

    std::string rule() {
        const Node left = term(1 + static_cast<int>(pick(3)));
        Node right = left;
        for (size_t i = 0, n = 1 + pick(2); i < n || (text(left) == text(right) && i < 50); ++i) change(right);
        std::string l = text(left);
        // The first x says what it is.
        for (const std::string name : {"x", "y"})
            if (size_t at = place_of(l, name); at != l.npos) l.insert(at + 1, pick(kTypes));
        std::string out =
            fmt::format("drawn [{}, grows]: {} => {}", pick(3) ? "reassociates" : "exact", l, text(right));
        const size_t conditions = pick(3);
        for (size_t i = 0; i < conditions; ++i) out += (i ? " and " : " if ") + pick(kConditions);
        return out;
    }

  private:
    RandomStream random_;
    uint64_t drawn_ = 0;

    size_t pick(size_t n) { return random_.bits(drawn_++) % n; }
    template <typename T>
    const T& pick(const std::vector<T>& of) {
        return of[pick(of.size())];
    }

    static size_t place_of(const std::string& text, const std::string& name) {
        for (size_t at = 0; (at = text.find(name, at)) != text.npos; ++at) {
            auto is_name = [&](size_t i) { return i < text.size() && (std::isalnum(text[i]) || text[i] == '_'); };
            if (!is_name(at + 1) && (at == 0 || !is_name(at - 1))) return at;
        }
        return text.npos;
    }

    Node leaf() {
        static const std::vector<std::string> all = {"x", "x",   "x",    "y",   "y",  "z",   "0",    "1",
                                                     "2", "0.0", "-0.0", "1.0", "-1", "0.5", "xs..."};
        return {pick(all)};
    }

    Node term(int depth) {
        if (depth == 0) return leaf();
        switch (pick(7)) {
            case 0:
            case 1: return {pick(kUnary), {term(depth - 1)}, {}};
            case 2:
            case 3:
                return {pick(kBinary), {term(depth - 1), term(static_cast<int>(pick(static_cast<size_t>(depth))))}, {}};
            case 4: return {"where", {term(depth - 1), term(0), term(0)}, {}};
            default: {
                const auto& [op, attrs] = pick(kMoves);
                Node out{op, {term(depth - 1)}, attrs};
                if (op == "concat") out.args.push_back(term(depth - 1));
                return out;
            }
        }
    }

    Node* any(Node& n) {
        std::vector<Node*> all;
        auto walk = [&](auto& self, Node& at) -> void {
            all.push_back(&at);
            for (Node& a : at.args) self(self, a);
        };
        walk(walk, n);
        return pick(all);
    }

    // What someone in a hurry might do.
    void change(Node& root) {
        Node& n = *any(root);
        const Node was = n;
        const bool unary = n.args.size() == 1, binary = n.args.size() == 2;
        switch (pick(14)) {
            case 0:  // two ops change places
                if (unary && n.args[0].args.size() == 1) {
                    const Node inner = was.args[0];
                    n = {inner.head, {{was.head, {inner.args[0]}, was.attrs}}, inner.attrs};
                }
                break;
            case 1:
                if (!n.args.empty()) n = Node(was.args[0]);
                break;
            case 2:
                if (unary) n = {was.head, {was}, was.attrs};
                break;
            case 3:
                if (binary) std::swap(n.args[0], n.args[1]);
                break;
            case 4:  // past both operands
                if (unary && n.args[0].args.size() == 2) {
                    const Node inner = was.args[0];
                    n = {inner.head,
                         {{was.head, {inner.args[0]}, was.attrs}, {was.head, {inner.args[1]}, was.attrs}},
                         inner.attrs};
                }
                break;
            case 5:  // past the first operand
                if (unary && n.args[0].args.size() == 2) {
                    const Node inner = was.args[0];
                    n = {inner.head, {{was.head, {inner.args[0]}, was.attrs}, inner.args[1]}, inner.attrs};
                }
                break;
            case 6:  // out of the first operand, or of both
                if (binary && n.args[0].args.size() == 1) {
                    const Node inner = was.args[0];
                    const bool both = was.args[1].head == inner.head && was.args[1].args.size() == 1;
                    n = {inner.head,
                         {{was.head, {inner.args[0], both ? was.args[1].args[0] : was.args[1]}, was.attrs}},
                         inner.attrs};
                }
                break;
            case 7:
                if (binary && n.args[0].head == n.head && n.args[0].args.size() == 2)
                    n = {was.head,
                         {was.args[0].args[0], {was.head, {was.args[0].args[1], was.args[1]}, was.attrs}},
                         was.attrs};
                break;
            case 8:
                if (n.args.empty()) n = leaf();
                break;
            case 9:
                if (unary) n.head = pick(kUnary);
                if (binary) n.head = pick(kBinary);
                break;
            case 10:
                if (!n.attrs.empty()) n.attrs = pick(kMoves).second;
                break;
            case 11: n.attrs.clear(); break;
            case 12:
                if (binary && n.head == "sub") n = {"add", {was.args[0], {"neg", {was.args[1]}}}, {}};
                if (binary && n.head == "div") n = {"mul", {was.args[0], {"reciprocal", {was.args[1]}}}, {}};
                if (n.head == "where" && n.args.size() == 3) std::swap(n.args[1], n.args[2]);
                break;
            default: {  // nothing that is anything
                static const std::vector<std::pair<std::string, std::string>> ways = {
                    {"add", "0"}, {"mul", "1"}, {"sub", "0.0"}, {"div", "1"}, {"max", "0"}, {"pow", "1"}};
                const auto& [op, number] = pick(ways);
                n = {op, {was, {number}}, {}};
            }
        }
    }
};

TEST(DrawnRules, WhatIsBelievedHolds) {
    const int wanted = campaign() * 3;
    printf("seed %llu, %d rules\n", static_cast<unsigned long long>(seed()), wanted);
    Drawing drawing(seed());
    const int effort = campaign() > 300 ? 100 : 20;
    int read = 0, believed = 0, tried = 0;
    std::set<std::string> seen;
    for (int i = 0; read < wanted && i < 200 * wanted; ++i) {
        const std::string written = drawing.rule();
        if (!seen.insert(written).second) continue;
        Result<Rules> rules = read_rules(written, "drawn");
        if (!rules.ok()) continue;
        ++read;
        const Rule& rule = (*rules)[0];
        if (!prove_for_any_rank(rule).proved) continue;
        ++believed;
        Result<Verdict> verdict = refute(rule, {.instances = effort, .draws = 15 * effort, .minimise = false});
        ASSERT_TRUE(verdict.ok());
        tried += verdict->kind == Verdict::Kind::Holds;
        EXPECT_NE(verdict->kind, Verdict::Kind::Refuted) << to_string(rule) << "\n" << verdict->to_string();
    }
    printf("%d rules, %d believed, %d of them tried\n", read, believed, tried);
    EXPECT_GE(read, wanted);
    EXPECT_GE(tried, wanted / 200);
}

}  // namespace
}  // namespace tessera::drawn_rules_test
