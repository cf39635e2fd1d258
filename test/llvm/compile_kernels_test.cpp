#include "llvm/compile_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/random_kernel.h"
#include "llvm/gemm_kernels.h"

namespace tessera::compile_kernels_test {
namespace {

using testing::HasSubstr;
using testing::Not;

float* floats(const Memory& m) { return reinterpret_cast<float*>(m.get()); }

std::shared_ptr<CompiledModule> compiled(const std::vector<Kernel>& kernels, CodegenOptions options = {}) {
    auto made = compile_kernels(kernels, options);
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    return made.ok() ? *made : nullptr;
}

Kernel parsed(std::string_view text) {
    auto kernels = parse_kernels(text);
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    EXPECT_TRUE(verify((*kernels)[0]).ok()) << verify((*kernels)[0]).error().to_string();
    return (*kernels)[0];
}

// Filled with small whole numbers, run compiled and interpreted, compared bit by bit.
void compare(const Kernel& kernel, const SymbolValues& symbols = {}, int pieces = 1) {
    std::vector<Tensor> expected;
    for (size_t i = 0; i < kernel.params; ++i) {
        Sizes sizes;
        for (const Expr& e : kernel.buffers[i].shape) sizes.push_back(*evaluate_int(e, symbols));
        expected.push_back(std::move(Tensor::zeros(kernel.buffers[i].dtype, sizes).value()));
        for (int64_t j = 0; j < expected.back().elements(); ++j)
            expected.back().set_real(j, static_cast<double>((j * 7 + static_cast<int64_t>(i) * 3) % 13 - 6));
    }
    std::vector<Tensor> got = copies(expected);
    std::vector<GuardedMemory> memory;
    std::vector<void*> pointers;
    for (const Tensor& t : got) {
        memory.emplace_back(t.bytes());
        std::memcpy(memory.back().data(), t.data(), static_cast<size_t>(t.bytes()));
        pointers.push_back(memory.back().data());
    }
    Status status = interpret(kernel, expected, symbols);
    ASSERT_TRUE(status.ok()) << status.error().to_string();
    auto module = compiled({kernel});
    ASSERT_TRUE(module);
    run_launches(module->kernels()[0], pointers, kernel.symbols, symbols, pieces);
    for (size_t i = 0; i < got.size(); ++i)
        std::memcpy(got[i].mutable_data(), pointers[i], static_cast<size_t>(got[i].bytes()));
    EXPECT_EQ(first_difference(expected, got), "") << to_string(kernel);
}

TEST(CompileKernels, PackedProducts) {
    for (GemmTile tile :
         {GemmTile{12, 8, true, 2}, GemmTile{8, 12, true, 4}, GemmTile{6, 16, false, 1}, GemmTile{5, 7, true, 3}})
        for (int64_t depth : {1, 7, 32}) {
            SCOPED_TRACE(fmt::format("{}x{} over {}", tile.rows, tile.columns, depth));
            compare(packed_gemm(2, 3, depth, tile), {}, 2);
        }
}

TEST(CompileKernels, RangesInPieces) {
    for (int64_t n : {1, 2, 3, 5, 64})
        compare(
            parsed("kernel pieces(N) (x: f32[N, 5], y: f32[N]) {\n"
                   "  parallel i < N {\n    y[i] = 0.0\n    for j < 5 {\n      y[i] += x[i, j] * 2.0\n    }\n  }\n}"),
            {{"N", n}}, 3);
}

TEST(CompileKernels, TailsUnderMasks) {
    for (int64_t n : {1, 3, 4, 7, 16, 33})
        compare(
            parsed("kernel tails(N) (x: f32[N], y: f32[N], z: i8[N]) {\n"
                   "  for o < floordiv(N + 7, 8) {\n    vector i < 8 {\n      if i + 8*o < N {\n"
                   "        y[i + 8*o] = x[i + 8*o] * 2.0 + x[N - 1 - i - 8*o]\n        z[i + 8*o] = i8(x[i + 8*o])\n"
                   "      }\n    }\n  }\n}"),
            {{"N", n}});
}

// Lanes that are known to be off: at the end, at the beginning, at both; of memory and of a register tile.
TEST(CompileKernels, TailsOfKnownLength) {
    for (const char* type : {"f32", "f64", "f16", "i8", "i64"})
        for (int from : {0, 1, 5})
            for (int to : {6, 7, 11, 15, 16})
                compare(parsed(fmt::format(
                    "kernel tails() (x: {0}[3, 16], y: {0}[{3}], z: {0}[3, 16]) {{\n"
                    "  alloc t: {0}[16] register\n"
                    "  unrolled a < 2 {{\n    vector i < 8 {{\n      t[i + 8*a] = x[0, i + 8*a]\n    }}\n  }}\n"
                    "  for k < 3 {{\n    unrolled b < 2 {{\n      vector j < 8 {{\n"
                    "        if {1} <= j + 8*b && j + 8*b < {2} {{\n"
                    "          t[j + 8*b] += x[k, j + 8*b]\n          y[j + 8*b - {1}] = x[k, j + 8*b]\n"
                    "        }}\n      }}\n    }}\n"
                    "    unrolled c < 2 {{\n      vector l < 8 {{\n        z[k, l + 8*c] = t[l + 8*c]\n      }}\n"
                    "    }}\n  }}\n}}",
                    type, from, to, to - from)));
}

TEST(CompileKernels, PaddingInLanes) {
    compare(
        parsed("kernel pad() (x: f32[5, 6], y: f32[7, 8]) {\n  for i < 7 {\n    vector j < 8 {\n"
               "      y[i, j] = select(0 < i && i < 6 && 0 < j && j < 7, x[i - 1, j - 1], -1.0)\n    }\n  }\n}"));
}

// Where nothing is to be read, neither is the place to read from.
TEST(CompileKernels, PlacesThatAreRead) {
    compare(
        parsed("kernel pick() (x: i64[8], z: f32[5], y: f32[2000]) {\n  for i < 2000 {\n"
               "    y[i] = select(i < 8, z[min(max(x[i], 0), 4)], -1.0)\n  }\n}"));
}

// Vectors that reach beyond what is there, at the first and the last element of the buffer too, next to each other and
// in steps; and stores of some lanes, or all.
TEST(CompileKernels, EdgesOfOpenSize) {
    for (int64_t n : {1, 2, 3, 4, 5, 8, 11, 16, 31})
        for (int step : {1, 2, 3, 5})
            for (const char* type : {"f32", "i64", "u8"})
                compare(
                    parsed(fmt::format("kernel edges(N) (x: {1}[3, N], y: {1}[5, N], z: {1}[N + 9]) {{\n"
                                       "  for i < 5 {{\n    for o < floordiv(N + 7, 8) {{\n      vector j < 8 {{\n"
                                       "        if 8*o + j < N {{\n          y[i, 8*o + j] = select(0 < i && i < 4 && "
                                       "0 < {0}*(8*o + j) && {0}*(8*o + j) <= N, x[i - 1, {0}*(8*o + j) - 1], "
                                       "z[8*o + j + i])\n        }}\n      }}\n    }}\n  }}\n}}",
                                       step, type)),
                    {{"N", n}});
}

TEST(CompileKernels, StridesAndReversals) {
    compare(
        parsed("kernel strides() (x: f32[16, 9], y: f32[9, 16], z: f32[16, 9]) {\n  for i < 9 {\n    vector j < 16 {\n"
               "      y[i, j] = x[j, i] + x[15 - j, 8 - i]\n      z[j, i] = x[j, i] * 3.0\n    }\n  }\n}"));
}

TEST(CompileKernels, Transposes) {
    for (const char* value : {"x[16*o + j, i]", "select(16*o + j < 30, x[16*o + j, i], 5.0)",
                              "x[16*o + j, i] * z[i] + z[16*o + j]", "select(0 < o, x[16*o + j - 16, i], 0.0)"})
        compare(
            parsed(fmt::format("kernel turn() (x: f32[32, 37], z: f32[37], y: f32[37, 2, 32]) {{\n  for i < 37 {{\n"
                               "    unrolled o < 2 {{\n      vector j < 16 {{\n        y[i, 1, 16*o + j] = {}\n"
                               "      }}\n    }}\n  }}\n}}",
                               value)));
}

// Places as sums of products with open sizes, and squares of which some rows are left out.
TEST(CompileKernels, TransposesOfOpenSize) {
    for (int64_t n : {1, 3, 4, 5, 7, 8, 14})
        for (int64_t m : {1, 9, 16, 21})
            for (const char* type : {"f32", "i32", "f64"})
                compare(
                    parsed(fmt::format("kernel turn(N, M) (x: {0}[N*M], y: {0}[M*N]) {{\n"
                                       "  for p < floordiv(M, 9) {{\n    for o < floordiv(N + 7, 8) {{\n"
                                       "      for i < 9 {{\n        vector j < 8 {{\n          if j + 8*o < N {{\n"
                                       "            y[N*i + 9*N*p + j + 8*o] = x[M*j + 8*M*o + i + 9*p]\n"
                                       "          }}\n        }}\n      }}\n    }}\n"
                                       "    for q < floordiv(N, 4) {{\n      for k < 9 {{\n        vector l < 4 {{\n"
                                       "          y[N*k + 9*N*p + l + 4*q] = x[M*l + 4*M*q + k + 9*p]\n"
                                       "        }}\n      }}\n    }}\n  }}\n}}",
                                       type)),
                    {{"N", n}, {"M", m}});
}

// Lanes as far apart as an open size says: read, stored, and both under masks.
TEST(CompileKernels, LanesApartByOpenSizes) {
    for (int64_t n : {1, 2, 5, 9})
        for (int64_t m : {1, 3, 8, 11})
            compare(parsed("kernel apart(N, M) (x: f32[N*M], y: f32[M, N], z: f32[2*N*M + 3*N], w: i64[N, M]) {\n"
                           "  for i < N {\n    for o < floordiv(M + 3, 4) {\n      vector j < 4 {\n"
                           "        if j + 4*o < M {\n          y[j + 4*o, i] = x[i*M + j + 4*o] * 2.0\n"
                           "          z[2*N*(j + 4*o) + 3*i] = x[i + N*(j + 4*o)] + y[j + 4*o, i]\n"
                           "        }\n      }\n    }\n  }\n"
                           "  for p < floordiv(N, 4) {\n    for b < M {\n      vector l < 4 {\n"
                           "        w[l + 4*p, b] = w[l + 4*p, b] + i64(x[M*(l + 4*p) + b])\n      }\n    }\n  }\n}"),
                    {{"N", n}, {"M", m}});
}

TEST(CompileKernels, ScratchBeyondTheStack) {
    Kernel k = parsed(
        "kernel scratch(N) (x: f32[N, 64], y: f32[N, 64]) {\n  parallel i < N {\n"
        "    alloc t: f32[64, 128] local\n    alloc u: f32[N] local\n    for a < 128 {\n      vector j < 64 {\n        "
        "t[j, a] = x[i, j]\n      }\n    }\n"
        "    for b < N {\n      u[b] = 2.0\n    }\n"
        "    vector j2 < 64 {\n      y[i, j2] = t[j2, 127] * u[i]\n    }\n  }\n}");
    auto module = compiled({k});
    ASSERT_TRUE(module);
    EXPECT_EQ(evaluate_int(module->kernels()[0].launches[0].scratch_bytes, {{"N", 17}}), 64 * 128 * 4 + 128);
    compare(k, {{"N", 17}}, 2);
}

TEST(CompileKernels, SumsOverLanes) {
    compare(
        parsed("kernel sums() (x: f32[6, 100], y: f32[6], z: i32[6], w: f32[6]) {\n  for i < 6 {\n    y[i] = 0.0\n    "
               "z[i] = 0_i32\n    w[i] = -100.0\n"
               "    vector j < 100 {\n      y[i] += x[i, j]\n      z[i] += i32(x[i, j])\n      if 3 < j {\n        "
               "w[i] max= x[i, j] * x[i, j]\n      }\n    }\n  }\n}"));
}

// Roots of what is negative are NaN, and left out.
TEST(CompileKernels, LargestOfNumbers) {
    const Kernel k = parsed(
        "kernel k() (x: f32[6, 100], y: f32[6], z: f32[6], w: f32[6, 100]) {\n  for i < 6 {\n    y[i] = -inf\n    z[i] "
        "= "
        "inf\n    vector j < 100 {\n      y[i] max= select(sqrt(x[i, j]) == sqrt(x[i, j]), sqrt(x[i, j]), -inf)\n      "
        "z[i] min= select(sqrt(x[i, j]) == sqrt(x[i, j]), sqrt(x[i, j]), inf)\n      w[i, j] max= select(sqrt(x[i, j]) "
        "== sqrt(x[i, j]), sqrt(x[i, j]), -inf)\n    }\n  }\n}");
    compare(k);
    // One instruction.
    auto text = emit_assembly({parsed("kernel k() (x: f32[64], y: f32[64]) { vector j < 64 { y[j] max= select(x[j] == "
                                      "x[j], x[j], -inf) } }")},
                              {.target = "x86_64-avx512"});
    ASSERT_TRUE(text.ok());
    EXPECT_THAT(*text, HasSubstr("vmaxps"));
    EXPECT_THAT(*text, Not(HasSubstr("vcmp")));
}

TEST(CompileKernels, ElementsThatLanesMeetIn) {
    compare(
        parsed("kernel histogram() (x: i64[40], y: f32[8]) {\n  for i < 8 {\n    y[i] = 0.0\n  }\n"
               "  for o < 5 {\n    vector j < 8 {\n      y[mod(x[j + 8*o], 8)] += 1.0\n    }\n  }\n}"));
}

TEST(CompileKernels, InPlace) {
    Kernel k =
        parsed("kernel scale() (x: f32[100], y: f32[100]) {\n  vector i < 100 {\n    y[i] = x[i] * 2.0 + 1.0\n  }\n}");
    EXPECT_TRUE(may_share_memory(k, 0, 1));
    auto module = compiled({k});
    ASSERT_TRUE(module);
    Memory memory = make_memory(400);
    for (int i = 0; i < 100; ++i) floats(memory)[i] = static_cast<float>(i);
    run_launches(module->kernels()[0], {memory.get(), memory.get()}, {}, {});
    for (int i = 0; i < 100; ++i) EXPECT_EQ(floats(memory)[i], static_cast<float>(i * 2 + 1));

    // Elements that are made twice would be made of what was made before.
    Kernel again = parsed(
        "kernel scale() (x: f32[100], y: f32[100]) {\n  for o < 4 {\n    vector i < 32 {\n"
        "      y[min(32*o, 68) + i] = x[min(32*o, 68) + i] * 2.0\n    }\n  }\n}");
    EXPECT_FALSE(may_share_memory(again, 0, 1));

    Kernel reversed =
        parsed("kernel reverse() (x: f32[100], y: f32[100]) {\n  vector i < 100 {\n    y[i] = x[99 - i]\n  }\n}");
    EXPECT_FALSE(may_share_memory(reversed, 0, 1));
}

TEST(CompileKernels, ObjectsAreLoadedAgain) {
    std::vector<Kernel> kernels;
    for (uint64_t seed = 0; seed < 20; ++seed) kernels.push_back(random_kernel(seed).kernel);
    auto module = compiled(kernels);
    ASSERT_TRUE(module);
    CodegenOptions one_thread;
    one_thread.threads = 1;
    EXPECT_EQ(module->object(), compiled(kernels, one_thread)->object());
    auto again = load_object(kernels, module->object(), {});
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    for (size_t i = 0; i < kernels.size(); ++i) {
        ASSERT_EQ((*again)->kernels()[i].launches.size(), module->kernels()[i].launches.size());
        for (const KernelLaunch& l : (*again)->kernels()[i].launches) EXPECT_TRUE(l.function);
    }
    // Anything else is refused.
    for (size_t size : {size_t{0}, size_t{5}, size_t{30}, module->object().size() / 2, module->object().size() - 1}) {
        auto cut = load_object(kernels, module->object().substr(0, size), {});
        ASSERT_FALSE(cut.ok()) << size;
        EXPECT_EQ(cut.error().code(), Code::E0605);
    }
    kernels.push_back(random_kernel(77).kernel);
    auto other = load_object(kernels, module->object(), {});
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code(), Code::E0605);
}

TEST(CompileKernels, EveryTargetTakesObjects) {
    std::vector<Kernel> kernels{packed_gemm(1, 2, 16, {4, 16, false, 2})};
    for (uint64_t seed = 100; seed < 140; ++seed) kernels.push_back(random_kernel(seed).kernel);
    for (const std::string& target : list_targets()) {
        SCOPED_TRACE(target);
        CodegenOptions options;
        options.target = target;
        auto machine = describe_target(target);
        ASSERT_TRUE(machine.ok());
        auto object = machine->blocks ? emit_assembly(kernels, options) : emit_object(kernels, options);
        ASSERT_TRUE(object.ok()) << object.error().to_string();
        EXPECT_GT(object->size(), 1000u);
        EXPECT_EQ(machine->target, target);
        EXPECT_GE(machine->vector_bytes, 16);
        EXPECT_GT(machine->l2_bytes, machine->l1_bytes);
    }
    auto none = describe_target("z80");
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code(), Code::E0603);
    EXPECT_THAT(none.error().hint(), HasSubstr("x86_64-avx2"));
}

