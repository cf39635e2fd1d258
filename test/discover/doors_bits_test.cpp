// Rules that are called exact and change bits, and rules that drop what an attribute says: each kind by the hundred.
// Neither line believes one: no certificate is found or accepted, and the refuter refutes it or says that it could not
// test it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/thread_pool.h"
#include "discover/believe.h"
#include "discover/check/verify_rule.h"
#include "discover/prove/prove_rule.h"
#include "graph/evaluate/evaluate.h"
#include "rewrite/refute/sample.h"

namespace tessera::doors_bits_test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Offered {
    std::string text;
    Rule rule = {};
    bool certified = false;  // by a proof that was found, or by a certificate that says nothing is left to prove
    std::string reason = {};
    std::optional<Result<Verdict>> verdict = {};

    bool refuted() const { return verdict && verdict->ok() && (*verdict)->kind == Verdict::Kind::Refuted; }
    bool holds() const { return verdict && verdict->ok() && (*verdict)->kind == Verdict::Kind::Holds; }
};

// Those that can be read, before both lines.
std::vector<Offered> offer(const std::vector<std::string>& texts) {
    std::vector<Offered> all;
    for (const std::string& text : texts)
        if (Result<Rules> rules = read_rules("door [grows]: " + text, "test"); rules.ok())
            all.push_back({text, (*rules)[0]});
    Team team(2);
    team.each(static_cast<int64_t>(all.size()), [&](int64_t i, int) {
        Offered& o = all[i];
        const RuleProof proof = prove_for_any_rank(o.rule);
        o.certified = proof.proved;
        o.reason = proof.reason;
        for (const char* kind : {"elements\n", "elements by meaning\n"})
            o.certified |= verify_rule(o.rule, {{o.rule.name, {{}, {}, {kind}}}}).ok();
        RefuteOptions effort = refuter_effort();
        effort.minimise = false;
        o.verdict = refute(o.rule, effort);
    });
    return all;
}

std::string filled(std::string text, const std::string& with) {
    for (size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += with.size()) text.replace(at, 2, with);
    return text;
}

void expect_refused(const std::vector<Offered>& all, size_t least) {
    for (const Offered& o : all) {
        EXPECT_FALSE(o.certified) << o.text;
        EXPECT_THAT(o.reason, Not(testing::IsEmpty())) << o.text;
        EXPECT_TRUE(o.refuted()) << o.text << "\n" << (*o.verdict)->to_string();
    }
    EXPECT_GE(all.size(), least);
}

TEST(Soundness, IntegersDoNotFitIntoFloats) {
    struct Integer {
        const char* name;
        int onnx;
        std::vector<int> floats;  // that lack some of its numbers
    };
    const Integer integers[] = {{"i64", 7, {11, 1, 10, 16}}, {"u64", 13, {11, 1, 10, 16}}, {"i32", 6, {1, 10, 16}},
                                {"u32", 12, {1, 10, 16}},    {"i16", 5, {10, 16}},         {"u16", 4, {10, 16}}};
    std::vector<std::string> texts;
    for (const Integer& t : integers)
        for (int f : t.floats) {
            texts.push_back(fmt::format("cast(cast(x:{}, to={}), to={}) => x", t.name, f, t.onnx));
            for (const char* op : {"add", "sub", "mul", "max", "min"})
                texts.push_back(fmt::format("cast({0}(cast(x:{1}, to={2}), cast(y:{1}, to={2})), to={3}) => {0}(x, y)",
                                            op, t.name, f, t.onnx));
            texts.push_back(fmt::format("cast(relu(cast(x:{0}, to={1})), to={2}) => max(x, 0)", t.name, f, t.onnx));
        }
    for (const char* type : {"i64", "u64"}) {
        texts.push_back(fmt::format("pow(x:{}, 1.0) => x", type));
        texts.push_back(fmt::format("pow(x:{}, 2.0) => mul(x, x)", type));
    }
    expect_refused(offer(texts), 100);
}

