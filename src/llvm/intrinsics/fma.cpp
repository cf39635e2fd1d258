// Outer products of f32 as multiply-adds of whole registers.
#include <llvm/IR/Intrinsics.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"

namespace tessera::codegen {
namespace {

Value* multiplied_and_added(TileCode& c, Value* x, Value* y, Value* sum) {
    if (c.fast_math) return c.b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {y->getType()}, {x, y, sum});
    return c.b.CreateFAdd(sum, c.b.CreateFMul(x, y));
}

// `lanes`: of a register, which divide the columns. Rows are read `at_once`, which divides them too.
void outer_product(TileCode& c, int64_t lanes, int64_t at_once) {
    const Tile &out = c.tiles[0], &left = c.tiles[1], &right = c.tiles[2];
    std::vector<Value*> columns;
    for (int64_t j = 0; j < out.extents[1]; j += lanes) columns.push_back(c.load(c.part(right, {j}, {lanes})));
    for (int64_t first = 0; first < out.extents[0]; first += at_once) {
        Value* rows = c.load(c.part(left, {first}, {at_once}));
        for (int64_t i = 0; i < at_once; ++i) {
            Value* x = at_once == 1 ? rows : c.b.CreateExtractElement(rows, static_cast<uint64_t>(i));
            x = c.b.CreateVectorSplat(static_cast<unsigned>(lanes), x);
            for (int64_t j = 0; j < out.extents[1]; j += lanes) {
                const Tile sums = c.part(out, {first + i, j}, {1, lanes});
                Value* y = columns[static_cast<size_t>(j / lanes)];
                c.store(sums, multiplied_and_added(c, x, y, c.load(sums)));
            }
        }
    }
}

}  // namespace

std::span<const IntrinsicCode> fma_code() {
    static constexpr IntrinsicCode kAll[] = {
        {"fma_outer_8x12", [](TileCode& c) { outer_product(c, 4, 4); }},
        {"fma_outer_12x8", [](TileCode& c) { outer_product(c, 4, 4); }},
        {"fma_outer_6x16", [](TileCode& c) { outer_product(c, 8, 1); }},
        {"fma_outer_14x32", [](TileCode& c) { outer_product(c, 16, 1); }},
    };
    return kAll;
}

}  // namespace tessera::codegen
