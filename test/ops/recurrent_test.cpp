// recurrent: against the equations written out, and the same layer in other layouts.
#include <random>

#include "ops/run_op.h"

namespace tessera::test::recurrent_test {
namespace {

using Matrix = std::vector<double>;

Tensor random(Sizes sizes, unsigned seed) {
    std::mt19937 gen(seed);
    std::uniform_real_distribution<float> pick(-1, 1);
    std::vector<float> values(size_t(*element_count(sizes)));
    for (float& v : values) v = pick(gen);
    return floats(std::move(sizes), values);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Layer {
    int64_t steps = 4, batch = 2, inputs = 3, hidden = 2;
    Tensor x = random({4, 2, 3}, 1);
    Given weights(int64_t gates, int64_t directions = 1) const {
        return {x, random({directions, gates * hidden, inputs}, 2), random({directions, gates * hidden, hidden}, 3),
                random({directions, 2 * gates * hidden}, 4)};
    }
    // Row `gate * hidden + j` of the gates before activation, at step t, for example b.
    double gate(const Given& in, int64_t row, int64_t t, int64_t b, const double* h, bool bias_of_r = true) const {
        const Tensor &w = in[1]->tensor(), &bias = in[3]->tensor();
        double v = bias.real_at(row);
        for (int64_t i = 0; i < inputs; ++i) v += x.real_at((t * batch + b) * inputs + i) * w.real_at(row * inputs + i);
        return v + recurrent(in, row, h, bias_of_r);
    }
    double recurrent(const Given& in, int64_t row, const double* h, bool bias_of_r = true) const {
        const Tensor &r = in[2]->tensor(), &bias = in[3]->tensor();
        double v = bias_of_r ? bias.real_at(bias.size(1) / 2 + row) : 0;
        for (int64_t i = 0; i < hidden; ++i) v += h[i] * r.real_at(row * hidden + i);
        return v;
    }
};

TEST(Lstm, MatchesItsEquations) {
    Layer l;
    Given in = l.weights(4);
    auto out = run_op("lstm", in, {{"hidden_size", Attr(l.hidden)}}, 3);
    Matrix y;
    double h[2][2] = {}, c[2][2] = {};
    for (int64_t t = 0; t < l.steps; ++t)
        for (int64_t b = 0; b < l.batch; ++b) {
            double g[8], next[2];
            for (int64_t row = 0; row < 8; ++row) g[row] = l.gate(in, row, t, b, h[b]);
            for (int64_t j = 0; j < 2; ++j) {
                c[b][j] = sigmoid(g[4 + j]) * c[b][j] + sigmoid(g[j]) * std::tanh(g[6 + j]);
                next[j] = sigmoid(g[2 + j]) * std::tanh(c[b][j]);
            }
            for (int64_t j = 0; j < 2; ++j) y.push_back(h[b][j] = next[j]);
        }
    expect_tensor(out[0], {4, 1, 2, 2}, y, 1e-5);
    expect_tensor(out[1], {1, 2, 2}, {h[0][0], h[0][1], h[1][0], h[1][1]}, 1e-5);
    expect_tensor(out[2], {1, 2, 2}, {c[0][0], c[0][1], c[1][0], c[1][1]}, 1e-5);
}

TEST(Gru, MatchesItsEquations) {
    Layer l;
    Given in = l.weights(3);
    for (int64_t linear : {0, 1}) {
        auto out = run_op("gru", in, {{"linear_before_reset", Attr(linear)}}, 2);
        Matrix y;
        double h[2][2] = {};
        for (int64_t t = 0; t < l.steps; ++t)
            for (int64_t b = 0; b < l.batch; ++b) {
                double z[2], reset[2], gated[2], zero[2] = {}, next[2];
                for (int64_t j = 0; j < 2; ++j) {
                    z[j] = sigmoid(l.gate(in, j, t, b, h[b]));
                    reset[j] = sigmoid(l.gate(in, 2 + j, t, b, h[b]));
                    gated[j] = reset[j] * h[b][j];
                }
                for (int64_t j = 0; j < 2; ++j) {
                    double n = linear ? l.gate(in, 4 + j, t, b, zero, false) + reset[j] * l.recurrent(in, 4 + j, h[b])
                                      : l.gate(in, 4 + j, t, b, gated);
                    next[j] = (1 - z[j]) * std::tanh(n) + z[j] * h[b][j];
                }
                for (int64_t j = 0; j < 2; ++j) y.push_back(h[b][j] = next[j]);
            }
        expect_tensor(out[0], {4, 1, 2, 2}, y, 1e-5);
    }
}

TEST(Rnn, DirectionsLengthsAndLayout) {
    Layer l;
    Given in = l.weights(1, 2);
    AttrMap attrs{{"direction", Attr(std::string("bidirectional"))}};
    in.push_back(typed(DType::i32, {2}, {4, 2}));  // the second example ends after two steps
    auto out = run_op("rnn", in, attrs, 2);
    auto y = [&](int64_t t, int64_t d, int64_t b, int64_t j) { return out[0].real_at(((t * 2 + d) * 2 + b) * 2 + j); };
    for (int64_t d : {0, 1})
        for (int64_t t : {2, 3}) EXPECT_EQ(y(t, d, 1, 0), 0);
    for (int64_t j : {0, 1}) {  // the last state: of the last valid step forwards, of the first backwards
        EXPECT_EQ(out[1].real_at(0 * 4 + 1 * 2 + j), y(1, 0, 1, j));
        EXPECT_EQ(out[1].real_at(1 * 4 + 1 * 2 + j), y(0, 1, 1, j));
        EXPECT_EQ(out[1].real_at(1 * 4 + 0 * 2 + j), y(0, 1, 0, j));
    }
    attrs["layout"] = int64_t{1};
    in[0] = run_op("transpose", {*in[0]}, {{"perm", Attr(std::vector<int64_t>{1, 0, 2})}})[0];
    auto turned = run_op("rnn", in, attrs, 2);
    EXPECT_EQ(turned[0].sizes(), (Sizes{2, 4, 2, 2}));
    EXPECT_EQ(reals(run_op("transpose", {turned[0]}, {{"perm", Attr(std::vector<int64_t>{1, 2, 0, 3})}})[0]),
              reals(out[0]));
}

TEST(Rnn, ActivationsAndClip) {
    Given in{floats({1, 1, 1}, {1}), floats({1, 1, 1}, {-5}), floats({1, 1, 1}, {1})};
    auto last = [&](const char* f, AttrMap attrs = {}) {
        attrs["activations"] = std::vector<std::string>{f};
        return run_op("rnn", in, attrs, 2)[1].real_at(0);
    };
    EXPECT_EQ(last("Relu"), 0);
    EXPECT_NEAR(last("LeakyRelu"), -0.05, 1e-6);
    EXPECT_NEAR(last("leakyrelu", {{"activation_alpha", Attr(std::vector<float>{0.5f})}}), -2.5, 1e-6);
    EXPECT_NEAR(last("Affine", {{"activation_alpha", Attr(std::vector<float>{2})},
                                {"activation_beta", Attr(std::vector<float>{3})}}),
                -7, 1e-6);
    EXPECT_NEAR(last("Affine", {{"clip", Attr(1.f)}}), -1, 1e-6);
    EXPECT_NEAR(last("Softsign"), -5.0 / 6, 1e-6);
    EXPECT_EQ(error_of("rnn", in, {{"activations", Attr(std::vector<std::string>{"Gelu"})}}, 2), "E0212");
}

TEST(Rnn, Errors) {
    Layer l;
    Given in = l.weights(1);
    EXPECT_EQ(error_of("rnn", in, {{"direction", Attr(std::string("up"))}}), "E0212");
    EXPECT_EQ(error_of("rnn", in, {{"direction", Attr(std::string("bidirectional"))}}), "E0210");
    EXPECT_EQ(error_of("rnn", in, {{"hidden_size", Attr(int64_t{3})}}), "E0210");
    EXPECT_EQ(error_of("lstm", in), "E0210");
    EXPECT_EQ(error_of("rnn", in, {{"layout", Attr(int64_t{2})}}), "E0212");
}

}  // namespace
}  // namespace tessera::test::recurrent_test
