// Running values (online): softmax and attention in one pass over blocks mean what their plain nests mean.
#include <cmath>

#include "schedule_check.h"

namespace tessera::online_test {
namespace {

Compute parsed(const std::string& text) {
    Result<Compute> c = parse_compute(text);
    EXPECT_TRUE(c.ok()) << c.error().to_string();
    return *c;
}

// Rows that are divided by the sum of their exponentials.
Compute softmax() {
    return parsed(R"(compute softmax(N, M) (x: f32[N, M], y: f32[N, M]) {
      top: f32[N] global
      total: f32[N] global
      most for i < N: top[i] max= x[i, j] over j < M
      sum for i < N: total[i] += exp(x[i, j] - top[i]) over j < M
      out for i < N, j < M: y[i, j] = exp(x[i, j] - top[i]) / total[i]
    })");
}

Compute attention() {
    return parsed(R"(compute attention(N, M) (q: f32[N, 3], k: f32[M, 3], v: f32[M, 5], b: f32[N, M], y: f32[N, 5]) {
      s: f32[M, N] global
      x: f32[M, N] global
      top: f32[N] global
      e: f32[M, N] global
      total: f32[N] global
      p: f32[5, N] global
      scores for j < M, i < N: s[j, i] += k[j, d] * q[i, d] over d < 3
      biased for j < M, i < N: x[j, i] = s[j, i] + b[i, j]
      most for i < N: top[i] max= x[j, i] over j < M
      exps for j < M, i < N: e[j, i] = exp(min(x[j, i] - top[i], 0.0))
      sum for i < N: total[i] += e[j, i] over j < M
      product for c < 5, i < N: p[c, i] += v[j, c] * e[j, i] over j < M
      out for i < N, c < 5: y[i, c] = p[c, i] / total[i]
    })");
}

using Change = std::function<void(std::vector<Tensor>&)>;

// Both on the same data; sums in another order, so nearly equal.
void expect_near(const Compute& original, const Schedule& schedule, const SymbolValues& symbols,
                 const Change& change = {}) {
    SCOPED_TRACE(schedule.print_trace());
    ASSERT_OK(verify(schedule.compute()));
    Result<Lowered> lowered = lower(schedule);
    ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
    ASSERT_TRUE(verify(lowered->kernel).ok())
        << verify(lowered->kernel).error().to_string() << to_string(lowered->kernel);
    auto run = [&](const Kernel& kernel, bool backwards) {
        std::vector<Tensor> all;
        for (size_t i = 0; i < kernel.params; ++i) {
            all.push_back(random_tensor(kernel.buffers[i], symbols, 5));
            for (int64_t e = 0; e < all[i].elements(); ++e) all[i].set_real(e, all[i].real_at(e) / 4);
        }
        if (change) change(all);
        Status ran = interpret(kernel, all, symbols, {.backwards = backwards});
        EXPECT_TRUE(ran.ok()) << ran.error().to_string() << to_string(kernel);
        return all[original.params - 1];
    };
    const Tensor want = run(plain_nests(original), false);
    for (bool backwards : {false, true}) {
        const Tensor got = run(lowered->kernel, backwards);
        for (int64_t e = 0; e < want.elements(); ++e) {
            if (std::isnan(want.real_at(e)) ? std::isnan(got.real_at(e)) : want.real_at(e) == got.real_at(e)) continue;
            ASSERT_NEAR(want.real_at(e), got.real_at(e), 1e-5 * (1 + std::abs(want.real_at(e))))
                << "element " << e << "\n"
                << to_string(lowered->kernel);
        }
    }
    // What is written as text and read again is the same schedule.
    auto trace = Schedule::parse_trace(schedule.print_trace());
    ASSERT_TRUE(trace.ok());
    auto again = Schedule::replay(original, *trace);
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(to_string(lower(*again)->kernel), to_string(lowered->kernel));
    auto read = parse_compute(to_string(schedule.compute()));
    ASSERT_TRUE(read.ok()) << read.error().to_string();
    EXPECT_EQ(to_string(*read), to_string(schedule.compute()));
}

const std::vector<std::pair<int64_t, int64_t>> kSizes{{1, 1}, {3, 7}, {5, 8}, {9, 16}, {2, 0}, {0, 4}, {17, 33}};

