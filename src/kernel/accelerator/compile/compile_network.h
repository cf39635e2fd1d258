// A network as a program in an accelerator's memory, and the values that go in and out.
#pragma once

#include "kernel/accelerator/compile/network.h"
#include "kernel/accelerator/compile/writer.h"

namespace tessera::accelerator {

struct CompiledLayer {
    std::string name, op, plan;
    size_t first = 0, end = 0;          // instructions
    int64_t macs = 0, matrix_rows = 0;  // multiply-accumulates that the layer needs; rows of the matrix unit
    int64_t least_bytes = 0;            // values and weights, each once
    int64_t scalar_cycles = 0;          // of a host without the accelerator (scalar_host.h)
};

struct CompiledNetwork {
    Machine machine;
    Network network;            // without weights
    std::vector<Place> places;  // of its values
    std::vector<CompiledLayer> layers;
    std::vector<Instruction> instructions;
    std::vector<uint8_t> image;  // memory before the first run, the program in it
    uint32_t program = 0;        // address
};

struct NetworkOptions {
    int contexts = 2;  // virtual threads; 1: loads, computes and stores do not overlap
};

Result<CompiledNetwork> compile_network(Network network, const Machine& machine, const NetworkOptions& options = {});

// Writes input i, [batch, channels, height, width] in ONNX's order, and what is computed of it.
void write_input(const CompiledNetwork& compiled, size_t i, const Tensor& tensor, std::vector<uint8_t>& memory);
Result<Tensor> read_output(const CompiledNetwork& compiled, size_t i, const std::vector<uint8_t>& memory);

}  // namespace tessera::accelerator
