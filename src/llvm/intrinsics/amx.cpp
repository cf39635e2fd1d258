// x86-64: registers of 16 rows of 64 bytes. LLVM configures and names them.
#include <llvm/IR/IntrinsicsX86.h>

#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"
#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

namespace in = llvm::Intrinsic;

constexpr int64_t kRows = 16, kRowBytes = 64;

class AmxCode {
  public:
    explicit AmxCode(TileCode& code) : c_(code), b_(code.b) {}

    // Sums that lie together are a vector, which LLVM keeps in a tile register from one call to the next; others are
    // read and written row by row.
    void add_product(in::ID id) {
        Value *left = operand(c_.tiles[1]), *right = operand(c_.tiles[2]);
        Value *rows = b_.getInt16(kRows), *bytes = b_.getInt16(kRowBytes);
        auto product = [&](Value* sums) -> Value* {
            return b_.CreateIntrinsic(id, {}, {rows, bytes, bytes, sums, left, right});
        };
        Tile out = c_.tiles[0];
        auto* vector = llvm::FixedVectorType::get(b_.getInt32Ty(), kRows * kRowBytes / 4);
        if (TileCode::dense_elements(out) == kRows * kRowBytes / 4) {
            out.element = b_.getInt32Ty();
            Value* sums = b_.CreateIntrinsic(in::x86_cast_vector_to_tile, {vector}, {c_.load(out)});
            c_.store(out, b_.CreateIntrinsic(in::x86_cast_tile_to_vector, {vector}, {product(sums)}));
            return;
        }
        const Tile at = with_dense_rows(out);
        Value* sums = product(load(at));
        b_.CreateIntrinsic(in::x86_tilestored64_internal, {}, {rows, bytes, at.first, row_bytes(at), sums});
        if (at.first != out.first) c_.copy(at, out);
    }

  private:
    static int64_t element_bytes(const Tile& tile) { return tile.element->getScalarSizeInBits() / 8; }

    // Elements that are not together in rows go through the stack.
    Tile with_dense_rows(const Tile& tile) {
        if (TileCode::dense_elements(tile) * element_bytes(tile) >= kRowBytes) return tile;
        Tile copy = tile;
        int64_t stride = 1;
        for (size_t d = tile.extents.size(); d-- > 0; stride *= tile.extents[d]) copy.strides[d] = b_.getInt64(stride);
        copy.first = stack_memory(b_, llvm::ArrayType::get(tile.element, static_cast<uint64_t>(stride)), "tile");
        copy.scope = copy.noalias = nullptr;
        c_.copy(tile, copy);
        return copy;
    }

    Value* row_bytes(const Tile& tile) { return b_.CreateMul(tile.strides[0], b_.getInt64(element_bytes(tile))); }

    Value* load(const Tile& tile) {
        Value *rows = b_.getInt16(kRows), *bytes = b_.getInt16(kRowBytes);
        return b_.CreateIntrinsic(in::x86_tileloadd64_internal, {}, {rows, bytes, tile.first, row_bytes(tile)});
    }

    Value* operand(const Tile& tile) { return load(with_dense_rows(tile)); }

    TileCode& c_;
    llvm::IRBuilderBase& b_;
};

}  // namespace

std::span<const IntrinsicCode> amx_code() {
    static constexpr IntrinsicCode kAll[] = {
        {"amx_ss", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbssd_internal); }},
        {"amx_su", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbsud_internal); }},
        {"amx_us", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbusd_internal); }},
        {"amx_uu", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbuud_internal); }},
        {"amx_bf16", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbf16ps_internal); }},
    };
    return kAll;
}

}  // namespace tessera::codegen
