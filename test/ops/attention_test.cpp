// attention in its forms.
#include <random>

#include "ops/run_op.h"

namespace tessera::test::attention_test {
namespace {

Tensor random(Sizes sizes, unsigned seed) {
    std::mt19937 gen(seed);
    std::uniform_real_distribution<float> pick(-1, 1);
    std::vector<float> values(size_t(*element_count(sizes)));
    for (float& v : values) v = pick(gen);
    return floats(std::move(sizes), values);
}

// Rows [from, to) of dimension 2.
Tensor rows(const Tensor& x, int64_t from, int64_t to) {
    return run_op("slice", {x, longs({1}, {from}), longs({1}, {to}), longs({1}, {2})})[0];
}

void expect_same(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
    expect_tensor(a, b.sizes(), reals(b), tolerance);
}

TEST(Attention, OneKeyIsItsValue) {
    Tensor v = random({1, 1, 1, 4}, 3);
    expect_same(run_op("attention", {random({1, 1, 1, 2}, 1), random({1, 1, 1, 2}, 2), v})[0], v);
}

TEST(Attention, CausalFromThePast) {
    Tensor q = random({2, 4, 5, 3}, 1), k = random({2, 2, 5, 3}, 2), v = random({2, 2, 5, 4}, 3);
    AttrMap causal{{"is_causal", Attr(int64_t{1})}};
    Tensor whole = run_op("attention", {q, k, v}, causal)[0];
    auto step =
        run_op("attention", {rows(q, 3, 5), rows(k, 3, 5), rows(v, 3, 5), std::nullopt, rows(k, 0, 3), rows(v, 0, 3)},
               causal, 3);
    expect_same(step[0], rows(whole, 3, 5));
    expect_same(step[1], k);
    expect_same(step[2], v);
    AttrMap window = causal;
    window["left_window_size"] = int64_t{100};
    expect_same(run_op("attention", {q, k, v}, window)[0], whole);
}

TEST(Attention, PackedHeads) {
    Tensor q = random({1, 3, 4}, 1), k = random({1, 3, 4}, 2), v = random({1, 3, 4}, 3);
    AttrMap heads{{"q_num_heads", Attr(int64_t{2})}, {"kv_num_heads", Attr(int64_t{2})}};
    Tensor packed = run_op("attention", {q, k, v}, heads)[0];
    auto unpacked = [](const Tensor& x) {
        return run_op("transpose", {x.reshaped({1, 3, 2, 2})}, {{"perm", Attr(std::vector<int64_t>{0, 2, 1, 3})}})[0];
    };
    expect_same(unpacked(packed), run_op("attention", {unpacked(q), unpacked(k), unpacked(v)})[0]);
    EXPECT_EQ(error_of("attention", {q, k, v}), "E0206");
    heads["q_num_heads"] = int64_t{3};
    EXPECT_EQ(error_of("attention", {q, k, v}, heads), "E0210");
}

TEST(Attention, MasksAndBlindQueries) {
    Tensor q = random({1, 1, 2, 2}, 1), k = random({1, 1, 3, 2}, 2), v = random({1, 1, 3, 2}, 3);
    Tensor mask = typed(DType::boolean, {2, 2}, {0, 1, 0, 0});  // shorter than the keys: the last is not seen
    auto out = run_op("attention", {q, k, v, mask}, {{"qk_matmul_output_mode", Attr(int64_t{3})}}, 4);
    expect_tensor(out[0], {1, 1, 2, 2}, {v.real_at(2), v.real_at(3), 0, 0});
    expect_tensor(out[3], {1, 1, 2, 3}, {0, 1, 0, 0, 0, 0});
    auto few = run_op("attention", {q, k, v, std::nullopt, std::nullopt, std::nullopt, longs({1}, {1})})[0];
    expect_tensor(few, {1, 1, 2, 2}, {v.real_at(0), v.real_at(1), v.real_at(0), v.real_at(1)});
    EXPECT_EQ(error_of("attention", {q, k, v, random({2, 4}, 1)}), "E0210");
    EXPECT_EQ(error_of("attention", {q, k, v, std::nullopt, k}), "E0207");
    EXPECT_EQ(error_of("attention", {q, random({1, 1, 3, 4}, 2), v}), "E0210");
}

TEST(RotaryEmbedding, QuarterTurns) {
    Tensor x = floats({1, 1, 1, 4}, {1, 2, 3, 4}), zero = floats({1, 1, 2}, {0, 0}), one = floats({1, 1, 2}, {1, 1});
    expect_tensor(run_op("rotary_embedding", {x, zero, one})[0], {1, 1, 1, 4}, {-3, -4, 1, 2});
    expect_tensor(run_op("rotary_embedding", {x, zero, one}, {{"interleaved", Attr(int64_t{1})}})[0], {1, 1, 1, 4},
                  {-2, 1, -4, 3});
    AttrMap part{{"rotary_embedding_dim", Attr(int64_t{2})}};
    Tensor caches = floats({3, 1}, {0, 0, 0}), sines = floats({3, 1}, {0, 0, 1});
    expect_tensor(run_op("rotary_embedding", {x, caches, sines, longs({1, 1}, {2})}, part)[0], {1, 1, 1, 4},
                  {-2, 1, 3, 4});
    EXPECT_EQ(error_of("rotary_embedding", {x, caches, sines, longs({1, 1}, {3})}, part), "E0406");
    EXPECT_EQ(error_of("rotary_embedding", {x, caches, sines}, part), "E0210");
}

TEST(LinearAttention, ContinuesFromItsState) {
    Tensor q = random({1, 4, 8}, 1), k = random({1, 4, 4}, 2), v = random({1, 4, 6}, 3), decay = random({1, 4, 2}, 4),
           beta = random({1, 4, 1}, 5);
    AttrMap attrs{{"q_num_heads", Attr(int64_t{4})}, {"kv_num_heads", Attr(int64_t{2})}};
    auto part = [](const Tensor& x, int64_t from, int64_t to) {
        return run_op("slice", {x, longs({1}, {from}), longs({1}, {to}), longs({1}, {1})})[0];
    };
    auto run = [&](int64_t from, int64_t to, std::optional<Datum> past) {
        return run_op("linear_attention",
                      {part(q, from, to), part(k, from, to), part(v, from, to), past, part(decay, from, to),
                       part(beta, from, to)},
                      attrs, 2);
    };
    auto whole = run(0, 4, std::nullopt), first = run(0, 1, std::nullopt), rest = run(1, 4, first[1]);
    EXPECT_EQ(whole[0].sizes(), (Sizes{1, 4, 12}));
    expect_same(rest[0], part(whole[0], 1, 4));
    expect_same(rest[1], whole[1]);
    EXPECT_EQ(error_of("linear_attention", {q, k, v}, attrs, 2), "E0207");
}

}  // namespace
}  // namespace tessera::test::attention_test