TEST(Soundness, ZerosHaveSigns) {
    const std::pair<const char*, const char*> changed[] = {{"max(x:float, y)", "max(y, x)"},
                                                           {"min(x:float, y)", "min(y, x)"},
                                                           {"max(x:float, y, z)", "max(z, y, x)"},
                                                           {"min(x:float, y, z)", "min(y, z, x)"},
                                                           {"add(x:float, 0)", "x"},
                                                           {"add(x:float, 0.0)", "x"},
                                                           {"sub(x:float, 0)", "x"},
                                                           {"sub(x:float, -0.0)", "x"},
                                                           {"sub(0, x:float)", "neg(x)"},
                                                           {"sub(0.0, x:float)", "neg(x)"},
                                                           {"mul(x:float, 0)", "mul(x, 0.0)"},
                                                           {"mul(x:float, 0)", "mul(x, -0.0)"},
                                                           {"mul(x:float, 0.0)", "sub(x, x)"},
                                                           {"div(x:float, 0)", "div(x, 0.0)"},
                                                           {"sub(x:float, x)", "mul(x, 0.0)"},
                                                           {"neg(sub(x:float, y))", "sub(y, x)"},
                                                           {"neg(add(x:float, y))", "sub(neg(x), y)"},
                                                           {"neg(add(x:float, y))", "add(neg(x), neg(y))"},
                                                           {"sub(neg(x:float), y)", "neg(add(x, y))"},
                                                           {"add(x:float, c)", "x"},
                                                           {"sub(x:float, c)", "x"},
                                                           {"sqrt(mul(x:float, x))", "abs(x)"},
                                                           {"pow(x:float, 0.5)", "sqrt(x)"},
                                                           {"where(less(x:float, y), x, y)", "min(x, y)"},
                                                           {"where(less(y, x:float), x, y)", "max(x, y)"},
                                                           {"max(x:float, neg(x))", "abs(x)"},
                                                           {"add(add(x:float, y), z)", "add(x, add(y, z))"},
                                                           {"mul(mul(x:float, y), z)", "mul(x, mul(y, z))"},
                                                           {"div(x:float, y)", "mul(x, reciprocal(y))"},
                                                           {"sum(x:float, y, z)", "sum(z, y, x)"},
                                                           {"mul(x:float, 0.1)", "mul(0.1, x)"},
                                                           {"add(x:float, 0.3)", "add(x, 0.3)"}};
    std::vector<std::string> texts;
    for (const auto& [left, right] : changed)
        for (const char* frame : {"{}", "neg({})", "transpose({}, perm=[1, 0])", "concat({}, w, axis=0)"}) {
            const bool zero = std::string(left).ends_with(", c)");
            texts.push_back(fmt::format("{} => {}{}", filled(frame, left), filled(frame, right),
                                        zero ? " if number(c) == 0.0 and rank(c) == 0" : ""));
        }
    expect_refused(offer(texts), 100);
}

