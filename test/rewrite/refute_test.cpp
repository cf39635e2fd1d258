#include "rewrite/refute/refute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/text/parse.h"

namespace tessera::refute_test {
namespace {

using testing::HasSubstr;

Rule rule_of(const std::string& text) {
    Result<Rules> rules = read_rules(text, "test.rules");
    EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().to_string());
    return (*rules)[0];
}

Verdict verdict_of(const std::string& text, RefuteOptions options = {}) {
    Result<Verdict> v = refute(rule_of(text), options);
    EXPECT_TRUE(v.ok());
    return *v;
}

TEST(refute, no_built_in_rule) {
    RefuteOptions options;
    options.instances = 50;
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name)) {
            Result<Verdict> v = refute(rule, options);
            ASSERT_TRUE(v.ok());
            EXPECT_EQ(v->kind, Verdict::Kind::Holds) << rule.source << "\n" << v->to_string();
            EXPECT_GE(v->instances, 10) << rule.name << ": too few graphs are drawn that it matches, of " << v->draws;
        }
}

TEST(refute, rules_that_are_wrong) {
    const char* wrong[] = {
        // Functions that do not commute.
        "a: relu(neg(x)) => neg(relu(x))",
        "a: neg(sigmoid(x)) => sigmoid(neg(x))",
        "a [reassociates]: exp(add(x, y)) => add(exp(x), exp(y))",
        "a [reassociates]: reduce_max(neg(x:float), a) => neg(reduce_max(x, a))",
        // Axes and permutations.
        "a: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=permute(q, p))",
        "a: transpose(x, perm=p) => transpose(x, perm=inverse(p))",
        "a: softmax(transpose(x, perm=p), axis=a) => transpose(softmax(x, axis=a), perm=p)",
        "a: squeeze(unsqueeze(x, a), b) => transpose(x)",
        // Floating point: the sign of a zero, NaN, infinities.
        "a: add(x:float, 0.0) => x",
        "a: mul(x:float, 0.0) => sub(x, x)",
        "a: sub(x, x) => mul(x, 0)",
        "a: div(x:float, x) => add(mul(x, 0), 1)",
        "a: mul(add(x:float, y), z) => add(mul(x, z), mul(y, z))",
        "a: sqrt(mul(x:float, x)) => x",
        "a: max(x:float, y) => where(greater(x, y), x, y)",
        "a [reassociates]: log(mul(a, b)) => add(log(a), log(b))",
        "a: neg(sub(x:float, y)) => sub(y, x)",
        "a: cast(cast(x, to=10), to=1) => cast(x, to=1)",
        // Integers.
        "a: div(mul(x:int, y), y) => x",
        "a: abs(neg(x:int)) => abs(x)",
        "a [reassociates]: div(x, 2) => mul(x, 0.5)",
        // Whole numbers that go through a float, or wrap.
        "a: pow(x:i64, 1.0) => x",
        "a [reassociates]: cast(cast(x:i64, to=11), to=7) => x",
        "a [reassociates]: div(mul(x:int, y), y) => x",
        "a [reassociates]: cast(add(x:i8, y:i8), to=6) => add(cast(x, to=6), cast(y, to=6))",
        "a: max(x:float, y) => max(y, x)",
        // Arithmetic that moves into a narrower type: it overflows, underflows or rounds where it did not.
        "a [reassociates]: mul(cast(x:f16, to=1), cast(y:f16, to=1)) => cast(mul(x, y), to=1)",
        "a [reassociates]: add(cast(x:f16, to=1), cast(y:f16, to=1)) => cast(add(x, y), to=1)",
        "a [reassociates]: reduce_sum(cast(x:f16, to=1), a) => cast(reduce_sum(x, a), to=1)",
        "a [reassociates]: exp(cast(x:f16, to=11)) => cast(exp(x), to=11)",
        "a [reassociates]: mul(cast(relu(x:f16), to=1), cast(y:f16, to=1)) => cast(mul(relu(x), y), to=1)",
        "a [reassociates]: matmul(cast(x:bf16, to=1), cast(y:bf16, to=1)) => cast(matmul(x, y), to=1)",
        "a [reassociates]: mul(x:f64, y:f64) => cast(mul(cast(x, to=1), cast(y, to=1)), to=11)",
        // Lists and optional inputs that are taken for one.
        "a: max(x, min(ys...)) => max(x, ys...)",
        "a: clip(max(x, y), l?, l?) => clip(min(x, y), l?, l?)",
        "a [reassociates]: mul(x:float, c) => x if const(c) and all_true(c)",
        "a [reassociates]: gemm(transpose(x, perm=[1,0]), y, ..r) => gemm(x, y, transA=1, ..r)",
        "a: neg(neg(transpose(x, ..r))) => transpose(x)",
        // What only some values, sizes or constants show: those that the rule names, long axes, large numbers.
        "a [reassociates]: where(equal(x:float, 7.25), y, z) => z",
        "a [reassociates]: clip(x:float, -1000.0, 1000.0) => x",
        "a [reassociates]: max(x:float, -100000.0) => x",
        "a: arg_max(x, axis=0, ..r) => min(arg_max(x, axis=0, ..r), 6)",
        "a [reassociates]: exp(add(x:float, 0.0000001)) => exp(x)",
        "a: mul(x:float, c) => x if const(c) and number(c) > 0.99 and number(c) < 1.01",
        "a: mul(mul(x:float, 0.5), 2.0) => x",
        "a: slice(x, s, e, a?, t?) => slice(x, s, e)",
        "a: concat(xs..., y, axis=a) => concat(y, xs..., axis=a)",
        "a: mul(x:i64, 3) => cast(mul(cast(x, to=11), 3.0), to=7)",
        "a: equal(cast(x:i32, to=1), cast(y:i32, to=1)) => equal(x, y)",
        "a: cast(cast(x:f16, to=16), to=10) => x",
        "a [reassociates]: relu(matmul(matmul(log(x), w), v)) => relu(sub(add(matmul(matmul(log(x), w), v), "
        "matmul(matmul(log(x), w), v)), matmul(matmul(log(x), w), v)))",
        // Convolutions, pools, products.
        "a [reassociates]: concat(conv(x, w, ..a), conv(x, v, ..a), axis=1) => conv(x, concat(w, v, axis=0), ..a)",
        "a [reassociates]: mul(conv(x, w, ..a), c) => conv(x, mul(w, c), ..a) if const(c)",
        "a: average_pool(pad(x, p), kernel_shape=k) => average_pool(x, kernel_shape=k, pads=join(drop(take(ints(p), "
        "rank(x)), 2), "
        "drop(ints(p), rank(x) + 2))) if ints(p)[0] == 0 and ints(p)[1] == 0",
        "a: max_pool(pad(x, p), kernel_shape=k) => max_pool(x, kernel_shape=k, pads=join(drop(take(ints(p), rank(x)), "
        "2), "
        "drop(ints(p), rank(x) + 2)))",
        "a: conv(x, w, pads=p, ..a) => conv(x, w, pads=join(drop(p, length(p) / 2), take(p, length(p) / 2)), ..a)",
        "a [reassociates]: (matmul(a:float, b), matmul(a, c)) => split(matmul(a, concat(b, c, axis=-2)), axis=-1)",
        "a [reassociates]: (matmul(a:float, b), matmul(a, c)) => split(matmul(a, concat(c, b, axis=-1)), [dim(b, -1), "
        "dim(c, -1)], axis=-1)",
        "a [reassociates]: matmul(a:float, b) => matmul(b, a)",
        "a [reassociates]: matmul(mul(a:float, s), b) => matmul(a, mul(s, b))",
        "a [reassociates]: gemm(a:float, b, c, beta=y) => gemm(a, b, c)",
        "a [reassociates]: gemm(a:float, b, c?, transA=q, ..r) => gemm(a, b, c?, transA=1 - q, ..r)",
        "a [reassociates]: batch_normalization(x, s, t, m, v, epsilon=e) => batch_normalization(x, s, t, m, v)",
        "a [reassociates]: layer_normalization(x, s, t, axis=a) => rms_normalization(x, s, axis=a)",
        "a: slice(add(x, y), s, e, a, t) => add(x, slice(y, s, e, a, t)) if same_dims(x, y)",
        // Slices, gathers, reshapes, which the types of both sides do not give away.
        "a: gather(x, i, axis=a) => slice(x, [ints(i)[0]], [ints(i)[0] + length(ints(i))], [a]) if const(i) and "
        "rank(i) == 1",
        "a: y@transpose(x, perm=p) => reshape(x, reshape_dims(dims(y)))",
        "a: depth_to_space(x, blocksize=b, mode=m) => depth_to_space(x, blocksize=b)",
        "a: where(c, x, y) => where(c, y, x)",
        "a: clip(x, l, h) => clip(x, l)",
    };
    for (const char* text : wrong) {
        Verdict v = verdict_of(text);
        EXPECT_EQ(v.kind, Verdict::Kind::Refuted) << text << "\n" << v.to_string();
    }
}

