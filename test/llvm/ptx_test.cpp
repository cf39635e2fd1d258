// Kernels for GPUs, as far as that can be seen without one: they are emitted as PTX, and where NVIDIA's assembler is
// installed, it takes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "graph/text/parse.h"
#include "kernel/from_graph/from_graph.h"
#include "llvm/compile_kernels.h"
#include "rewrite/edit.h"
#include "rewrite/passes/optimize.h"
#include "source_dir.h"

namespace tessera::ptx_test {
namespace {

using testing::HasSubstr;

constexpr int kMostSpilled = 24;  // bytes of a thread

std::map<std::string, std::string> generated_models() {
    std::map<std::string, std::string> out;
    std::ifstream file(source_dir() + "/test/kernel/generated/models.tsr");
    std::string name;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("graph ")) name = line.substr(6, line.find('(') - 6);
        if (!name.empty()) out[name] += line + "\n";
    }
    return out;
}

std::vector<Kernel> kernels_of(const std::string& text, const char* target) {
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    auto done = optimize(**graph, {.last_phase = Phase::Rewrite});
    EXPECT_TRUE(done.ok()) << done.error().to_string();
    LowerOptions options;
    options.machine = *describe_target(target);
    auto program = from_graph(std::shared_ptr<const Graph>(std::move(*graph)), options);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    return program.ok() ? program->kernels : std::vector<Kernel>();
}

// The assembler, where there is one.
std::string find_assembler() {
    std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
    path += ":/usr/local/cuda/bin";
    for (size_t at = 0; at < path.size();) {
        const size_t end = std::min(path.find(':', at), path.size());
        const auto file = std::filesystem::path(path.substr(at, end - at)) / "ptxas";
        if (std::error_code none; std::filesystem::exists(file, none)) return file.string();
        at = end + 1;
    }
    return "";
}

struct Assembled {
    int status = -1, registers = 0, spilled = 0;
    std::string log;
};

Assembled assemble(const std::string& ptxas, const std::string& ptx, const std::string& arch) {
    const auto file = std::filesystem::temp_directory_path() / ("tessera_" + std::to_string(getpid()) + ".ptx");
    std::ofstream(file) << ptx;
    const std::string command = ptxas + " -v -arch=" + arch + " -o /dev/null " + file.string() + " 2>&1";
    Assembled made;
    FILE* pipe = popen(command.c_str(), "r");
    for (char line[512]; pipe && std::fgets(line, sizeof line, pipe);) made.log += line;
    made.status = pipe ? pclose(pipe) : -1;
    std::filesystem::remove(file);
    const std::regex registers("Used (\\d+) registers"), spills("(\\d+) bytes spill stores");
    for (std::sregex_iterator i(made.log.begin(), made.log.end(), registers), end; i != end; ++i)
        made.registers = std::max(made.registers, std::stoi((*i)[1]));
    for (std::sregex_iterator i(made.log.begin(), made.log.end(), spills), end; i != end; ++i)
        made.spilled = std::max(made.spilled, std::stoi((*i)[1]));
    return made;
}

TEST(Ptx, KernelsOfModelsAreEmittedAndAssembled) {
    const std::string ptxas = find_assembler();
    for (const auto& [name, text] : generated_models())
        for (const char* target : {"sm_80", "sm_90a"}) {
            SCOPED_TRACE(name + " for " + target);
            const std::vector<Kernel> kernels = kernels_of(text, target);
            auto ptx = emit_assembly(kernels, {.target = target});
            ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
            EXPECT_THAT(*ptx, HasSubstr(std::string(".target ") + target));
            EXPECT_THAT(*ptx, HasSubstr(".visible .entry tessera_"));
            EXPECT_EQ(ptx->find(".extern .func"), std::string::npos) << "a function that no GPU has";
            // The assembler moves loads of constant memory to before the wait for the kernel that writes it.
            if (ptx->find("griddepcontrol.wait") != std::string::npos) {
                EXPECT_EQ(ptx->find("ld.global.nc"), std::string::npos) << "a load that does not wait";
            }
            if (ptxas.empty()) continue;
            const Assembled made = assemble(ptxas, *ptx, target);
            EXPECT_EQ(made.status, 0) << made.log;
            EXPECT_EQ(made.log.find("warning"), std::string::npos) << made.log;
            EXPECT_LE(made.spilled, kMostSpilled) << made.log;
            std::printf("%-14s %-7s %zu kernels, at most %d registers, %d bytes spilled\n", name.c_str(), target,
                        kernels.size(), made.registers, made.spilled);
        }
    if (ptxas.empty()) GTEST_SKIP() << "ptxas is not installed: the kernels were emitted, and not assembled";
}

