// Default schedules as machine code for this processor mean the same as plain nests interpreted.
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernel/cpu/default_schedule.h"
#include "kernel/run_sample.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cpu_device.h"

namespace tessera::default_compiled_test {
namespace {

using namespace sample;

struct Free {
    void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

Memory aligned_memory(int64_t bytes) {
    return Memory(static_cast<char*>(std::aligned_alloc(64, size_t(bytes / 64 + 1) * 64)));
}

int64_t bytes_of(const Buffer& b, const SymbolValues& symbols) {
    int64_t n = int64_t(dtype_bytes(b.dtype));
    for (const Expr& d : b.shape) n *= *evaluate_int(d, symbols);
    return n;
}

// Every launch in pieces, as threads would take them, the last piece first.
void run(const CompiledKernel& kernel, const std::vector<void*>& buffers, const std::vector<std::string>& names,
         const SymbolValues& symbols) {
    std::vector<int64_t> values;
    for (const std::string& n : names) values.push_back(symbols.at(n));
    auto launches = bind_launches(kernel, symbols);
    ASSERT_TRUE(launches.ok()) << launches.error().to_string();
    for (const Launch& launch : *launches) {
        Memory scratch = aligned_memory(launch.local_bytes);
        if (!launch.spread) {
            run_range(launch, {buffers, values}, 0, launch.grid.x, scratch.get());
            continue;
        }
        for (int64_t i = launch.grid.x; i-- > 0;) run_range(launch, {buffers, values}, i, i + 1, scratch.get());
    }
}

void check(const Compute& compute, const SymbolValues& symbols = {}) {
    std::vector<Tensor> inputs = random_parameters(compute, symbols), expected = inputs;
    ASSERT_NO_FATAL_FAILURE(run_kernel(plain_nests(compute), expected, symbols));
    auto machine = describe_target("host");
    ASSERT_TRUE(machine.ok());
    for (int threads : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} threads, {}", threads, compute.name));
        auto schedule = default_schedule(compute, {{*machine, threads}});
        ASSERT_TRUE(schedule.ok()) << schedule.error().to_string();
        auto lowered = lower(*schedule);
        ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
        std::vector<Kernel> kernels{lowered->kernel};
        if (lowered->prepare.body) kernels.push_back(lowered->prepare);
        auto module = compile_kernels(kernels, {});
        ASSERT_TRUE(module.ok()) << module.error().to_string() << "\n" << to_string(lowered->kernel);

        std::vector<Memory> memory;
        std::vector<void*> buffers;
        for (size_t i = 0; i < lowered->kernel.params; ++i) {
            int64_t bytes = bytes_of(lowered->kernel.buffers[i], symbols);
            memory.push_back(aligned_memory(bytes));
            buffers.push_back(memory.back().get());
            std::memset(buffers.back(), 0xff, size_t(bytes));  // NaN, where nothing is written
            if (i < inputs.size() && bytes) std::memcpy(buffers.back(), inputs[i].data(), size_t(bytes));
        }
        if (lowered->prepare.body) {
            std::vector<void*> args;
            for (int slot : lowered->prepare_args) args.push_back(buffers[size_t(slot)]);
            run((*module)->kernels()[1], args, {}, symbols);
        }
        run((*module)->kernels()[0], buffers, lowered->kernel.symbols, symbols);
        for (size_t i = 0; i < expected.size(); ++i) {
            Tensor got = *Tensor::zeros(expected[i].dtype(), expected[i].sizes());
            if (got.bytes()) std::memcpy(got.mutable_data(), buffers[i], size_t(got.bytes()));
            ASSERT_LE(distance(got, expected[i]), 1e-4) << compute.buffers[i].name << "\n"
                                                        << schedule->print_trace() << to_string(lowered->kernel);
        }
    }
}

TEST(DefaultCompiled, Products) {
    for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 1}, {13, 9, 5}, {49, 40, 33}, {1, 100, 19}, {3, 41, 64}, {17, 1, 3}, {131, 37, 300}, {5, 3, 0}})
        for (bool known : {false, true}) check(matmul(m, n, k, known));
    check(linear(14, 9, 12000));  // several blocks of k
    check(batched_matmul(3, 13, 9, 5, true));
    check(batched_matmul(2, 30, 33, 40, false));
    check(project_to_heads(2, 7, 3, 4, 10));
    for (int64_t size : {0, 1, 13, 30})
        check(matmul(symbol("M"), symbol("N"), symbol("K"), false), {{"M", size}, {"N", 9}, {"K", size}});
}

