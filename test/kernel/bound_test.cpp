// Blocks, threads, shared memory and barriers: what verify asks of them, and what the interpreter does with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/ir/compute.h"

namespace tessera::bound_test {
namespace {

using Races = InterpretOptions::Races;
using ::testing::HasSubstr;

Kernel kernel_of(const std::string& body) {
    auto kernels =
        parse_kernels("kernel k(N) (x: f32[64], y: f32[64], z: i64[4], w: f32[8] strides [0]) {\n" + body + "\n}");
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    return kernels.ok() ? (*kernels)[0] : Kernel{};
}

std::string verdict(const std::string& body) {
    Status status = verify(kernel_of(body));
    if (status.ok()) return "fine";
    EXPECT_EQ(status.error().code(), Code::E0601);
    return status.error().message();
}

// A block of 8 threads with 8 shared elements.
std::string in_threads(const std::string& body) {
    return "bound b < 8 on block.x { alloc s: f32[16] shared bound t < 8 on thread.x { " + body + " } }";
}

const std::string kBarrier = " call barrier(; ; ) ";

// What the interpreter finds, or gives: y's first element, or its error.
std::string outcome(const std::string& body, const InterpretOptions& options) {
    std::vector<Tensor> tensors;
    for (DType t : {DType::f32, DType::f32, DType::i64})
        tensors.push_back(*Tensor::zeros(t, {t == DType::i64 ? 4 : 64}));
    tensors.push_back(*Tensor::zeros(DType::f32, {8}));
    for (int64_t i = 0; i < 64; ++i) tensors[0].set_real(i, static_cast<double>(i));
    Status status = interpret(kernel_of(body), tensors, {{"N", 4}}, options);
    return status.ok() ? fmt::format("{}", tensors[1].real_at(0)) : status.error().message();
}

TEST(BoundLoops, StandInOrder) {
    EXPECT_EQ(
        verdict("bound i < 8 on block.x { bound j < 8 on block.y { bound k < 1 on thread.z { y[8*i + j] = 1.0 } } }"),
        "fine");
    EXPECT_EQ(verdict("bound t < 8 on thread.x { y[t] = 1.0 }"), "fine");
    EXPECT_EQ(verdict("bound i < 8 on core { y[i] = 1.0 }"),
              "the axis core is none of block.x, .y, .z and thread.x, .y, .z");
    EXPECT_EQ(verdict("for k < 2 { bound i < 8 on block.x { y[i] = 1.0 } }"), "a bound loop inside another statement");
    EXPECT_EQ(verdict("if N < 4 { bound i < 8 on thread.x { y[i] = 1.0 } }"), "a bound loop inside another statement");
    EXPECT_EQ(verdict("parallel k < 2 { bound i < 8 on thread.x { y[8*k + i] = 1.0 } }"),
              "a bound loop inside another statement");
    EXPECT_EQ(verdict("bound t < 8 on thread.x { bound i < 8 on block.x { y[8*t + i] = 1.0 } }"),
              "a loop over blocks inside a loop over threads");
    EXPECT_EQ(verdict("bound i < 8 on block.x { y[8*i] = 1.0 bound j < 8 on block.y { y[8*i + j] = 1.0 } }"),
              "something stands between two loops over blocks, one in the other");
    EXPECT_EQ(verdict("bound i < 8 on thread.x { if i < 4 { bound j < 8 on thread.y { y[8*i + j] = 1.0 } } }"),
              "something stands between two loops over threads, one in the other");
    EXPECT_EQ(verdict("bound i < 8 on thread.x { bound j < i on thread.y { y[8*i + j] = 1.0 } }"),
              "the extent of a bound loop depends on i: blocks have one number of threads, and launches one of blocks, "
              "along each axis");
    EXPECT_EQ(verdict("bound i < z[0] on block.x { y[i] = 1.0 }"), "the extent of a bound loop is read from a buffer");
    EXPECT_EQ(verdict("bound b < 8 on block.x { for k < 2 { bound t < b on thread.x { y[8*b + t] = 1.0 } } }"), "fine");
}

TEST(BoundLoops, MemoryHasItsPlace) {
    const std::string shared =
        "s is shared by the threads of a block, and not allocated inside the loops over blocks, "
        "outside those over threads";
    EXPECT_EQ(verdict("alloc s: f32[8] shared s[0] = 1.0"), shared);
    EXPECT_EQ(verdict("bound t < 8 on thread.x { alloc s: f32[8] shared s[t] = 1.0 }"), shared);
    EXPECT_EQ(verdict("bound b < 8 on block.x { bound t < 8 on thread.x { alloc s: f32[8] shared s[t] = 1.0 } }"),
              shared);
    EXPECT_EQ(verdict("bound b < 8 on block.x { alloc l: f32[] local bound t < 8 on thread.x { y[8*b + t] = l[] } }"),
              "l is of one thread, and allocated outside the loop over threads");
    EXPECT_EQ(verdict("bound b < 8 on block.x { alloc l: f32[] local l[] = 1.0 y[b] = l[] }"), "fine");
    EXPECT_EQ(verdict(in_threads("alloc l: f32[] local l[] = 1.0 y[8*b + t] = l[]")), "fine");
}

TEST(Barriers, AreMetByAllThreads) {
    const std::string use = " s[t] = 1.0" + kBarrier + "y[8*b + t] = s[7 - t] ";
    EXPECT_EQ(verdict(in_threads(use)), "fine");
    EXPECT_EQ(verdict(in_threads("for k < b {" + use + kBarrier + "}")), "fine");
    EXPECT_EQ(verdict(in_threads("if b < N {" + use + "}")), "fine");
    EXPECT_EQ(verdict(in_threads("for k < z[0] {" + use + kBarrier + "}")), "fine");
    EXPECT_EQ(verdict(in_threads("if t < 4 {" + kBarrier + "}")),
              "a barrier in a branch that not all threads of the block may take");
    EXPECT_EQ(verdict(in_threads("if x[0] < 4.0 { } else {" + kBarrier + "} x[8*b + t] = 1.0")),
              "a barrier in a branch that not all threads of the block may take");
    EXPECT_EQ(verdict(in_threads("for k < t {" + kBarrier + "}")),
              "a barrier in the loop over k, which may run more often in one thread than in another");
    EXPECT_EQ(verdict(in_threads("for k < t { if 3 < k {" + kBarrier + "} }")),
              "a barrier in the loop over k, which may run more often in one thread than in another");
    EXPECT_EQ(verdict("bound b < 8 on block.x {" + kBarrier + "}"), "a barrier outside the loops over threads");
    EXPECT_EQ(verdict(kBarrier), "a barrier outside the loops over threads");
    EXPECT_EQ(verdict(in_threads("call barrier(; s[0]; )")), "a barrier with arguments");
}

TEST(BoundRaces, OfBlocks) {
    EXPECT_EQ(verdict("bound b < 8 on block.x { y[0] = 1.0 }"),
              "two blocks may touch one element: one writes y[0], another writes y[0]");
    EXPECT_EQ(verdict("bound b < 8 on block.x { y[b] = y[b + 1] }"),
              "two blocks may touch one element: one writes y[b], another reads y[b + 1]");
    EXPECT_EQ(verdict("bound b < 8 on block.x { y[b] = y[b] + x[b + 1] }"), "fine");
    EXPECT_EQ(verdict("bound b < 8 on block.x { bound t < 9 on thread.x { y[8*b + t] = 1.0 } }"),
              "two blocks may touch one element: one writes y[8*b + t], another writes y[8*b + t]");
    EXPECT_EQ(verdict("bound b < 8 on block.x { bound t < 9 on thread.x { if t < 8 { y[8*b + t] = 1.0 } } }"), "fine");
    EXPECT_EQ(verdict("bound b < 8 on block.x { if b == 3 { y[0] = 1.0 } }"), "fine");
    EXPECT_EQ(verdict("bound b < 8 on block.x { y[z[0]] = 1.0 }"),
              "two blocks may touch one element: one writes y[z[0]], another writes y[z[0]]");
    EXPECT_EQ(verdict("bound b < 8 on block.x { w[b] = 1.0 }"),  // whose elements are one, by their strides
              "two blocks may touch one element: one writes w[b], another writes w[b]");
    EXPECT_EQ(verdict("bound b < 1 on block.x { y[0] = 1.0 }"), "fine");
}

TEST(BoundRaces, OfThreads) {
    const std::string race = "two threads of a block may touch one element: ";
    EXPECT_EQ(verdict(in_threads("s[t] = 1.0 y[8*b + t] = s[7 - t]")),
              race + "one writes s[t], another reads s[7 - t]");
    EXPECT_EQ(verdict(in_threads("s[t] = 1.0 y[8*b + t] = s[t]")), "fine");
    EXPECT_EQ(verdict(in_threads("s[0] = 1.0")), race + "one writes s[0], another writes s[0]");
    EXPECT_EQ(verdict(in_threads("s[0] += 1.0")), race + "one writes s[0], another writes s[0]");
    EXPECT_EQ(verdict(in_threads("y[8*b + floordiv(t, 2)] = 1.0")),
              race + "one writes y[8*b + floordiv(t, 2)], another writes y[8*b + floordiv(t, 2)]");
    EXPECT_EQ(verdict(in_threads("s[8*mod(t, 2) + floordiv(t, 2)] = 1.0")), "fine");
    EXPECT_EQ(verdict(in_threads("for k < 2 { s[8*k + t] = 1.0 }")), "fine");
    EXPECT_EQ(verdict(in_threads("for k < 2 { s[2*t + k] = 1.0 }")), "fine");
    EXPECT_EQ(verdict(in_threads("for k < 3 { s[2*t + k] = 1.0 }")),
              race + "one writes s[k + 2*t], another writes s[k + 2*t]");
    EXPECT_EQ(verdict(in_threads("if t < 4 { s[t] += s[t + 4] }")), "fine");
    EXPECT_EQ(verdict(in_threads("if t < 5 { s[t] += s[t + 4] }")), race + "one writes s[t], another reads s[t + 4]");
    EXPECT_EQ(verdict(in_threads("s[t] = select(0 < t && t < 1, s[t - 1], 0.0)")), "fine");
    EXPECT_EQ(verdict(in_threads("s[t] = select(0 < t, s[t - 1], 0.0)")),
              race + "one writes s[t], another reads s[t - 1]");
    EXPECT_EQ(verdict(in_threads("if t < 4 { s[t] = 1.0 } else { s[t - 4] = 2.0 }")),
              race + "one writes s[t], another writes s[t - 4]");
    EXPECT_EQ(verdict("bound t < 4 on thread.x { bound u < 4 on thread.y { y[4*t + u] = 1.0 } }"), "fine");
    EXPECT_EQ(verdict("bound t < 4 on thread.x { bound u < 5 on thread.y { y[4*t + u] = 1.0 } }"),
              race + "one writes y[4*t + u], another writes y[4*t + u]");
    EXPECT_EQ(verdict("bound b < 8 on block.x { alloc s: f32[8] shared bound t < 8 on thread.x { s[t] = 1.0 } "
                      "bound u < 8 on thread.x { y[8*b + u] = s[7 - u] } }"),
              "fine");  // all threads are done before the next loops begin
}

// Rows and columns of a tile whose threads go by whole vectors or by elements, each as it is at an edge.
TEST(BoundRaces, OfThreadsThatGoTwoWays) {
    auto tile = [](int row, int column, int warp = 16) {
        auto all = [&](const std::string& r, const std::string& l, const std::string& value) {
            return fmt::format(
                "for {0} < 2 {{ for {1} < 16 {{ s[2*g + {2}*{0} + {3}*w + floordiv(p, 2), {1} + {4}*mod(p, 2)] = {5} "
                "}} }}",
                r, l, row, warp, column, value);
        };
        return "bound b < 8 on block.x { for i < N { alloc s: f32[256, 64] shared bound w < 4 on thread.z { "
               "bound g < 8 on thread.y { bound p < 4 on thread.x { "
               "if 32*i + 16*mod(p, 2) < N && 32*i + 16*mod(p, 2) + 15 < N { " +
               all("r", "l", "1.0") + " } else { " + all("q", "m", "2.0") + " } } } } } }";
    };
    EXPECT_EQ(verdict(tile(64, 16)), "fine");
    EXPECT_EQ(verdict(tile(65, 17)), "fine");
    EXPECT_THAT(verdict(tile(63, 16)), HasSubstr("two threads of a block"));
    EXPECT_THAT(verdict(tile(64, 15)), HasSubstr("two threads of a block"));
    EXPECT_THAT(verdict(tile(64, 16, 15)), HasSubstr("two threads of a block"));
}

TEST(BoundRaces, FromOneIterationToTheNext) {
    const std::string fill = "s[t] = x[8*k + t]", add = " l[] += s[7 - t]";
    auto loop = [&](const std::string& body) {
        return in_threads("alloc l: f32[] local l[] = 0.0 for k < 4 {" + body + "} y[8*b + t] = l[]");
    };
    EXPECT_EQ(verdict(loop(fill + kBarrier + add + kBarrier)), "fine");
    EXPECT_EQ(verdict(loop(fill + kBarrier + add)),
              "two threads of a block may touch one element: one writes s[t], another reads s[7 - t]");
    EXPECT_EQ(verdict(loop(fill + kBarrier + add + " if k < 3 {" + kBarrier + "}")), "fine");
    EXPECT_EQ(verdict(loop(fill + kBarrier + add + " if k < 2 {" + kBarrier + "}")),
              "two threads of a block may touch one element: one writes s[t], another reads s[7 - t]");
    // Two buffers by turns need one barrier.
    EXPECT_EQ(verdict(loop("s[8*mod(k, 2) + t] = x[8*k + t]" + kBarrier + " l[] += s[8*mod(k, 2) + 7 - t]")), "fine");
    // A barrier in some iterations only: what iterations without one do meets.
    EXPECT_EQ(
        verdict(loop("if k == 2 {" + kBarrier + "} s[mod(t + k, 8)] = 1.0")),
        "two threads of a block may touch one element: one writes s[mod(k + t, 8)], another writes s[mod(k + t, 8)]");
}

TEST(Barriers, MakeThreadsWait) {
    const std::string fill = "s[t] = x[8*b + t]", give = " y[8*b + t] = s[7 - t]";
    for (bool backwards : {false, true}) {
        SCOPED_TRACE(backwards);
        EXPECT_EQ(outcome(in_threads(fill + kBarrier + give), {.backwards = backwards}), "7");
        EXPECT_EQ(outcome(in_threads(fill + kBarrier + give), {.backwards = backwards, .races = Races::Find}), "7");
    }
    // Without it the result depends on the order.
    EXPECT_EQ(outcome(in_threads(fill + give), {.races = Races::Ignore}), "nan");
    EXPECT_EQ(outcome(in_threads(fill + give), {.backwards = true, .races = Races::Ignore}), "7");
    EXPECT_EQ(outcome(in_threads(fill + give), {}),
              "two threads of a block may touch one element: one writes s[t], another reads s[7 - t]");
    EXPECT_EQ(outcome(in_threads(fill + give), {.races = Races::Find}),
              "a race for element [4] of s: thread [4] writes what thread [3] has read, with no barrier between");
}

TEST(Barriers, AreMetInLoopsByThreadsWithTheirOwnMemory) {
    const std::string sums = in_threads("alloc l: f32[] local l[] = f32(t) for k < 3 { s[t] = l[]" + kBarrier +
                                        "l[] += s[mod(t + 1, 8)]" + kBarrier + "} y[8*b + t] = l[]");
    // 0 1 2 ... 7 -> 1 3 5 ... 13 7 -> 4 8 ... 20 8 -> 12 ...
    for (bool backwards : {false, true}) EXPECT_EQ(outcome(sums, {.backwards = backwards, .races = Races::Find}), "12");
}

TEST(Races, AreFoundWhileRunning) {
    auto found = [](const std::string& body) { return outcome(body, {.races = Races::Find}); };
    EXPECT_EQ(found("bound b < 8 on block.x { y[floordiv(b, 2)] = 1.0 }"),
              "a race for element [0] of y: block [1] writes what block [0] has written");
    EXPECT_EQ(found("bound b < 8 on block.x { y[b] = y[b + 1] }"),
              "a race for element [1] of y: block [1] writes what block [0] has read");
    EXPECT_EQ(found("bound b < 2 on block.x { bound c < 2 on block.y { y[b] = 1.0 } }"),
              "a race for element [0] of y: block [0, 1] writes what block [0, 0] has written");
    EXPECT_EQ(found(in_threads("s[t] = 1.0 s[mod(t + 1, 8)] = 2.0")),
              "a race for element [1] of s: thread [1] writes what thread [0] has written, with no barrier between");
    EXPECT_EQ(found("parallel i < 4 { y[floordiv(i, 2)] = 1.0 }"),
              "a race for element [0] of y: iteration [1] writes what iteration [0] has written");
    EXPECT_EQ(found("bound b < 4 on block.x { y[b] = 1.0 } bound c < 4 on block.x { y[c] = y[3 - c] + 1.0 }"),
              "a race for element [1] of y: block [2] reads what block [1] has written");
    EXPECT_EQ(found("bound b < 4 on block.x { y[b] = x[b] } bound c < 4 on block.x { y[c + 4] = y[3 - c] } "
                    "y[0] = y[4]"),
              "3");
}

TEST(Threads, AreNotTooMany) {
    EXPECT_EQ(outcome("bound t < 1048576 on thread.x { if t < 1 { y[t] = 1.0 } }", {}),
              "a block has 1048576 threads, more than the interpreter runs");
}

}  // namespace
}  // namespace tessera::bound_test
