// Tile programs as blocks of threads: verified, interpreted thread by thread in both orders, and written as PTX.
#include <gtest/gtest.h>

#include "kernel/from_tile/from_tile.h"
#include "llvm/compile_kernels.h"
#include "tile/program.h"

namespace tessera::tile::blocks_test {
namespace {

using As = Argument::As;

Kernel lowered(const Program& program, const std::vector<Argument>& arguments, int grid_rank, int warps) {
    auto made = from_tile(program, arguments, grid_rank, *describe_target("sm_90"), {.warps = warps});
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    if (!made.ok()) return {};
    const Status verified = verify_tiles(made->kernel);
    EXPECT_TRUE(verified.ok()) << verified.error().to_string() << to_string(made->kernel);
    return std::move(made->kernel);
}

Tensor as(DType dtype, const Tensor& x) {
    Tensor made = *Tensor::zeros(dtype, x.sizes());
    for (int64_t i = 0; i < x.elements(); ++i) made.set_real(i, x.real_at(i));
    return made;
}

// Interpreted forwards and backwards, without a race; the buffers after both.
std::vector<Tensor> run(const Kernel& kernel, const std::vector<Tensor>& given, const SymbolValues& symbols) {
    std::vector<Tensor> forwards, backwards;
    for (bool back : {false, true}) {
        std::vector<Tensor>& buffers = back ? backwards : forwards;
        for (const Tensor& t : given) buffers.push_back(as(t.dtype(), t));
        const Status done =
            interpret(kernel, buffers, symbols, {.backwards = back, .races = InterpretOptions::Races::Find});
        EXPECT_TRUE(done.ok()) << done.error().to_string() << to_string(kernel);
    }
    for (size_t i = 0; i < forwards.size(); ++i) EXPECT_EQ(forwards[i], backwards[i]);
    EXPECT_TRUE(emit_assembly({kernel}, {.target = "sm_90a"}).ok());
    return forwards;
}

Tensor numbers(int64_t count, int modulo) {
    std::vector<float> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>(i * 7 % modulo - modulo / 2));
    return Tensor::of<float>({count}, all);
}

Value places(Builder& b, const Value& base, int64_t rows, int64_t columns) {
    const Value i = *b.expand(*b.arange(0, rows), 1), j = *b.expand(*b.arange(0, columns), 0);
    return *b.binary("+", base, *b.binary("+", *b.binary("*", i, columns), j));
}

TEST(TileBlocks, ElementsStayWithTheirThreads) {
    Builder b("scale");
    const Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true});
    const Value y = b.parameter("y", {.dtype = DType::f32, .pointer = true});
    const Value n = b.parameter("n", {.dtype = DType::i32});
    const Value at = *b.binary("+", *b.binary("*", *b.program_id(0), int64_t{512}), *b.arange(0, 512));
    const Value inside = *b.binary("<", at, n);
    const Value v = *b.load(*b.binary("+", x, at), inside);
    const Value w = *b.binary("*", v, *b.binary("+", v, 1.0));
    ASSERT_TRUE(b.store(*b.binary("+", y, at), *b.binary("+", w, w), inside).ok());
    const Program program = *b.finish();
    for (int warps : {1, 4, 8}) {
        const Kernel kernel = lowered(program, {{As::Array}, {As::Array}, {As::Size, -1, 16}}, 1, warps);
        for (size_t i = kernel.params; i < kernel.buffers.size(); ++i)
            EXPECT_EQ(kernel.buffers[i].shape.size(), 4u) << to_string(kernel);
        const Tensor in = numbers(1000, 17);
        const auto out = run(
            kernel, {in, numbers(1000, 1)},
            {{"grid_x", 2}, {"grid_y", 1}, {"grid_z", 1}, {"elements_x", 1000}, {"elements_y", 1000}, {"n", 992 / 16}});
        for (int64_t i = 0; i < 992; ++i) {
            const double v = in.real_at(i);
            ASSERT_EQ(out[1].real_at(i), 2 * v * (v + 1)) << i;
        }
        EXPECT_EQ(out[1].real_at(992), 0);
    }
}