// What a literal stands for, and what IEEE says of it, apart from the evaluator.
TEST(Soundness, LiteralsAreJudgedByEveryNumberTheyStandFor) {
    constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kMost = std::numeric_limits<double>::max(), kLeast = std::numeric_limits<double>::denorm_min();
    const std::vector<double> numbers = {0.0,  -0.0,  1.0,  -1.0,  0.5,    -2.5,   3.0,
                                         kInf, -kInf, kNan, kMost, -kMost, kLeast, -kLeast};
    struct Literal {
        const char* text;
        std::vector<double> values;
    };
    const Literal literals[] = {{"0", {0.0, -0.0}}, {"0.0", {0.0}},   {"-0.0", {-0.0}}, {"1", {1.0}},
                                {"1.0", {1.0}},     {"-1", {-1.0}},   {"0.5", {0.5}},   {"2.0", {2.0}},
                                {"inf", {kInf}},    {"-inf", {-kInf}}};
    // Which of two zeros is the larger no one decides.
    auto chosen = [](double a, double b, bool larger) -> std::optional<double> {
        if (std::isnan(a) || std::isnan(b)) return kNan;
        if (a == b && std::signbit(a) != std::signbit(b)) return std::nullopt;
        return larger ? std::max(a, b) : std::min(a, b);
    };
    auto computed = [&](const std::string& op, double a, double b) -> std::optional<double> {
        if (op == "add") return a + b;
        if (op == "sub") return a - b;
        if (op == "mul") return a * b;
        if (op == "div") return a / b;
        return chosen(a, b, op == "max");
    };
    auto same = [](double a, double b) {
        return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
    };
    std::vector<std::string> texts;
    std::vector<bool> holds, undecided;
    for (const char* op : {"add", "sub", "mul", "div", "max", "min"})
        for (const Literal& literal : literals)
            for (bool first : {false, true})
                for (const char* right : {"x", "neg(x)", "abs(x)"}) {
                    bool all = true, open = false;
                    for (double v : literal.values)
                        for (double x : numbers) {
                            const double wanted = *right == 'x' ? x : *right == 'n' ? -x : std::fabs(x);
                            const std::optional<double> got = first ? computed(op, v, x) : computed(op, x, v);
                            open |= !got;
                            all &= got && same(*got, wanted);
                        }
                    texts.push_back(fmt::format("{}({}, {}) => {}", op, first ? literal.text : "x:float",
                                                first ? "x:float" : literal.text, right));
                    holds.push_back(all);
                    undecided.push_back(open);
                }
    const std::vector<Offered> offered = offer(texts);
    ASSERT_EQ(offered.size(), texts.size());
    size_t refused = 0, proved = 0;
    for (size_t i = 0; i < offered.size(); ++i) {
        const Offered& o = offered[i];
        if (!holds[i]) {
            EXPECT_FALSE(o.certified) << o.text;
            EXPECT_TRUE(o.refuted() || undecided[i]) << o.text << "\n" << (*o.verdict)->to_string();
            ++refused;
        } else {
            // An op that may choose between two zeros is never exact by a certificate.
            const bool chooses = o.rule.pattern[0].name == "max" || o.rule.pattern[0].name == "min";
            EXPECT_NE(o.certified, chooses) << o.text << "\n" << o.reason;
            EXPECT_TRUE(o.holds()) << o.text << "\n" << (*o.verdict)->to_string();
            ++proved;
        }
    }
    EXPECT_GE(refused, 300u);
    EXPECT_GE(proved, 15u);
}

// A literal is rounded, or wraps, in the type of the result: a cast of it is no identity.
TEST(Doors, ALiteralHasNoTypeToCastFrom) {
    std::vector<std::string> texts;
    for (const char* number : {"0.1", "0.3", "2.5", "-2.5", "300.0", "300", "-1", "1e10", "1e300", "inf"})
        for (const char* type : {"t", "1", "2", "3", "5", "7", "9", "10", "11", "16"})
            texts.push_back(fmt::format("cast({0}, to={1}) => {0}", number, type));
    for (const char* frame : {"neg({})", "concat({}, x, axis=0)", "identity({})"})
        texts.push_back(fmt::format("{} => {}", filled(frame, "cast(0.1, to=t)"), filled(frame, "0.1")));
    size_t refuted = 0;
    for (const Offered& o : offer(texts)) {
        EXPECT_FALSE(o.certified) << o.text;
        refuted += o.refuted();
    }
    EXPECT_GE(refuted, 10u);  // most are the same number in the one type that the rule applies to
}

