// Results and cycles of the model on programs small enough to follow by hand. The RTL's agreement is test/rtl's.
#include "kernel/accelerator/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "accelerator/random_program.h"

namespace tessera::accelerator_test {
namespace {

using namespace accelerator;
using testing::HasSubstr;

std::vector<Instruction> program_of(const std::string& text) {
    auto parsed = parse_program(text, "test");
    EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
    return parsed.ok() ? *parsed : std::vector<Instruction>{};
}

Machine small() {
    Machine m{.name = "small"};
    m.inputs = 4;
    m.outputs = 2;
    m.bytes_per_cycle = 4;
    return m;
}

// What one alu instruction makes of the lanes a and dst; b is the immediate.
std::vector<int32_t> alu_result(const std::string& fields, std::vector<int32_t> a, std::vector<int32_t> dst = {0, 0}) {
    std::vector<uint8_t> memory(256);
    std::memcpy(memory.data(), a.data(), 8);
    std::memcpy(memory.data() + 8, dst.data(), 8);
    auto done = simulate(small(),
                         program_of("load to=uop x=0 right=1\nload to=acc x=2 x_stride=8 push_next\n"
                                    "alu " +
                                    fields +
                                    " dst=1 a=0 pop_previous push_next\n"
                                    "store element=wide row=1 address=64 pop_previous\nfinish\n"),
                         memory);
    EXPECT_TRUE(done.ok()) << done.error().to_string();
    std::vector<int32_t> out(2);
    std::memcpy(out.data(), memory.data() + 64, 8);
    return out;
}

int32_t f(float x) { return std::bit_cast<int32_t>(x); }
std::string immediate(float x) { return fmt::format(" immediate={} b=immediate ", uint32_t(f(x))); }

TEST(Simulate, AluOperations) {
    using testing::ElementsAre;
    constexpr int32_t kMost = std::numeric_limits<int32_t>::max(), kLeast = std::numeric_limits<int32_t>::min();
    EXPECT_THAT(alu_result("op=add immediate=5 addend=-1", {7, kMost}), ElementsAre(11, kLeast + 3));
    EXPECT_THAT(alu_result("op=add b=destination", {7, 8}, {1, 2}), ElementsAre(8, 10));
    EXPECT_THAT(alu_result("op=sub b=destination", {7, 8}, {1, 20}), ElementsAre(6, -12));
    EXPECT_THAT(alu_result("op=mul immediate=4294967293", {7, -8}), ElementsAre(-21, 24));
    EXPECT_THAT(alu_result("op=mac immediate=3", {7, -8}, {100, 200}), ElementsAre(121, 176));
    EXPECT_THAT(alu_result("op=min immediate=0", {7, -8}), ElementsAre(0, -8));
    EXPECT_THAT(alu_result("op=max b=destination clip high=6 low=-3", {7, -8}, {0, -9}), ElementsAre(6, -3));
    EXPECT_THAT(alu_result("op=shr immediate=1", {3, -3}), ElementsAre(2, -2));  // 1.5 and -1.5: to even
    EXPECT_THAT(alu_result("op=shr immediate=1", {5, -1}), ElementsAre(2, 0));
    EXPECT_THAT(alu_result("op=shr immediate=31", {kMost, kLeast}), ElementsAre(1, -1));
    EXPECT_THAT(alu_result("op=scale addend=3" + immediate(0.5f), {5, -7}), ElementsAre(5, -1));  // 2.5 and -3.5
    EXPECT_THAT(alu_result("op=scale addend=3" + immediate(1e9f), {5, -7}), ElementsAre(kMost, kLeast + 3));
    EXPECT_THAT(alu_result("op=scale" + immediate(std::numeric_limits<float>::quiet_NaN()), {5, 0}), ElementsAre(0, 0));
    EXPECT_THAT(alu_result("op=scale" + immediate(1.0f), {16777217, 16777219}), ElementsAre(16777216, 16777220));
    EXPECT_THAT(alu_result("op=dequantize addend=-2" + immediate(0.25f), {5, -7}), ElementsAre(f(0.75f), f(-2.25f)));
    EXPECT_THAT(alu_result("op=dequantize_add addend=-2" + immediate(0.25f), {5, -7}, {f(1), f(1e-40f)}),
                ElementsAre(f(1.75f), f(-2.25f)));
    EXPECT_THAT(alu_result("op=float_add" + immediate(0.1f), {f(0.2f), f(-0.1f)}), ElementsAre(f(0.2f + 0.1f), 0));
    EXPECT_THAT(alu_result("op=float_mul" + immediate(1e-30f), {f(1e-20f), f(-2)}), ElementsAre(0, f(-2e-30f)));
    EXPECT_THAT(alu_result("op=round addend=1" + immediate(2.0f), {f(1.25f), f(-1.75f)}), ElementsAre(3, -3));
    EXPECT_THAT(alu_result("op=quantize addend=1" + immediate(0.1f), {f(0.25f), f(-1)}),
                ElementsAre(int32_t(std::nearbyint(0.25f / 0.1f)) + 1, -9));
    EXPECT_THAT(alu_result("op=quantize" + immediate(0.0f), {f(1), f(-1)}), ElementsAre(kMost, kLeast));
}

TEST(Simulate, GemmOfSignedAndUnsignedRows) {
    for (bool is_unsigned : {false, true}) {
        std::vector<uint8_t> memory{255, 2, 3, 128, /* w */ 1, 2, 3, 4, 255, 254, 253, 252, /* bias */ 10, 0, 0, 0, 20};
        memory.resize(64);
        const std::string flag = is_unsigned ? " unsigned_inp" : "";
        auto done = simulate(small(),
                             program_of("load to=uop x=0 right=1\nload to=inp row=3\nload to=wgt row=2 address=4\n"
                                        "load to=acc row=9 address=12 push_next\n"
                                        "gemm acc=8 inp=3 wgt=2 init=always from_bias bias=9 pop_previous" +
                                        flag + "\ngemm acc=8 inp=3 wgt=2 push_next" + flag +
                                        "\nstore element=wide row=8 address=32 pop_previous\nfinish\n"),
                             memory);
        ASSERT_TRUE(done.ok()) << done.error().to_string();
        int32_t y[2];
        std::memcpy(y, memory.data() + 32, 8);
        const int x0 = is_unsigned ? 255 : -1, x3 = is_unsigned ? 128 : -128, sum = x0 + 2 * 2 + 3 * 3 + 4 * x3;
        EXPECT_EQ(y[0], 10 + 2 * sum);
        EXPECT_EQ(y[1], 20 - 2 * sum);
    }
}

// A line of two rows with padding, in a strided layout; and a store that saturates.
TEST(Simulate, PaddingAndStrides) {
    std::vector<uint8_t> memory{1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0, 7, 8};
    memory.resize(128);
    auto done = simulate(
        small(),
        program_of("load to=acc element=int8 pad_value=254 x=2 y=2 x_stride=4 y_stride=8 left=1 top=1 push_next\n"
                   "store element=uint8 address=64 x=9 x_stride=2 pop_previous\nfinish\n"),
        memory);
    ASSERT_FALSE(done.ok());  // store has no token of load: compute stands between
    EXPECT_EQ(done.error().code(), Code::E0407);
    done = simulate(
        small(),
        program_of("load to=uop x=0 right=1\n"
                   "load to=acc element=int8 pad_value=254 x=2 y=2 x_stride=4 y_stride=8 left=1 top=1 push_next\n"
                   "alu op=add immediate=0 dst=100 a=0 pop_previous push_next\n"
                   "store element=uint8 address=64 x=9 x_stride=2 pop_previous\nfinish\n"),
        memory);
    ASSERT_TRUE(done.ok()) << done.error().to_string();
    const std::vector<uint8_t> out(memory.begin() + 64, memory.begin() + 82);
    EXPECT_THAT(out, testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 7, 8));
}

// Cycles by hand: fetch takes the latency and the beats of the first instructions, each unit its rows.
TEST(Simulate, CyclesOfAChain) {
    std::vector<uint8_t> memory(4096);
    auto done = simulate(Machine{.name = "m"},
                         program_of("load to=uop x=0 right=1 push_next\n"
                                    "gemm outer=10 inner=10 init=always pop_previous push_next\n"
                                    "store element=int8 address=1024 x=50 x_stride=16 pop_previous\nfinish\n"),
                         memory, {.timeline = true});
    ASSERT_TRUE(done.ok()) << done.error().to_string();
    ASSERT_EQ(done->timeline.size(), 3u);
    // The request of cycle 0 gives beats 40 and 41: the first instruction is visible in 42, dispatched in 42, in its
    // queue in 43.
    EXPECT_EQ(done->timeline[0].start, 43);
    EXPECT_EQ(done->timeline[1].start, 45);  // one row of padding in 44
    EXPECT_EQ(done->timeline[2].start, 45 + 100 + kRowLatency);
    EXPECT_EQ(done->cycles, 45 + 100 + kRowLatency + 50 + 1);
    EXPECT_EQ(done->matrix_cycles, 100);
    EXPECT_EQ(done->of(Unit::Compute).busy, 100);
    EXPECT_EQ(done->of(Unit::Store).busy, 50);
    EXPECT_EQ(done->store_bytes, 800);
}

// Each row reads the result of the one before: it waits, but not where it accumulates into it.
TEST(Simulate, DependentRowsWait) {
    const auto cycles = [](const std::string& alu) {
        std::vector<uint8_t> memory(4096);
        auto done = simulate(
            Machine{.name = "m"},
            program_of("load to=uop x=0 right=1 push_next\n" + alu + " outer=40 pop_previous\nfinish\n"), memory);
        EXPECT_TRUE(done.ok()) << done.error().to_string();
        return std::pair(done->of(Unit::Compute).busy, done->alu_stalls);
    };
    EXPECT_EQ(cycles("alu op=mac immediate=3 dst=1 a=0"), std::pair(int64_t(40), int64_t(0)));
    EXPECT_EQ(cycles("alu op=add immediate=3 dst=1 dst.outer=1 a=0 a.outer=1"),
              std::pair(int64_t(1 + 39 * kRowLatency), int64_t(39 * (kRowLatency - 1))));
}

TEST(Simulate, DeadlocksAreSaid) {
    std::vector<uint8_t> memory(4096);
    const auto error_of = [&](const std::string& text) {
        auto done = simulate(small(), program_of(text), memory);
        return done.ok() ? "" : done.error().to_string();
    };
    EXPECT_THAT(error_of("load to=inp pop_next\ngemm push_previous pop_previous\nfinish\n"),
                testing::AllOf(HasSubstr("load waits for a token from compute at instruction 0"),
                               HasSubstr("compute waits for a token from load at instruction 1")));
    std::string many;
    for (int i = 0; i < 40; ++i) many += "gemm pop_previous\n";
    EXPECT_THAT(error_of(many + "load to=uop x=0 right=1 push_next\nfinish\n"),
                HasSubstr("instruction 16 (gemm pop_previous) finds its unit's queue full"));
    EXPECT_THAT(error_of("gemm\n"), HasSubstr("the last one is not finish"));
}

TEST(Simulate, AccessesOutsideAreSaid) {
    std::vector<uint8_t> memory(4096);
    const auto error_of = [&](const std::string& text, const Machine& machine) {
        auto done = simulate(machine, program_of(text + "\nfinish\n"), memory);
        return done.ok() ? "" : done.error().to_string();
    };
    EXPECT_THAT(error_of("load to=inp row=4090 x=7 x_stride=4", small()),
                HasSubstr("row 4096 of inp is accessed, and small has 4096 rows\n  at instruction 0: load to=inp"));
    EXPECT_THAT(error_of("load to=inp address=4095", small()),
                HasSubstr("bytes 4095 to 4098 of memory are accessed, and there are 4096"));
    EXPECT_THAT(error_of("store row=2047 x=2", small()), HasSubstr("row 2048 of acc"));
    EXPECT_THAT(error_of("gemm acc=2047 acc.inner=1 inner=2", small()), HasSubstr("row 2048 of acc"));
    EXPECT_THAT(error_of("gemm uops=2 uop=2047", small()), HasSubstr("row 2048 of uop"));
    EXPECT_THAT(error_of("gemm inner=0", small()), HasSubstr("has no rows"));
    EXPECT_THAT(error_of("load to=inp element=int8", small()), HasSubstr("element=int8 is for rows of acc"));
    EXPECT_THAT(error_of("load to=inp push_previous", small()), HasSubstr("no unit comes before load"));
    EXPECT_THAT(error_of("alu op=mul b=destination", small()), HasSubstr("mul cannot take b from the destination"));
    Machine without = small();
    without.alu = false;
    EXPECT_THAT(error_of("alu op=add", without), HasSubstr("small has no vector ALU"));
}

}  // namespace
}  // namespace tessera::accelerator_test