std::string product_of(const char* dtype, int64_t size, bool transposed) {
    return fmt::format(
        "graph g(a: {0}[{1},{1}], b: {0}[{1},{1}], c: {0}[{1}]) {{\n  {2}%0 = matmul(a, {3})\n  %1 = add(%0, c)\n"
        "  return relu(%1)\n}}\n",
        dtype, size, transposed ? "%t = transpose(b, perm=[1,0])\n  " : "", transposed ? "%t" : "b");
}

TEST(Ptx, ProductsOf16BitsAreMatrixInstructions) {
    const std::string ptxas = find_assembler();
    for (const char* dtype : {"f16", "bf16"})
        for (bool transposed : {false, true})
            for (int64_t size : {64, 200, 1024}) {
                const std::string text = product_of(dtype, size, transposed);
                SCOPED_TRACE(text);
                auto ptx = emit_assembly(kernels_of(text, "sm_80"), {.target = "sm_80"});
                ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
                EXPECT_THAT(*ptx, HasSubstr(fmt::format("mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32", dtype)));
                EXPECT_THAT(*ptx, HasSubstr("ldmatrix.sync.aligned.m8n8.x4"));
                EXPECT_EQ(ptx->find("ld.local"), std::string::npos) << "sums are not in registers";
                if (ptxas.empty()) continue;
                const Assembled made = assemble(ptxas, *ptx, "sm_80");
                EXPECT_EQ(made.status, 0) << made.log;
                EXPECT_LE(made.spilled, kMostSpilled) << made.log;
            }
}

// Bytes too, of any sign each. Those that do not lie along k are turned in registers.
TEST(Ptx, ProductsOfBytesAreMatrixInstructions) {
    const std::string ptxas = find_assembler();
    struct Types {
        const char *a, *b, *names;
    };
    for (const auto& [a, b, names] : {Types{"i8", "i8", "s8.s8"}, {"u8", "i8", "u8.s8"}, {"i8", "u8", "s8.u8"}})
        for (bool transposed : {false, true})
            for (int64_t size : {64, 200, 203, 1024}) {
                const std::string text = fmt::format(
                    "graph g(a: {0}[{2},{2}], b: {1}[{2},{2}], p: {0}[], q: {1}[{2}]) {{\n  {3}return "
                    "matmul_integer(a, {4}, p, q)\n}}\n",
                    a, b, size, transposed ? "%t = transpose(b, perm=[1,0])\n  " : "", transposed ? "%t" : "b");
                SCOPED_TRACE(text);
                auto ptx = emit_assembly(kernels_of(text, "sm_80"), {.target = "sm_80"});
                ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
                EXPECT_THAT(*ptx, HasSubstr(fmt::format("mma.sync.aligned.m16n8k32.row.col.s32.{}.s32", names)));
                EXPECT_THAT(*ptx, HasSubstr("ldmatrix.sync.aligned.m8n8.x4.shared"));
                EXPECT_EQ(ptx->find("ld.local"), std::string::npos) << "sums are not in registers";
                if (ptxas.empty()) continue;
                const Assembled made = assemble(ptxas, *ptx, "sm_80");
                EXPECT_EQ(made.status, 0) << made.log;
                EXPECT_EQ(made.spilled, 0) << made.log;
            }
    for (int64_t channels : {64, 3}) {
        const std::string text = fmt::format(
            "graph g(x: u8[8,{0},56,56], w: i8[64,{0},3,3], p: u8[], s: f32[64]) {{\n  const none: i8[1] = [0]\n"
            "  return qlinear_conv(x, 0.5, p, w, s, none, 2.0, p, pads=[1,1,1,1])\n}}\n",
            channels);
        SCOPED_TRACE(text);
        auto ptx = emit_assembly(kernels_of(text, "sm_80"), {.target = "sm_80"});
        ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
        EXPECT_THAT(*ptx, HasSubstr("mma.sync.aligned.m16n8k32.row.col.s32."));
        if (ptxas.empty()) continue;
        const Assembled made = assemble(ptxas, *ptx, "sm_80");
        EXPECT_EQ(made.status, 0) << made.log;
        EXPECT_EQ(made.spilled, 0) << made.log;
    }
}

