// Takes a matrix product from plain loops to near the CPU's peak, one schedule primitive after the other. Each step
// prints what changed, its loops, and its speed on one core:
//
//     build/bin/tutorial_matmul [size] [--loops]
//
// The Compute specifies what is computed: c[m,n] = sum over k of a[m,k] * b[k,n]. It never changes. The Schedule
// specifies how. Every primitive is checked when it is applied, and lower() turns both into the kernel that is printed
// and compiled.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>

#include "kernel/schedule/schedule.h"
#include "llvm/compile_kernels.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cpu_device.h"

namespace tessera {
namespace {

// A rejected primitive is a mistake in this program: prints the reason and exits.
template <typename T>
T ok(Result<T> result) {
    if (!result.ok()) {
        fmt::print(stderr, "{}\n", result.error().to_string());
        std::exit(1);
    }
    return std::move(result).value();
}
void ok(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "{}\n", status.error().to_string());
    std::exit(1);
}

Compute matmul(int64_t m, int64_t n, int64_t k) {
    Compute c;
    c.name = "matmul";
    c.buffers = {{.name = "a", .shape = {m, k}}, {.name = "b", .shape = {k, n}}, {.name = "c", .shape = {m, n}}};
    c.params = 3;
    c.known = {false, true, false};  // b is constant (weights): work on b alone is done at load time
    Expr i = index_var("m", m), j = index_var("n", n), l = index_var("k", k);
    c.stages.push_back({.name = "mm",
                        .buffer = 2,
                        .axes = {{i, m}, {j, n}},
                        .reduce = {{l, k}},
                        .combine = ReduceOp::Sum,
                        .store = {i, j},
                        .value = load(0, DType::f32, {i, l}) * load(1, DType::f32, {l, j})});
    return c;
}

struct Memory {
    explicit Memory(int64_t bytes) : data(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))) {}
    ~Memory() { std::free(data); }
    Memory(const Memory&) = delete;
    void* data;
};

double seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// Lowers and compiles a schedule, checks a few elements, and returns GFLOP/s: the best of several runs.
double measure(const Schedule& schedule, int64_t m, int64_t n, int64_t k) {
    Lowered lowered = ok(lower(schedule));
    std::vector<Kernel> kernels{lowered.kernel};
    if (lowered.prepare.body) kernels.push_back(lowered.prepare);
    std::shared_ptr<CompiledModule> module = ok(compile_kernels(kernels, {}));
    std::vector<std::unique_ptr<Memory>> memory;
    std::vector<void*> buffers;
    for (size_t i = 0; i < lowered.kernel.params; ++i) {
        int64_t count = 1;
        for (const Expr& size : lowered.kernel.buffers[i].shape) count *= *size.as_int();
        memory.push_back(std::make_unique<Memory>(count * 4));
        buffers.push_back(memory.back()->data);
        auto* values = static_cast<float*>(buffers.back());
        for (int64_t e = 0; e < count; ++e) values[e] = static_cast<float>((e * 7 + int64_t(i)) % 13 - 6);
    }
    std::unique_ptr<Stream> stream = ok(cpu_device().make_stream(1));
    auto run = [&](const CompiledKernel& kernel, const std::vector<void*>& args) {
        const std::vector<Launch> launches = ok(bind_launches(kernel, {}));
        ok(stream->reserve(most_local_bytes(launches)));
        for (const Launch& launch : launches) ok(stream->launch(launch, {args, {}}));
    };
    if (lowered.prepare.body) {
        std::vector<void*> args;
        for (int slot : lowered.prepare_args) args.push_back(buffers[static_cast<size_t>(slot)]);
        run(module->kernels()[1], args);
    }
    double best = 1e9;
    double begin = seconds();
    for (int round = 0; round < 50 && (round < 2 || seconds() - begin < 0.6); ++round) {
        double start = seconds();
        run(module->kernels()[0], buffers);
        best = std::min(best, seconds() - start);
    }
    const auto *a = static_cast<float*>(buffers[0]), *b = static_cast<float*>(buffers[1]),
               *c = static_cast<float*>(buffers[2]);
    for (int64_t i : {int64_t{0}, m / 2, m - 1})
        for (int64_t j : {int64_t{0}, n / 3, n - 1}) {
            double sum = 0;
            for (int64_t l = 0; l < k; ++l) sum += double(a[i * k + l]) * b[l * n + j];
            if (std::abs(sum - c[i * n + j]) > 1e-2 * (1 + std::abs(sum))) {
                fmt::print(stderr, "c[{}, {}] is {}, not {}\n", i, j, c[i * n + j], sum);
                std::exit(1);
            }
        }
    return 2.0 * double(m) * double(n) * double(k) / best * 1e-9;
}

// Panels of `width` rows: the element (row, k) is at [row / width][k][row % width], so that a tile reads contiguous
// memory.
IndexMap panels(int64_t rows, int64_t depth, int64_t width) {
    Expr r = index_var("r", rows), k = index_var("k", depth);
    return {{r, k}, {floor_div(r, width), k, mod(r, width)}, {ceil_div(rows, width), depth, width}};
}

struct Step {
    std::string title;
    std::function<void(Schedule&)> apply;
};

