// Calls of declared intrinsics as machine code: the instruction where the target has it, otherwise the nest.
#include "llvm/intrinsics/intrinsic_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/random_kernel.h"
#include "llvm/run_kernel.h"

namespace tessera::intrinsics_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kTiles = 3, kDepth = 2;

enum class Layout { Dense, Padded, Transposed, Repeated };

// A buffer of several tiles, and how many elements apart neighbours along each of the intrinsic's axes lie.
struct TileBuffer {
    Buffer buffer;
    std::vector<Expr> strides;
};

TileBuffer tile_buffer(const Intrinsic& in, std::string name, DType dtype, int64_t count, std::vector<Expr> element,
                       Layout layout) {
    std::vector<ReduceAxis> axes = in.axes;
    axes.insert(axes.end(), in.reduce.begin(), in.reduce.end());
    auto extent = [&](const Expr& var) {
        for (const ReduceAxis& a : axes)
            if (a.var.same(var)) return *a.extent.as_int();
        return int64_t{0};
    };
    if (layout == Layout::Transposed) std::reverse(element.begin(), element.end());
    if (layout == Layout::Repeated) element.erase(element.begin());
    TileBuffer out{{std::move(name), dtype, {count}}, std::vector<Expr>(axes.size(), 0)};
    for (size_t d = 0; d < element.size(); ++d) {
        const bool wider = layout == Layout::Padded && d + 1 == element.size();
        out.buffer.shape.push_back(extent(element[d]) + (wider ? 3 : 0));
    }
    int64_t stride = 1;
    for (size_t d = element.size(); d-- > 0;) {
        for (size_t i = 0; i < axes.size(); ++i)
            if (axes[i].var.same(element[d])) out.strides[i] = stride;
        stride *= *out.buffer.shape[d + 1].as_int();
    }
    return out;
}

// for t { out[t] += tiles of each of some rounds }, the sums in registers or straight in the output.
Kernel call_kernel(const Intrinsic& in, Layout sums, Layout operands, bool registers) {
    std::vector<Expr> out_axes;
    for (const ReduceAxis& a : in.axes) out_axes.push_back(a.var);
    std::vector<TileBuffer> tiles(in.operands.size() + 1);
    tiles[0] = tile_buffer(in, "out", in.out, kTiles, out_axes, sums);
    visit(in.value, [&](const Expr& e) {
        if (!e.is(ExprKind::Load)) return;
        const auto i = static_cast<size_t>(e.node().slot);
        // Only the first is the same in all lanes.
        const Layout layout = operands == Layout::Repeated && i > 0 ? Layout::Dense : operands;
        tiles[i + 1] = tile_buffer(in, "x" + std::to_string(i), in.operands[i], kTiles * kDepth, e.args(), layout);
    });
    Expr t = index_var("t", kTiles), k = index_var("k", kDepth);
    Kernel kernel;
    Call call{in.name, {}, {}, {}};
    for (size_t i = 0; i < tiles.size(); ++i) {
        kernel.buffers.push_back(tiles[i].buffer);
        Access first{static_cast<int>(i), std::vector<Expr>(tiles[i].buffer.shape.size(), 0)};
        first.indices[0] = i == 0 ? t : t * kDepth + k;
        (i == 0 ? call.writes : call.reads).push_back(first);
        call.args.insert(call.args.end(), tiles[i].strides.begin(), tiles[i].strides.end());
    }
    kernel.name = in.name;
    kernel.params = tiles.size();
    const auto acc = static_cast<int>(tiles.size());
    if (registers) {
        const TileBuffer dense = tile_buffer(in, "acc", in.out, 1, out_axes, Layout::Dense);
        kernel.buffers.push_back(dense.buffer);
        kernel.buffers.back().scope = Scope::Register;
        call.writes[0] = {acc, std::vector<Expr>(dense.buffer.shape.size(), 0)};
        std::copy(dense.strides.begin(), dense.strides.end(), call.args.begin());
    }
    Stmt body = for_loop({k, kDepth, LoopKind::Serial, {}, {}, make_stmt(call)});
    if (registers) {
        auto each = [&](const char* name, auto store_one) {
            std::vector<Expr> vars, at{0};
            for (const ReduceAxis& a : in.axes)
                vars.push_back(index_var(fmt::format("{}{}", name, vars.size()), a.extent.as_int()));
            at.insert(at.end(), vars.begin(), vars.end());
            Stmt s = store_one(at);
            for (size_t d = vars.size(); d-- > 0;) {
                const LoopKind kind = d + 1 == vars.size() ? LoopKind::Vector : LoopKind::Unrolled;
                s = for_loop({vars[d], in.axes[d].extent, kind, {}, {}, s});
            }
            return s;
        };
        Stmt zero = each("z", [&](const std::vector<Expr>& at) { return store(acc, at, constant(0, in.out)); });
        Stmt write = each("w", [&](std::vector<Expr> at) {
            Expr v = load(acc, in.out, at);
            at[0] = t;
            return store(0, at, v);
        });
        body = alloc(acc, seq({zero, body, write}));
    }
    kernel.body = for_loop({t, kTiles, LoopKind::Serial, {}, {}, body});
    return kernel;
}