// What is known before the program runs is copied while launches before are not done; what they may write is not.
TEST(Ptx, WeightsAreCopiedEarly) {
    const std::string text = product_of("bf16", 512, false), copies = "cp.async.bulk.tensor",
                      waits = "griddepcontrol.wait";
    std::string kernel = to_string(kernels_of(text, "sm_90a")[0]);
    auto plain = emit_assembly(kernels_of(text, "sm_90a"), {.target = "sm_90a"});
    ASSERT_TRUE(plain.ok()) << plain.error().to_string();
    EXPECT_LT(plain->find(waits), plain->find(copies));
    const size_t note = kernel.find("with pipeline=");
    ASSERT_NE(note, std::string::npos) << kernel;
    auto known = parse_kernels(kernel.insert(note + 5, "early=2, "));
    ASSERT_TRUE(known.ok()) << known.error().to_string();
    auto ptx = emit_assembly(*known, {.target = "sm_90a"});
    ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
    const size_t first = ptx->find(copies), wait = ptx->find(waits), next = ptx->find(copies, wait);
    EXPECT_LT(first, wait);
    EXPECT_EQ(ptx->find(copies, first + 1), next) << "more than the weights before the wait";
    EXPECT_NE(ptx->find(waits, wait + 1), std::string::npos) << "the other threads wait too";
    if (const std::string ptxas = find_assembler(); !ptxas.empty()) {
        const Assembled made = assemble(ptxas, *ptx, "sm_90a");
        EXPECT_EQ(made.status, 0) << made.log;
        EXPECT_EQ(made.log.find("warning"), std::string::npos) << made.log;
    }
}

// A thread reads each element of a tile once, and has all of the tile in registers.
TEST(Ptx, WinogradTransformsStayInRegisters) {
    const std::string ptxas = find_assembler();
    std::string weights;
    for (int i = 0; i < 8 * 8 * 9; ++i) weights += fmt::format("{}{:.2f}", i ? "," : "", 0.01 * (i * i % 197) - 1);
    for (int64_t side = 2; side <= 7; ++side) {
        const std::string text = fmt::format(
            "graph g(x: f32[2,8,30,23]) {{\n  const w: f32[8,8,3,3] = [{0}]\n  %p = max_pool(x, kernel_shape=[2,2])\n"
            "  %y = conv(%p, %w, pads=[1,1,1,1], tiles=[{1},{1}])\n  %r = relu(%y)\n  return max_pool(%r, "
            "kernel_shape=[2,2])\n}}\n",
            weights, side);
        SCOPED_TRACE(fmt::format("tiles of {0}x{0}", side));
        const int64_t points = (side + 2) * (side + 2);
        size_t transforms = 0;
        for (const Kernel& kernel : kernels_of(text, "sm_90a")) {
            if (!kernel.name.starts_with("winograd")) continue;
            ++transforms;
            auto ptx = emit_assembly({kernel}, {.target = "sm_90a"});
            ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
            auto count = [&](std::string_view what) {
                int64_t n = 0;
                for (size_t at = 0; (at = ptx->find(what, at)) != std::string::npos; ++at) ++n;
                return n;
            };
            EXPECT_EQ(count("ld.global.f32"), points) << kernel.name;
            // Of a result, stores at its edge may stand in branches of their own.
            if (kernel.name.starts_with("winograd_input")) {
                EXPECT_EQ(count("st.global.f32"), points);
            }
            EXPECT_EQ(count("ld.local"), 0) << kernel.name;
            if (ptxas.empty()) continue;
            const Assembled made = assemble(ptxas, *ptx, "sm_90a");
            EXPECT_EQ(made.status, 0) << made.log;
            EXPECT_EQ(made.spilled, 0) << made.log;
        }
        EXPECT_EQ(transforms, 2u);
    }
}

