// Random legal programs for an accelerator: every conflict between units is ordered by tokens, none of which could be
// left out, and nothing is read before it is written.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

struct RandomProgram {
    std::vector<Instruction> program;
    std::vector<uint8_t> memory;  // with the program in it
    uint32_t program_address = 0;
};

RandomProgram random_program(const Machine& machine, uint64_t seed);

}  // namespace tessera::accelerator