TEST(refute, lets_rules_stand_that_are_right) {
    const char* right[] = {
        "a: relu(max(x, 0)) => relu(x)",
        "a [reassociates]: (matmul(a:float, b), matmul(a, c)) => split(matmul(a, concat(b, c, axis=-1)), [dim(b, -1), "
        "dim(c, -1)], "
        "axis=-1) if rank(a) == 2 and rank(b) == 2 and rank(c) == 2",
        "a [reassociates]: concat(conv(x, w, group=1, ..a), conv(x, v, group=1, ..a), axis=1) => conv(x, concat(w, v, "
        "axis=0), ..a) if drop(dims(w), 1) == drop(dims(v), 1)",
        "a [reassociates]: mul(exp(a:float), exp(b)) => exp(add(a, b))",
        // An intermediate may overflow on one side only, in the type that the left side computes in.
        "a [reassociates]: mul(mul(a:f16, b), c) => mul(a, mul(b, c))",
        "a [reassociates]: max(x:float, y) => add(x, relu(sub(y, x)))",
        "a [reassociates]: cast(mul(x:f16, y), to=1) => mul(cast(x, to=1), cast(y, to=1))",
        "a: cast(cast(x:f32, to=11), to=1) => x",
        "a: cast(relu(x:f16), to=1) => relu(cast(x, to=1))",
        "a [approximates]: mul(x:float, z) => z if number(z) == 0.0",
        "a: slice(slice(x, s1, e1, [0], [1]), s2, e2, [1], [1]) => slice(x, concat(s1, s2, axis=0), concat(e1, e2, "
        "axis=0), [0, 1], [1, 1])",
        "a: top_k.0(x, k, axis=a, largest=l) => top_k.0(x, k, axis=a, largest=l, sorted=1)",
    };
    for (const char* text : right) {
        Verdict v = verdict_of(text);
        EXPECT_EQ(v.kind, Verdict::Kind::Holds) << text << "\n" << v.to_string();
        EXPECT_GE(v.instances, 20) << text;
    }
}

