// An account of all pairs of accesses of a program and of what tokens order, apart from the checker's: slow and simple.
#pragma once

#include <map>

#include "kernel/accelerator/check_program.h"

namespace tessera::accelerator_test {

using Access = std::pair<size_t, bool>;                                 // instruction, whether it writes
using Places = std::map<std::pair<int, int64_t>, std::vector<Access>>;  // by scratchpad and row, 4 and byte of memory

Places all_accesses(const accelerator::Machine& machine, const std::vector<accelerator::Instruction>& program,
                    const std::vector<uint8_t>& memory);

// Which instructions come before which: by their units, and by the tokens but for one.
std::vector<std::vector<bool>> order_without(const std::vector<accelerator::Instruction>& program,
                                             const std::vector<accelerator::TokenPair>& tokens, size_t removed);

// Whether every two accesses of one place by different units, one of them a write, are in that order.
bool everything_ordered(const std::vector<accelerator::Instruction>& program, const Places& places,
                        const std::vector<std::vector<bool>>& before);

}  // namespace tessera::accelerator_test