// What the speed of matrix products stands on.
TEST(CompileKernels, TilesStayInRegisters) {
    CodegenOptions options;
    options.target = "aarch64-neon";
    auto neon = emit_assembly({packed_gemm(1, 1, 256, {12, 8, true, 2})}, options);
    ASSERT_TRUE(neon.ok());
    EXPECT_THAT(*neon, HasSubstr("fmla\tv"));
    EXPECT_THAT(*neon, HasSubstr(".s[3]"));
    EXPECT_THAT(*neon, Not(HasSubstr("str\tq0, [sp")));
    EXPECT_THAT(*neon, Not(HasSubstr("dup\tv")));
    options.target = "x86_64-avx512";
    auto avx = emit_assembly({packed_gemm(1, 1, 256, {14, 32, false, 2})}, options);
    ASSERT_TRUE(avx.ok());
    EXPECT_THAT(*avx, HasSubstr("vfmadd231ps"));
    EXPECT_THAT(*avx, HasSubstr("%zmm30"));
    EXPECT_THAT(*avx, Not(HasSubstr("(%rsp)")));
}

// LLVM would convert them one by one.
TEST(CompileKernels, FloatsBecomeIntegersInVectors) {
    for (const char* to : {"saturate_u8", "saturate_i8", "saturate_i16", "saturate_i32", "i64", "i32"}) {
        const std::string type = std::string(to).substr(std::string(to).find('_') + 1);
        auto kernels =
            parse_kernels(fmt::format("kernel k() (x: f32[64], y: {}[64]) {{ for i < 4 {{ vector j < 16 {{ y[16*i + j] "
                                      "= {}(x[16*i + j]) }} }} }}",
                                      type, to));
        ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
        CodegenOptions options;
        options.target = "x86_64-avx512";
        auto text = emit_assembly(*kernels, options);
        ASSERT_TRUE(text.ok());
        EXPECT_THAT(*text, HasSubstr("vcvttps2")) << to;
        EXPECT_THAT(*text, Not(HasSubstr("vcvttss2"))) << to;
    }
}

