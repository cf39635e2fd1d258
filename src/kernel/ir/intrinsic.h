// Intrinsics, each declared by the loop nest that it computes on tiles of its operands. Schedules use them by name
// (tensorize), code generation emits them, and everything else can expand them to their nests.
#pragma once

#include "base/machine.h"
#include "kernel/ir/compute.h"

namespace tessera {

// out[axes] += value over reduce. In `value`, a Load of slot i is operand i, indexed by axes; extents are constant. The
// elements of an operand in a vector register are in the order of that Load's indices.
struct Intrinsic {
    std::string name;
    std::vector<ReduceAxis> axes, reduce;
    DType out = DType::f32;
    std::vector<DType> operands;
    Expr value;
    std::string needs;      // a CPU feature, by LLVM's name: "dotprod", "avx512vnni"
    bool by_block = false;  // executed by all threads of a block together, outside of thread loops
    // For these: asynchronous until wait_product (group_steps.h); out = value instead of +=; the first operand is in
    // registers, distributed like accumulators.
    bool later = false, fresh = false, from_threads = false;
    // For these: element types of the operands; 8-bit floats are bytes in memory.
    DType multiplied = DType::f32, multiplied_by = DType::f32;
    bool thrice = false;  // f32 as three tf32 products (tf32x3)
};

// Operand types of a GPU's matrix instructions, the type of their accumulators, and their depth along k, which is 32
// bytes. For warpgroup MMA, operands that are not 16-bit must be contiguous along k.
constexpr DType kMatrixTypes[] = {DType::f16, DType::bf16, DType::f8e4m3fn, DType::f8e5m2,
                                  DType::i8,  DType::u8,   DType::f32};  // f32 is multiplied as tf32
constexpr int64_t kMatrixBytes = 32;
DType matrix_sum(DType dtype);
int64_t matrix_depth(DType dtype);
// Whether there are instructions for these operand types: equal types, two byte types, or two 8-bit floats.
bool are_multiplied(DType a, DType b);
// Products of tiles by a block, with `mma.sync` or `wgmma`: see block_matrix in intrinsic.cpp. mma_depth is the depth
// along k of a `mma.sync` instruction.
std::string block_matrix_name(std::string_view kind, DType a, DType b, int64_t rows, int64_t columns);
int64_t mma_depth(DType dtype);

const std::vector<Intrinsic>& all_intrinsics();
const Intrinsic* find_intrinsic(std::string_view name);
std::vector<const Intrinsic*> find_intrinsics(const Machine& machine);  // those that it supports

// Products of 128 rows by two cooperative warpgroups: see team_matrix in intrinsic.cpp.
std::string team_matrix_name(DType dtype, int64_t columns, int64_t depth, bool from_threads);

// Products of tiles in shared memory, by `down` times `across` warps of a block with `mma.sync`; created on first use.
// See warp_matrix in intrinsic.cpp.
std::string warp_matrix_name(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t down, int64_t across,
                             bool thrice = false);
// The same with `wgmma`: see wide_matrix there. An additional argument of a call is the number of products along k
// after which a partial sum is added to an f32 accumulator.
std::string wide_matrix_name(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t down, int64_t across,
                             bool from_threads);
int64_t columns_in_parts(const Call& wide);  // of a warp; 0 without that argument

// AMX products of 32 rows and 32 columns over this many words of four bytes: see word_tiles in intrinsic.cpp.
constexpr int64_t kWordsOfTiles[] = {16, 32, 48, 64, 96, 128, 192, 256};
std::string word_tiles_name(bool rows_unsigned, int64_t words);

// The arguments of a Call are strides in elements: for `out`, then for each operand, one for each axis and reduction
// axis (0 if the operand does not have that axis or is broadcast along it). expand_intrinsic returns the nest of a call
// (null: not a declared intrinsic), expand_intrinsics the kernel with all calls expanded. `number` makes the variables
// of a nest unique.
Stmt expand_intrinsic(const Kernel& kernel, const Call& call, int number = 0);
Kernel expand_intrinsics(const Kernel& kernel);

}  // namespace tessera
