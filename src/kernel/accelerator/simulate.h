// Runs a program on the model of the accelerator: its results bit by bit, and how many cycles each unit takes and
// waits. Events are instructions, memory requests and tokens, not cycles. docs/accelerator.md has the timing rules.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

struct UnitStatistics {
    int64_t instructions = 0;
    int64_t busy = 0;           // cycles in which rows are moved or computed
    int64_t wait_fetch = 0;     // cycles without an instruction
    int64_t wait_previous = 0;  // cycles in which an instruction waits for a token of the previous unit,
    int64_t wait_next = 0;      // of the next unit,
    int64_t wait_room = 0;      // or for room in a token queue or in the load unit's list of requests
    bool operator==(const UnitStatistics&) const = default;
};

struct TimelineRecord {
    Unit unit;
    int64_t start, end;  // cycles, end excluded
    size_t instruction;  // index in the program
};

struct Simulation {
    int64_t cycles = 0;
    std::array<UnitStatistics, 3> units;        // by Unit
    int64_t matrix_cycles = 0, alu_cycles = 0;  // rows of gemm and of alu
    int64_t alu_stalls = 0;                     // cycles in which an alu row waits for the result of another
    int64_t fetch_bytes = 0, load_bytes = 0, store_bytes = 0;
    std::vector<TimelineRecord> timeline;  // by start, if asked for

    const UnitStatistics& of(Unit unit) const { return units[size_t(unit)]; }
    double matrix_utilization() const { return cycles ? double(matrix_cycles) / double(cycles) : 0; }
};

struct SimulateOptions {
    bool timeline = false;
    bool compute = true;  // false: only cycles; memory is not written
};

// E0406 and E0212 for accesses outside a scratchpad or memory, and for what the machine cannot execute; E0407 for a
// program that does not end with finish, or deadlocks: the message says what each unit waits for.
Result<Simulation> simulate(const Machine& machine, std::span<const Instruction> program, std::span<uint8_t> memory,
                            const SimulateOptions& options = {});

}  // namespace tessera::accelerator
