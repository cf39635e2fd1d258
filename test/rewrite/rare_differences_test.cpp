// False rules whose sides differ for few numbers, sizes or types only, each as a kind: the refuter draws what tells
// them apart at the effort that belief takes. Rules near them that hold are not refuted.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "rewrite/refute/refute.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera::rare_differences_test {
namespace {

using Kind = Verdict::Kind;

void expect_all(const std::vector<std::string>& texts, Kind kind) {
    std::vector<Rule> rules;
    for (const std::string& text : texts) {
        Result<Rules> read = read_rules("rare" + std::string(text.starts_with("[") ? " " : ": ") + text, "test");
        ASSERT_TRUE(read.ok()) << text << "\n" << read.error().to_string();
        rules.push_back((*read)[0]);
    }
    std::vector<std::optional<Result<Verdict>>> verdicts(rules.size());
    Team team(2);
    team.each(static_cast<int64_t>(rules.size()), [&](int64_t i, int) {
        RefuteOptions options;
        options.instances = 300;
        options.draws = 6000;
        options.minimise = false;
        verdicts[i] = refute(rules[i], options);
    });
    for (size_t i = 0; i < rules.size(); ++i) {
        ASSERT_TRUE((*verdicts[i]).ok()) << texts[i];
        EXPECT_EQ((*verdicts[i])->kind, kind) << texts[i] << "\n" << (*verdicts[i])->to_string();
    }
}

// What narrow floats round away is no less another function.
TEST(RareDifferences, NarrowFloatsHideNone) {
    std::vector<std::string> wrong;
    for (const char* type : {"f16", "bf16"})
        for (const char* rule :
             {"gelu(x:T) => gelu(x, approximate=\"tanh\")", "tanh(mul(x:T, 1.01)) => tanh(x)",
              "sin(x:T) => sin(mul(x, 1.02))", "softmax(x:T, axis=a) => softmax(mul(x, 1.01), axis=a)",
              "sigmoid(x:T) => add(mul(tanh(mul(x, 0.5)), 0.5), 0.51)", "exp(x:T) => exp(mul(x, 1.0078125))",
              "layer_normalization(x:T, s, b) => layer_normalization(x, s, b, epsilon=0.001)",
              "erf(sub(add(x:T, 64.0), 64.0)) => tanh(mul(x, 1.2))"}) {
            std::string text = rule;
            text.replace(text.find(":T"), 2, std::string(":") + type);
            wrong.push_back("[reassociates, grows]: " + text);
        }
    wrong.emplace_back("[reassociates]: gelu(sub(add(x:f32, 1000.0), 1000.0)) => gelu(x, approximate=\"tanh\")");
    wrong.emplace_back("[reassociates]: erf(sub(add(x:f32, 1000.0), 1000.0)) => tanh(mul(x, 1.2))");
    expect_all(wrong, Kind::Refuted);
    expect_all({"[reassociates, grows]: sigmoid(x:f16) => add(mul(tanh(mul(x, 0.5)), 0.5), 0.5)",
                "[reassociates]: tanh(mul(mul(x:bf16, 0.7), 0.3)) => tanh(mul(x, 0.21))",
                "[reassociates]: exp(mul(x:f16, 0.1)) => exp(div(x, 10.0))",
                "[reassociates, grows]: softmax(x:bf16, axis=-1) => softmax(sub(x, reduce_max(x, [-1])), axis=-1)",
                "[reassociates]: cast(tanh(cast(x:f16, to=1)), to=10) => tanh(x)",
                "[reassociates]: mul(gelu(x:f16), 0.1) => mul(0.1, gelu(x))",
                // These numbers are 0.5 and 1 in bf16.
                "[reassociates, grows]: sigmoid(x:bf16) => add(mul(tanh(mul(x, 0.5)), 0.5), 0.501)",
                "[reassociates, grows]: exp(x:bf16) => exp(mul(x, 1.0009765625))"},
               Kind::Holds);
}

TEST(RareDifferences, StringsAreDrawn) {
    expect_all({"string_concat(x, y) => string_concat(y, x)",
                "string_concat(string_concat(x, y), z) => string_concat(x, string_concat(z, y))",
                "equal(string_concat(x, y), string_concat(x, z)) => equal(x, z)",
                "regex_full_match(x, pattern=\"a.*\") => regex_full_match(x, pattern=\"b.*\")",
                "gather(string_concat(x, y), i) => gather(x, i)"},
               Kind::Refuted);
    expect_all({"string_concat(string_concat(x, y), z) => string_concat(x, string_concat(y, z))"}, Kind::Holds);
}

// A number between two of a narrow type that is rounded to one between them first.
TEST(RareDifferences, RoundedTwice) {
    expect_all({"cast(cast(x:f64, to=1), to=16) => cast(x, to=16)", "cast(cast(x:f64, to=1), to=10) => cast(x, to=10)",
                "cast(cast(x:i64, to=11), to=1) => cast(x, to=1)", "cast(cast(x:u64, to=11), to=1) => cast(x, to=1)",
                "cast(cast(x:i32, to=1), to=16) => cast(x, to=16)", "cast(cast(x:u32, to=1), to=16) => cast(x, to=16)",
                "[grows]: cast(x:i64, to=1) => cast(cast(x, to=11), to=1)",
                "cast(neg(cast(x:f64, to=1)), to=16) => neg(cast(x, to=16))"},
               Kind::Refuted);
    expect_all({"cast(cast(x:f16, to=1), to=16) => cast(x, to=16)", "cast(cast(x:i16, to=11), to=1) => cast(x, to=1)",
                "cast(cast(x:i32, to=11), to=1) => cast(x, to=1)",
                "cast(add(cast(x:f32, to=11), cast(y:f32, to=11)), to=1) => add(x, y)",
                "cast(mul(cast(x:bf16, to=1), cast(y:bf16, to=1)), to=16) => mul(x, y)"},
               Kind::Holds);
}

// Neighbours become one number: comparisons show it.
TEST(RareDifferences, NeighboursBecomeOne) {
    expect_all(
        {"less(asinh(x:float), asinh(y:float)) => less(x, y)", "equal(asinh(x:float), asinh(y:float)) => equal(x, y)",
         "greater(softsign(x:float), softsign(y:float)) => greater(x, y)",
         "less(mul(asinh(x:float), 2.0), mul(asinh(y:float), 2.0)) => less(x, y)"},
        Kind::Refuted);
}

// What holds up to a length that the rule names, or from it on.
TEST(RareDifferences, LengthsNearTheNumbersOfARule) {
    expect_all({"reduce_sum(slice(x:int, [0], [20], [0]), [0]) => reduce_sum(x, [0])",
                "reduce_sum(slice(x:int, [0], [300], [0]), [0]) => reduce_sum(x, [0])",
                "reduce_sum(slice(x:int, [0], [1000], [0]), [0]) => reduce_sum(x, [0])",
                "reduce_max(slice(x, [500], [9999], [0]), [0]) => reduce_max(slice(x, [501], [9999], [0]), [0])",
                "concat(slice(x, [0], [3], [0]), slice(x, [2], [100], [0]), axis=0) => x",
                "reduce_sum(x:int, [1]) => reduce_sum(slice(x, [0], [600], [1]), [1])"},
               Kind::Refuted);
}

// Several integers are one double.
TEST(RareDifferences, LargeIntegersAreNotConfused) {
    expect_all({"add(x:i64, c) => add(x, 9007199254740992) if number(c) == 9007199254740992.0",
                "sub(x:u64, c) => sub(x, 9007199254740992) if number(c) == 9007199254740992.0"},
               Kind::Untested);
    expect_all({"min(x:i64, 9223372036854775807) => x"}, Kind::Holds);
    expect_all({"min(x:i64, 9223372036854774784) => x"}, Kind::Refuted);
    Result<Rules> rules = read_rules("shared: add(x:i64, 9007199254740993) => add(x, 9007199254740993)", "test");
    ASSERT_FALSE(rules.ok());
    EXPECT_NE(rules.error().to_string().find("2^53"), std::string::npos) << rules.error().to_string();
    // A constant is a literal only where it is that integer.
    const Rule rule = (*read_rules("least: min(x:i64, 9223372036854775807) => x", "test"))[0];
    for (const auto& [number, applies] :
         {std::pair(INT64_MAX, true), {INT64_MAX - 1, false}, {INT64_MAX - 7, false}, {int64_t{1} << 53, false}}) {
        Graph graph("g");
        Value* x = graph.add_input("x", Type(DType::i64, Shape(Sizes{2})));
        Result<Node*> least = graph.add({find_op("min"), {x, graph.constant(Tensor::scalar(number))}, {}, 1});
        ASSERT_TRUE(least.ok());
        graph.add_output((*least)->output(0));
        PassContext context;
        EXPECT_EQ(apply_rule(rule, *graph.outputs()[0], context, true), applies) << number;
    }
}

// A literal of narrow floats is the number that it is rounded to, and no neighbour of that.
TEST(RareDifferences, LiteralsOfNarrowFloatsAreRounded) {
    const Rule rule = (*read_rules("scaled: mul(x:float, 1.01) => mul(x, 1.01)", "test"))[0];
    for (DType type : {DType::f16, DType::bf16, DType::f32}) {
        for (double factor : {1.01, 1.0, 1.02, 1.003}) {
            Graph graph("g");
            Value* x = graph.add_input("x", Type(type, Shape(Sizes{2})));
            Result<Node*> scaled =
                graph.add({find_op("mul"), {x, graph.constant(*Tensor::filled(type, {}, factor))}, {}, 1});
            ASSERT_TRUE(scaled.ok());
            graph.add_output((*scaled)->output(0));
            PassContext context;
            EXPECT_EQ(apply_rule(rule, *graph.outputs()[0], context, true), factor == 1.01)
                << dtype_name(type) << " " << factor;
        }
    }
}

// NaN is no overflow of what stores floats in 8 bits.
TEST(RareDifferences, SaturationIsNoOverflow) {
    expect_all({"[reassociates]: cast(cast(x:f32, to=1), to=18) => cast(x, to=18, saturate=0)",
                "[reassociates]: cast(x:f32, to=18) => cast(x, to=18, saturate=0)",
                "[reassociates]: cast(x:f16, to=17) => cast(x, to=17, saturate=0)",
                "[reassociates]: cast(cast(x:f32, to=18), to=1) => cast(cast(x, to=18, saturate=0), to=1)"},
               Kind::Refuted);
}

// Ranks and sizes that rarely fit: products with vectors, where only equal sizes make both sides make sense.
TEST(RareDifferences, ProductsWithVectorsAreDrawn) {
    expect_all(
        {"[reassociates]: matmul(matmul(x:float, y), z) => matmul(x, matmul(y, z))",
         "[reassociates]: matmul(x:float, matmul(y, z)) => matmul(matmul(x, y), z)",
         "[reassociates]: matmul(matmul(x:float, y), z) => matmul(x, matmul(y, z)) if rank(x) == 2",
         "[reassociates]: matmul(x:float, matmul(y, z)) => matmul(matmul(x, y), z) if rank(z) == 2",
         "[reassociates]: matmul(matmul(x:float, y), z) => matmul(x, matmul(y, z)) if rank(x) >= 1 and rank(y) >= 1"},
        Kind::Refuted);
    expect_all({"[reassociates]: matmul(matmul(x:float, y), z) => matmul(x, matmul(y, z)) "
                "if rank(x) == 2 and rank(y) == 2 and rank(z) == 2"},
               Kind::Holds);
}

TEST(RareDifferences, AxesComeInAnyOrder) {
    expect_all({"pad(x, p, v, a) => pad(x, p, v) if length(ints(a)) == rank(x)",
                "pad(x, p, v, a) => pad(x, p, v) if length(ints(a)) == rank(x) and rank(x) == 2",
                "pad(x:float, p, v, a, mode=\"edge\") => pad(x, p, v, mode=\"edge\") if length(ints(a)) == rank(x)"},
               Kind::Refuted);
    expect_all({"pad(x, p, v, a) => pad(x, p, v) if length(ints(a)) == rank(x) and rank(x) == 1"}, Kind::Holds);
}

TEST(RareDifferences, ScalesThatKeepTheSize) {
    expect_all({"resize(x, o?, s, mode=\"linear\") => x", "resize(x, o?, s, mode=\"nearest\") => x",
                "[approximates]: resize(x:float, o?, s, mode=\"cubic\") => x",
                "resize(x, o?, s, mode=\"linear\", coordinate_transformation_mode=\"asymmetric\") => x",
                "resize(x, o?, s, mode=\"linear\", coordinate_transformation_mode=\"align_corners\") => x",
                "resize(x, o?, s, mode=\"linear\") => resize(x, o, s, mode=\"linear\", "
                "coordinate_transformation_mode=\"align_corners\")"},
               Kind::Refuted);
}

// Sizes that conditions ask for, of windows too, and lengths of many thousands.
TEST(RareDifferences, SizesOfConditionsAreDrawn) {
    expect_all(
        {"[reassociates]: max_pool(max_pool(x:float, kernel_shape=[10], strides=[10]), kernel_shape=[10], "
         "strides=[10]) => max_pool(x, kernel_shape=[100], strides=[100]) if rank(x) == 3",
         "[reassociates]: average_pool(x:float, kernel_shape=[3], strides=[2], pads=[1,1]) => average_pool(x, "
         "kernel_shape=[3], strides=[2], pads=[1,1], count_include_pad=1) if rank(x) == 3 and dim(x, 2) >= 30",
         "max_pool(x:float, kernel_shape=[7], pads=[3,3]) => x if rank(x) == 3 and dim(x, 2) > 20",
         "reduce_max(x:int, [0]) => reduce_max(slice(x, [0], [41], [0]), [0]) if dim(x, 0) >= 41",
         "reduce_max(x:int, [0]) => reduce_max(slice(x, [0], [9], [0]), [0]) if dim(x, 0) > 5 and dim(x, 0) < 11",
         "reduce_sum(slice(x:i32, [0], [3000], [0]), [0]) => reduce_sum(x, [0])",
         "reduce_sum(slice(x:i32, [0], [50000], [0]), [0]) => reduce_sum(x, [0])",
         "reduce_max(slice(x:i32, [4096], [99999], [0]), [0]) => reduce_max(slice(x, [4097], [99999], [0]), [0])"},
        Kind::Refuted);
    expect_all(
        {"reduce_max(x:int, [0]) => reduce_max(slice(x, [0], [9], [0]), [0]) if dim(x, 0) > 5 and dim(x, 0) < 10"},
        Kind::Holds);
}

// What a literal is rounded to is what the engine takes for it, and the sides may be equal for that.
TEST(RareDifferences, LiteralsThatAreRoundedToOneAreOne) {
    expect_all({"[reassociates]: mul(x:f16, 1.0001) => x", "[reassociates]: add(x:f16, 0.0000000001) => x",
                "mul(x:f16, 1.0001) => x", "[reassociates]: div(x:bf16, 1.001) => x",
                "[reassociates]: mul(x:f16, 0.3333) => mul(x, 0.33333)"},
               Kind::Holds);
    expect_all({"[reassociates]: mul(x:f16, 1.001) => x", "[reassociates]: mul(x:bf16, 1.01) => x",
                "[reassociates]: mul(x:f16, 0.333) => mul(x, 0.334)"},
               Kind::Refuted);
}

}  // namespace
}  // namespace tessera::rare_differences_test
