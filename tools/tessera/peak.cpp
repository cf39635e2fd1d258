#include "peak.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace tessera::cli {
namespace {

constexpr int64_t kRounds = 2'000'000;

#if defined(__x86_64__)
#define TESSERA_OPAQUE(v) asm volatile("" : "+v"(v))
#else
#define TESSERA_OPAQUE(v) asm volatile("" : "+w"(v))
#endif

// Sums of products, as many independent ones as registers hold: latency is hidden.
template <typename Vector, int kChains>
[[gnu::always_inline]] inline float chains(int64_t rounds) {
    Vector sums[kChains];
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = Vector{} + float(i);
    Vector a = Vector{} + 0.999f, b = Vector{} + 1e-3f;
    for (int64_t r = 0; r < rounds; ++r) {
        TESSERA_OPAQUE(a);  // the product cannot be taken out of the loop
#pragma GCC unroll 24
        for (int i = 0; i < kChains; ++i) sums[i] += a * b;
    }
    Vector all = {};
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) all += sums[i];
    return all[0];
}

using Floats4 [[gnu::vector_size(16)]] = float;
#if defined(__x86_64__)
using Floats8 [[gnu::vector_size(32)]] = float;
using Floats16 [[gnu::vector_size(64)]] = float;
[[gnu::target("avx512f")]] float chains_16(int64_t rounds) { return chains<Floats16, 24>(rounds); }
[[gnu::target("avx2,fma")]] float chains_8(int64_t rounds) { return chains<Floats8, 12>(rounds); }
float chains_4(int64_t rounds) { return chains<Floats4, 12>(rounds); }
#else
float chains_4(int64_t rounds) { return chains<Floats4, 24>(rounds); }
#endif

struct Loop {
    float (*run)(int64_t rounds);
    int lanes, chains;
};

Loop widest_loop() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return {chains_16, 16, 24};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {chains_8, 8, 12};
    return {chains_4, 4, 12};
#else
    return {chains_4, 4, 24};
#endif
}

// The shortest of a few tries.
template <typename F>
double fastest(int tries, F&& f) {
    double best = 1e30;
    for (int i = 0; i < tries; ++i) {
        auto began = std::chrono::steady_clock::now();
        f();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    return best;
}

volatile float sink_float;
volatile uint64_t sink_int;

}  // namespace

Peak measure_peak(int threads) {
    Team team(threads);
    int n = team.threads();
    Loop loop = widest_loop();
    double seconds = fastest(8, [&] { team.each(n, [&](int64_t, int) { sink_float = loop.run(kRounds); }); });
    Peak peak{2.0 * loop.chains * loop.lanes * double(kRounds) * n / seconds, 0, n};

    constexpr int64_t kWords = int64_t{1} << 21;  // 16 MB of each thread's
    std::vector<std::vector<uint64_t>> blocks(n);
    team.each(n, [&](int64_t i, int) { blocks[i].assign(kWords, uint64_t(i)); });
    seconds = fastest(5, [&] {
        team.each(n, [&](int64_t i, int) {
            using Words [[gnu::vector_size(64)]] = uint64_t;
            const auto* words =
                reinterpret_cast<const Words*>((reinterpret_cast<uintptr_t>(blocks[i].data()) + 63) & ~63ull);
            Words sums[2] = {};
            for (int64_t w = 0; w + 2 < kWords / 8; w += 2) {
                sums[0] += words[w];
                sums[1] += words[w + 1];
            }
            sink_int = (sums[0] + sums[1])[0];
        });
    });
    peak.bytes = double(kWords) * 8 * n / seconds;
    return peak;
}

}  // namespace tessera::cli