// A number that the right side alone names is one in every type that the rule admits: not all floats have infinities,
// and 16 bits do not hold a million.
TEST(Doors, ANumberOfTheRightSideIsOneInEveryType) {
    std::vector<std::string> texts;
    const std::vector<std::string> same = {"identity(x:float)", "neg(neg(x:float))", "max(x:float)",
                                           "sum(x:float)",      "mean(x:float)",     "mul(x:float, 1)",
                                           "div(x:float, 1)",   "pow(x:float, 1)",   "add(x:float, -0.0)"};
    for (const std::string& left : same)
        for (const char* right : {"min(x, inf)", "max(x, -inf)", "clip(x, -inf, inf)", "neg(max(neg(x), -inf))"})
            texts.push_back(fmt::format("{} => {}", left, right));
    for (const char* frame : {"{}", "neg({})", "add({}, y)", "transpose({}, perm=p)"})
        for (const auto& [by, all] : {std::pair("1000", "1000000"),
                                      {"512", "262144"},
                                      {"2048", "4194304"},
                                      {"4096", "16777216"},
                                      {"0.0001220703125", "0.000000014901161193847656"}}) {
            for (const char* form :
                 {"mul(mul(x:float, {0}), {0}) => mul(x, {1})", "mul({0}, mul({0}, x:float)) => mul({1}, x)",
                  "div(div(x:float, {0}), {0}) => div(x, {1})"}) {
                const std::string text = fmt::format(fmt::runtime(form), by, all);
                const size_t arrow = text.find(" => ");
                texts.push_back(filled(frame, text.substr(0, arrow)) + " => " + filled(frame, text.substr(arrow + 4)));
            }
        }
    for (const std::string& text : texts) {
        Result<Rules> rules = read_rules("door [reassociates, grows]: " + text, "test");
        ASSERT_TRUE(rules.ok()) << text;
        Rule rule = (*rules)[0];
        EXPECT_FALSE(prove_for_any_rank(rule).proved) << text;
        rule.exactness = Exactness::Exact;
        EXPECT_FALSE(prove_for_any_rank(rule).proved) << text;
    }
    EXPECT_GE(texts.size(), 90u);
    // Of a type that has it, or where the left side names it too.
    for (const char* text : {"mul(mul(x:f32, 1000), 1000) => mul(x, 1000000)", "identity(x:f32) => min(x, inf)",
                             "max(min(x:float, inf), y) => max(y, min(inf, x))"}) {
        Result<Rules> rules = read_rules(fmt::format("door [reassociates, grows]: {}", text), "test");
        ASSERT_TRUE(rules.ok()) << text;
        const RuleProof proof = prove_for_any_rank((*rules)[0]);
        EXPECT_TRUE(proof.proved) << text << "\n" << proof.reason;
    }
}

// By cases, too, a proof about real numbers says nothing of bits.
TEST(Soundness, CasesOfRealNumbersAreNotExact) {
    for (const char* text :
         {"sub(x:float, 0) => x", "add(x:float, 0.0) => x", "mul(x:float, 0) => mul(x, 0.0)",
          "neg(sub(x:float, y:float)) => sub(y, x) if rank(x) == 2 and same_dims(y, x)",
          "mul(x:float, add(y:float, z:float)) => add(mul(x, y), mul(x, z)) if rank(x) == 1 and same_dims(y, x) and "
          "same_dims(z, x)"}) {
        Result<Rules> rules = read_rules(fmt::format("door [grows]: {}", text), "test");
        ASSERT_TRUE(rules.ok()) << text;
        const RuleProof proof = prove_rule((*rules)[0]);
        EXPECT_FALSE(proof.proved || proof.by_cases) << text;
        EXPECT_THAT(proof.reason, HasSubstr("exact")) << text;
    }
}

// ---- attributes that no one names

std::string inputs_of(const OpDef& op) {
    std::string text;
    for (size_t i = 0; i < op.inputs.size(); ++i)
        text += fmt::format("{}x{}{}", i ? ", " : "", i,
                            op.inputs[i].variadic   ? "..."
                            : op.inputs[i].optional ? "?"
                                                    : "");
    for (const AttrDef& a : op.attrs)
        if (a.is_required) text += fmt::format(", {0}=a_{0}", a.name);
    return text;
}