// The ends of each type's range, and what lies between; sums so large that they overflow.
Tensor extreme_values(const Buffer& b, uint64_t seed) {
    Sizes sizes;
    for (const Expr& e : b.shape) sizes.push_back(*e.as_int());
    Tensor t = std::move(Tensor::zeros(b.dtype, sizes).value());
    RandomStream random(seed, b.name);
    for (int64_t i = 0; i < t.elements(); ++i) {
        const uint64_t bits = random.bits(static_cast<uint64_t>(i));
        if (is_float(b.dtype)) {
            t.set_real(i, static_cast<double>(bits % 4001) / 1000 - 2);
        } else {
            const int64_t low = int_min(b.dtype), high = int_max(b.dtype);
            const int64_t between = low + static_cast<int64_t>((bits >> 8) % static_cast<uint64_t>(high - low + 1));
            t.set_int(i, bits % 4 == 0 ? low : bits % 4 == 1 ? high : between);
        }
    }
    return t;
}

void compare(const Kernel& kernel, const std::string& target) {
    ASSERT_TRUE(verify(kernel).ok()) << verify(kernel).error().to_string() << to_string(kernel);
    std::vector<Tensor> expected;
    for (size_t i = 0; i < kernel.params; ++i) expected.push_back(extreme_values(kernel.buffers[i], 7 + i));
    std::vector<Tensor> got = copies(expected);
    std::vector<GuardedMemory> memory;
    std::vector<void*> pointers;
    for (const Tensor& t : got) {
        memory.emplace_back(t.bytes());
        std::memcpy(memory.back().data(), t.data(), static_cast<size_t>(t.bytes()));
        pointers.push_back(memory.back().data());
    }
    Status status = interpret(kernel, expected);
    ASSERT_TRUE(status.ok()) << status.error().to_string() << to_string(kernel);
    CodegenOptions options;
    options.target = target;
    auto module = compile_kernels({kernel}, options);
    ASSERT_TRUE(module.ok()) << module.error().to_string();
    run_launches((*module)->kernels()[0], pointers, {}, {});
    for (size_t i = 0; i < got.size(); ++i)
        std::memcpy(got[i].mutable_data(), pointers[i], static_cast<size_t>(got[i].bytes()));
    EXPECT_EQ(first_difference(expected, got, is_float(expected[0].dtype()) ? 1e-5 : 0), "") << to_string(kernel);
}

void compare_layouts(const Intrinsic& in, const std::string& target) {
    SCOPED_TRACE(fmt::format("{} on {}", in.name, target));
    for (bool registers : {false, true}) compare(call_kernel(in, Layout::Dense, Layout::Dense, registers), target);
    compare(call_kernel(in, Layout::Padded, Layout::Padded, false), target);
    compare(call_kernel(in, Layout::Transposed, Layout::Transposed, false), target);
    compare(call_kernel(in, Layout::Dense, Layout::Repeated, true), target);
}

// The instruction that a named target has for each.
struct Expected {
    const char *name, *target, *instruction;
};
constexpr Expected kExpected[] = {
    {"fma_outer_8x12", "aarch64-neon", "fmla"},
    {"fma_outer_12x8", "aarch64-neon", "fmla"},
    {"fma_outer_6x16", "x86_64-avx2", "vfmadd"},
    {"fma_outer_14x32", "x86_64-avx512", "vfmadd"},
    {"sdot", "aarch64-i8mm", "sdot"},
    {"udot", "aarch64-i8mm", "udot"},
    {"usdot", "aarch64-i8mm", "usdot"},
    {"smmla", "aarch64-i8mm", "smmla"},
    {"ummla", "aarch64-i8mm", "ummla"},
    {"usmmla", "aarch64-i8mm", "usmmla"},
    {"bfdot", "aarch64-i8mm", "bfdot"},
    {"bfmmla", "aarch64-i8mm", "bfmmla"},
    {"fmlal", "aarch64-i8mm", "fmlal"},
    {"vnni_256", "x86_64-avxvnni", "vpdpbusd"},
    {"vnni_256_ss", "x86_64-avxvnni", "vpdpbssd"},
    {"vnni_256_uu", "x86_64-avxvnni", "vpdpbuud"},
    {"vnni_512", "x86_64-avx512vnni", "vpdpbusd"},
    {"bf16_512", "x86_64-avx512vnni", "vdpbf16ps"},
    {"amx_ss", "x86_64-amx", "tdpbssd"},
    {"amx_su", "x86_64-amx", "tdpbsud"},
    {"amx_us", "x86_64-amx", "tdpbusd"},
    {"amx_uu", "x86_64-amx", "tdpbuud"},
    {"amx_bf16", "x86_64-amx", "tdpbf16ps"},
    {"amx_words_us_16", "x86_64-amx", "tdpbusd"},
    {"amx_words_us_32", "x86_64-amx", "tdpbusd"},
    {"amx_words_us_48", "x86_64-amx", "tdpbusd"},
    {"amx_words_us_64", "x86_64-amx", "tdpbusd"},
    {"amx_words_us_96", "x86_64-amx", "tdpbusd"},
    {"amx_words_us_128", "x86_64-amx", "tdpbusd"},
    {"amx_words_us_192", "x86_64-amx", "tdpbusd"},
    {"amx_words_us_256", "x86_64-amx", "tdpbusd"},
    {"amx_words_su_16", "x86_64-amx", "tdpbsud"},
    {"amx_words_su_32", "x86_64-amx", "tdpbsud"},
    {"amx_words_su_48", "x86_64-amx", "tdpbsud"},
    {"amx_words_su_64", "x86_64-amx", "tdpbsud"},
    {"amx_words_su_96", "x86_64-amx", "tdpbsud"},
    {"amx_words_su_128", "x86_64-amx", "tdpbsud"},
    {"amx_words_su_192", "x86_64-amx", "tdpbsud"},
    {"amx_words_su_256", "x86_64-amx", "tdpbsud"},
};