// Words of bytes that lie side by side are read as words, also where only some lanes count and indices have products.
TEST(CompileKernels, WordsAreReadAtOnce) {
    auto kernels = parse_kernels(
        "kernel k(n) (x: u8[n, 24], y: i32[n, 6]) { for a < n { for b < n { vector j < 16 { if j < 6 { y[a, j] = "
        "bit_or(bit_or(bit_or(i32(x[a*b, 4*j]), shl(i32(x[a*b, 4*j + 1]), 8_i32)), shl(i32(x[a*b, 4*j + 2]), 16_i32)), "
        "shl(i32(x[a*b, 4*j + 3]), 24_i32)) } } } } }");
    ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
    CodegenOptions options;
    options.target = "x86_64-avx512";
    auto text = emit_assembly(*kernels, options);
    ASSERT_TRUE(text.ok());
    EXPECT_THAT(*text, HasSubstr("{%k"));
    EXPECT_THAT(*text, Not(HasSubstr("vpinsrb")));
    EXPECT_THAT(*text, Not(HasSubstr("movzbl")));
}

// Lanes that lie apart are gathered: words of bytes, and where only some lanes count, elements of four bytes.
TEST(CompileKernels, LanesThatLieApartAreGathered) {
    const std::string word =
        "bit_or(bit_or(bit_or(i32(x[16*i + j, 4]), shl(i32(x[16*i + j, 5]), 8_i32)), shl(i32(x[16*i + j, 6]), "
        "16_i32)), shl(i32(x[16*i + j, 7]), 24_i32))";
    for (const std::string& body :
         {"kernel k(n) (x: u8[n, 24], y: i32[n]) { for i < floordiv(n, 16) { vector j < 16 { y[16*i + j] = " + word +
              " } } }",
          "kernel k(n) (x: u8[n, 24], y: i32[n]) { for i < floordiv(n + 15, 16) { vector j < 16 { if 16*i + j < n { "
          "y[16*i + j] = " +
              word + " } } } }",
          std::string(
              "kernel k(n) (x: f32[n, 24], y: f32[n]) { for i < floordiv(n + 15, 16) { vector j < 16 { if 16*i + j "
              "< n { y[16*i + j] = x[16*i + j, 3] } } } }")}) {
        auto kernels = parse_kernels(body);
        ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
        CodegenOptions options;
        options.target = "x86_64-avx512";
        auto text = emit_assembly(*kernels, options);
        ASSERT_TRUE(text.ok());
        EXPECT_THAT(*text, HasSubstr("gather")) << body;
        EXPECT_THAT(*text, Not(HasSubstr("vpinsr"))) << body;
        for (int64_t n : {16, 37}) compare((*kernels)[0], {{"n", n}});
    }
}

