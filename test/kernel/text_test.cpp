#include <gtest/gtest.h>

#include <fstream>

#include "kernel/ir/compute.h"
#include "kernel/ir/text.h"
#include "source_dir.h"

namespace tessera::text_test {
namespace {

Kernel read(const std::string& text) {
    auto kernels = parse_kernels(text);
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    if (!kernels.ok() || kernels->size() != 1) return {};
    return (*kernels)[0];
}

void expect_stands(const std::string& text) { EXPECT_EQ(to_string(read(text)), text); }

std::string problem(const std::string& text) {
    auto kernels = parse_kernels(text, "k");
    if (kernels.ok()) return "fine";
    return fmt::format("{} {}: {}", code_name(kernels.error().code()), kernels.error().where(),
                       kernels.error().message());
}

TEST(KernelText, ReadsWhatItPrints) {
    expect_stands(
        "kernel matmul(M, N) (a: f32[M, 64], b: f32[64, N], c: f32[M, N]) {\n"
        "  parallel i < floordiv(M + 7, 8) {\n"
        "    for j < floordiv(N + 11, 12) {\n"
        "      alloc acc: f32[8, 12] register\n"
        "      unrolled ii < 8 {\n"
        "        vector jj < 12 {\n"
        "          acc[ii, jj] = 0.0\n"
        "        }\n"
        "      }\n"
        "      for k < 64 with prefetch=-2, unroll=4 {\n"
        "        unrolled i2 < 8 {\n"
        "          vector j2 < 12 {\n"
        "            acc[i2, j2] += select(8*i + i2 < M && 12*j + j2 < N, a[8*i + i2, k] * b[k, 12*j + j2], 0.0)\n"
        "          }\n"
        "        }\n"
        "      }\n"
        "      unrolled i3 < 8 {\n"
        "        for j3 < 12 {\n"
        "          if 8*i + i3 < M && 12*j + j3 < N {\n"
        "            c[8*i + i3, 12*j + j3] = acc[i3, 0]\n"
        "          }\n"
        "        }\n"
        "      }\n"
        "    }\n"
        "  }\n"
        "}\n");
}

TEST(KernelText, IsAsDocumented) {
    std::ifstream page(source_dir() + "/docs/kernels.md");
    std::string text;
    bool inside = false;  // of the first block
    for (std::string line; std::getline(page, line) && !(inside && line == "```");) {
        if (inside) text += line + "\n";
        inside |= line == "```tsk";
    }
    Kernel kernel = read(text);
    EXPECT_EQ(to_string(kernel), text);
    EXPECT_TRUE(verify(kernel).ok());
}

TEST(ComputeText, SeveralInOneText) {
    const std::string one = to_string(*parse_compute("compute a() (y: f32[4]) { s for i < 4: y[i] = 1.0 }"));
    const std::string other = to_string(*parse_compute("compute b(N) (y: f32[N]) { s for i < N: y[i] = 2.0 }"));
    auto both = parse_computes("// two\n" + one + "\n" + other);
    ASSERT_TRUE(both.ok()) << both.error().to_string();
    ASSERT_EQ(both->size(), 2u);
    EXPECT_EQ(to_string((*both)[0]), one);
    EXPECT_EQ(to_string((*both)[1]), other);
    EXPECT_FALSE(parse_compute(one + other).ok());
    EXPECT_FALSE(parse_computes(one + "}").ok());
    EXPECT_TRUE(parse_computes("// nothing")->empty());
}

TEST(KernelText, HasEveryStatement) {
    expect_stands(
        "kernel `all of it`(`batch size`, `inf_`) (`/x:0`: f16[], y: i8[`batch size`, 4] strides [8, 1], z: bool[3]) "
        "{\n"
        "  alloc t: i8[4] local {\n"
        "    bound b < 4 on block.x {\n"
        "      t[b] = y[0, b]\n"
        "      y[0, b] max= t[b]\n"
        "    }\n"
        "  }\n"
        "  if z[0] || !z[1] && z[2] {\n"
        "  } else {\n"
        "    `/x:0`[] *= -0.1_f16\n"
        "  }\n"
        "  if z[0] {\n"
        "    z[1] min= true\n"
        "  }\n"
        "  alloc u: f64[] register\n"
        "  alloc v: u64[2] shared\n"
        "  for q < 0 {\n"
        "  }\n"
        "  call prefetch(; y[0, 0], z[1]; 3, inf, -nan_f64)\n"
        "  call barrier(; ; )\n"
        "  u[] = f64(1.5)\n"
        "  v[1] = 18446744073709551615_u64\n"
        "}\n");
}

TEST(KernelText, TellsConstantsApart) {
    Kernel k;
    k.buffers = {{"a", DType::i32, {}}, {"b", DType::f32, {}}};
    k.params = 2;
    Expr five = int_const(5, DType::i32), minus = int_const(-5, DType::i32);
    Expr a = load(0, DType::i32, {}), b = load(1, DType::f32, {});
    auto round = [&](const Expr& e) {
        k.body = store(e.dtype() == DType::i32 ? 0 : 1, {}, e);
        Kernel again = read(to_string(k));
        EXPECT_EQ(to_string(again), to_string(k));
        const Store* s = again.body ? again.body->as<Store>() : nullptr;
        return s && s->value.same(e);
    };
    EXPECT_TRUE(round(five));
    EXPECT_TRUE(round(minus));
    EXPECT_TRUE(round(-five));
    EXPECT_TRUE(round(-minus));
    EXPECT_TRUE(round(-a));
    EXPECT_TRUE(round(-(-a)));
    EXPECT_TRUE(round(a - minus));
    EXPECT_TRUE(round(a - (-five)));
    EXPECT_TRUE(round((a - five) - a));
    EXPECT_TRUE(round(a - (five - a)));
    EXPECT_TRUE(round(cast(cast(b, DType::f16), DType::f32)));
    EXPECT_TRUE(round(cast(cast_saturate(b, DType::i8), DType::i32)));
    EXPECT_TRUE(round(cast(real_const(0.1, DType::f64), DType::f32)));
    EXPECT_TRUE(round(b * real_const(-0.0, DType::f32)));
    EXPECT_TRUE(round(infinity(DType::f32, true) + b));
    EXPECT_TRUE(round(call(Fn::Atan2, {b, real_const(1e-30, DType::f32)})));
    EXPECT_TRUE(round(select(call(Fn::IsNan, {b}), b, real_const(1e30, DType::f32))));
    EXPECT_TRUE(round(min(max(b, real_const(0, DType::f32)), real_const(6, DType::f32))));
    EXPECT_TRUE(round(bit(ExprKind::Shl, a, five)));
    EXPECT_TRUE(round(bit_not(a)));
    EXPECT_TRUE(round(pow(b, real_const(3, DType::f32)) / b));
    EXPECT_TRUE(round(rem(b, real_const(3, DType::f32))));
}

TEST(KernelText, SaysWhereItIsWrong) {
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { a[0] = x }"), "E0302 k:1:33: there is no variable x here");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { a[0] = b[0] }"), "E0302 k:1:33: there is no buffer b here");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { b[0] = 1.0 }"), "E0302 k:1:26: there is no buffer b here");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) {\n  a[0] = 1.0_f64\n}"),
              "E0301 k:2:10: what this buffer holds is f32, this is f64");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { a[0] = a[0] + 1_i8 }"), "E0301 k:1:39: a sum of f32 and i8");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { a[0.5] = a[0] }"),
              "E0301 k:1:28: an index or size is i64, this is f32");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { a[0] = 300_i8 }"), "E0301 k:1:33: '300_i8' is no constant");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { a[0] = sqt(a[0]) }"),
              "E0301 k:1:33: there is no function sqt of such arguments");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { a[0] ! 1 }"),
              "E0301 k:1:31: expected one of = += *= min= max=, found \"!\"");
    EXPECT_EQ(problem("kernel k() (a: f32[4], a: f32[]) { }"), "E0301 k:1:24: a is declared twice");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { for i < 4 { a[i] = (1.0 } }"), "E0301 k:1:50: expected ')'");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { for i < 4 { a[i] = 1.0 }"),
              "E0301 k:1:50: expected '}', found the end of the text");
    EXPECT_EQ(problem("kernel k() (a: f33[4]) { }"), "E0301 k:1:16: expected an element type, found \"f33\"");
    EXPECT_EQ(problem("kernel k() (a: f32[4]) { alloc t: f32[] heap }"),
              "E0301 k:1:41: expected a scope: shared, local or register, found \"heap\"");
    EXPECT_EQ(problem("graph k() { }"), "E0301 k:1:1: expected kernel, found \"graph\"");
}

