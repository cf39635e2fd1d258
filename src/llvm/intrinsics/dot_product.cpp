// Arm: four sums of four products of bytes.
#include <llvm/IR/IntrinsicsAArch64.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"

namespace tessera::codegen {
namespace {

// The second operand may be one word of a register, for all lanes.
void with_word_last(TileCode& c, llvm::Intrinsic::ID id) {
    c.call(id, c.b.getInt8Ty(), TileCode::is_repeated(c.tiles[1]));
}

}  // namespace

std::span<const IntrinsicCode> dot_product_code() {
    namespace in = llvm::Intrinsic;
    static constexpr IntrinsicCode kAll[] = {
        {"sdot", [](TileCode& c) { with_word_last(c, in::aarch64_neon_sdot); }},
        {"udot", [](TileCode& c) { with_word_last(c, in::aarch64_neon_udot); }},
        {"usdot", [](TileCode& c) { c.call(in::aarch64_neon_usdot, c.b.getInt8Ty()); }},
    };
    return kAll;
}

}  // namespace tessera::codegen
