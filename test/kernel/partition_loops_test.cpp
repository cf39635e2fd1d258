// Loops cut where conditions begin to hold, and reductions whose last block is short.
#include "kernel/every_backend.h"
#include "kernel/passes/clean_up.h"

namespace tessera::test::partition_loops_test {
namespace {

// Iterations of the outermost loops, for that size.
int64_t rounds(const Kernel& kernel, int64_t n) {
    int64_t total = 0;
    std::function<void(const Stmt&)> add = [&](const Stmt& s) {
        if (const For* loop = s->as<For>()) total += evaluate_int(loop->extent, {{"n", n}}).value_or(1 << 20);
        if (const Seq* list = s->as<Seq>())
            for (const Stmt& each : list->stmts) add(each);
    };
    add(kernel.body);
    return total;
}

// What is past the end counts for nothing: no iteration goes there, though those inside tell too what is past it.
TEST(PartitionLoops, AReductionEndsWhereItsElementsEnd) {
    auto kernels = parse_kernels(
        "kernel k(n) (x: f32[n], y: f32[4]) {\n  for o < 1024 with partition=1 {\n    vector i < 4 {\n"
        "      y[i] max= select(4*o + i < n, x[4*o + i], -inf)\n    }\n  }\n}\n");
    ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
    Kernel kernel = (*kernels)[0];
    partition_loops(kernel);
    for (int64_t n : {0, 1, 4, 5, 37, 4095, 4096}) {
        EXPECT_LE(rounds(kernel, n), (n + 3) / 4) << to_string(kernel);
        std::vector<float> x(size_t(n), 0);
        for (size_t i = 0; i < x.size(); ++i) x[i] = float((i * 7919) % 1009);
        std::vector<Tensor> whole{Tensor::of<float>({n}, x), Tensor::of<float>({4}, {-1, -1, -1, -1})};
        std::vector<Tensor> apart{whole[0], Tensor::of<float>({4}, {-1, -1, -1, -1})};
        ASSERT_TRUE(interpret((*kernels)[0], whole, {{"n", n}}).ok());
        ASSERT_TRUE(interpret(kernel, apart, {{"n", n}}).ok());
        for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(apart[1].real_at(i), whole[1].real_at(i));
    }
}

TEST(PartitionLoops, TotalsOfDynamicSizes) {
    for (const char* op : {"reduce_max", "reduce_min", "reduce_sum"})
        for (int64_t n : {0, 1, 63, 65, 300}) {
            if (n == 0 && std::string_view(op) != "reduce_sum") continue;
            expect_everywhere(fmt::format("graph g(x: f32[N,7]) {{ %y = {}(x, keepdims=0) return %y }}", op),
                              {{"N", n}});
            expect_everywhere(fmt::format("graph g(x: f32[N,3,1,9], z: f32[N,1,5,9]) {{ %a = add(x, z) %t = tanh(%a) "
                                          "%y = {}(%t, keepdims=0) return %y }}",
                                          op),
                              {{"N", n}});
        }
}

}  // namespace
}  // namespace tessera::test::partition_loops_test