TEST(KernelText, SkipsComments) {
    Kernel k =
        read("// before\nkernel k() (a: f32[4]) { // here\n  a[0] = 1.0 // and\n       / 2.0 // there\n}\n// after");
    EXPECT_EQ(to_string(k), "kernel k() (a: f32[4]) {\n  a[0] = 1.0 / 2.0\n}\n");
}

TEST(KernelText, PrintsAComputeAndItsPlainNests) {
    Expr m = symbol("M"), i = index_var("i", std::nullopt), j = index_var("j", 8), k = index_var("k", 64);
    Compute c;
    c.name = "mm";
    c.symbols = {"M"};
    c.buffers = {{"a", DType::f32, {m, 64}},
                 {"b", DType::f32, {64, 8}},
                 {"c", DType::f32, {m, 8}},
                 {"t", DType::f32, {m, 8}, Scope::Local}};
    c.params = 3;
    c.stages = {{.name = "mm",
                 .buffer = 3,
                 .axes = {{i, m}, {j, 8}},
                 .reduce = {{k, 64}},
                 .combine = ReduceOp::Sum,
                 .store = {i, j},
                 .value = load(0, DType::f32, {i, k}) * load(1, DType::f32, {k, j})},
                {.name = "relu",
                 .buffer = 2,
                 .axes = {{i, m}, {j, 8}},
                 .reduce = {},
                 .store = {i, j},
                 .value = max(load(3, DType::f32, {i, j}), real_const(0, DType::f32))}};
    EXPECT_TRUE(verify(c).ok());
    EXPECT_EQ(to_string(c),
              "compute mm(M) (a: f32[M, 64], b: f32[64, 8], c: f32[M, 8]) {\n"
              "  t: f32[M, 8] local\n"
              "  mm for i < M, j < 8: t[i, j] += a[i, k] * b[k, j] over k < 64\n"
              "  relu for i < M, j < 8: c[i, j] = max(t[i, j], 0.0)\n"
              "}\n");
    c.known = {false, true};
    auto again = parse_compute(to_string(c));
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(to_string(*again), to_string(c));
    EXPECT_EQ(again->known, (std::vector<bool>{false, true, false}));
    EXPECT_TRUE(again->stages[0].value.same(c.stages[0].value));
    Kernel nests = plain_nests(c);
    EXPECT_TRUE(verify(nests).ok());
    EXPECT_EQ(to_string(nests),
              "kernel mm(M) (a: f32[M, 64], b: f32[64, 8], c: f32[M, 8], t: f32[M, 8]) {\n"
              "  for mm.i < M {\n"
              "    for mm.j < 8 {\n"
              "      t[mm.i, mm.j] = 0.0\n"
              "      for mm.k < 64 {\n"
              "        t[mm.i, mm.j] += a[mm.i, mm.k] * b[mm.k, mm.j]\n"
              "      }\n"
              "    }\n"
              "  }\n"
              "  for relu.i < M {\n"
              "    for relu.j < 8 {\n"
              "      c[relu.i, relu.j] = max(t[relu.i, relu.j], 0.0)\n"
              "    }\n"
              "  }\n"
              "}\n");
}