TEST(Online, SoftmaxInOnePass) {
    for (int64_t block : {1, 4, 8})
        for (auto [n, m] : kSizes) {
            Schedule s(softmax());
            auto made = s.online({"most", "sum"}, block);
            ASSERT_TRUE(made.ok()) << made.error().to_string();
            EXPECT_EQ(*made, (std::vector<std::string>{"most_block", "sum_block", "most_scale", "most_shift"}));
            expect_near(softmax(), s, {{"N", n}, {"M", m}});
            ASSERT_OK(s.compute_at("sum", {"out.i"}));
            expect_near(softmax(), s, {{"N", n}, {"M", m}});
        }
}

TEST(Online, SoftmaxReadsEachRowTwice) {
    Schedule s(softmax());
    ASSERT_OK(s.online({"most", "sum"}, 8));
    ASSERT_OK(s.compute_at("sum", {"out.i"}));
    // Only the pass of running values and the last one.
    size_t rows = 0;
    visit(lower(s)->kernel.body, [&](const Stmt& stmt) {
        const For* loop = stmt->as<For>();
        rows += loop && (loop->var.node().name == "sum.j_block" || loop->var.node().name == "out.j");
    });
    EXPECT_EQ(rows, 2u);
}

TEST(Online, RowsInVectors) {
    Schedule s(softmax());
    ASSERT_OK(s.online({"most", "sum"}, 4));
    auto [block, rows] = *s.split({"out.i"}, 8);
    auto [tile, lane] = *s.split(rows, 4);
    ASSERT_OK(s.parallel(block));
    ASSERT_OK(s.compute_at("sum", block));
    auto [t, i] = *s.split({"sum.i"}, 4);
    ASSERT_OK(s.reorder({{"sum.j_block"}, t, i}));
    ASSERT_OK(s.vectorize(i));
    ASSERT_OK(s.compute_at("most", t));
    auto [mt, mi] = *s.split({"most.i"}, 4);
    ASSERT_OK(s.vectorize(mi));
    for (std::string name : {"most_scale", "sum_block", "most_shift", "most_block"}) ASSERT_OK(s.compute_at(name, t));
    for (auto [n, m] : kSizes) expect_near(softmax(), s, {{"N", n}, {"M", m}});
}

Schedule tiled_attention(int64_t block, bool follow) {
    Schedule s(attention());
    auto ok = [](const auto& status) { EXPECT_TRUE(status.ok()) << status.error().to_string(); };
    ok(s.online({"most", "sum", "product"}, block));
    auto [task, row] = *s.split({"out.i"}, 8);
    ok(s.parallel(task));
    ok(s.compute_at("product", task));
    auto [t, i] = *s.split({"product.i"}, 4);
    ok(s.reorder({{"product.j_block"}, t, {"product.c"}, i}));
    ok(s.vectorize(i));
    ok(s.compute_at("product_block", {"product.c"}));
    for (std::string name : {"most", "sum", "most_scale", "sum_block", "exps", "most_shift", "most_block", "biased"})
        ok(s.compute_at(name, t));
    if (follow) {
        auto [jo, ji] = *s.split({"biased.j"}, 2);
        ok(s.compute_at("scores", jo));
        ok(s.unroll(ji));
        ok(s.loop_partition(jo));
        ok(s.reverse_compute_at("most_block", jo));
        ok(s.reorder({{"most_block.j"}, {"most_block.i"}}));
        ok(s.reverse_compute_at("sum_block", {"exps.j"}));
        ok(s.reorder({{"sum_block.j"}, {"sum_block.i"}}));
    } else {
        ok(s.compute_at("scores", t));
    }
    return s;
}

TEST(Online, AttentionInOnePass) {
    for (int64_t block : {1, 4, 6, 40})
        for (bool follow : {false, true})
            for (auto [n, m] : kSizes) expect_near(attention(), tiled_attention(block, follow), {{"N", n}, {"M", m}});
}

TEST(Online, AttentionAsItIsMade) {
    Schedule s(attention());
    ASSERT_OK(s.online({"most", "sum", "product"}, 4));
    for (auto [n, m] : kSizes) expect_near(attention(), s, {{"N", n}, {"M", m}});
}