TEST(refute, says_when_nothing_could_be_tried) {
    RefuteOptions options;
    options.draws = 500;
    Rule rule = rule_of("never: relu(x) => x if rank(x) == 1 and rank(x) == 2");
    Result<Verdict> v = refute(rule, options);
    ASSERT_TRUE(v.ok());
    EXPECT_EQ(v->kind, Verdict::Kind::Untested);
    Status status = as_status(rule, *v);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), Code::E0305);
    EXPECT_THAT(status.error().to_string(), HasSubstr("seed 0"));
}

TEST(refute, shows_a_small_graph_that_can_be_read_back) {
    RefuteOptions options;
    options.seed = 11;
    Rule rule = rule_of("wrong: relu(neg(x)) => neg(relu(x))");
    Result<Verdict> v = refute(rule, options);
    ASSERT_TRUE(v.ok());
    ASSERT_TRUE(v->counterexample);
    const Counterexample& c = *v->counterexample;
    for (const std::string& text : {c.left, c.right}) {
        auto graph = parse(text);
        ASSERT_TRUE(graph.ok()) << text << graph.error().to_string();
        ASSERT_EQ((*graph)->inputs().size(), 1u);
        EXPECT_LE(*(*graph)->inputs()[0]->type().tensor().shape.elements().as_int(), 2);
    }
    EXPECT_THAT(c.difference, HasSubstr("on the left"));
    Status status = as_status(rule, *v);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), Code::E0305);
    EXPECT_EQ(status.error().where(), "test.rules:1:1");
    EXPECT_THAT(status.error().to_string(), HasSubstr("seed 11"));
    EXPECT_THAT(status.error().to_string(), HasSubstr("relu"));
}

