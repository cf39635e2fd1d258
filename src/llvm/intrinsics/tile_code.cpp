#include "llvm/intrinsics/tile_code.h"

#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>
#include <map>

namespace tessera::codegen {
namespace {

int64_t elements_of(const Tile& tile) {
    int64_t n = 1;
    for (int64_t e : tile.extents) n *= e;
    return n;
}

llvm::Type* vector_of(llvm::Type* element, int64_t count) {
    return count == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(count));
}

template <typename T>
T* tagged(const Tile& tile, T* access) {
    if (tile.scope) access->setMetadata(llvm::LLVMContext::MD_alias_scope, tile.scope);
    if (tile.noalias && tile.noalias->getNumOperands())
        access->setMetadata(llvm::LLVMContext::MD_noalias, tile.noalias);
    return access;
}

}  // namespace

int64_t TileCode::dense_elements(const Tile& tile) {
    int64_t dense = 1;
    for (size_t d = tile.extents.size(); d-- > 0;) {
        auto* stride = llvm::dyn_cast<llvm::ConstantInt>(tile.strides[d]);
        if (!stride || stride->getSExtValue() != dense) break;
        dense *= tile.extents[d];
    }
    return dense;
}

std::vector<Value*> TileCode::piece_offsets(const Tile& tile, int64_t elements) {
    std::vector<Value*> offsets{b.getInt64(0)};
    int64_t left = elements_of(tile) / elements;
    for (size_t d = 0; d < tile.extents.size() && left > 1; ++d) {
        const int64_t steps = std::min(left, tile.extents[d]);
        const int64_t width = tile.extents[d] / steps;  // of one piece along the dimension
        left /= steps;
        std::vector<Value*> further;
        for (Value* offset : offsets)
            for (int64_t i = 0; i < steps; ++i)
                further.push_back(b.CreateAdd(offset, b.CreateMul(b.getInt64(i * width), tile.strides[d])));
        offsets = std::move(further);
    }
    return offsets;
}

Value* TileCode::load_piece(const Tile& tile, Value* offset, llvm::Type* type) {
    return tagged(tile, b.CreateAlignedLoad(type, b.CreateGEP(tile.element, tile.first, offset), tile.align));
}

void TileCode::store_piece(const Tile& tile, Value* offset, Value* value) {
    tagged(tile, b.CreateAlignedStore(value, b.CreateGEP(tile.element, tile.first, offset), tile.align));
}

Value* TileCode::load(const Tile& tile) {
    const int64_t all = elements_of(tile), dense = dense_elements(tile);
    const std::vector<Value*> offsets = piece_offsets(tile, dense);
    llvm::Type *type = vector_of(tile.element, all), *piece = vector_of(tile.element, dense);
    if (offsets.size() == 1) return load_piece(tile, offsets[0], type);
    const auto bits = static_cast<unsigned>(static_cast<int64_t>(tile.element->getScalarSizeInBits()) * dense);
    const bool repeated = std::all_of(offsets.begin(), offsets.end(), [&](Value* v) { return v == offsets[0]; });
    if (repeated && bits <= 64) {
        Value* word = load_piece(tile, offsets[0], b.getIntNTy(bits));
        return b.CreateBitCast(b.CreateVectorSplat(static_cast<unsigned>(offsets.size()), word), type);
    }
    std::map<Value*, Value*> loaded;  // what is there several times is read once
    std::vector<Value*> pieces;
    for (Value* offset : offsets) {
        auto [known, fresh] = loaded.try_emplace(offset);
        if (fresh) known->second = load_piece(tile, offset, piece);
        pieces.push_back(known->second);
    }
    if (dense > 1) return llvm::concatenateVectors(b, pieces);
    Value* out = llvm::PoisonValue::get(type);
    for (size_t i = 0; i < pieces.size(); ++i) out = b.CreateInsertElement(out, pieces[i], i);
    return out;
}