TEST(Online, WhatIsNotFinite) {
    const double inf = INFINITY;
    for (bool follow : {false, true}) {
        Schedule s = tiled_attention(4, follow);
        auto with = [&](const std::function<void(Tensor & v, Tensor & b)>& change) {
            expect_near(attention(), s, {{"N", 6}, {"M", 13}},
                        [&](std::vector<Tensor>& all) { change(all[2], all[3]); });
        };
        auto row = [](Tensor& t, int64_t width, int64_t i, double value, int64_t from = 0, int64_t to = 100) {
            for (int64_t j = from; j < std::min(width, to); ++j) t.set_real(i * width + j, value);
        };
        // Rows that see nothing; nothing at first; nothing at last; everything; what is no number.
        with([&](Tensor&, Tensor& b) { row(b, 13, 2, -inf); });
        with([&](Tensor&, Tensor& b) { row(b, 13, 2, -inf, 0, 9); });
        with([&](Tensor&, Tensor& b) { row(b, 13, 2, -inf, 4); });
        with([&](Tensor&, Tensor& b) { row(b, 13, 2, inf, 5, 6); });
        with([&](Tensor&, Tensor& b) { row(b, 13, 2, NAN, 5, 6); });
        // Weights of zero, before any other, of values that are not finite.
        with([&](Tensor& v, Tensor& b) {
            row(b, 13, 2, -inf, 0, 5);
            row(v, 5, 1, inf);
        });
    }
}

TEST(Online, LargeScoresDoNotOverflow) {
    expect_near(
        softmax(),
        [] {
            Schedule s(softmax());
            EXPECT_TRUE(s.online({"most", "sum"}, 4).ok());
            return s;
        }(),
        {{"N", 3}, {"M", 21}},
        [](std::vector<Tensor>& all) {
            for (int64_t i = 0; i < all[0].elements(); ++i) all[0].set_real(i, all[0].real_at(i) * 300);
        });
}

std::string refused(const std::string& text, const std::vector<std::string>& stages, int64_t block = 4) {
    Schedule s(parsed(text));
    auto made = s.online(stages, block);
    if (made.ok()) return "";
    EXPECT_EQ(made.error().code(), Code::E0602);
    EXPECT_TRUE(s.trace().empty());
    return made.error().to_string();
}

std::string rows(const std::string& sum, const std::string& rest = "") {
    return "compute c(N, M) (x: f32[N, M], w: f32[M], y: f32[N]) {\n top: f32[N] global\n total: f32[N] global\n " +
           rest + " most for i < N: top[i] max= x[i, j] over j < M\n " + sum +
           "\n out for i < N: y[i] = log(total[i]) + top[i]\n}";
}

TEST(Online, TermsThatCannotBeCorrectedAreRefused) {
    const std::vector<std::string> both{"most", "sum"};
    auto sum = [](const std::string& term) { return "sum for i < N: total[i] += " + term + " over j < M"; };
    EXPECT_EQ(refused(rows(sum("w[j] * exp(x[i, j] - top[i])")), both), "");
    EXPECT_EQ(refused(rows(sum("exp(2.0 * x[i, j] - top[i]) / w[j]")), both), "");
    EXPECT_EQ(refused(rows(sum("select(w[j] < 0.0, 0.0, exp(x[i, j] - top[i]))")), both), "");
    for (std::string term :
         {"exp(x[i, j] - 2.0 * top[i])", "exp(x[i, j] - top[i]) + 1.0", "x[i, j] - top[i]", "exp(top[i] - x[i, j])",
          "exp(x[i, j] - top[i]) * exp(x[i, j] - top[i])", "exp(x[i, j] - top[i]) * top[i]",
          "exp(min(2.0 * x[i, j] - top[i], 0.0))", "select(top[i] < 0.0, 0.0, exp(x[i, j] - top[i]))"})
        EXPECT_NE(refused(rows(sum(term)), both).find("times a factor that does not depend on it"), std::string::npos) << term;
    EXPECT_NE(refused(rows(sum("x[i, j]")), both).find("does not depend on most"), std::string::npos);
    EXPECT_NE(refused(rows("sum for i < N: total[i] += exp(w[j] - top[i]) over j < M - 1"), both)
                  .find("reduce different numbers of elements"),
              std::string::npos);
    EXPECT_NE(refused(rows(sum("exp(x[i, j] - top[i])")), both, 0).find("at least 1"), std::string::npos);
    EXPECT_NE(refused(rows(sum("exp(x[i, j] - top[i])")), {"sum", "most"}), "");
    EXPECT_NE(refused(rows(sum("exp(x[i, j] - top[i])")), {"most"}), "");
}

