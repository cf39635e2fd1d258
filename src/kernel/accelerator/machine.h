// The description of an accelerator, read from a JSON file such as machines/tessel.json: every quantity that decides
// what a program may do and how many cycles it takes. docs/accelerator.md says what each field means.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "kernel/accelerator/instruction.h"

namespace tessera::accelerator {

struct Machine {
    std::string name;
    double megahertz = 100;
    int inputs = 16, outputs = 16;  // the matrix unit: K values of a row of inp, N sums
    bool alu = true;
    int inp_rows = 4096, wgt_tiles = 512, acc_rows = 2048, uops = 2048;  // scratchpads
    int bytes_per_cycle = 16;                                   // of each of the two memory channels, read and write
    int latency = 40;                                           // cycles from a read request to its first beat
    int outstanding_reads = 64;                                 // requests that wait for their last beat
    int load_queue = 16, compute_queue = 16, store_queue = 16;  // instructions
    int tokens = 64;                                            // that each token queue holds
    int fetch_burst = 4, fetch_buffer = 16;                     // instructions

    int row_bytes(Scratchpad scratchpad, Element element = Element::Wide) const;  // in memory
    int rows(Scratchpad scratchpad) const;

    std::string to_json() const;
    bool operator==(const Machine&) const = default;
};

// Cycles from the operand read of a row to that of the first row that can read its result as `a` or `b` of an Alu
// instruction; the compute unit waits for it. Accumulation into the same row is forwarded and never waits.
constexpr int kRowLatency = 5;

// Instructions whose requests the load unit sends ahead of the one whose rows it writes.
constexpr int kLoadsInFlight = 4;

// The machine with another array or another memory channel (0: its own), and scratchpads of about as many bytes. E0212.
Result<Machine> with_sizes(const Machine& machine, int inputs, int outputs, int bytes_per_cycle);

// E0110 for text that is not a description, E0212 for a value that no machine can have.
Result<Machine> parse_machine(const std::string& json, const std::string& source);
Result<Machine> load_machine(const std::string& path);

}  // namespace tessera::accelerator
