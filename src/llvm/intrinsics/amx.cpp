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
        store(out, product(operand(out)));
    }

    // Tiles of words, several of rows by several of columns: sums stay in registers over all of k.
    void add_words(in::ID id) {
        const Tile &out = c_.tiles[0], &a = c_.tiles[1], &b = c_.tiles[2];
        const int64_t rows = out.extents[0] / kRows, columns = out.extents[1], words = a.extents[1];
        Value *height = b_.getInt16(kRows), *width = b_.getInt16(kRowBytes);
        auto sums_at = [&](int64_t r, int64_t x) { return c_.part(out, {r * kRows, x, 0}, {kRows, 1, kRows}); };
        std::vector<Value*> sums;
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t x = 0; x < columns; ++x) sums.push_back(operand(sums_at(r, x)));
        for (int64_t k = 0; k < words; k += kRows) {
            std::vector<Value*> right;
            for (int64_t r = 0; r < rows; ++r) {
                Value* left = operand(c_.part(a, {r * kRows, k}, {kRows, kRows}));
                for (int64_t x = 0; x < columns; ++x) {
                    if (r == 0) right.push_back(operand(c_.part(b, {k, x, 0}, {kRows, 1, kRows})));
                    Value*& sum = sums[static_cast<size_t>(r * columns + x)];
                    sum = b_.CreateIntrinsic(id, {}, {height, width, width, sum, left, right[static_cast<size_t>(x)]});
                }
            }
        }
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t x = 0; x < columns; ++x) store(sums_at(r, x), sums[static_cast<size_t>(r * columns + x)]);
    }

  private:
    static int64_t element_bytes(const Tile& tile) { return tile.element->getScalarSizeInBits() / 8; }

    static bool has_dense_rows(const Tile& tile) {
        return TileCode::dense_elements(tile) * element_bytes(tile) >= kRowBytes;
    }

    // Elements that are not together in rows go through the stack.
    Tile dense_copy(const Tile& tile) {
        Tile copy = tile;
        int64_t stride = 1;
        for (size_t d = tile.extents.size(); d-- > 0; stride *= tile.extents[d]) copy.strides[d] = b_.getInt64(stride);
        copy.first = stack_memory(b_, llvm::ArrayType::get(tile.element, static_cast<uint64_t>(stride)), "tile");
        copy.scope = copy.noalias = nullptr;
        return copy;
    }

    Value* row_bytes(const Tile& tile) { return b_.CreateMul(tile.strides[0], b_.getInt64(element_bytes(tile))); }

    Value* load(const Tile& tile) {
        Value *rows = b_.getInt16(kRows), *bytes = b_.getInt16(kRowBytes);
        return b_.CreateIntrinsic(in::x86_tileloadd64_internal, {}, {rows, bytes, tile.first, row_bytes(tile)});
    }

    Value* operand(const Tile& tile) {
        if (has_dense_rows(tile)) return load(tile);
        const Tile copy = dense_copy(tile);
        c_.copy(tile, copy);
        return load(copy);
    }

    void store(const Tile& to, Value* sums) {
        const Tile at = has_dense_rows(to) ? to : dense_copy(to);
        Value *rows = b_.getInt16(kRows), *bytes = b_.getInt16(kRowBytes);
        b_.CreateIntrinsic(in::x86_tilestored64_internal, {}, {rows, bytes, at.first, row_bytes(at), sums});
        if (at.first != to.first) c_.copy(at, to);
    }

    TileCode& c_;
    llvm::IRBuilderBase& b_;
};

}  // namespace

std::span<const IntrinsicCode> amx_code() {
    static constexpr auto kUsWords = [](TileCode& c) { AmxCode(c).add_words(in::x86_tdpbusd_internal); };
    static constexpr auto kSuWords = [](TileCode& c) { AmxCode(c).add_words(in::x86_tdpbsud_internal); };
    static constexpr IntrinsicCode kAll[] = {
        {"amx_ss", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbssd_internal); }},
        {"amx_su", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbsud_internal); }},
        {"amx_us", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbusd_internal); }},
        {"amx_uu", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbuud_internal); }},
        {"amx_bf16", [](TileCode& c) { AmxCode(c).add_product(in::x86_tdpbf16ps_internal); }},
        {"amx_words_us_16", kUsWords},
        {"amx_words_us_32", kUsWords},
        {"amx_words_us_48", kUsWords},
        {"amx_words_us_64", kUsWords},
        {"amx_words_us_96", kUsWords},
        {"amx_words_us_128", kUsWords},
        {"amx_words_us_192", kUsWords},
        {"amx_words_us_256", kUsWords},
        {"amx_words_su_16", kSuWords},
        {"amx_words_su_32", kSuWords},
        {"amx_words_su_48", kSuWords},
        {"amx_words_su_64", kSuWords},
        {"amx_words_su_96", kSuWords},
        {"amx_words_su_128", kSuWords},
        {"amx_words_su_192", kSuWords},
        {"amx_words_su_256", kSuWords},
    };
    return kAll;
}

}  // namespace tessera::codegen