TEST(CompileKernels, FlushesSubnormalsWhereTheyAreSlow) {
    const std::vector<Kernel> kernels{packed_gemm(1, 1, 16, {4, 16, false, 2})};
    CodegenOptions options;
    options.target = "x86_64-avx2";
    EXPECT_THAT(emit_assembly(kernels, options).value(), Not(HasSubstr("ldmxcsr")));
    options.flush_subnormals = true;
    const std::string text = emit_assembly(kernels, options).value();
    const size_t first = text.find("ldmxcsr");
    ASSERT_NE(first, std::string::npos);
    EXPECT_NE(text.find("ldmxcsr", first + 1), std::string::npos);  // the caller's mode again
    options.target = "aarch64-neon";
    EXPECT_THAT(emit_assembly(kernels, options).value(), Not(HasSubstr("fpcr")));
}

TEST(CompileKernels, SaysWhatItCannotCompile) {
    Kernel k = make_kernel("narrow", {}, {{"y", DType::f8e5m2, {4}}}, 1, store(0, {0}, constant(1, DType::f8e5m2)));
    EXPECT_FALSE(can_compile(k));
    auto made = compile_kernels({k}, {});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code(), Code::E0604);
    EXPECT_THAT(made.error().message(), HasSubstr("f8e5m2"));
    Kernel call = make_kernel("call", {}, {{"y", DType::f32, {4}}}, 1, make_stmt(Call{"barrier", {}, {}, {}}));
    EXPECT_THAT(can_compile(call).reason(), HasSubstr("meet at a barrier"));
}

}  // namespace
}  // namespace tessera::compile_kernels_test
