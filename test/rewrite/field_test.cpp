#include "rewrite/refute/field.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"

namespace tessera::field_test {
namespace {

TEST(field, is_a_field) {
    RandomStream random(1, "field");
    for (uint64_t i = 0; i < 200; ++i) {
        uint64_t a = random.bits(3 * i) % kFieldPrime, b = random.bits(3 * i + 1) % kFieldPrime,
                 c = random.bits(3 * i + 2) % kFieldPrime;
        EXPECT_EQ(field_mul(a, field_add(b, c)), field_add(field_mul(a, b), field_mul(a, c)));
        EXPECT_EQ(field_mul(field_mul(a, b), c), field_mul(a, field_mul(b, c)));
        EXPECT_EQ(field_add(field_sub(a, b), b), a);
        if (a != 0) {
            EXPECT_EQ(field_mul(a, field_inverse(a)), 1u);
        }
    }
    EXPECT_EQ(field_add(kFieldPrime - 1, 1), 0u);
    EXPECT_EQ(field_power(3, kFieldPrime - 1), 1u);
}

TEST(field, takes_numbers_exactly) {
    EXPECT_EQ(field_from_int(-1), kFieldPrime - 1);
    EXPECT_EQ(field_from_int(INT64_MIN), field_sub(0, field_from_int(INT64_MAX) + 1));
    EXPECT_EQ(field_mul(*field_from_real(0.25), 4), 1u);
    EXPECT_EQ(*field_from_real(3e20), field_mul(field_from_int(3), field_power(10, 20)));
    EXPECT_EQ(*field_from_real(0x1p-1074), field_inverse(field_power(2, 1074)));
    EXPECT_EQ(field_add(*field_from_real(0.1f), *field_from_real(0.2f)), *field_from_real(double(0.1f) + double(0.2f)));
    EXPECT_EQ(*field_from_real(-0.0), 0u);
    EXPECT_EQ(*field_from_real(INFINITY), kFieldInfinity);
    EXPECT_FALSE(field_from_real(NAN));
    EXPECT_EQ(field_signed(field_from_int(-7)), -7);
}

FieldTensor draw(const Type& type, const RandomStream& random, uint64_t at) {
    const TensorType& t = type.tensor();
    FieldTensor out{t.dtype, *t.shape.sizes(), {}, {}};
    int64_t n = *t.shape.elements().as_int();
    for (int64_t i = 0; i < n; ++i) out.elements.push_back(random.bits(at * 1000 + i) % kFieldPrime);
    return out;
}

FieldRun run(const std::string& text, uint64_t seed = 0) {
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    RandomStream random(seed, "inputs");
    std::vector<FieldTensor> inputs;
    for (const auto& v : (*graph)->inputs()) inputs.push_back(draw(v->type(), random, inputs.size()));
    return evaluate_in_field(**graph, inputs, seed);
}

// Both sides have the same inputs, in the same order.
void expect_same(const std::string& left, const std::string& right, bool same = true) {
    FieldRun a = run(left), b = run(right);
    ASSERT_EQ(a.outcome, FieldRun::Outcome::Values) << a.reason;
    ASSERT_EQ(b.outcome, FieldRun::Outcome::Values) << b.reason;
    EXPECT_EQ(a.outputs == b.outputs, same);
}

TEST(field, holds_identities_of_linear_algebra) {
    expect_same("graph g(a: f32[2,3], b: f32[3,4], c: f32[4,2]) { return matmul(matmul(a, b), c) }",
                "graph g(a: f32[2,3], b: f32[3,4], c: f32[4,2]) { return matmul(a, matmul(b, c)) }");
    expect_same(
        "graph g(x: f32[1,2,5,5], w: f32[3,2,2,2], s: f32[3,1,1]) { return mul(conv(x, w), s) }",
        "graph g(x: f32[1,2,5,5], w: f32[3,2,2,2], s: f32[3,1,1]) { return conv(x, mul(w, reshape(s, [3,1,1,1]))) }");
    expect_same("graph g(x: f32[2,3], y: f32[2,3]) { return mul(div(x, y), y) }",
                "graph g(x: f32[2,3], y: f32[2,3]) { return identity(x) }");
    expect_same("graph g(x: f32[2,3]) { return sub(x, 0.5) }", "graph g(x: f32[2,3]) { return add(x, 0.5) }", false);
}

TEST(field, orders_numbers) {
    expect_same("graph g(x: f32[4,4]) { return reduce_max(neg(x), [1]) }",
                "graph g(x: f32[4,4]) { return neg(reduce_min(x, [1])) }");
    expect_same("graph g(x: f32[4,4]) { return relu(neg(x)) }", "graph g(x: f32[4,4]) { return neg(relu(x)) }", false);
    FieldRun r = run("graph g(x: f32[1,1,4,4]) { return max_pool(x, kernel_shape=[3,3], pads=[1,1,1,1]) }");
    EXPECT_EQ(r.outcome, FieldRun::Outcome::Values) << r.reason;
    EXPECT_FALSE(r.rational);
}

TEST(field, keeps_functions_apart) {
    expect_same("graph g(x: f32[3]) { return exp(x) }", "graph g(x: f32[3]) { return tanh(x) }", false);
    expect_same("graph g(x: f32[3], y: f32[3]) { return exp(add(x, y)) }",
                "graph g(x: f32[3], y: f32[3]) { return exp(add(y, x)) }");
    expect_same("graph g(x: f32[3,4]) { return transpose(softmax(x, axis=0), perm=[1,0]) }",
                "graph g(x: f32[3,4]) { return softmax(transpose(x, perm=[1,0]), axis=1) }");
    EXPECT_FALSE(run("graph g(x: f32[3]) { return exp(x) }").rational);
    EXPECT_TRUE(run("graph g(x: f32[3]) { return pow(x, 3.0) }").rational);
}

TEST(field, says_what_it_cannot_do) {
    FieldRun r = run("graph g(x: f32[3]) { return div(x, sub(x, x)) }");
    EXPECT_EQ(r.outcome, FieldRun::Outcome::Void);
    r = run("graph g(x: f32[3,3]) { return det(x) }");
    EXPECT_EQ(r.outcome, FieldRun::Outcome::Unsupported);
    EXPECT_NE(r.reason.find("det"), std::string::npos) << r.reason;
}

// On small integers the field is the ring of integers, so the evaluator agrees where nothing is rounded.
TEST(field, agrees_with_the_evaluator_on_small_integers) {
    const char* graphs[] = {
        "graph g(x: f64[2,3,5,4], w: f64[4,3,2,2], b: f64[4]) { return relu(conv(x, w, b, pads=[1,0,1,0], "
        "strides=[2,1])) }",
        "graph g(x: f64[2,4,3], w: f64[4,2,2], b: f64[4]) { return conv_transpose(x, w, b, group=2, strides=[2]) }",
        "graph g(x: f64[3,4], y: f64[4,2], b: f64[2]) { return reduce_max(gemm(x, y, b, alpha=2.0), [0]) }",
        "graph g(x: f64[2,6,4], y: f64[1], b: f64[6,1]) { return abs(max(slice(x, [5], [0], [1], [-2]), y)) }",
        "graph g(x: f64[2,3], y: f64[3], b: f64[1]) { return concat(where(less(x, y), x, b), x, axis=1) }",
        "graph g(x: f64[4,3], y: f64[3], b: f64[1]) { return cast(arg_max(x, axis=1), to=11) }",
    };
    for (const char* text : graphs) {
        auto graph = parse(text);
        ASSERT_TRUE(graph.ok()) << graph.error().to_string();
        RandomStream random(7, text);
        Inputs inputs;
        std::vector<FieldTensor> residues;
        uint64_t at = 0;
        for (const auto& v : (*graph)->inputs()) {
            Tensor t = *Tensor::zeros(DType::f64, *v->type().tensor().shape.sizes());
            for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, double(random.bits(at++) % 9) - 4);
            residues.push_back(*FieldTensor::from(t));
            inputs[v->name()] = t;
        }
        auto expected = evaluate(**graph, inputs);
        ASSERT_TRUE(expected.ok()) << expected.error().to_string();
        FieldRun run = evaluate_in_field(**graph, residues, 3);
        ASSERT_EQ(run.outcome, FieldRun::Outcome::Values) << text << run.reason;
        EXPECT_EQ(run.outputs[0], *FieldTensor::from((*expected)[0].tensor())) << text;
    }
}

}  // namespace
}  // namespace tessera::field_test
