// Checks that tokens order every conflict between units: executes a program unit by unit while it tracks, for each
// instruction, which instructions of the other units are known to have ended before it starts (vector clocks).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

struct ProgramFinding {
    enum class Kind : uint8_t {
        Race,        // two accesses of one row or byte, one of them a write, that no token orders
        Unwritten,   // a row of a scratchpad is read that nothing has written
        Deadlock,    // an instruction waits for a token that never comes
        TokensLeft,  // tokens that nothing takes
    };
    Kind kind;
    size_t instruction;
    std::string message;
};

// A token and the instructions that add and take it.
struct TokenPair {
    Unit from, to;
    size_t push, pop;
};

struct ProgramCheck {
    std::vector<ProgramFinding> findings;  // one for each pair of instructions and each scratchpad at most
    std::vector<TokenPair> tokens;
    bool ok() const { return findings.empty(); }
    std::string to_string() const;  // a line for each finding
};

// `memory` is what loads of micro-ops read, as it is before the program runs. Errors of check_accesses; a program that
// does not end with finish is E0407.
Result<ProgramCheck> check_program(const Machine& machine, std::span<const Instruction> program,
                                   std::span<const uint8_t> memory);

}  // namespace tessera::accelerator
