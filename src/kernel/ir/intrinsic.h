// Instructions as nests: what an intrinsic computes on tiles of its operands. Schedules know them by name (tensorize),
// the code generator emits them, and everyone else can write them out again as the nest they stand for.
#pragma once

#include "base/machine.h"
#include "kernel/ir/compute.h"

namespace tessera {

// out[axes] += value over reduce. In `value` a Load of slot i is operand i, at indices that are axes; extents are
// constant. A vector that holds an operand has its elements in the order of that Load's indices.
struct Intrinsic {
    std::string name;
    std::vector<ReduceAxis> axes, reduce;
    DType out = DType::f32;
    std::vector<DType> operands;
    Expr value;
    std::string needs;      // a feature of the processor, by LLVM's name: "dotprod", "avx512vnni"
    bool by_block = false;  // all threads of a block carry it out together: it stands outside of loops over threads
    // Of those: it goes on after its call, until wait_product (group_steps.h); out = value, not +=; the first operand
    // lies with the threads, as sums do.
    bool later = false, fresh = false, from_threads = false;
    // Of those: what the first operand holds, and the second; floats of 8 bits are bytes in memory.
    DType multiplied = DType::f32, multiplied_by = DType::f32;
    bool thrice = false;  // of f32: by three products, which have nearly all digits
};

// What matrix instructions of a GPU multiply, the type of their sums, and how many they take along what is added up:
// 32 bytes. Operands of instructions of four warps that are not of 16 bits lie along that.
constexpr DType kMatrixTypes[] = {DType::f16, DType::bf16, DType::f8e4m3fn, DType::f8e5m2,
                                  DType::i8,  DType::u8,   DType::f32};  // of which 19 bits are multiplied (tf32)
constexpr int64_t kMatrixBytes = 32;
DType matrix_sum(DType dtype);
int64_t matrix_depth(DType dtype);
// Whether there are instructions for operands of these two types: of one, or bytes, or floats of 8 bits.
bool are_multiplied(DType a, DType b);
// Of tiles of one block, by `mma` instructions of one warp or `wgmma` of four: see block_matrix in intrinsic.cpp. How
// many elements along what is added up a call of those of one warp takes.
std::string block_matrix_name(std::string_view kind, DType a, DType b, int64_t rows, int64_t columns);
int64_t mma_depth(DType dtype);

const std::vector<Intrinsic>& all_intrinsics();
const Intrinsic* find_intrinsic(std::string_view name);
std::vector<const Intrinsic*> find_intrinsics(const Machine& machine);  // those that it has

// Of 128 rows: see team_matrix in intrinsic.cpp.
std::string team_matrix_name(DType dtype, int64_t columns, int64_t depth, bool from_threads);

// Of tiles in shared memory, by the warps of a block, `down` by `across` of them, each with `mma` instructions: made
// when it is first asked for. See warp_matrix in intrinsic.cpp.
std::string warp_matrix_name(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t down, int64_t across,
                             bool thrice = false);
// The same by instructions of four warps: see wide_matrix there. A call may have one more argument: sums are added up
// by these instructions for so many products along what is added up at most, and then in f32.
std::string wide_matrix_name(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t down, int64_t across,
                             bool from_threads);
int64_t columns_in_parts(const Call& wide);  // of a warp; 0: a call without that argument

// Products of 32 rows and 32 columns of words of bytes, over so many words: see word_tiles in intrinsic.cpp.
constexpr int64_t kWordsOfTiles[] = {16, 32, 48, 64, 96, 128, 192, 256};
std::string word_tiles_name(bool rows_unsigned, int64_t words);

// The arguments of a Call: for `out`, then each operand, how many elements apart neighbours along each of its axes lie
// (axes, then reduce; 0 where it does not have that axis, or is the same all along it).
// The nest that a call of a declared intrinsic stands for (null: there is none), and the kernel with all of them. The
// number tells variables of one nest from those of another.
Stmt expand_intrinsic(const Kernel& kernel, const Call& call, int number = 0);
Kernel expand_intrinsics(const Kernel& kernel);

}  // namespace tessera
