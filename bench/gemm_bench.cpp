// Matrix products of one list of shapes: ours against OpenBLAS, where its library is installed, and against the peak of
// multiply-adds measured in the same run. Rounds are interleaved; the median of each counts. B is packed ahead in one
// column (a weight), and at run time in another, as OpenBLAS has it.
//
//   gemm_bench [--threads N] [--rounds N] [m,n,k ...]
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>

#include "base/thread_pool.h"
#include "kernel/default_schedule.h"
#include "llvm/compile_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {
namespace {

// Of this thread's processor time where it works alone, so that others on the machine count less.
bool alone = true;
double now() {
    timespec t;
    clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

template <typename T>
T ok(Result<T> r) {
    if (!r.ok()) {
        fmt::print(stderr, "{}\n", r.error().to_string());
        std::exit(1);
    }
    return std::move(r).value();
}

// Independent multiply-adds in registers, `steps` rounds; gives how many floating-point operations that were.
#if defined(__aarch64__)
#define TESSERA_FMA8(a, b, c, d, e, f, g, h)                                    \
    "fmla v" #a ".4s, v0.4s, v1.4s\n fmla v" #b ".4s, v0.4s, v1.4s\n fmla v" #c \
    ".4s, v0.4s, v1.4s\n"                                                       \
    "fmla v" #d ".4s, v0.4s, v1.4s\n fmla v" #e ".4s, v0.4s, v1.4s\n fmla v" #f \
    ".4s, v0.4s, v1.4s\n"                                                       \
    "fmla v" #g ".4s, v0.4s, v1.4s\n fmla v" #h ".4s, v0.4s, v1.4s\n"
double spin(int64_t steps) {
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
__attribute__((target("avx512f"))) double spin_wide(int64_t steps) {
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
__attribute__((target("avx2,fma"))) double spin_narrow(int64_t steps) {
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
double spin(int64_t steps) { return __builtin_cpu_supports("avx512f") ? spin_wide(steps) : spin_narrow(steps); }
#endif

// On all threads at once.
double measure_peak(int threads) {
    std::vector<double> done(size_t(threads), 0.0);
    double start = now();
    std::vector<std::thread> others;
    auto work = [&](int i) { done[size_t(i)] = spin(4'000'000); };
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
    for (auto& t : others) t.join();
    double time = now() - start, total = 0;
    for (double d : done) total += d;
    return total / time;
}

struct AlignedFloats {
    explicit AlignedFloats(int64_t count)
        : data(static_cast<float*>(std::aligned_alloc(64, size_t(std::max<int64_t>(count * 4, 64) + 63) / 64 * 64))) {
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

struct Shape3 {
    int64_t m, n, k;
};

Compute product(Shape3 s, bool known) {
    Expr i = index_var("i", s.m), j = index_var("j", s.n), k = index_var("k", s.k);
    Compute c;
    c.name = "gemm";
    c.buffers = {{"a", DType::f32, {s.m, s.k}}, {"b", DType::f32, {s.k, s.n}}, {"c", DType::f32, {s.m, s.n}}};
    c.params = 3;
    c.known = {false, known, false};
    Stage stage;
    stage.name = "mm";
    stage.buffer = 2;
    stage.axes = {{i, s.m}, {j, s.n}};
    stage.reduce = {{k, s.k}};
    stage.store = {i, j};
    stage.value = load(0, DType::f32, {i, k}) * load(1, DType::f32, {k, j});
    c.stages = {stage};
    return c;
}

// A scheduled and compiled Compute with buffers of its own for what it prepares and its scratch.
class Compiled {
  public:
    Compiled(const Compute& compute, int threads, std::vector<float*> params) : threads_(threads) {
        ScheduleOptions options;
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
        for (const auto& kernel : module_->kernels())
            for (const Launch& launch : kernel.launches)
                scratch_bytes_ = std::max(scratch_bytes_, launch.scratch_bytes.as_int().value());
        for (int i = 0; i < threads; ++i) owned_.push_back(std::make_unique<AlignedFloats>(scratch_bytes_ / 4 + 16));
        if (prepares) {
            std::vector<void*> args;
            for (int slot : lowered.prepare_args) args.push_back(buffers_[size_t(slot)]);
            run(module_->kernels()[1], args);
        }
    }
    void run() { run(module_->kernels()[0], buffers_); }
    const std::string& text() const { return text_; }

  private:
    void run(const CompiledKernel& kernel, const std::vector<void*>& buffers) {
        Team team(threads_);
        for (const Launch& launch : kernel.launches) {
            int64_t extent = launch.extent.as_int().value();
            auto piece = [&](int64_t begin, int64_t end, int worker) {
                float* scratch = owned_[owned_.size() - 1 - size_t(worker)]->data;
                launch.function(buffers.data(), nullptr, begin, end, reinterpret_cast<char*>(scratch));
            };
            if (!launch.parallel || threads_ == 1 || extent < 2) {
                piece(0, extent, 0);
                continue;
            }
            team.run(
                extent,
                [](void* context, int64_t begin, int64_t end, int worker) {
                    (*static_cast<decltype(piece)*>(context))(begin, end, worker);
                },
                &piece);
        }
    }

    int threads_;
    std::shared_ptr<CompiledModule> module_;
    std::vector<void*> buffers_;
    std::vector<std::unique_ptr<AlignedFloats>> owned_;
    int64_t scratch_bytes_ = 0;
    std::string text_;
};

// cblas_sgemm of the installed library, in row-major order.
class OpenBlas {
  public:
    explicit OpenBlas(int threads) {
        void* library = dlopen("libopenblas.so.0", RTLD_NOW);
        if (!library) return;
        sgemm_ = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
        if (auto set = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"))) set(threads);
    }
    bool found() const { return sgemm_ != nullptr; }
    void run(Shape3 s, const float* a, const float* b, float* c) const {
        sgemm_(101, 111, 111, int(s.m), int(s.n), int(s.k), 1, a, int(s.k), b, int(s.n), 0, c, int(s.n));
    }

  private:
    using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                           int);
    Sgemm sgemm_ = nullptr;
};

double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
    return v[v.size() / 2];
}

void compare(Shape3 s, int threads, int rounds, const OpenBlas& blas, bool print) {
    AlignedFloats a(s.m * s.k), b(s.k * s.n), c(s.m * s.n), d(s.m * s.n), e(s.m * s.n);
    Compiled ahead(product(s, true), threads, {a.data, b.data, c.data});
    Compiled fresh(product(s, false), threads, {a.data, b.data, d.data});
    if (print) fmt::print("{}\n", ahead.text());
    const double flops = 2.0 * double(s.m) * double(s.n) * double(s.k);
    const int repeats = std::max(1, int(2e6 / flops));
    std::vector<double> peak, times[3];
    auto time = [&](std::vector<double>& list, const std::function<void()>& f) {
        f();
        double start = now();
        for (int i = 0; i < repeats; ++i) f();
        list.push_back((now() - start) / repeats);
    };
    for (int r = 0; r < rounds; ++r) {
        if (r % 8 == 0) peak.push_back(measure_peak(threads));
        time(times[0], [&] { ahead.run(); });
        time(times[1], [&] { fresh.run(); });
        if (blas.found()) time(times[2], [&] { blas.run(s, a.data, b.data, e.data); });
    }
    double error = 0;
    if (blas.found())
        for (int64_t i = 0; i < s.m * s.n; ++i)
            error = std::max({error, double(std::abs(c.data[i] - e.data[i])), double(std::abs(d.data[i] - e.data[i]))});
    double top = median(peak), mine = median(times[0]), run = median(times[1]);
    double theirs = blas.found() ? median(times[2]) : 0;
    fmt::print("{:>5} x {:>5} x {:>5} | {:7.1f} | {:7.1f} {:5.1f}% | {:7.1f} {:5.1f}%", s.m, s.n, s.k, top / 1e9,
               flops / mine / 1e9, 100 * flops / mine / top, flops / run / 1e9, 100 * flops / run / top);
    if (blas.found())
        fmt::print(" | {:7.1f} {:5.1f}% | {:5.2f}x {:5.2f}x{}", flops / theirs / 1e9, 100 * flops / theirs / top,
                   theirs / mine, theirs / run, error > 1e-3 * std::sqrt(double(s.k)) ? "  WRONG" : "");
    fmt::print("\n");
    std::fflush(stdout);
}

int main(int argc, char** argv) {
    int threads = 1, rounds = 15;
    bool print = false;
    std::vector<Shape3> shapes;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = std::atoi(argv[++i]);
        else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
            rounds = std::atoi(argv[++i]);
        else if (!std::strcmp(argv[i], "--print"))
            print = true;
        else if (Shape3 s; std::sscanf(argv[i], "%ld,%ld,%ld", &s.m, &s.n, &s.k) == 3)
            shapes.push_back(s);
        else {
            fmt::print(stderr, "gemm_bench [--threads N] [--rounds N] [--print] [m,n,k ...]\n");
            return 2;
        }
    }
    if (shapes.empty())
        shapes = {{1024, 1024, 1024}, {2048, 2048, 2048}, {64, 64, 64},    {1, 4096, 4096}, {16, 4096, 4096},
                  {128, 3072, 768},   {128, 768, 3072},   {3136, 64, 576}, {49, 512, 4608}, {196, 256, 2304},
                  {784, 128, 1152},   {12544, 64, 147},   {127, 131, 137}, {503, 509, 521}, {7, 11, 13},
                  {31, 1021, 61},     {12, 8, 1000},      {1, 1000, 2048}, {3, 3, 3}};
    alone = threads == 1;
    OpenBlas blas(threads);
    fmt::print("{} thread{}; GFLOP/s and share of the measured peak{}\n", threads, threads > 1 ? "s" : "",
               blas.found() ? "" : " (OpenBLAS is not installed)");
    fmt::print("    m x     n x     k |    peak |  B packed ahead |  B packed in run{}\n",
               blas.found() ? " |        OpenBLAS | speed against it" : "");
    for (Shape3 s : shapes) compare(s, threads, rounds, blas, print);
    return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::main(argc, argv); }
