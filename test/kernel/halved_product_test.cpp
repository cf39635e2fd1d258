// Halved products mean the same as plain nests, for every size that does not come out even, and what follows them.
#include "kernel/cpu/halved_product.h"

#include <gmock/gmock.h>

#include "kernel/schedule_check.h"

namespace tessera::halved_product_test {
namespace {

Machine machine(bool lane_multiply) {
    Machine m;
    m.lane_multiply = lane_multiply;
    m.load_broadcast = !lane_multiply;
    m.vector_bytes = lane_multiply ? 16 : 32;
    m.vector_registers = lane_multiply ? 32 : 16;
    return m;
}

Compute parsed(const std::string& text) {
    auto c = parse_compute(text);
    EXPECT_TRUE(c.ok()) << c.error().to_string() << text;
    EXPECT_EQ(to_string(*c), to_string(*parse_compute(to_string(*c))));
    return *c;
}

Compute product(int64_t m, int64_t n, int64_t k, int halvings) {
    return parsed(
        fmt::format("compute mm() (a: f32[{0}, {2}], b: f32[{2}, {1}], c: f32[{0}, {1}]) {{ known b\n halvings {3}\n"
                    "mm for m < {0}, n < {1}: c[m, n] += a[m, k] * b[k, n] over k < {2} }}",
                    m, n, k, halvings));
}

void check(const Compute& compute) {
    for (bool lanes : {true, false})
        for (int threads : {1, 3}) {
            SCOPED_TRACE(fmt::format("{} threads, {} lanes, {}", threads, lanes, to_string(compute)));
            auto schedule = schedule_halved(compute, {machine(lanes), threads});
            ASSERT_TRUE(schedule.ok()) << schedule.error().to_string();
            ASSERT_NO_FATAL_FAILURE(expect_same(compute, *schedule));
        }
}

TEST(HalvedProduct, AnyNumberOfRowsAndColumns) {
    for (auto [m, n, k] : {std::tuple(16, 24, 16), {2, 2, 16}, {49, 24, 32}, {13, 37, 16}, {70, 50, 48}, {3, 100, 16}})
        check(product(m, n, k, 1));
}

TEST(HalvedProduct, Twice) {
    for (auto [m, n, k] : {std::tuple(32, 48, 32), {4, 4, 32}, {49, 50, 64}, {33, 17, 32}}) check(product(m, n, k, 2));
}

TEST(HalvedProduct, LongSumsInParts) {
    check(product(20, 20, 800, 1));
    check(product(20, 20, 1024, 2));
}

TEST(HalvedProduct, WithWhatFollows) {
    check(
        parsed("compute mm() (a: f32[40, 32], b: f32[32, 36], d: f32[36], e: f32[40, 36], c: f32[40, 36]) { known b\n"
               "halvings 1\n t: f32[40, 36] global\n"
               "mm for m < 40, n < 36: t[m, n] += a[m, k] * b[k, n] over k < 32\n"
               "out for m < 40, n < 36: c[m, n] = max(t[m, n] + d[n], 0.0) + e[m, n] }"));
}

TEST(HalvedProduct, PointsOfAnImage) {
    check(
        parsed("compute conv() (x: f32[2, 7, 5, 32], w: f32[40, 32, 1, 1], y: f32[2, 7, 5, 40]) { known w\n"
               "halvings 1\n t: f32[2, 7, 5, 40] global\n"
               "conv for b < 2, h < 7, v < 5, o < 40: t[b, h, v, o] += x[b, h + r, v + s, c] * w[o, c, r, s] "
               "over r < 1, s < 1, c < 32\n"
               "out for b < 2, h < 7, v < 5, o < 40: y[b, h, v, o] = max(t[b, h, v, o], 0.0) }"));
}

TEST(HalvedProduct, SaysWhyNot) {
    auto why = [](const std::string& text) {
        auto made = schedule_halved(parsed(text), {machine(true), 1});
        EXPECT_FALSE(made.ok());
        return made.ok() ? "" : made.error().message();
    };
    EXPECT_THAT(why(to_string(product(16, 16, 18, 1))), testing::HasSubstr("even"));
    EXPECT_THAT(why(to_string(product(1, 16, 16, 1))), testing::HasSubstr("even"));
    EXPECT_THAT(why("compute mm() (a: f32[16, 16], b: f32[16, 16], c: f32[16, 16]) { halvings 1\n"
                    "mm for m < 16, n < 16: c[m, n] += a[m, k] * b[k, n] over k < 16 }"),
                testing::HasSubstr("weights"));
    EXPECT_THAT(why("compute mm(M) (a: f32[M, 16], b: f32[16, 16], c: f32[M, 16]) { known b\n halvings 1\n"
                    "mm for m < M, n < 16: c[m, n] += a[m, k] * b[k, n] over k < 16 }"),
                testing::HasSubstr("size"));
}

}  // namespace
}  // namespace tessera::halved_product_test
