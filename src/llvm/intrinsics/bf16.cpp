// Arm: four sums of two products of bf16, and 2 by 4 of them times 4 by 2.
#include <llvm/IR/IntrinsicsAArch64.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"

namespace tessera::codegen {

std::span<const IntrinsicCode> bf16_code() {
    namespace in = llvm::Intrinsic;
    static constexpr IntrinsicCode kAll[] = {
        {"bfdot", [](TileCode& c) { c.call(in::aarch64_neon_bfdot, c.b.getBFloatTy()); }},
        {"bfmmla", [](TileCode& c) { c.call(in::aarch64_neon_bfmmla, c.b.getBFloatTy()); }},
    };
    return kAll;
}

}  // namespace tessera::codegen
