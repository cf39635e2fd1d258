// The instructions behind declared intrinsics (kernel/ir/intrinsic.h), by their names: how each is emitted on tiles in
// memory. One file for each instruction set. What processor has one stands in its declaration.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera::codegen {

class TileCode;

struct IntrinsicCode {
    std::string_view name;
    void (*emit)(TileCode& code);
};

const std::vector<IntrinsicCode>& all_intrinsic_code();
const IntrinsicCode* find_intrinsic_code(std::string_view name);

std::span<const IntrinsicCode> fma_code();
std::span<const IntrinsicCode> dot_product_code();
std::span<const IntrinsicCode> i8mm_code();
std::span<const IntrinsicCode> bf16_code();
std::span<const IntrinsicCode> fp16fml_code();
std::span<const IntrinsicCode> vnni_code();
std::span<const IntrinsicCode> avx512bf16_code();
std::span<const IntrinsicCode> amx_code();

}  // namespace tessera::codegen