TEST(Online, TermsThatOthersReadAreRefused) {
    EXPECT_NE(refused(R"(compute c(N, M) (x: f32[N, M], y: f32[N, M]) {
      top: f32[N] global
      total: f32[N] global
      e: f32[N, M] global
      most for i < N: top[i] max= x[i, j] over j < M
      exps for i < N, j < M: e[i, j] = exp(x[i, j] - top[i])
      sum for i < N: total[i] += e[i, j] over j < M
      out for i < N, j < M: y[i, j] = e[i, j] / total[i]
    })",
                      {"most", "sum"})
                  .find("out also reads exps"),
              std::string::npos);
}

// A sum that goes along with the map it reads.
Compute shares(const std::string& from = "j", const std::string& to = "M") {
    return parsed(
        "compute c(N, M) (x: f32[N, M], y: f32[N, M]) {\n e: f32[N, M] global\n total: f32[N] global\n"
        " twice for i < N, j < M: e[i, j] = x[i, j] * 2.0\n"
        " sum for i < N: total[i] += e[i, " +
        from + "] over j < " + to + "\n out for i < N, j < M: y[i, j] = e[i, j] - total[i]\n}");
}

TEST(Online, ASumTakesInWhatItsProducerMakes) {
    for (const Compute& c : {shares(), shares("j + 1", "max(M - 1, 0)")})
        for (auto [n, m] : kSizes) {
            Schedule s(c);
            ASSERT_OK(s.compute_at("sum", {"out.i"}));
            ASSERT_OK(s.compute_at("twice", {"out.i"}));
            auto [o, i] = *s.split({"twice.j"}, 4);
            ASSERT_OK(s.reverse_compute_at("sum", o));
            expect_same(c, s, {{"N", n}, {"M", m}});
            ASSERT_OK(s.compute_at("sum", {"out.i"}));
            ASSERT_OK(s.reverse_compute_at("sum", i));
            expect_same(c, s, {{"N", n}, {"M", m}});
        }
    Schedule s(shares("M - j - 1"));
    ASSERT_OK(s.compute_at("sum", {"out.i"}));
    ASSERT_OK(s.compute_at("twice", {"out.i"}));
    EXPECT_FALSE(s.reverse_compute_at("sum", {"twice.j"}).ok());
}

TEST(Online, ASumIsNotTakenInWhereNotAllIsMade) {
    Schedule s(parsed(R"(compute c(N) (x: f32[N, 8], y: f32[N, 8]) {
      e: f32[N, 8] global
      total: f32[N] global
      twice for i < N, j < 8: e[i, j] = x[i, j] * 2.0
      sum for i < N: total[i] += e[i, j] over j < 8
      out for i < N, j < 5: y[i, j] = e[i, j] - total[i]
    })"));
    ASSERT_OK(s.compute_at("sum", {"out.i"}));
    ASSERT_OK(s.compute_at("twice", {"out.i"}));
    EXPECT_TRUE(lower(s).ok());
    ASSERT_OK(s.reverse_compute_at("sum", {"twice.j"}));
    Result<Lowered> lowered = lower(s);
    ASSERT_FALSE(lowered.ok());
    EXPECT_NE(lowered.error().to_string().find("does not compute all elements"), std::string::npos) << lowered.error().to_string();
}

TEST(Online, PlacesWhereStepsWouldBeTakenTwiceAreRefused) {
    Schedule s(attention());
    ASSERT_OK(s.online({"most", "sum", "product"}, 4));
    ASSERT_OK(s.reorder({{"product.j_block"}, {"product.c"}, {"product.i"}}));
    ASSERT_OK(s.compute_at("sum", {"product.i"}));
    Result<Lowered> lowered = lower(s);
    ASSERT_FALSE(lowered.ok());
    EXPECT_NE(lowered.error().to_string().find("several times"), std::string::npos) << lowered.error().to_string();
    EXPECT_FALSE(s.compute_at("sum", {"out.i"}).ok());
    EXPECT_FALSE(s.split({"product.j_block"}, 2).ok());
    EXPECT_FALSE(s.vectorize({"product.j_block"}).ok());
    EXPECT_FALSE(s.rfactor({"product.j_block"}).ok());
    EXPECT_FALSE(s.compute_inline("most_scale").ok());
    EXPECT_FALSE(s.pipeline({"product.j_block"}, 2).ok());
    EXPECT_FALSE(s.merge_axes("sum", {{0}}).ok());
    EXPECT_FALSE(s.pad("sum", {4, 1}).ok());
    EXPECT_FALSE(s.cache_write("sum", Scope::Local).ok());
}

}  // namespace
}  // namespace tessera::online_test
