// The accelerator's RTL as Verilator compiled it, with a memory behind its port.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

struct RtlRun {
    bool finished = false;  // false: it was stopped after `limit` cycles
    int64_t cycles = 0, gemm_rows = 0, alu_rows = 0;
};

class RtlMachine {
  public:
    explicit RtlMachine(const Machine& machine);
    ~RtlMachine();

    // Resets the machine and runs the program at that address of memory, which is a finish at its end.
    RtlRun run(std::vector<uint8_t>& memory, uint32_t program_address, int64_t limit = int64_t(1) << 40);

  private:
    struct Port;
    const Machine machine_;
    std::unique_ptr<Port> port_;
};

}  // namespace tessera::accelerator
