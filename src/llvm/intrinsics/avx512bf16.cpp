// x86-64: sixteen sums of two products of bf16.
#include <llvm/IR/IntrinsicsX86.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"

namespace tessera::codegen {

std::span<const IntrinsicCode> avx512bf16_code() {
    namespace in = llvm::Intrinsic;
    static constexpr IntrinsicCode kAll[] = {
        {"bf16_512", [](TileCode& c) { c.call(in::x86_avx512bf16_dpbf16ps_512, c.b.getBFloatTy()); }},
    };
    return kAll;
}

}  // namespace tessera::codegen