// Attention is one kernel, whose products go on while weights are made: the assembler holds none of them up. What it
// puts aside, it does outside of the loop over keys.
TEST(Ptx, AttentionIsOneKernelThatIsNotHeldUp) {
    constexpr int kMostAside = 64;
    const std::string ptxas = find_assembler();
    for (const char* dtype : {"f16", "bf16"})
        for (const char* more : {"", ", is_causal=1", ", m"})
            for (int64_t head : {64, 128}) {
                const std::string text = fmt::format(
                    "graph g(q: {0}[4,8,N,{1}], k: {0}[4,8,M,{1}], v: {0}[4,8,M,{1}], m: {0}[N,M]) {{\n"
                    "  return attention(q, k, v{2})\n}}\n",
                    dtype, head, more);
                SCOPED_TRACE(text);
                auto ptx = emit_assembly(kernels_of(text, "sm_90a"), {.target = "sm_90a"});
                ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
                EXPECT_THAT(*ptx,
                            HasSubstr(fmt::format("wgmma.mma_async.sync.aligned.m64n{0}k16.f32.{1}.{1}", head, dtype)));
                EXPECT_THAT(*ptx, HasSubstr("wgmma.wait_group.sync.aligned 1;"));
                EXPECT_THAT(*ptx, HasSubstr("shfl.sync.bfly.b32"));
                EXPECT_EQ(ptx->find("ld.local"), std::string::npos) << "scores are not in registers";
                if (ptxas.empty()) continue;
                const Assembled made = assemble(ptxas, *ptx, "sm_90a");
                EXPECT_EQ(made.status, 0) << made.log;
                EXPECT_EQ(made.log.find("warning"), std::string::npos) << made.log;
                EXPECT_EQ(made.log.find("C75"), std::string::npos) << made.log;
                EXPECT_LE(made.spilled, kMostAside) << made.log;
            }
}

// Assembled without spilled registers, and without a warning that products wait for each other.
void expect_not_held_up(const Assembled& made) {
    EXPECT_EQ(made.status, 0) << made.log;
    EXPECT_EQ(made.spilled, 0) << made.log;
    EXPECT_EQ(made.log.find("warning"), std::string::npos) << made.log;
    EXPECT_EQ(made.log.find("C75"), std::string::npos) << made.log;
}

// Few queries, windows and long heads, for every target: scores stay in registers, and nothing is spilled.
TEST(Ptx, AttentionOfFewQueriesAssembles) {
    const std::string ptxas = find_assembler();
    struct Shape {
        int64_t heads, key_heads, queries, keys, head;
    };
    for (const char* target : {"sm_80", "sm_86", "sm_90a"})
        for (const auto& [heads, key_heads, queries, keys, head] : {Shape{32, 8, 1, 8192, 128},
                                                                    {32, 8, 16, 8192, 64},
                                                                    {32, 8, 16, 4096, 256},
                                                                    {32, 8, 1, 4096, 256},
                                                                    {3, 3, 49, 49, 32},
                                                                    {8, 8, 512, 512, 256}}) {
            const std::string text = fmt::format(
                "graph g(q: f16[2,{0},{2},{4}], k: f16[2,{1},{3},{4}], v: f16[2,{1},{3},{4}]) {{\n"
                "  return attention(q, k, v)\n}}\n",
                heads, key_heads, queries, keys, head);
            SCOPED_TRACE(fmt::format("{}\n{}", target, text));
            auto ptx = emit_assembly(kernels_of(text, target), {.target = target});
            ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
            const bool wide = std::string_view(target) == "sm_90a";
            const char* product = wide ? "wgmma.mma_async" : "mma.sync.aligned.m16n8k16.row.col.f32.f16";
            EXPECT_NE(ptx->find(product), std::string::npos) << product;
            EXPECT_EQ(ptx->find("ld.local"), std::string::npos) << "scores are not in registers";
            if (!ptxas.empty()) expect_not_held_up(assemble(ptxas, *ptx, target));
        }
}

// Where there are instructions of four warps: tiles come by copies that the hardware makes, and go the same way. The
// assembler says where such instructions would have to wait for each other: none does, and nothing is spilled.
TEST(Ptx, WideMatrixInstructionsAreNotHeldUp) {
    const std::string ptxas = find_assembler();
    for (const char* dtype : {"f16", "bf16"})
        for (bool transposed : {false, true})
            for (int64_t size : {64, 200, 4096}) {
                const std::string text = product_of(dtype, size, transposed);
                SCOPED_TRACE(text);
                auto ptx = emit_assembly(kernels_of(text, "sm_90a"), {.target = "sm_90a"});
                ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
                EXPECT_THAT(*ptx, HasSubstr(fmt::format("k16.f32.{0}.{0}", dtype)));
                for (const char* part :
                     {"wgmma.mma_async.sync.aligned.m64n", "cp.async.bulk.tensor.2d.shared::cluster.global.tile",
                      "cp.async.bulk.tensor.2d.global.shared::cta.tile", "mbarrier.try_wait.parity",
                      "fence.proxy.async.shared::cta"})
                    EXPECT_THAT(*ptx, HasSubstr(part));
                // Where no multiprocessor has two blocks, one group of threads takes them, and needs nobody's
                // registers.
                EXPECT_EQ(ptx->find("setmaxnreg.inc") != std::string::npos, size == 4096);
                EXPECT_EQ(ptx->find("ld.local"), std::string::npos) << "sums are not in registers";
                if (ptxas.empty()) continue;
                expect_not_held_up(assemble(ptxas, *ptx, "sm_90a"));
            }
}

