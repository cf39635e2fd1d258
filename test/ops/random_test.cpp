#include "ops/run_op.h"

namespace tessera::test::random_test {
namespace {

Attr number(int64_t v) { return Attr(v); }
Attr shape_of(std::vector<int64_t> v) { return Attr(std::move(v)); }

struct Moments {
    double mean, deviation;
};
Moments moments(const Tensor& t) {
    double sum = 0, squares = 0;
    for (double v : reals(t)) sum += v, squares += v * v;
    double mean = sum / double(t.elements());
    return {mean, std::sqrt(squares / double(t.elements()) - mean * mean)};
}

TEST(Random, MomentsAndRange) {
    Moments n = moments(
        run_op("random_normal", {}, {{"shape", shape_of({20000})}, {"mean", Attr(2.f)}, {"scale", Attr(3.f)}})[0]);
    EXPECT_NEAR(n.mean, 2, 0.1);
    EXPECT_NEAR(n.deviation, 3, 0.1);
    Tensor u =
        run_op("random_uniform", {}, {{"shape", shape_of({20000})}, {"low", Attr(-1.f)}, {"dtype", number(11)}})[0];
    EXPECT_EQ(u.dtype(), DType::f64);
    EXPECT_NEAR(moments(u).mean, 0, 0.02);
    for (double v : reals(u)) EXPECT_TRUE(v >= -1 && v < 1);
}

TEST(Random, SeedsRepeatAsNumpyDoes) {
    // numpy.random.RandomState(0).uniform(size=2), .normal(size=2)
    AttrMap attrs{{"shape", shape_of({2})}, {"seed", Attr(0.f)}, {"dtype", number(11)}};
    expect_tensor(run_op("random_uniform", {}, attrs)[0], {2}, {0.5488135039273248, 0.7151893663724195}, 1e-15);
    expect_tensor(run_op("random_normal", {}, attrs)[0], {2}, {1.764052345967664, 0.4001572083672233}, 1e-15);
    EXPECT_EQ(error_of("random_normal", {}, {{"shape", shape_of({-1})}}), "E0212");
    EXPECT_EQ(error_of("random_normal", {}, {{"shape", shape_of({1})}, {"dtype", number(7)}}), "E0213");
}

TEST(Random, OfTheRunDifferEachTime) {
    const OpDef* op = find_op("random_uniform");
    AttrMap attrs{{"shape", shape_of({4})}};
    auto run = [&](uint64_t seed) {
        EvaluateOptions options;
        options.seed = seed;
        return evaluate_op(*op, {}, attrs, 1, options)->at(0).tensor();
    };
    EXPECT_EQ(run(1), run(1));
    EXPECT_FALSE(run(1) == run(2));
}

TEST(RandomLike, TakesShapeAndType) {
    Tensor y = run_op("random_normal_like", {typed(DType::f16, {2, 3}, {0, 0, 0, 0, 0, 0})})[0];
    EXPECT_EQ(y.dtype(), DType::f16);
    EXPECT_EQ(y.sizes(), (Sizes{2, 3}));
    EXPECT_EQ(error_of("random_uniform_like", {Tensor::ints({1})}), "E0213");
}

TEST(Bernoulli, CertaintiesAreCertain) {
    expect_tensor(run_op("bernoulli", {floats({4}, {0, 1, 0, 1})}, {{"dtype", number(9)}})[0], {4}, {0, 1, 0, 1});
    EXPECT_EQ(error_of("bernoulli", {floats({1}, {0})}, {{"dtype", number(8)}}), "E0213");
}

TEST(Multinomial, DrawsOnlyWhatIsPossible) {
    Tensor y = run_op("multinomial", {floats({1, 3}, {-INFINITY, 0, -INFINITY})}, {{"sample_size", number(5)}})[0];
    expect_tensor(y, {1, 5}, {1, 1, 1, 1, 1});
    EXPECT_EQ(error_of("multinomial", {floats({1, 0}, {})}), "E0407");
    EXPECT_EQ(error_of("multinomial", {floats({1}, {0})}), "E0210");
    EXPECT_EQ(error_of("multinomial", {floats({1, 1}, {0})}, {{"dtype", number(1)}}), "E0213");
}

TEST(Dropout, PassesThroughUnlessTraining) {
    Tensor x = floats({3}, {1, NAN, 3});
    auto still = run_op("dropout", {x, Tensor::scalar(.9f)}, {}, 2);
    expect_tensor(still[0], {3}, {1, kNan, 3});
    expect_tensor(still[1], {3}, {1, 1, 1});
    Tensor ones = floats({1000}, std::vector<float>(1000, 1));
    auto trained = run_op("dropout", {ones, Tensor::scalar(.75f), Tensor::scalar(true)}, {{"seed", number(3)}}, 2);
    EXPECT_NEAR(moments(trained[1]).mean, 0.25, 0.05);
    for (double v : reals(trained[0])) EXPECT_TRUE(v == 0 || v == 4);
    EXPECT_EQ(error_of("dropout", {x, Tensor::scalar(1.f), Tensor::scalar(true)}), "E0407");
}

}  // namespace
}  // namespace tessera::test::random_test