void TileCode::store(const Tile& tile, Value* value) {
    const auto dense = static_cast<int>(dense_elements(tile));
    const std::vector<Value*> offsets = piece_offsets(tile, dense);
    if (offsets.size() == 1) return store_piece(tile, offsets[0], value);
    for (size_t i = 0; i < offsets.size(); ++i) {
        std::vector<int> taken;
        for (int e = 0; e < dense; ++e) taken.push_back(static_cast<int>(i) * dense + e);
        store_piece(tile, offsets[i],
                    dense == 1 ? b.CreateExtractElement(value, i) : b.CreateShuffleVector(value, taken));
    }
}

void TileCode::copy(const Tile& from, const Tile& to) {
    constexpr int64_t kMostPieces = 64;  // in straight code
    const int64_t dense = std::min(dense_elements(from), dense_elements(to));
    if (elements_of(from) / dense > kMostPieces && from.extents.size() > 1) return copy_rows(from, to);
    const std::vector<Value*> sources = piece_offsets(from, dense), targets = piece_offsets(to, dense);
    for (size_t i = 0; i < sources.size(); ++i)
        store_piece(to, targets[i], load_piece(from, sources[i], vector_of(from.element, dense)));
}

void TileCode::copy_rows(const Tile& from, const Tile& to) {
    llvm::Function* function = b.GetInsertBlock()->getParent();
    auto *before = b.GetInsertBlock(), *block = llvm::BasicBlock::Create(b.getContext(), "rows", function);
    auto* after = llvm::BasicBlock::Create(b.getContext(), "after", function);
    b.CreateBr(block);
    b.SetInsertPoint(block);
    auto* i = b.CreatePHI(b.getInt64Ty(), 2);
    auto row = [&](Tile tile) {
        tile.first = b.CreateGEP(tile.element, tile.first, b.CreateMul(i, tile.strides[0]));
        tile.extents.erase(tile.extents.begin());
        tile.strides.erase(tile.strides.begin());
        return tile;
    };
    copy(row(from), row(to));
    Value* next = b.CreateAdd(i, b.getInt64(1));
    i->addIncoming(b.getInt64(0), before);
    i->addIncoming(next, b.GetInsertBlock());
    b.CreateCondBr(b.CreateICmpULT(next, b.getInt64(from.extents[0])), block, after);
    b.SetInsertPoint(after);
}

Tile TileCode::part(const Tile& tile, const std::vector<int64_t>& first, const std::vector<int64_t>& extents) {
    Tile out = tile;
    Value* offset = b.getInt64(0);
    out.extents.clear();
    out.strides.clear();
    for (size_t d = 0; d < extents.size(); ++d) {
        offset = b.CreateAdd(offset, b.CreateMul(b.getInt64(first[d]), tile.strides[d]));
        if (extents[d] == 1) continue;
        out.extents.push_back(extents[d]);
        out.strides.push_back(tile.strides[d]);
    }
    out.first = b.CreateGEP(tile.element, tile.first, offset);
    return out;
}

bool TileCode::is_repeated(const Tile& tile) {
    auto* stride = tile.strides.empty() ? nullptr : llvm::dyn_cast<llvm::ConstantInt>(tile.strides[0]);
    return stride && stride->isZero();
}

void TileCode::call(llvm::Intrinsic::ID id, llvm::Type* operand_element, bool swapped) {
    std::vector<Value*> arguments{load(tiles[0])};
    for (size_t i = 1; i < tiles.size(); ++i) {
        Value* v = load(tiles[i]);
        const auto bits = static_cast<int64_t>(v->getType()->getPrimitiveSizeInBits().getFixedValue());
        const int64_t count = bits / static_cast<int64_t>(operand_element->getScalarSizeInBits());
        arguments.push_back(b.CreateBitCast(v, vector_of(operand_element, count)));
    }
    if (swapped) std::swap(arguments[1], arguments[2]);
    std::vector<llvm::Type*> types;
    if (llvm::Intrinsic::isOverloaded(id)) types = {arguments[0]->getType(), arguments[1]->getType()};
    store(tiles[0], b.CreateIntrinsic(id, types, arguments));
}

}  // namespace tessera::codegen