// Where lines begin within those of the cache, pairs of blocks copy what both read once for both.
TEST(Ptx, PairsOfBlocksShareCopies) {
    const std::string ptxas = find_assembler();
    for (bool transposed : {false, true}) {
        auto ptx = emit_assembly(kernels_of(product_of("f16", 2000, transposed), "sm_90a"), {.target = "sm_90a"});
        ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
        EXPECT_THAT(*ptx, HasSubstr("complete_tx::bytes.multicast::cluster"));
        EXPECT_THAT(*ptx, HasSubstr("mapa.shared::cluster.u32"));
        if (!ptxas.empty()) expect_not_held_up(assemble(ptxas, *ptx, "sm_90a"));
    }
    auto aligned = emit_assembly(kernels_of(product_of("f16", 2048, false), "sm_90a"), {.target = "sm_90a"});
    ASSERT_TRUE(aligned.ok()) << aligned.error().to_string();
    EXPECT_EQ(aligned->find("multicast"), std::string::npos);
}

// So are tiles of 192 columns, with what follows the product.
TEST(Ptx, TilesOf192ColumnsAreNotHeldUp) {
    const std::string ptxas = find_assembler();
    for (const char* sizes : {"3072,3072,768", "4096,4096,16384"}) {
        int m = 0, k = 0, n = 0;
        ASSERT_EQ(std::sscanf(sizes, "%d,%d,%d", &m, &k, &n), 3);
        auto ptx = emit_assembly(kernels_of(fmt::format("graph g(a: bf16[{0},{1}], b: bf16[{1},{2}], c: bf16[{2}]) {{\n"
                                                        "  %0 = matmul(a, b)\n  return gelu(add(%0, c))\n}}\n",
                                                        m, k, n),
                                            "sm_90a"),
                                 {.target = "sm_90a"});
        ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
        EXPECT_THAT(*ptx, HasSubstr("m64n192k16")) << sizes;
        if (!ptxas.empty()) expect_not_held_up(assemble(ptxas, *ptx, "sm_90a"));
    }
}

// The same of floats of 8 bits, of which instructions take 32 along k.
TEST(Ptx, FloatsOf8BitsAreNotHeldUp) {
    const std::string ptxas = find_assembler();
    struct Types {
        const char *a, *b, *names;
    };
    for (const auto& [a, b, names] : {Types{"f8e4m3fn", "f8e4m3fn", "e4m3.e4m3"},
                                      {"f8e5m2", "f8e5m2", "e5m2.e5m2"},
                                      {"f8e4m3fn", "f8e5m2", "e4m3.e5m2"}})
        for (int64_t size : {64, 208, 4096}) {
            const std::string text = fmt::format(
                "graph g(a: {0}[{2},{2}], b: {1}[{2},{2}], s: f32[], t: f32[]) {{\n  %x = dequantize_linear(a, s)\n"
                "  %y = dequantize_linear(b, t)\n  %z = transpose(%y, perm=[1,0])\n  %0 = matmul(%x, %z)\n"
                "  return cast(%0, to=16)\n}}\n",
                a, b, size);
            SCOPED_TRACE(text);
            auto ptx = emit_assembly(kernels_of(text, "sm_90a"), {.target = "sm_90a"});
            ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
            EXPECT_THAT(*ptx, HasSubstr(fmt::format("k32.f32.{}", names)));
            EXPECT_THAT(*ptx, HasSubstr("cp.async.bulk.tensor.2d.shared::cluster.global.tile"));
            if (ptxas.empty()) continue;
            expect_not_held_up(assemble(ptxas, *ptx, "sm_90a"));
        }
}

