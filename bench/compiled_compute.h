// Computes as default schedules compile them for this machine, and what their speed is measured against.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>

#include "kernel/cpu/default_schedule.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cpu_device.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::bench {

inline double seconds_of(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// Of this thread's processor time where it works alone, so that others on the machine count less.
inline bool alone = true;
inline double now() { return seconds_of(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC); }

inline void check(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "{}\n", status.error().to_string());
    std::exit(1);
}

template <typename T>
T ok(Result<T> r) {
    if (!r.ok()) check(r.error());
    return std::move(r).value();
}

// Independent multiply-adds in registers, `steps` iterations; gives how many floating-point operations that were.
#if defined(__aarch64__)
#define TESSERA_FMA8(a, b, c, d, e, f, g, h)                                    \
    "fmla v" #a ".4s, v0.4s, v1.4s\n fmla v" #b ".4s, v0.4s, v1.4s\n fmla v" #c \
    ".4s, v0.4s, v1.4s\n"                                                       \
    "fmla v" #d ".4s, v0.4s, v1.4s\n fmla v" #e ".4s, v0.4s, v1.4s\n fmla v" #f \
    ".4s, v0.4s, v1.4s\n"                                                       \
    "fmla v" #g ".4s, v0.4s, v1.4s\n fmla v" #h ".4s, v0.4s, v1.4s\n"
inline double spin(int64_t steps) {
    alignas(32) const float factors[8] = {};
    // Factors that were just loaded come faster than those that stay in a register.
    for (int64_t i = 0; i < steps; ++i)
        asm volatile("ldp q0, q1, [%0]\n" TESSERA_FMA8(8, 9, 10, 11, 12, 13, 14, 15)
                         TESSERA_FMA8(16, 17, 18, 19, 20, 21, 22, 23) TESSERA_FMA8(24, 25, 26, 27, 28, 29, 30, 31)
                     :
                     : "r"(factors)
                     : "v0", "v1", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19",
                       "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
    return double(steps) * 24 * 8;
}
#elif defined(__x86_64__)
__attribute__((target("avx512f"))) inline double spin_wide(int64_t steps) {
    __m512 acc[24];
    for (auto& a : acc) a = _mm512_set1_ps(1e-3f);
    __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(1e-3f);
    for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 24
        for (int j = 0; j < 24; ++j) acc[j] = _mm512_fmadd_ps(x, y, acc[j]);
        asm volatile("" : "+v"(x), "+v"(y));
    }
    for (auto& a : acc) asm volatile("" ::"v"(a));
    return double(steps) * 24 * 32;
}
__attribute__((target("avx2,fma"))) inline double spin_narrow(int64_t steps) {
    __m256 acc[12];
    for (auto& a : acc) a = _mm256_set1_ps(1e-3f);
    __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(1e-3f);
    for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; ++j) acc[j] = _mm256_fmadd_ps(x, y, acc[j]);
        asm volatile("" : "+x"(x), "+x"(y));
    }
    for (auto& a : acc) asm volatile("" ::"x"(a));
    return double(steps) * 12 * 16;
}
inline double spin(int64_t steps) { return __builtin_cpu_supports("avx512f") ? spin_wide(steps) : spin_narrow(steps); }
#endif

// On all threads at once, each by its own processor time: a core that others take part of is as fast as it was.
inline double measure_peak(int threads, int64_t steps = 4'000'000) {
    std::vector<double> speed(size_t(threads), 0.0);
    auto work = [&](int i) {
        double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
        double done = spin(steps);
        speed[size_t(i)] = done / (seconds_of(CLOCK_THREAD_CPUTIME_ID) - start);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
    for (auto& t : others) t.join();
    double total = 0;
    for (double s : speed) total += s;
    return total;
}

// Large pages where the system has them, as the runtime asks for.
struct AlignedFloats {
    explicit AlignedFloats(int64_t count) {
        const size_t page = 2 << 20, bytes = (size_t(std::max<int64_t>(count, 16)) * 4 + page - 1) / page * page;
        data = static_cast<float*>(std::aligned_alloc(page, bytes));
        madvise(data, bytes, MADV_HUGEPAGE);
        uint32_t state = 1;
        for (int64_t i = 0; i < count; ++i) {
            state = state * 1664525 + 1013904223;
            data[i] = float(state >> 8) / float(1 << 23) - 1;
        }
    }
    ~AlignedFloats() { std::free(data); }
    AlignedFloats(const AlignedFloats&) = delete;
    float* data;
};

// A scheduled and compiled Compute with buffers of its own for what it prepares and its scratch.
class Compiled {
  public:
    Compiled(const Compute& compute, int threads, std::vector<float*> params)
        : stream_(ok(cpu_device().make_stream(threads))) {
        CpuScheduleOptions options;
        options.machine = ok(describe_target("host"));
        options.threads = threads;
        Schedule schedule = ok(default_schedule(compute, options));
        Lowered lowered = ok(lower(schedule));
        text_ = schedule.print_trace() + "\n" + to_string(lowered.kernel);
        bool prepares = lowered.prepare.body != nullptr;
        std::vector<Kernel> kernels{lowered.kernel};
        if (prepares) kernels.push_back(lowered.prepare);
        module_ = ok(compile_kernels(kernels, {}));
        for (size_t slot = 0; slot < lowered.kernel.params; ++slot) {
            if (slot < params.size()) {
                buffers_.push_back(params[slot]);
                continue;
            }
            Expr count = 1;
            for (const Expr& d : lowered.kernel.buffers[slot].shape) count = count * d;
            owned_.push_back(std::make_unique<AlignedFloats>(count.as_int().value()));
            buffers_.push_back(owned_.back()->data);
        }
        for (const CompiledKernel& kernel : module_->kernels()) {
            launches_.push_back(ok(bind_launches(kernel, {})));
            check(stream_->reserve(most_local_bytes(launches_.back())));
        }
        if (prepares) {
            std::vector<void*> args;
            for (int slot : lowered.prepare_args) args.push_back(buffers_[size_t(slot)]);
            run(launches_[1], args);
        }
    }
    void run() { run(launches_[0], buffers_); }
    const std::string& text() const { return text_; }

  private:
    void run(const std::vector<Launch>& launches, const std::vector<void*>& buffers) {
        for (const Launch& launch : launches) check(stream_->launch(launch, {buffers, {}}));
        check(stream_->synchronize());
    }

    std::unique_ptr<Stream> stream_;
    std::shared_ptr<CompiledModule> module_;
    std::vector<void*> buffers_;
    std::vector<std::unique_ptr<AlignedFloats>> owned_;
    std::vector<std::vector<Launch>> launches_;  // by kernel
    std::string text_;
};

inline double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
    return v[v.size() / 2];
}

}  // namespace tessera::bench