TEST(Intrinsics, EveryDeclarationHasCode) {
    std::vector<std::string> declared, emitted, expected;
    for (const Intrinsic& in : all_intrinsics())
        if (!in.by_block) declared.push_back(in.name);  // test/llvm/ptx_test.cpp has the others
    for (const codegen::IntrinsicCode& code : codegen::all_intrinsic_code()) emitted.emplace_back(code.name);
    for (const Expected& e : kExpected) expected.emplace_back(e.name);
    EXPECT_THAT(emitted, testing::UnorderedElementsAreArray(declared));
    EXPECT_THAT(expected, testing::UnorderedElementsAreArray(declared));
}

TEST(Intrinsics, AMachineSaysWhatItHas) {
    auto names = [](const char* target) {
        std::vector<std::string> out;
        for (const Intrinsic* in : find_intrinsics(*describe_target(target))) out.push_back(in->name);
        return out;
    };
    EXPECT_THAT(names("aarch64-neon"), testing::ElementsAre("fma_outer_8x12", "fma_outer_12x8"));
    EXPECT_THAT(names("x86_64-avxvnni"),
                testing::ElementsAre("fma_outer_6x16", "vnni_256", "vnni_256_ss", "vnni_256_uu"));
    EXPECT_THAT(names("wasm32"), testing::IsEmpty());
    EXPECT_THAT(names("x86_64-amx"), testing::Contains("amx_us"));
}

// As the instruction where this machine has it, otherwise as the nest.
TEST(Intrinsics, ComputeWhatTheyDeclare) {
    int instructions = 0;
    const Machine host = *describe_target("host");
    for (const Intrinsic& in : all_intrinsics()) {
        if (in.by_block) continue;
        compare_layouts(in, "host");
        instructions += host.has(in.needs);
    }
    if (!instructions) GTEST_SKIP() << "this processor has none of the instructions: only nests were compared";
}

TEST(Intrinsics, NestsWhereThereIsNoInstruction) {
#if defined(__aarch64__)
    const char* plain = "aarch64-neon";
#else
    const char* plain = "x86_64-sse4";
#endif
    for (const char* name : {"sdot", "usmmla", "bfdot", "vnni_256", "amx_us"})
        compare_layouts(*find_intrinsic(name), plain);
    CodegenOptions options;
    options.target = "aarch64-neon";
    const Kernel kernel = call_kernel(*find_intrinsic("sdot"), Layout::Dense, Layout::Dense, true);
    auto text = emit_assembly({kernel}, options);
    ASSERT_TRUE(text.ok()) << text.error().to_string();
    EXPECT_THAT(*text, Not(HasSubstr("sdot\tv")));
}

TEST(Intrinsics, AreTheInstructionsOfTheirTargets) {
    for (const Expected& e : kExpected)
        for (Layout operands : {Layout::Dense, Layout::Padded, Layout::Transposed, Layout::Repeated}) {
            SCOPED_TRACE(fmt::format("{} on {}", e.name, e.target));
            const Intrinsic& in = *find_intrinsic(e.name);
            ASSERT_TRUE(describe_target(e.target)->has(in.needs));
            CodegenOptions options;
            options.target = e.target;
            const Layout sums = operands == Layout::Repeated ? Layout::Dense : operands;
            auto text = emit_assembly({call_kernel(in, sums, operands, false)}, options);
            ASSERT_TRUE(text.ok()) << text.error().to_string();
            EXPECT_THAT(*text, HasSubstr(e.instruction));
        }
}

// Sums in registers are no memory from one round to the next, but for those that are too many to be one vector.
TEST(Intrinsics, SumsStayInRegisters) {
    for (const Expected& e : kExpected) {
        if (std::string_view(e.name).starts_with("amx_words")) continue;
        SCOPED_TRACE(fmt::format("{} on {}", e.name, e.target));
        CodegenOptions options;
        options.target = e.target;
        auto text = emit_llvm({call_kernel(*find_intrinsic(e.name), Layout::Dense, Layout::Dense, true)}, options);
        ASSERT_TRUE(text.ok()) << text.error().to_string();
        EXPECT_THAT(*text, Not(HasSubstr("alloca")));
    }
}

}  // namespace
}  // namespace tessera::intrinsics_test
