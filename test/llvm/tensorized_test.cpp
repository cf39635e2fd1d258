// Products of bytes whose schedules use dot product and matrix instructions, as machine code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "kernel/ir/intrinsic.h"
#include "kernel/random_kernel.h"
#include "kernel/schedule_check.h"
#include "llvm/run_kernel.h"
#include "runtime/devices/cpu_device.h"

namespace tessera::tensorized_test {
namespace {

// y[m, n] = sum over k of a[m, k] * b[n, k]; b is known ahead.
Compute byte_product(int64_t m, int64_t n, int64_t k, const Intrinsic& in, bool swapped = false) {
    Compute c;
    c.name = "bytes";
    int a = add_buffer(c, "a", {m, k}, in.operands[0]), b = add_buffer(c, "b", {n, k}, in.operands[1]);
    int y = add_buffer(c, "y", {m, n}, in.out);
    c.params = 3;
    c.known = {false, true, false};
    ReduceAxis i = axis("m", m), j = axis("n", n), kk = axis("k", k);
    Expr x = cast(load(a, in.operands[0], {i.var, kk.var}), in.out);
    Expr w = cast(load(b, in.operands[1], {j.var, kk.var}), in.out);
    c.stages.push_back({"dot", y, {i, j}, {kk}, ReduceOp::Sum, {i.var, j.var}, swapped ? w * x : x * w});
    return c;
}

// [rows, k] as [rows / side, k / deep, side, deep].
IndexMap blocks(int64_t rows, int64_t k, int64_t side, int64_t deep) {
    Expr r = index_var("r", rows), d = index_var("d", k);
    return {{r, d},
            {floor_div(r, side), floor_div(d, deep), mod(r, side), mod(d, deep)},
            {rows / side, k / deep, side, deep}};
}

// [rows, k] as [rows / panel, k / deep, panel / side, side, deep]: what one iteration reads lies together.
IndexMap panels(int64_t rows, int64_t k, int64_t panel, int64_t side, int64_t deep) {
    Expr r = index_var("r", rows), d = index_var("d", k);
    return {{r, d},
            {floor_div(r, panel), floor_div(d, deep), floor_div(mod(r, panel), side), mod(r, side), mod(d, deep)},
            {rows / panel, k / deep, panel / side, side, deep}};
}

// [rows, k] as [rows / side, k / deep, side * deep].
IndexMap words(int64_t rows, int64_t k, int64_t side, int64_t deep) {
    Expr r = index_var("r", rows), d = index_var("d", k);
    return {{r, d},
            {floor_div(r, side), floor_div(d, deep), mod(r, side) * deep + mod(d, deep)},
            {rows / side, k / deep, side * deep}};
}

struct Shape2 {
    int64_t m, n, k;
};

// What one iteration reads of a packed operand, as whole registers: a lane of them serves all lanes of sums.
Status keep_words(Schedule& s, std::string_view packed, const IndexMap& layout, const Loop& loop) {
    int buffer = -1;
    for (const Stage& stage : s.compute().stages)
        if (stage.name == packed) buffer = stage.buffer;
    std::string copy = TRY(s.cache_read("dot", buffer, Scope::Register));
    TRY(s.transform_layout(copy, layout));
    TRY(s.compute_at(copy, loop));
    const std::vector<Loop> loops = s.loops(copy);
    return s.vectorize(TRY(s.fuse(loops[0], loops[1])));
}

// Register tiles of mr by nr sums, from operands packed into the blocks that one instruction reads. An intrinsic with
// one axis has its columns in lanes, and reads one row for all of them.
Result<Schedule> tensorized(const Shape2& size, const Intrinsic& in, int64_t mr, int64_t nr, bool swapped = false) {
    Schedule s(byte_product(size.m, size.n, size.k, in, swapped));
    const bool matrix = in.axes.size() == 2;
    const int64_t rows = matrix ? *in.axes[0].extent.as_int() : 1, columns = *in.axes.back().extent.as_int();
    const int64_t deep = *in.reduce[0].extent.as_int();
    std::string out = TRY(s.cache_write("dot", Scope::Register));
    std::string a = TRY(s.cache_read("dot", 0, Scope::Global)), b = TRY(s.cache_read("dot", 1, Scope::Global));
    TRY(s.transform_layout(a, matrix ? panels(size.m, size.k, mr, rows, deep) : words(size.m, size.k, mr, deep)));
    TRY(s.transform_layout(b, panels(size.n, size.k, nr, columns, deep)));
    if (matrix) TRY(s.transform_layout("dot", blocks(size.m, size.n, rows, columns)));
    std::vector<Loop> tiles = TRY(s.tile(s.loops(out)[0], s.loops(out)[1], mr, nr));
    TRY(s.parallel(tiles[0]));
    TRY(s.unroll(tiles[2]));
    TRY(s.unroll(tiles[3]));
    TRY(s.compute_at("dot", tiles[1]));
    const std::vector<Loop> loops = s.loops("dot");
    auto [n_outer, n_inner] = TRY(s.split(loops[1], columns));
    auto [k_outer, k_inner] = TRY(s.split(loops[2], deep));
    if (matrix) {
        auto [m_outer, m_inner] = TRY(s.split(loops[0], rows));
        TRY(s.reorder({k_outer, m_outer, n_outer, m_inner, n_inner, k_inner}));
        TRY(s.unroll(m_outer));
        TRY(s.unroll(m_inner));
        TRY(s.tensorize(m_inner, in.name));
    } else {
        TRY(s.reorder({k_outer, loops[0], n_outer, n_inner, k_inner}));
        TRY(s.unroll(loops[0]));
        TRY(s.tensorize(n_inner, in.name));
        TRY(keep_words(s, a, words(size.m, size.k, mr, deep), k_outer));
    }
    TRY(s.unroll(n_outer));
    TRY(s.unroll(n_inner));
    return s;
}

class ProductRun {
  public:
    ProductRun(const Lowered& lowered, const std::vector<Tensor>& inputs, const std::string& target) {
        CodegenOptions options;
        options.target = target;
        std::vector<Kernel> kernels{lowered.kernel};
        if (lowered.prepare.body) kernels.push_back(lowered.prepare);
        module_ = std::move(compile_kernels(kernels, options).value());
        for (size_t i = 0; i < lowered.kernel.params; ++i) {
            const Buffer& b = lowered.kernel.buffers[i];
            const int64_t bytes = size_of(b, {}) * static_cast<int64_t>(dtype_bytes(b.dtype));
            memory_.push_back(make_memory(bytes));
            buffers_.push_back(memory_.back().get());
            if (i < inputs.size()) std::memcpy(buffers_.back(), inputs[i].data(), static_cast<size_t>(bytes));
        }
        std::vector<void*> args;
        for (int slot : lowered.prepare_args) args.push_back(buffers_[static_cast<size_t>(slot)]);
        if (lowered.prepare.body) run_launches(module_->kernels()[1], args, {}, {});
    }
    void run() { run_launches(module_->kernels()[0], buffers_, {}, {}); }
    const void* result() const { return buffers_[2]; }