// And of bytes of two signs, with a zero point.
TEST(Ptx, BytesAreNotHeldUp) {
    const std::string ptxas = find_assembler();
    for (int64_t size : {64, 208, 4096}) {
        const std::string text = fmt::format(
            "graph g(a: u8[{0},{0}], b: i8[{0},{0}], p: u8[]) {{\n  %t = transpose(b, perm=[1,0])\n"
            "  return matmul_integer(a, %t, p)\n}}\n",
            size);
        SCOPED_TRACE(text);
        auto ptx = emit_assembly(kernels_of(text, "sm_90a"), {.target = "sm_90a"});
        ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
        EXPECT_THAT(*ptx, HasSubstr("k32.s32.u8.s8"));
        if (ptxas.empty()) continue;
        expect_not_held_up(assemble(ptxas, *ptx, "sm_90a"));
    }
}

// Rows are not left to one thread each, and updates are atomic steps.
TEST(Ptx, SelectionsScansAndScattersAreShared) {
    const std::string ptxas = find_assembler();
    const std::pair<const char*, const char*> cases[] = {
        {"x: f32[1,50257]) {\n  %v, %i = top_k(x, [50])\n  return %v, %i\n}\n", "bar.sync"},
        {"x: f16[2,M]) {\n  %v, %i = top_k(x, [7])\n  return %v, %i\n}\n", "bar.sync"},
        {"x: f32[3,100000]) {\n  return cum_sum(x, 1)\n}\n", "bar.sync"},
        {"x: f32[9000]) {\n  return non_zero(x)\n}\n", "bar.sync"},
        {"b: f32[1,840,4], s: f32[1,80,840], m: i64[1]) {\n  return non_max_suppression(b, s, m)\n}\n",
         "atom.shared.max.s32"},
        {"x: f16[99,8], i: i64[50,1], u: f16[50,8]) {\n  return scatter_nd(x, i, u, reduction=\"add\")\n}\n",
         "atom.global.add.f32"},
        {"x: u8[99], i: i64[50], u: u8[50]) {\n  return scatter_elements(x, i, u)\n}\n", "atom.global.max.s32"},
        {"x: f64[99], i: i64[50], u: f64[50]) {\n  return scatter_elements(x, i, u, reduction=\"mul\")\n}\n",
         "atom.global.cas.b64"}};
    for (const auto& [text, instruction] : cases)
        for (const char* target : {"sm_80", "sm_90a"}) {
            SCOPED_TRACE(fmt::format("{} for {}", text, target));
            auto ptx = emit_assembly(kernels_of(std::string("graph g(") + text, target), {.target = target});
            ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
            EXPECT_THAT(*ptx, HasSubstr(instruction));
            if (ptxas.empty()) continue;
            const Assembled made = assemble(ptxas, *ptx, target);
            EXPECT_EQ(made.status, 0) << made.log;
            EXPECT_EQ(made.spilled, 0) << made.log;
        }
}

// Whatever a kernel computes, no function of a library is left over.
TEST(Ptx, FunctionsAreWrittenOut) {
    const std::string ptxas = find_assembler();
    for (const char* dtype : {"f32", "f64", "f16"})
        for (const char* op :
             {"exp",  "log",   "sin",   "cos",   "tan", "asin", "acos",  "atan",  "sinh",    "cosh",
              "tanh", "asinh", "acosh", "atanh", "erf", "sqrt", "floor", "round", "sigmoid", "softplus"}) {
            if (std::string(dtype) == "f64" && std::string(op) == "softplus") continue;
            const std::string text = fmt::format("graph g(x: {}[37]) {{\n  return {}(x)\n}}\n", dtype, op);
            SCOPED_TRACE(text);
            const std::vector<Kernel> kernels = kernels_of(text, "sm_90");
            auto ptx = emit_assembly(kernels, {.target = "sm_90"});
            ASSERT_TRUE(ptx.ok()) << ptx.error().to_string();
            EXPECT_EQ(ptx->find(".extern .func"), std::string::npos);
        }
}

TEST(Ptx, ObjectsAreRefused) {
    auto object = emit_object({}, {.target = "sm_90"});
    ASSERT_FALSE(object.ok());
    EXPECT_THAT(object.error().to_string(), HasSubstr("no object files"));
}

}  // namespace
}  // namespace tessera::ptx_test