// What may be dropped wherever the result's type stays: it says how large the result is, of which type, or how inputs
// are laid out that fit in one way only.
const std::set<std::string> kDecidesTheType = {"arg_max.keepdims",
                                               "arg_min.keepdims",
                                               "attention.kv_num_heads",
                                               "attention.q_num_heads",
                                               "average_pool.ceil_mode",
                                               "bernoulli.dtype",
                                               "center_crop_pad.axes",
                                               "conv.kernel_shape",
                                               "conv.strides",
                                               "conv_integer.kernel_shape",
                                               "conv_integer.strides",
                                               "conv_transpose.kernel_shape",
                                               "conv_transpose.pads",
                                               "dequantize_linear.block_size",
                                               "dequantize_linear.output_dtype",
                                               "dft.onesided",
                                               "eye_like.dtype",
                                               "flatten.axis",
                                               "gather_nd.batch_dims",
                                               "gru.hidden_size",
                                               "lstm.hidden_size",
                                               "rnn.hidden_size",
                                               "lp_pool.ceil_mode",
                                               "max_pool.ceil_mode",
                                               "mel_weight_matrix.output_datatype",
                                               "max_unpool.pads",
                                               "max_unpool.strides",
                                               "multinomial.dtype",
                                               "multinomial.sample_size",
                                               "phase_weight.group",
                                               "quantize_linear.block_size",
                                               "quantize_linear.output_dtype",
                                               "random_normal_like.dtype",
                                               "random_uniform_like.dtype",
                                               "reshape.allowzero",
                                               "resize.axes",
                                               "reverse_sequence.time_axis",
                                               "rotary_embedding.num_heads",
                                               "shape.start",
                                               "shape.end",
                                               "split.axis",
                                               "split.num_outputs"};
// What no result that a rule can name depends on.
const std::set<std::string> kMeansNothingHere = {"attention.qk_matmul_output_mode", "batch_normalization.momentum",
                                                 "max_pool.storage_order", "range.stash_type", "top_k.sorted"};
// Known gaps: graphs that show the attribute are too rare among those drawn. A certificate is needed to believe these
// rules, and none is found.
const std::set<std::string> kTooRare = {
    "cast_like.round_mode",          "label_encoder.keys_floats",   "label_encoder.keys_int64s",
    "label_encoder.keys_strings",    "label_encoder.values_floats", "label_encoder.values_int64s",
    "label_encoder.values_strings",  "resize.extrapolation_value",  "resize.keep_aspect_ratio_policy",
    "tfidf_vectorizer.pool_strings", "tfidf_vectorizer.weights",    "tfidf_vectorizer.pool_int64s"};

// op(x, a=v, ..r) => op(x, ..r) for every attribute of every op: whatever the other attributes are.
TEST(Soundness, WhatAnAttributeSaysIsNotDropped) {
    std::vector<std::string> texts;
    for (const OpDef* op : all_ops())
        for (const AttrDef& a : op->attrs) {
            if (a.is_hint || a.is_required || a.kind == AttrKind::Graph || op->inputs.empty()) continue;
            const std::string place = op->name + "." + a.name;
            // A reduction's axes and whether they stay decide the sizes.
            if (op->attr("noop_with_empty_axes") || kDecidesTheType.contains(place) ||
                kMeansNothingHere.contains(place) || kTooRare.contains(place))
                continue;
            texts.push_back(fmt::format("{0}({1}, {2}=v, ..r) => {0}({1}, ..r)", op->name, inputs_of(*op), a.name));
        }
    size_t refuted = 0;
    const std::vector<Offered> all = offer(texts);
    for (const Offered& o : all) {
        EXPECT_FALSE(o.certified) << o.text;
        EXPECT_FALSE(o.holds()) << o.text << "\n" << (*o.verdict)->to_string();
        const Status said = as_status(o.rule, **o.verdict);
        ASSERT_FALSE(said.ok()) << o.text;
        EXPECT_THAT(said.error().message(), Not(testing::IsEmpty()));
        refuted += o.refuted();
    }
    EXPECT_GE(all.size(), 200u);
    EXPECT_GE(refuted, 150u);
    printf("%zu rules, %zu refuted, the others untested\n", all.size(), refuted);
}