    // The launches one by one: the last multiplies.
    double best_seconds() {
        double best = 1e9;
        const Launch launch = bind_launches(module_->kernels()[0], {})->back();
        auto stream = cpu_device().make_stream(1);
        EXPECT_TRUE((*stream)->reserve(launch.local_bytes).ok());
        for (int i = 0; i < 20; ++i) {
            const auto start = std::chrono::steady_clock::now();
            EXPECT_TRUE((*stream)->launch(launch, {buffers_, {}}).ok());
            best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        return best;
    }

  private:
    std::shared_ptr<CompiledModule> module_;
    std::vector<Memory> memory_;
    std::vector<void*> buffers_;
};

std::vector<Tensor> bytes_for(const Compute& c) {
    std::vector<Tensor> out;
    for (size_t i = 0; i < c.params; ++i) {
        const Buffer& b = c.buffers[i];
        RandomStream random(3, b.name);
        out.push_back(std::move(Tensor::zeros(b.dtype, {size_of(b, {})}).value()));
        for (int64_t e = 0; i < 2 && e < out.back().elements(); ++e) {
            const uint64_t bits = random.bits(static_cast<uint64_t>(e));
            const int64_t any = int_min(b.dtype) + static_cast<int64_t>(bits % 256);
            out.back().set_int(e, bits >> 60 == 0 ? int_min(b.dtype) : bits >> 60 == 1 ? int_max(b.dtype) : any);
        }
    }
    return out;
}

struct Case {
    const char* name;
    int64_t mr, nr;
};
constexpr Case kCases[] = {{"sdot", 8, 8},  {"udot", 4, 16},  {"usdot", 8, 12},    {"smmla", 8, 12},
                           {"ummla", 4, 4}, {"usmmla", 8, 8}, {"vnni_512", 6, 64}, {"vnni_256", 6, 16}};

TEST(Tensorized, ProductsOfBytes) {
    for (const Case& c : kCases) {
        SCOPED_TRACE(c.name);
        const Intrinsic& in = *find_intrinsic(c.name);
        const Shape2 size{2 * c.mr, 3 * c.nr, 40};
        const Compute compute = byte_product(size.m, size.n, size.k, in);
        auto schedule = tensorized(size, in, c.mr, c.nr);
        ASSERT_OK(schedule);
        expect_same(compute, *schedule);
        auto lowered = lower(*schedule);
        ASSERT_OK(lowered);
        std::vector<Tensor> expected = bytes_for(compute);
        ProductRun run(*lowered, expected, "host");
        ASSERT_OK(interpret(plain_nests(compute), expected));
        run.run();
        EXPECT_EQ(std::memcmp(run.result(), expected[2].data(), static_cast<size_t>(expected[2].bytes())), 0)
            << to_string(lowered->kernel);
    }
}

TEST(Tensorized, FactorsInEitherOrder) {
    const Intrinsic& in = *find_intrinsic("usmmla");  // unsigned times signed, and no other
    const Shape2 size{16, 16, 24};
    auto schedule = tensorized(size, in, 8, 8, true);
    ASSERT_OK(schedule);
    expect_same(byte_product(size.m, size.n, size.k, in, true), *schedule);
}

// The innermost loop has multiplications and loads alone.
TEST(Tensorized, SumsStayInRegisters) {
    for (const auto& [name, target] : {std::pair{"smmla", "aarch64-i8mm"},
                                       {"sdot", "aarch64-i8mm"},
                                       {"vnni_512", "x86_64-avx512vnni"},
                                       {"vnni_256", "x86_64-avxvnni"}}) {
        const Case& c = *std::find_if(std::begin(kCases), std::end(kCases),
                                      [&](const Case& x) { return x.name == std::string_view(name); });
        auto schedule = tensorized({c.mr, c.nr, 64}, *find_intrinsic(name), c.mr, c.nr);
        ASSERT_OK(schedule);
        CodegenOptions options;
        options.target = target;
        auto text = emit_llvm({lower(*schedule)->kernel}, options);
        ASSERT_OK(text);
        EXPECT_THAT(*text, testing::Not(testing::HasSubstr("alloca"))) << name;
    }
}

// Prints how much faster the instruction is than its nest, and how many operations a second it does.
TEST(Tensorized, SpeedOfProducts) {
    const Machine host = *describe_target("host");
    bool any = false;
    for (const Case& c : kCases) {
        const Intrinsic& in = *find_intrinsic(c.name);
        if (!host.has(in.needs)) continue;
        any = true;
        const Shape2 size{4 * c.mr, 4 * c.nr, 1024};  // panels stay in the first cache
        auto schedule = tensorized(size, in, c.mr, c.nr);
        ASSERT_OK(schedule);
        auto lowered = lower(*schedule);
        ASSERT_OK(lowered);
        const std::vector<Tensor> inputs = bytes_for(schedule->compute());
#if defined(__aarch64__)
        const char* plain = "aarch64-neon";
#else
        const char* plain = "x86_64-sse4";
#endif
        ProductRun with(*lowered, inputs, "host"), without(*lowered, inputs, plain);
        with.run();
        without.run();
        EXPECT_EQ(std::memcmp(with.result(), without.result(), static_cast<size_t>(inputs[2].bytes())), 0);
        const double fast = with.best_seconds(), slow = without.best_seconds();
        const double operations = 2.0 * static_cast<double>(size.m * size.n * size.k);
        fmt::print("{}: {:.0f} GOP/s, {:.1f} times the nest\n", c.name, operations / fast / 1e9, slow / fast);
    }
    if (!any) GTEST_SKIP() << "this processor has none of the instructions";
}

}  // namespace
}  // namespace tessera::tensorized_test
