// An accelerator's RTL as Verilator compiled it for one machine: a program (test/rtl/main.cpp) that runs as a process.
#pragma once

#include "kernel/accelerator/machine.h"

namespace tessera {

class RtlSimulator {
  public:
    // The program that TESSERA_RTL names, else "<machine>-rtl" beside this program or on PATH. E0701: there is none, or
    // it has the RTL of another machine.
    static Result<RtlSimulator> find(const accelerator::Machine& machine);

    // Runs the accelerator's program at that address of its memory; how many cycles it took. E0702.
    Result<int64_t> run(std::vector<uint8_t>& memory, uint32_t program) const;

  private:
    explicit RtlSimulator(std::string path) : path_(std::move(path)) {}
    std::string path_;
};

}  // namespace tessera