TEST(refute, does_the_same_for_the_same_seed) {
    for (uint64_t seed : {0, 1, 2}) {
        RefuteOptions options;
        options.seed = seed;
        const char* text = "a [reassociates]: matmul(mul(a:float, s), b) => matmul(a, mul(s, b))";
        EXPECT_EQ(verdict_of(text, options).to_string(), verdict_of(text, options).to_string());
    }
}

TEST(refute, can_be_cancelled) {
    std::atomic<bool> cancel = true;
    RefuteOptions options;
    options.cancel = &cancel;
    Result<Verdict> v = refute(rule_of("a: relu(relu(x)) => relu(x)"), options);
    ASSERT_FALSE(v.ok());
    EXPECT_EQ(v.error().code(), Code::E0410);
}

// What a rule may say is anyone's: nothing in it makes the sampler overflow, or ask for much.
TEST(refute, survives_odd_rules) {
    const char* odd[] = {
        "a: conv(x, w, group=0, ..a) => conv(x, w, ..a)",
        "a: conv(x, w, group=9223372036854775807, kernel_shape=[-1, 9223372036854775807]) => conv(x, w)",
        "a: max_pool(x, kernel_shape=[-3], strides=[0]) => x",
        "a: transpose(x, perm=[7, -1, 7]) => x",
        "a: concat(x, y, axis=9223372036854775807) => x",
        "a: split(x, [-9223372036854775808, 9223372036854775807], axis=-9223372036854775808) => x",
        "a: slice(x, [-9223372036854775808], [9223372036854775807], [-9223372036854775808], [-9223372036854775808]) => "
        "x",
        "a: reshape(x, [9223372036854775807, 9223372036854775807]) => x",
        "a: attention(x, y, z, q_num_heads=0, kv_num_heads=-1) => x",
        "a: rotary_embedding(x, y, z, num_heads=-5, rotary_embedding_dim=9223372036854775807) => x",
        "a: depth_to_space(x, blocksize=-9223372036854775808) => x",
        "a: group_normalization(x, y, z, num_groups=0) => x",
        "a: einsum(x, y, equation=\"->,,..ij\") => x",
        "a: reduce_sum(x, [9223372036854775807]) => x",
        "a: tile(x, [9223372036854775807]) => x",
        "a: relu(x) => x if dims(x) == [9223372036854775807] and rank(x) == 9223372036854775807",
        "a: if(x) => x",
        "a: loop(x, y, z) => x",
        "a: sequence_at(x, y) => x",
    };
    RefuteOptions options;
    options.draws = 300;
    for (const char* text : odd) {
        Result<Rules> rules = read_rules(text, "test.rules");
        if (!rules.ok()) continue;
        EXPECT_TRUE(refute((*rules)[0], options).ok()) << text;
    }
}

}  // namespace
}  // namespace tessera::refute_test
