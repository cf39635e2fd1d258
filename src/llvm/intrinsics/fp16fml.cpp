// Arm: eight products of f16, added to f32. One instruction for the lower half of the operands, one for the upper.
#include <llvm/IR/IntrinsicsAArch64.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"

namespace tessera::codegen {
namespace {

void add_products(TileCode& c) {
    Value *x = c.load(c.tiles[1]), *y = c.load(c.tiles[2]);
    for (auto [first, id] :
         {std::pair{0, llvm::Intrinsic::aarch64_neon_fmlal}, std::pair{4, llvm::Intrinsic::aarch64_neon_fmlal2}}) {
        const Tile half = c.part(c.tiles[0], {first}, {4});
        Value* sums = c.load(half);
        c.store(half, c.b.CreateIntrinsic(id, {sums->getType(), x->getType()}, {sums, x, y}));
    }
}

}  // namespace

std::span<const IntrinsicCode> fp16fml_code() {
    static constexpr IntrinsicCode kAll[] = {{"fmlal", add_products}};
    return kAll;
}

}  // namespace tessera::codegen
