// Matrix products of one list of shapes: ours against OpenBLAS, where its library is installed, and against the peak of
// multiply-adds. Rounds are interleaved. On a machine that others use too, a core is faster at one time than at
// another: each product is compared with the peak just before and just after it, and the median of these shares counts.
// B is packed ahead in one column (a weight), and at run time in another, as OpenBLAS has it.
//
//   gemm_bench [--threads N] [--rounds N] [--print] [m,n,k ...]
#include <dlfcn.h>

#include "compiled_compute.h"

namespace tessera::bench {
namespace {

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

// Threads of OpenBLAS, and ours, spin for a while after a product and would take part of a core from who comes next.
void wait_until_idle() {
    const timespec nap{0, 2'000'000};
    double worked = 1;
    for (int i = 0; i < 500 && worked > 2e-4; ++i) {
        double before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        nanosleep(&nap, nullptr);
        worked = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before;
    }
}

constexpr int64_t kPeakSteps = 100'000;  // half a millisecond

struct Measured {
    std::vector<double> rates, shares;  // FLOP/s, and beside the peak around it
};

void compare(Shape3 s, int threads, int rounds, const OpenBlas& blas, bool print) {
    AlignedFloats a(s.m * s.k), b(s.k * s.n), c(s.m * s.n), d(s.m * s.n), e(s.m * s.n);
    Compiled ahead(product(s, true), threads, {a.data, b.data, c.data});
    Compiled fresh(product(s, false), threads, {a.data, b.data, d.data});
    if (print) fmt::print("{}\n", ahead.text());
    const double flops = 2.0 * double(s.m) * double(s.n) * double(s.k);
    const int repeats = std::max(1, int(2e6 / flops));
    std::vector<double> peak;
    Measured measured[3];
    auto time = [&](Measured& of, const std::function<void()>& f) {
        if (threads > 1) wait_until_idle();
        f();
        const double before = measure_peak(threads, kPeakSteps), start = now();
        for (int i = 0; i < repeats; ++i) f();
        const double rate = flops * repeats / (now() - start);
        peak.push_back((before + measure_peak(threads, kPeakSteps)) / 2);
        of.rates.push_back(rate);
        of.shares.push_back(rate / peak.back());
    };
    for (int r = 0; r < rounds; ++r) {
        time(measured[0], [&] { ahead.run(); });
        time(measured[1], [&] { fresh.run(); });
        if (blas.found()) time(measured[2], [&] { blas.run(s, a.data, b.data, e.data); });
    }
    double error = 0;
    if (blas.found())
        for (int64_t i = 0; i < s.m * s.n; ++i)
            error = std::max({error, double(std::abs(c.data[i] - e.data[i])), double(std::abs(d.data[i] - e.data[i]))});
    fmt::print("{:>5} x {:>5} x {:>5} | {:7.1f}", s.m, s.n, s.k, median(peak) / 1e9);
    for (const Measured& m : measured)
        if (!m.rates.empty()) fmt::print(" | {:7.1f} {:5.1f}%", median(m.rates) / 1e9, 100 * median(m.shares));
    if (blas.found())
        fmt::print(" | {:5.2f}x {:5.2f}x{}", median(measured[0].shares) / median(measured[2].shares),
                   median(measured[1].shares) / median(measured[2].shares),
                   error > 1e-3 * std::sqrt(double(s.k)) ? "  WRONG" : "");
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
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::main(argc, argv); }
