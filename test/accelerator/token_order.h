// An account of all pairs of accesses of a program and of what tokens order, apart from the checker's: slow and simple.
#pragma once

#include <set>

#include "kernel/accelerator/check_program.h"

namespace tessera::accelerator_test {

// Pairs of instructions of different units that access one row or byte, one of them writing.
using Conflicts = std::set<std::pair<size_t, size_t>>;
Conflicts all_conflicts(const accelerator::Machine& machine, const std::vector<accelerator::Instruction>& program,
                        const std::vector<uint8_t>& memory);

// Which instructions come before which: by their units, and by the tokens but for one.
std::vector<std::vector<bool>> order_without(const std::vector<accelerator::Instruction>& program,
                                             const std::vector<accelerator::TokenPair>& tokens, size_t removed);

bool everything_ordered(const Conflicts& conflicts, const std::vector<std::vector<bool>>& before);

}  // namespace tessera::accelerator_test
