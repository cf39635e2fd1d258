// Stores that pass the caches by, as the assembly has them. test_memory.py runs kernels that write that much.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/ir/kernel.h"
#include "llvm/compile_kernels.h"

namespace tessera::streams_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string assembly(const std::string& text, const char* target = "x86_64-avx512") {
    auto kernels = parse_kernels(text);
    EXPECT_TRUE(kernels.ok()) << (kernels.ok() ? "" : kernels.error().to_string());
    if (!kernels.ok()) return "";
    auto made = emit_assembly(*kernels, {.target = target});
    EXPECT_TRUE(made.ok());
    return made.ok() ? *made : "";
}

// Rows of 4096 elements: 2048 of them are 32 MiB.
std::string rows(const std::string& count, const std::string& value = "x[i, j]") {
    return "kernel k(n) (x: f32[n, 4096], y: f32[n, 4096]) { parallel i < " + count +
           " { vector j < 4096 { y[i, j] = 2.0 * " + value + " } } }";
}

const auto streams = AllOf(HasSubstr("vmovntps"), HasSubstr("sfence"));
const auto never_streams = AllOf(Not(HasSubstr("movnt")), Not(HasSubstr("sfence")));

TEST(Streams, WhereMoreIsWrittenThanTheCacheKeeps) {
    EXPECT_THAT(assembly(rows("2049")), streams);
    EXPECT_THAT(assembly(rows("2048")), never_streams);
    EXPECT_THAT(assembly(rows("2049"), "x86_64-sse4"), AllOf(HasSubstr("movntps"), HasSubstr("sfence")));
}

TEST(Streams, IsDecidedWhenItIsLaunched) {
    const std::string text = assembly(rows("n"));
    EXPECT_THAT(text, streams);
    EXPECT_THAT(text, HasSubstr("vmovups\t%zmm"));  // where it is not that much, or lies at an odd place
}

TEST(Streams, NotWhatIsReadAgain) {
    EXPECT_THAT(assembly(rows("n", "(x[i, j] + y[i, j])")), never_streams);
    EXPECT_THAT(assembly("kernel k(n) (x: f32[n, 4096], y: f32[n, 4096]) { parallel i < n { vector j < 4096 { y[i, j] "
                         "= x[i, j] } vector l < 4096 { x[i, l] = y[i, l] } } }"),
                never_streams);
}

TEST(Streams, NotWhatIsWrittenTwice) {
    EXPECT_THAT(assembly("kernel k(n) (x: f32[n, 4096], y: f32[n, 4096]) { parallel i < n { for l < n { vector j < "
                         "4096 { y[i, j] = x[l, j] } } } }"),
                never_streams);
    EXPECT_THAT(assembly("kernel k(n) (x: f32[n, 4096], y: f32[n, 4096]) { parallel i < n { vector j < 4096 { y[i, j] "
                         "+= x[i, j] } } }"),
                never_streams);
}

TEST(Streams, NotPiecesThatLieApart) {
    EXPECT_THAT(assembly("kernel k(n) (x: f32[n, 4096], y: f32[n, 4096]) { parallel c < 256 { for i < n { vector j < "
                         "16 { y[i, 16*c + j] = x[i, 16*c + j] } } } }"),
                never_streams);
    EXPECT_THAT(assembly("kernel k(n) (x: f32[n, 4096], y: f32[n, 4096]) { parallel i < n { for c < 256 { vector j < "
                         "16 { y[i, 16*c + j] = x[i, 16*c + j] } } } }"),
                streams);
}

TEST(Streams, NotTilesOfRegisters) {
    const auto scaled = [](const std::string& shape, const std::string& at) {
        return "kernel k(n) (x: f32[n, 4096], y: f32[n, 4096]) { parallel i < n { alloc t: f32[" + shape +
               "] register { " + (at.empty() ? "t[] = x[i, 0]" : "vector l < 16 { t[l] = x[i, l] }") +
               " for c < 256 { vector j < 16 { y[i, 16*c + j] = x[i, 16*c + j] * t[" + at + "] } } } } }";
    };
    EXPECT_THAT(assembly(scaled("", "")), streams);
    EXPECT_THAT(assembly(scaled("16", "j")), never_streams);
}

TEST(Streams, NotWherePresentStoresReadNothing) {
    EXPECT_THAT(assembly(rows("n"), "aarch64-neon"), Not(HasSubstr("stnp")));
}

// Lines that are not written by way of the cache are not fetched into it.
TEST(Streams, FetchNothing) {
    const std::string fetching =
        "kernel k() (x: f32[65536, 4096], y: f32[65536, 4096]) { parallel i < 65536 { for c < 256 { call prefetch(y[i, "
        "16*c]; x[i, 16*c]; 2) } vector j < 4096 { y[i, j] = x[i, j] } } }";
    const std::string text = assembly(fetching);
    EXPECT_THAT(text, streams);
    const size_t first = text.find("prefetch");
    ASSERT_NE(first, std::string::npos);
    EXPECT_EQ(text.find("prefetch", first + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera::streams_test
