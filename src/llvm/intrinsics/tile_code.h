// Tiles in memory that an instruction works on, read into vectors and written from them.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <vector>

namespace tessera::codegen {

using llvm::Value;

struct Tile {
    Value* first = nullptr;         // the address of its first element
    llvm::Type* element = nullptr;  // in memory; bf16 is an i16
    llvm::Align align = {};         // of each element
    std::vector<int64_t> extents = {};
    std::vector<Value*> strides = {};  // in elements; 0 where all are one element
    llvm::MDNode *scope = nullptr, *noalias = nullptr;
};

class TileCode {
  public:
    // Of a call: the tile it adds to, then its operands.
    TileCode(llvm::IRBuilderBase& builder, std::vector<Tile> of_call, bool fast_math)
        : b(builder), tiles(std::move(of_call)), fast_math(fast_math) {}

    // A tile as one vector, its last dimension innermost, or a scalar where it is one element. What is dense is loaded
    // whole, the rest piece by piece.
    Value* load(const Tile& tile);
    void store(const Tile& tile, Value* value);
    void copy(const Tile& from, const Tile& to);
    // What starts at some element of a tile. Dimensions of extent 1 are left out.
    Tile part(const Tile& tile, const std::vector<int64_t>& first, const std::vector<int64_t>& extents);
    // How many elements lie one after the other, counted from the last dimension.
    static int64_t dense_elements(const Tile& tile);

    // Whether it is the same all along its first dimension.
    static bool is_repeated(const Tile& tile);

    // The first tile = id(first tile, operands...), all as vectors; an operand's bits are taken as elements of that
    // type. `swapped`: the two operands in the other order.
    void call(llvm::Intrinsic::ID id, llvm::Type* operand_element, bool swapped = false);

    llvm::IRBuilderBase& b;
    const std::vector<Tile> tiles;
    const bool fast_math;  // a product and a sum may be one operation

  private:
    // Where pieces of so many elements start, in elements from the first.
    std::vector<Value*> piece_offsets(const Tile& tile, int64_t elements);
    Value* load_piece(const Tile& tile, Value* offset, llvm::Type* type);
    void copy_rows(const Tile& from, const Tile& to);
    void store_piece(const Tile& tile, Value* offset, Value* value);
};

}  // namespace tessera::codegen
