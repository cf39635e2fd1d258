// x86-64: a sum of four products of bytes in each 32 bits. AVX-512 has only unsigned times signed.
#include <llvm/IR/IntrinsicsX86.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"

namespace tessera::codegen {

std::span<const IntrinsicCode> vnni_code() {
    namespace in = llvm::Intrinsic;
    static constexpr IntrinsicCode kAll[] = {
        {"vnni_256", [](TileCode& c) { c.call(in::x86_avx512_vpdpbusd_256, c.b.getInt32Ty()); }},
        {"vnni_256_ss", [](TileCode& c) { c.call(in::x86_avx2_vpdpbssd_256, c.b.getInt32Ty()); }},
        {"vnni_256_uu", [](TileCode& c) { c.call(in::x86_avx2_vpdpbuud_256, c.b.getInt32Ty()); }},
        {"vnni_512", [](TileCode& c) { c.call(in::x86_avx512_vpdpbusd_512, c.b.getInt32Ty()); }},
    };
    return kAll;
}

}  // namespace tessera::codegen
