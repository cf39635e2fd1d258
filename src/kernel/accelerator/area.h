// An estimate of an accelerator's area, in transistors of static CMOS: logic as Yosys synthesizes the RTL, fitted by
// tools/rtl_area.py, and memories by their bits and ports. docs/accelerator.md has the measurements.
#pragma once

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

struct Area {
    double matrix = 0;    // the matrix unit
    double alu = 0;       // the lanes of the vector ALU
    double control = 0;   // units, fetch, dispatch, tokens
    double memories = 0;  // scratchpads and queues
    double total() const { return matrix + alu + control + memories; }
};

Area area_of(const Machine& machine);

}  // namespace tessera::accelerator