// Some ops give a number also where their operand is none.
TEST(HiddenNaN, IsNotTakenToBePassedOn) {
    for (const char* op : {"thresholded_relu", "shrink"})
        for (const char* text : {"{}(y@matmul(sqrt(add(x:f64, 1e9)), z)) => add({}(y), sub(y, y))",
                                 "{}(y@reduce_sum(acos(mul(x:f64, 1e-12)), a)) => add({}(y), sub(y, y))",
                                 "mul({}(y@reduce_sum(sqrt(add(x:f64, 1e9)), a)), 2.0) => "
                                 "sub(add({}(y), add(y, {}(y))), y)",
                                 "{}(y@reduce_mean(x:float, a)) => add({}(y), sub(y, y)) "
                                 "if dim(x, 0) > 0 and dim(x, -1) > 0"}) {
            Result<Rules> rules = read_rules("door [reassociates]: " + filled(text, op), "test");
            ASSERT_TRUE(rules.ok()) << rules.error().to_string();
            const Rule& rule = (*rules)[0];
            EXPECT_FALSE(prove_for_any_rank(rule).proved) << to_string(rule);
            for (const char* kind : {"elements\n", "elements by meaning\n"})
                EXPECT_FALSE(verify_rule(rule, {{rule.name, {{}, {}, {kind}}}}).ok()) << to_string(rule);
        }
}

// Whether the op gives a number somewhere for an operand of which no element is one, with any attributes.
bool hides_nan(const OpDef& op) {
    const Rule rule = (*read_rules(fmt::format("hides: {0}(x:f64, ..r) => {0}(x)", op.name), "test"))[0];
    const Sampler sampler(rule);
    for (int i = 0; i < 200; ++i) {
        Draw draw(3, fmt::format("{}/{}", op.name, i));
        std::optional<Sample> sample = sampler.draw(draw, {});
        if (!sample || sample->graph->inputs().size() != 1) continue;
        const Value& x = *sample->graph->inputs()[0];
        Inputs inputs;
        inputs[x.name()] = *Tensor::filled(DType::f64, sample->sizes.at(x.name()), std::nan(""));
        Result<std::vector<Datum>> results = evaluate(*sample->graph, inputs);
        if (!results.ok() || (*results)[0].tensor().dtype() != DType::f64) continue;
        const Tensor& y = (*results)[0].tensor();
        for (int64_t k = 0; k < y.elements(); ++k)
            if (!std::isnan(y.real_at(k))) return true;
    }
    return false;
}

TEST(HiddenNaN, OfNoOpIsTakenToBePassedOn) {
    int hide = 0, pass = 0;
    for (const OpDef* op : all_ops()) {
        const bool unary = op->inputs.size() == 1 && !op->inputs[0].variadic && op->outputs.size() == 1 &&
                           op->types.size() == 1 && op->types[0].allowed.has(DType::f64) && op->has(Trait::Pure) &&
                           op->outputs[0].type == op->inputs[0].type;
        const bool free =
            std::none_of(op->attrs.begin(), op->attrs.end(), [](const AttrDef& a) { return a.is_required; });
        if (!unary || !free) continue;
        if (!hides_nan(*op)) {
            ++pass;
            continue;
        }
        ++hide;
        for (const char* text :
             {"{}(y@reduce_mean(x:float, a)) => add({}(y), sub(y, y)) if dim(x, 0) > 0 and dim(x, -1) > 0",
              "mul({}(y@reduce_sum(sqrt(add(x:f64, 1e9)), a)), 2.0) => sub(add({}(y), add(y, {}(y))), y)"}) {
            const Rule rule = (*read_rules("door [reassociates]: " + filled(text, op->name), "test"))[0];
            EXPECT_FALSE(prove_for_any_rank(rule).proved) << to_string(rule);
            for (const char* kind : {"elements\n", "elements by meaning\n"})
                EXPECT_FALSE(verify_rule(rule, {{rule.name, {{}, {}, {kind}}}}).ok()) << to_string(rule);
        }
    }
    EXPECT_GE(hide, 3);
    EXPECT_GE(pass, 30);
    printf("%d ops hide that an operand is no number, %d do not\n", hide, pass);
}

}  // namespace
}  // namespace tessera::doors_bits_test