TEST(TileBlocks, RowsAndColumnsAreReduced) {
    for (int64_t axis : {0, 1})
        for (int warps : {1, 2, 4})
            for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{8, 4}, {4, 256}, {128, 8}}) {
                Builder b("sums");
                const Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true});
                const Value y = b.parameter("y", {.dtype = DType::f32, .pointer = true});
                const Value v = *b.load(places(b, x, rows, columns));
                const Value sum = *b.reduce(Reduction::Sum, v, axis, true);
                ASSERT_TRUE(b.store(places(b, y, rows, columns), *b.binary("-", v, sum)).ok());
                const Kernel kernel = lowered(*b.finish(), {{As::Array}, {As::Array}}, 1, warps);
                const int64_t all = rows * columns;
                const Tensor in = numbers(all, 13);
                const auto out =
                    run(kernel, {in, numbers(all, 1)},
                        {{"grid_x", 1}, {"grid_y", 1}, {"grid_z", 1}, {"elements_x", all}, {"elements_y", all}});
                for (int64_t i = 0; i < rows; ++i)
                    for (int64_t j = 0; j < columns; ++j) {
                        double sum_there = 0;
                        for (int64_t k = 0; k < (axis ? columns : rows); ++k)
                            sum_there += in.real_at(axis ? i * columns + k : k * columns + j);
                        const int64_t at = i * columns + j;
                        ASSERT_EQ(out[1].real_at(at), in.real_at(at) - sum_there);
                    }
            }
}

TEST(TileBlocks, ProductsOfShortFloatsUseMatrices) {
    for (int warps : {1, 4, 8})
        for (bool transposed : {false, true}) {
            constexpr int64_t kRows = 64, kColumns = 32, kDepth = 16;
            Builder b("product");
            const Value x = b.parameter("x", {.dtype = DType::f16, .pointer = true});
            const Value y = b.parameter("y", {.dtype = DType::f16, .pointer = true});
            const Value z = b.parameter("z", {.dtype = DType::f32, .pointer = true});
            const Value left = *b.load(places(b, x, kRows, kDepth));
            const Value right = transposed ? *b.permute(*b.load(places(b, y, kColumns, kDepth)), {1, 0})
                                           : *b.load(places(b, y, kDepth, kColumns));
            const auto carried =
                *b.begin_for(int64_t{0}, int64_t{2}, int64_t{1}, {*b.full({kRows, kColumns}, 0.0, DType::f32)});
            const auto sums = *b.end_for({*b.dot(left, right, carried[1])});
            ASSERT_TRUE(b.store(places(b, z, kRows, kColumns), sums[0]).ok());
            const Kernel kernel = lowered(*b.finish(), {{As::Array}, {As::Array}, {As::Array}}, 1, warps);
            EXPECT_NE(to_string(kernel).find("call warps_f16"), std::string::npos);
            const Tensor a = numbers(kRows * kDepth, 5), c = numbers(kDepth * kColumns, 7);
            const auto out = run(kernel, {as(DType::f16, a), as(DType::f16, c), numbers(kRows * kColumns, 1)},
                                 {{"grid_x", 1},
                                  {"grid_y", 1},
                                  {"grid_z", 1},
                                  {"elements_x", kRows * kDepth},
                                  {"elements_y", kDepth * kColumns},
                                  {"elements_z", kRows * kColumns}});
            for (int64_t i = 0; i < kRows; ++i)
                for (int64_t j = 0; j < kColumns; ++j) {
                    double sum = 0;
                    for (int64_t k = 0; k < kDepth; ++k)
                        sum +=
                            2 * a.real_at(i * kDepth + k) * c.real_at(transposed ? j * kDepth + k : k * kColumns + j);
                    ASSERT_EQ(out[2].real_at(i * kColumns + j), sum);
                }
        }
}

}  // namespace
}  // namespace tessera::tile::blocks_test