std::vector<Step> steps(int64_t n, const Machine& machine) {
    const int64_t lanes = machine.vector_bytes / 4;
    // The register tile: as many accumulators as fit beside the operands.
    const int64_t mr = machine.lane_multiply ? 12 : machine.vector_registers >= 32 ? 14 : 6, nr = 2 * lanes;
    const int64_t depth = n;
    auto rounded = [](int64_t x, int64_t to) { return (x + to - 1) / to * to; };
    return {
        {"1. Plain loops: each element is a sum over a column of b, whose elements are far apart in memory.",
         [](Schedule&) {}},

        {"2. reorder, split, vectorize: n is innermost, so that b and c are accessed in contiguous vectors. The init "
         "is "
         "before k now.",
         [=](Schedule& s) {
             auto [vectors, lane] = ok(s.split({"mm.n"}, lanes));
             ok(s.reorder({{"mm.m"}, {"mm.k"}, vectors, lane}));
             ok(s.vectorize(lane));
             ok(s.loop_partition(vectors));  // peels the last, incomplete vector
         }},

        {"3. cache_write, tile, compute_at, unroll: a tile of accumulators stays in registers for all of k, and is "
         "stored once.",
         [=](Schedule& s) {
             std::string out = ok(s.cache_write("mm", Scope::Register));
             std::vector<Loop> tile = ok(s.tile({out + ".m"}, {out + ".n"}, 4, 4 * lanes));
             ok(s.reorder({tile[1], tile[0]}));  // a strip of b is reused for all rows
             ok(s.compute_at("mm", tile[0]));
             auto [vectors, lane] = ok(s.split({"mm.n"}, lanes));
             ok(s.reorder({{"mm.k"}, {"mm.m"}, vectors, lane}));
             ok(s.vectorize(lane));
             ok(s.unroll(vectors));
             ok(s.unroll({"mm.m"}));
             auto [out_vectors, out_lane] = ok(s.split(tile[3], lanes));
             ok(s.vectorize(out_lane));
             ok(s.unroll(out_vectors));
             ok(s.unroll(tile[2]));
         }},

        {"4. reindex, pad, transform_layout: both operands are packed into panels, a for each task of rows, and b, "
         "which is constant, at load time. Panels are padded, so that the sums need no guards.",
         [=](Schedule& s) {
             std::string out = ok(s.cache_write("mm", Scope::Register));
             std::string a = ok(s.reindex("mm", 0)), b = ok(s.reindex("mm", 1));
             ok(s.pad("mm", {mr, nr, 1}));
             ok(s.transform_layout(a, panels(rounded(n, mr), depth, mr)));
             ok(s.transform_layout(b, panels(rounded(n, nr), depth, nr)));
             auto [task, rows] = ok(s.split({out + ".m"}, 16 * mr));
             auto [row_tile, row] = ok(s.split(rows, mr));
             auto [column_tile, columns] = ok(s.split({out + ".n"}, nr));
             auto [out_vectors, out_lane] = ok(s.split(columns, lanes));
             ok(s.reorder({task, column_tile, row_tile, row, out_vectors, out_lane}));
             ok(s.vectorize(out_lane));
             ok(s.unroll(out_vectors));
             ok(s.unroll(row));
             ok(s.compute_at("mm", row_tile));
             auto [vectors, lane] = ok(s.split({"mm.n"}, lanes));
             ok(s.reorder({{"mm.k"}, {"mm.m"}, vectors, lane}));
             ok(s.vectorize(lane));
             ok(s.unroll(vectors));
             ok(s.unroll({"mm.m"}));
             ok(s.compute_at(a, task));
             auto [panel, within] = ok(s.split({a + ".m"}, mr));
             ok(s.reorder({panel, {a + ".k"}, within}));
             ok(s.unroll(within));
         }},

        {"5. loop_partition, annotate, cache_read: complete tiles are stored without guards; k is unrolled; on CPUs "
         "that "
         "multiply by lane, a's panel is loaded in vectors.",
         [=](Schedule& s) {
             ok(s.loop_partition({"mm_out.m.i.i"}));
             ok(s.annotate({"mm.k"}, "unroll", 4));
             if (!machine.lane_multiply) return;
             int packed = -1;
             for (const Stage& stage : s.compute().stages)
                 if (stage.name == "mm_a") packed = stage.buffer;
             std::string lanes_of_a = ok(s.cache_read("mm", packed, Scope::Register));
             ok(s.compute_at(lanes_of_a, {"mm.k"}));
             ok(s.vectorize({lanes_of_a + ".m"}));
         }},

        {"6. parallel: one task for each block of rows, divided among all cores (measured here on one core).",
         [](Schedule& s) { ok(s.parallel({"mm_out.m.o"})); }},
    };
}

int run(int argc, char** argv) {
    int64_t n = 768;
    bool loops = false;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--loops") == 0)
            loops = true;
        else
            n = std::max(1l, std::atol(argv[i]));
    }
    const Machine machine = ok(describe_target("host"));
    const Compute compute = matmul(n, n, n);
    Schedule schedule(compute);
    std::vector<Step> all = steps(n, machine);
    for (size_t i = 0; i < all.size(); ++i) {
        if (i < 4)
            schedule = Schedule(compute);  // each of the first four starts anew; the last two continue from the fourth
        all[i].apply(schedule);
        fmt::print("{}\n", all[i].title);
        if (loops) fmt::print("\n{}\n{}\n", schedule.print_trace(), to_string(ok(lower(schedule)).kernel));
        fmt::print("   {:.1f} GFLOP/s\n\n", measure(schedule, n, n, n));
    }
    return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
