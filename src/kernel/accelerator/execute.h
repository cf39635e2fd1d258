// The accelerator's functional model: executes one instruction at a time on scratchpads and memory, bit by bit as the
// hardware does. The order of instructions is the caller's (simulate.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

class Executor {
  public:
    Executor(const Machine& machine, std::span<uint8_t> memory);

    // Errors of check_accesses.
    Status execute(const Instruction& instruction, size_t index);

    const Uop* uops() const { return uop_.data(); }
    uint64_t memory_bytes() const { return memory_.size(); }
    std::span<const int32_t> acc_row(int row) const {
        return {acc_.data() + size_t(row) * size_t(machine_.outputs), size_t(machine_.outputs)};
    }

  private:
    void run(const Load& load);
    void run(const Store& store);
    void run(const Gemm& gemm);
    void run(const Alu& alu);
    void run(const Finish&) {}

    const Machine machine_;
    std::span<uint8_t> memory_;
    std::vector<uint8_t> inp_;
    std::vector<int8_t> wgt_;
    std::vector<int32_t> acc_;
    std::vector<Uop> uop_;
};

}  // namespace tessera::accelerator
