// Instructions as nests: what an intrinsic computes on tiles of its operands. Schedules know them by name (tensorize),
// the code generator emits them, and everyone else can write them out again as the nest they stand for.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// out[axes] += value over reduce. In `value` a Load of slot i is operand i, at indices that are axes; extents are
// constant.
struct Intrinsic {
    std::string name;
    std::vector<ReduceAxis> axes, reduce;
    DType out = DType::f32;
    std::vector<DType> operands;
    Expr value;
    std::string needs;  // a feature of the processor: "dotprod", "avx512vnni"
};

const std::vector<Intrinsic>& all_intrinsics();
const Intrinsic* find_intrinsic(std::string_view name);

// The arguments of a Call: for `out`, then each operand, how many elements apart neighbours along each of its axes lie
// (axes, then reduce; 0 where it does not have that axis).
// The kernel with calls of declared intrinsics as the nests they stand for.
Kernel expand_intrinsics(const Kernel& kernel);

}  // namespace tessera
