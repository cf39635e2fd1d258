// Arm: 2 by 8 bytes times 8 by 2.
#include <llvm/IR/IntrinsicsAArch64.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"

namespace tessera::codegen {

std::span<const IntrinsicCode> i8mm_code() {
    namespace in = llvm::Intrinsic;
    static constexpr IntrinsicCode kAll[] = {
        {"smmla", [](TileCode& c) { c.call(in::aarch64_neon_smmla, c.b.getInt8Ty()); }},
        {"ummla", [](TileCode& c) { c.call(in::aarch64_neon_ummla, c.b.getInt8Ty()); }},
        {"usmmla", [](TileCode& c) { c.call(in::aarch64_neon_usmmla, c.b.getInt8Ty()); }},
    };
    return kAll;
}

}  // namespace tessera::codegen