TEST(KernelText, ReadsComputes) {
    auto code = [](std::string_view stages) {
        auto read =
            parse_compute(fmt::format("compute c(M) (x: f32[M, 4], y: f32[M]) {{ t: f32[M] local\n {} }}", stages));
        return read.ok() ? "" : std::string(code_name(read.error().code()));
    };
    EXPECT_EQ(code("s for i < M: y[i] += x[i, k] over k < 4"), "");
    EXPECT_EQ(code("known x known for i < M: y[i] max= x[i, k] over k < 4"), "");  // a stage may be called known
    EXPECT_EQ(code("s for i < M: t[i] = x[i, 0] u for i < M: y[i] = t[i]"), "");
    EXPECT_EQ(code("known: y[0] = 1.0"), "");
    EXPECT_EQ(code("known t"), "E0302");
    EXPECT_EQ(code("s for i < M: y[i] += x[i, k]"), "E0301");             // over what?
    EXPECT_EQ(code("s for i < M: y[i] = x[i, k]"), "E0302");              // k is nothing
    EXPECT_EQ(code("s for i < M: y[i] += x[i, l] over k < 4"), "E0302");  // nor is l
    EXPECT_EQ(code("s for i < M: y[i] += x[i, i] over i < 4"), "E0301");  // twice
    EXPECT_EQ(code("s for i < M: z[i] = 1.0"), "E0302");
    EXPECT_EQ(code("s for i < M: y[i] = i"), "E0301");  // i64
}

}  // namespace
}  // namespace tessera::text_test
