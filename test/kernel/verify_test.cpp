#include <gtest/gtest.h>

#include "kernel/ir/compute.h"

namespace tessera::verify_test {
namespace {

std::string problem(const Kernel& kernel) {
    Status status = verify(kernel);
    if (status.ok()) return "fine";
    EXPECT_EQ(status.error().code(), Code::E0601);
    return status.error().message();
}

// Of a kernel with a few parameters.
std::string problem(const std::string& body) {
    auto kernels = parse_kernels("kernel k(N) (x: f32[N, 4], y: f32[N], z: i64[4], b: bool[4]) {\n" + body + "\n}");
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    return kernels.ok() ? problem((*kernels)[0]) : "no kernel";
}

Kernel one_buffer(Stmt body) {
    Kernel k;
    k.symbols = {"N"};
    k.buffers = {{"x", DType::f32, {8}}};
    k.params = 1;
    k.body = std::move(body);
    return k;
}

Stmt loop(const Expr& var, const Expr& extent, Stmt body) {
    return for_loop({.var = var, .extent = extent, .body = std::move(body)});
}

const Expr kOne = real_const(1, DType::f32);

TEST(KernelVerify, KnowsVariables) {
    Expr i = index_var("i", 8);
    EXPECT_EQ(problem(one_buffer(loop(i, 8, store(0, {i}, kOne)))), "fine");
    EXPECT_EQ(problem(one_buffer(store(0, {i}, kOne))), "i is neither a size nor the variable of a loop around it");
    Stmt outside = seq({loop(i, 8, store(0, {i}, kOne)), store(0, {i}, kOne)});
    EXPECT_EQ(problem(one_buffer(outside)), "i is neither a size nor the variable of a loop around it");
    EXPECT_EQ(problem(one_buffer(loop(i, i, nullptr))), "i is neither a size nor the variable of a loop around it");
    EXPECT_EQ(problem(one_buffer(loop(i, 8, loop(i, 8, nullptr)))), "two loops run over i");
    EXPECT_EQ(problem(one_buffer(seq({loop(i, 8, nullptr), loop(i, 8, nullptr)}))), "two loops run over i");
    EXPECT_EQ(problem(one_buffer(loop(symbol("N"), 8, nullptr))), "the variable N has the name of a size");
}

TEST(KernelVerify, DoubtsBounds) {
    Expr i = index_var("i", 8), wide = index_var("i", std::nullopt), narrow = index_var("i", 4);
    EXPECT_EQ(problem(one_buffer(loop(wide, 8, store(0, {i}, kOne)))), "fine");
    EXPECT_EQ(problem(one_buffer(loop(i, 8, store(0, {narrow}, kOne)))),
              "i claims to be at most 3, which does not follow from its loop");
    EXPECT_EQ(problem(one_buffer(loop(narrow, 8, nullptr))),
              "i claims to be at most 3, which does not follow from its loop");
    EXPECT_EQ(problem(one_buffer(loop(i, symbol("N"), nullptr))),
              "i claims to be at most 7, which does not follow from its loop");
    EXPECT_EQ(problem(one_buffer(loop(i, min(symbol("N"), 8), store(0, {i}, kOne)))), "fine");
    ExprNode n = symbol("N").node();
    n.low = 1;
    EXPECT_EQ(problem(one_buffer(loop(wide, make_expr(n), nullptr))),
              "N claims to be at least 1, which does not follow from its loop");
}

TEST(KernelVerify, KnowsBuffers) {
    Kernel k = one_buffer(nullptr);
    k.buffers.push_back({"x", DType::f32, {8}});
    EXPECT_EQ(problem(k), "two buffers are called x");
    k.buffers[1].name = "";
    EXPECT_EQ(problem(k), "buffer 1 has no name");
    k.buffers[1].name = "t";
    EXPECT_EQ(problem(k), "t is neither a parameter nor allocated");
    k.body = alloc(1, nullptr);
    EXPECT_EQ(problem(k), "t is global, but no parameter");
    k.buffers[1].scope = Scope::Local;
    EXPECT_EQ(problem(k), "fine");
    k.body = seq({alloc(1, nullptr), alloc(1, nullptr)});
    EXPECT_EQ(problem(k), "t is allocated twice");
    k.body = seq({alloc(1, nullptr), store(1, {0}, kOne)});
    EXPECT_EQ(problem(k), "t is not allocated here");
    k.body = seq({alloc(1, nullptr), store(0, {0}, load(1, DType::f32, {0}))});
    EXPECT_EQ(problem(k), "t is not allocated here");
    k.body = alloc(0, nullptr);
    EXPECT_EQ(problem(k), "x is a parameter");
    k.body = alloc(7, nullptr);
    EXPECT_EQ(problem(k), "there is no buffer 7");
    k.body = store(7, {}, kOne);
    EXPECT_EQ(problem(k), "there is no buffer 7");
    k.body = alloc(1, nullptr);
    k.buffers[1].strides = {1, 1};
    EXPECT_EQ(problem(k), "t has 1 dimensions and 2 strides");
    k.buffers[1].strides = {kOne};
    EXPECT_EQ(problem(k), "a size of t is no i64");
    k.buffers[1].strides = {load(0, DType::i64, {0})};
    EXPECT_EQ(problem(k), "a size of t is read from a buffer");
    k.buffers[1].strides = {};
    k.buffers[0].shape = {symbol("M")};
    EXPECT_EQ(problem(k), "a size of x: M is neither a size nor the variable of a loop around it");
    k.buffers[0].shape = {8};
    k.buffers[0].scope = Scope::Local;
    EXPECT_EQ(problem(k), "the parameter x is local, not global");
    k.buffers[0].scope = Scope::Global;
    k.buffers[0].dtype = DType::string;
    EXPECT_EQ(problem(k), "x holds str");
    k.params = 3;
    EXPECT_EQ(problem(k), "3 parameters, but 2 buffers");
    k.params = 1;
    k.symbols = {"N", "N"};
    EXPECT_EQ(problem(k), "two sizes are called N");
    k.symbols = {""};
    EXPECT_EQ(problem(k), "a size without a name");
}

TEST(KernelVerify, ChecksAccessesAndTypes) {
    EXPECT_EQ(problem("x[0] = 1.0"), "x has 2 dimensions and gets 1 indices");
    EXPECT_EQ(problem("y[0] = x[0, 1, 2]"), "x has 2 dimensions and gets 3 indices");
    EXPECT_EQ(problem(one_buffer(store(0, {0}, Expr(1)))), "a value of i64 stored into x, which holds f32");
    EXPECT_EQ(problem(one_buffer(store(0, {0}, cast(load(0, DType::f16, {0}), DType::f32)))),
              "a load of f16 from x, which holds f32");
    EXPECT_EQ(problem(one_buffer(store(0, {kOne}, kOne))), "an index of type f32");
    Expr k = index_var("k", 8);
    EXPECT_EQ(problem(one_buffer(store(0, {0}, sum({{k, 8}}, load(0, DType::f32, {k}))))),
              "a reduction inside an expression");
    EXPECT_EQ(problem("b[0] max= true"), "fine");
    EXPECT_EQ(problem(one_buffer(make_stmt(If{1, nullptr, nullptr}))), "a condition of type i64");
    EXPECT_EQ(problem(one_buffer(make_stmt(For{.var = k, .extent = kOne, .body = nullptr}))), "an extent of type f32");
    Kernel bools = one_buffer(store(0, {0}, int_const(1, DType::boolean), ReduceOp::Sum));
    bools.buffers[0].dtype = DType::boolean;
    EXPECT_EQ(problem(bools), "a sum or product of bools in x");
}

TEST(KernelVerify, ChecksLoopKinds) {
    EXPECT_EQ(problem("parallel i < N { y[i] = 1.0 } parallel j < N { y[j] = 2.0 }"), "fine");
    EXPECT_EQ(problem("for i < N { parallel j < 4 { x[i, j] = 1.0 } }"), "a parallel loop inside another statement");
    EXPECT_EQ(problem("if N < 4 { parallel i < N { y[i] = 1.0 } }"), "a parallel loop inside another statement");
    EXPECT_EQ(problem("alloc t: f32[4] local parallel i < N { y[i] = 1.0 }"),
              "a parallel loop inside another statement");
    EXPECT_EQ(problem("vector i < N { y[i] = 1.0 }"), "the extent of a loop of kind vector is no constant");
    EXPECT_EQ(problem("unrolled i < N { y[i] = 1.0 }"), "the extent of a loop of kind unrolled is no constant");
    EXPECT_EQ(problem("vector i < 4 { unrolled j < 2 { x[j, i] = 1.0 } }"), "fine");
    EXPECT_EQ(problem("vector i < 4 { for j < 2 { x[j, i] = 1.0 } }"), "a loop of kind for inside a vector loop");
    EXPECT_EQ(problem("vector i < 4 { alloc t: f32[] local t[] = 1.0 }"), "an allocation inside a vector loop");
    EXPECT_EQ(problem("vector i < 4 { call prefetch(; y[i]; ) }"), "a call inside a vector loop");
    EXPECT_EQ(problem("call prefetch(; y[0, 0]; )"), "y has 1 dimensions and gets 2 indices");
    EXPECT_EQ(problem("bound i < N { y[i] = 1.0 }"), "a bound loop without an axis");
    EXPECT_EQ(problem("for i < N on thread.x { y[i] = 1.0 }"), "an axis of a loop that is not bound");
    EXPECT_EQ(problem("bound i < N on block.x { bound j < 4 on thread.x { x[i, j] = 1.0 } }"), "fine");
    EXPECT_EQ(problem("bound i < N on block.x { bound j < 4 on block.x { x[i, j] = 1.0 } }"),
              "two loops, one in the other, on the axis block.x");
}

TEST(KernelVerify, FindsRaces) {
    EXPECT_EQ(problem("parallel i < N { y[0] = x[i, 0] }"),
              "every iteration of the parallel loop over i writes this element");
    EXPECT_EQ(problem("parallel i < N { y[0] += x[i, 0] }"),
              "every iteration of the parallel loop over i writes this element");
    EXPECT_EQ(problem("parallel i < 1 { y[0] += x[i, 0] }"), "fine");
    EXPECT_EQ(problem("parallel i < N { if i == 3 { y[0] = x[i, 0] } }"), "fine");
    EXPECT_EQ(problem("parallel i < N { alloc t: f32[] local t[] = x[i, 0] y[i] = t[] }"), "fine");
    EXPECT_EQ(problem("vector i < 4 { y[0] = x[0, i] }"),
              "every iteration of the vector loop over i writes this element");
    EXPECT_EQ(problem("vector i < 4 { y[0] += x[0, i] }"), "fine");
    EXPECT_EQ(problem("unrolled i < 4 { y[0] = x[0, i] }"), "fine");
}

TEST(KernelVerify, KeepsRegistersInRegisters) {
    EXPECT_EQ(problem("alloc t: f32[N] register t[0] = 1.0"), "t in registers has a size that is no constant");
    EXPECT_EQ(problem("alloc t: f32[4] register unrolled i < 2 { vector j < 2 { t[2*i + j] = 1.0 } }"), "fine");
    EXPECT_EQ(problem("alloc t: f32[4] register for i < 4 { t[i] = 1.0 }"),
              "t in registers is indexed by i, which no unrolled or vector loop runs over");
    EXPECT_EQ(problem("alloc t: f32[4] register for i < 4 { y[i] = t[i] }"),
              "t in registers is indexed by i, which no unrolled or vector loop runs over");
    EXPECT_EQ(problem("alloc t: f32[4] register y[0] = t[z[0]]"), "an index of t in registers is loaded");
    EXPECT_EQ(problem("alloc t: f32[4] local for i < 4 { t[i] = 1.0 }"), "fine");
}

TEST(KernelVerify, NamesTheStatement) {
    auto kernels = parse_kernels("kernel `my kernel`() (x: f32[4]) { for i < 4 { x[i, i] = 1.0 } }");
    Status status = verify((*kernels)[0]);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().where(), "kernel `my kernel`");
    EXPECT_EQ(status.error().note(), "x[i, i] = 1.0");
}

TEST(ComputeVerify, ChecksStages) {
    Expr i = index_var("i", 8), j = index_var("j", 8);
    Compute good;
    good.buffers = {{"x", DType::f32, {8}}, {"y", DType::f32, {8}}, {"t", DType::f32, {8}}};
    good.params = 2;
    good.stages = {
        {.name = "a", .buffer = 2, .axes = {{i, 8}}, .reduce = {}, .store = {i}, .value = load(0, DType::f32, {i})},
        {.name = "b", .buffer = 1, .axes = {{i, 8}}, .reduce = {}, .store = {i}, .value = load(2, DType::f32, {i})}};
    auto with = [&](auto&& change) {
        Compute c = good;
        change(c);
        Status status = verify(c);
        return status.ok() ? "fine" : status.error().message();
    };
    EXPECT_EQ(with([](Compute&) {}), "fine");
    EXPECT_EQ(with([](Compute& c) { c.stages[1].name = "a"; }), "two stages are called a, or one has no name");
    EXPECT_EQ(with([](Compute& c) { std::swap(c.stages[0], c.stages[1]); }), "stage b: t is not allocated here");
    EXPECT_EQ(with([](Compute& c) { c.stages.pop_back(); }), "fine");
    EXPECT_EQ(with([](Compute& c) { c.stages.erase(c.stages.begin()); }), "stage b: t is not allocated here");
    EXPECT_EQ(with([](Compute& c) { c.stages = {}; }), "no stage writes t");
    EXPECT_EQ(with([&](Compute& c) { c.stages[0].store = {7 - i}; }),
              "stage a: t is read by other stages and not stored at its axes");
    EXPECT_EQ(with([&](Compute& c) {
                  c.stages[0].reduce = {{i, 8}};
              }),
              "stage a: i is the name of two axes, or of a size");
    EXPECT_EQ(with([&](Compute& c) { c.stages[0].value = load(0, DType::f32, {j}); }),
              "stage a: j is neither a size nor the variable of a loop around it");
    EXPECT_EQ(with([&](Compute& c) {
                  c.stages[1].reduce = {{j, 8}};
                  c.stages[1].store = {j};
              }),
              "stage b: j is neither a size nor the variable of a loop around it");
    EXPECT_EQ(with([&](Compute& c) { c.stages[1].value = load(1, DType::f32, {i}); }),
              "stage b: y is not allocated here");
    EXPECT_EQ(with([&](Compute& c) { c.stages[1].value = i; }), "stage b: a value of i64 for y, which holds f32");
    EXPECT_EQ(with([&](Compute& c) { c.stages[1].buffer = 2; }), "stage b: t has two stages");
}

}  // namespace
}  // namespace tessera::verify_test