TEST(DefaultCompiled, ProductsOfBytes) {
    for (auto [a, b] : {std::pair{"u8", "i8"}, {"i8", "u8"}, {"u8", "u8"}})
        for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {13, 9, 8}, {49, 40, 33}, {5, 100, 64}})
            for (const char* known : {"", "known x1"}) {
                auto compute = parse_compute(fmt::format(
                    "compute c() (x0: {0}[{2}, {4}], x1: {1}[{4}, {3}], y0: i32[{2}, {3}]) {{ {5}\n m for i0 < {2}, i1 "
                    "< "
                    "{3}: y0[i0, i1] += (i32(x0[i0, r0]) - 131_i32) * (i32(x1[r0, i1]) - 7_i32) over r0 < {4} }}",
                    a, b, m, n, k, known));
                ASSERT_TRUE(compute.ok()) << compute.error().to_string();
                check(*compute);
            }
}

TEST(DefaultCompiled, Convolutions) {
    check(conv({.n = 2, .h = 7, .w = 7, .c = 8, .filters = 16, .kernel = 3, .stride = 2, .pad = 1}));
    check(conv({.n = 1, .h = 9, .w = 5, .c = 40, .filters = 9, .kernel = 3, .stride = 1, .pad = 1, .dilation = 2}));
    check(conv({.n = 1, .h = 12, .w = 12, .c = 3, .filters = 20, .kernel = 7, .stride = 2, .pad = 3, .swish = true}));
    for (int64_t w : {24, 39})
        check(conv(
            {.n = 1, .h = 5, .w = w, .c = 3, .filters = 35, .kernel = 3, .pad = 1, .swish = w == 39, .planes = true}));
    for (int64_t c : {3, 11, 16, 22, 33}) {
        check(depthwise(14, 14, c, 3, 1, 1));
        check(depthwise(7, 9, c, 5, 2, 2));
        check(depthwise(9, 17, c, 3, 1, 1, true));
        check(max_pool(13, 16, c, 3, 2, 1));
    }
}

TEST(DefaultCompiled, GroupedConvolutions) {
    for (int64_t c : {2, 4, 8, 16}) {
        check(grouped_conv({.n = 1, .h = 9, .w = 31, .c = c, .filters = c, .kernel = 3, .pad = 1}, 32));
        check(grouped_conv({.n = 2, .h = 14, .w = 15, .c = c, .filters = c, .kernel = 3, .stride = 2, .pad = 1}, 32));
    }
    check(grouped_conv({.n = 1, .h = 2, .w = 2, .c = 4, .filters = 4, .kernel = 5, .pad = 2}, 16));
    check(grouped_conv({.n = 1, .h = 7, .w = 7, .c = 8, .filters = 32, .kernel = 3, .pad = 1}, 3));
}

TEST(DefaultCompiled, RowsAndMaps) {
    for (int64_t n : {1, 7, 37, 200}) {
        check(softmax(5, n));
        check(layer_norm(3, 2, n));
        check(reduce_last(3, n, ReduceOp::Max));
        check(reduce_middle(2, 60, n));
        check(add_bias({3, 5, n}, 2));
    }
    check(softmax(symbol("R"), symbol("N")), {{"R", 3}, {"N", 21}});
    check(transpose({37, 41}, {1, 0}));
    check(transpose({3, 17, 70}, {2, 0, 1}));
    check(transpose({symbol("R"), symbol("N")}, {1, 0}), {{"R", 37}, {"N", 41}});
    for (int64_t n : {2, 7, 11}) check(softmax(symbol("R"), n), {{"R", 53}});
    check(gather_rows(10, 9, 4));
}

}  // namespace
}  // namespace tessera::default_compiled_test
