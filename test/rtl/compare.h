// One program on the model of a machine and on its RTL.
#pragma once

#include <string>

#include "accelerator/random_program.h"
#include "rtl_machine.h"

namespace tessera::accelerator {

constexpr double kMostDifference = 0.05;  // of the model's cycles from the RTL's

struct Comparison {
    int64_t model = 0, rtl = 0, gemm_rows = 0;
    double difference() const { return double(model - rtl) / double(rtl); }
};

// Fails with what differs, where the checker finds a fault in the program, and where both leave other memory, execute
// other rows, or differ by more than kMostDifference in their cycles. `memory` is left as the RTL leaves it.
bool compare(const std::string& name, const Machine& machine, RtlMachine& rtl, const RandomProgram& program,
             Comparison& comparison, std::vector<uint8_t>* memory = nullptr);

}  // namespace tessera::accelerator
