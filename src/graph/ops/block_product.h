// Ops on few bits. Products with weights of four bits in blocks, each with its scale and zero point, as MatMulNBits of
// com.microsoft has them; and the same of words, as kernels read them; and functions of one byte.
#pragma once

#include "graph/builder.h"
#include "graph/op_def.h"

namespace tessera {

constexpr int64_t kPanelColumns = 16, kNibblesOfWord = 8;

// The bits from which on a word holds nibble i: the low halves of its bytes first, then their high halves, so that each
// four of them become bytes by one mask.
constexpr int64_t nibble_shift(int64_t i) { return 8 * (i % 4) + 4 * (i / 4); }

std::vector<OpDef> block_product_ops();
std::vector<OpDef> byte_table_ops();

// Numbers of `bits` in bytes, the lowest first, along the last axis: [..., n] becomes `shape`.
Value* unpacked_bits(Builder& b, Value* bytes, int64_t bits, const std::vector<int64_t>& shape);

}  // namespace tessera
