// Builds a program for an accelerator: memory, micro-ops that several instructions share, instructions with tokens.
#pragma once

#include <span>

#include "kernel/accelerator/compile/network.h"
#include "kernel/accelerator/instruction.h"
#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

// A value in memory.
struct Place {
    Activation is;
    uint32_t address = 0;
    int64_t lanes = 1;  // channels of a block
    int64_t blocks() const { return (is.channels + lanes - 1) / lanes; }
    int64_t element() const { return is.dtype == DType::i32 ? 4 : 1; }
    int64_t pixel() const { return lanes * element(); }  // bytes
    int64_t line() const { return is.width * pixel(); }
    int64_t plane() const { return is.height * line(); }
    int64_t bytes() const { return is.batch * blocks() * plane(); }
};

// A box of a value: planes of so many channels, which may begin outside of it.
struct Box {
    int64_t image = 0, plane = 0, planes = 1;
    int64_t y = 0, x = 0, height = 1, width = 1;  // to load, or to store
    int64_t pitch_y = 1, pitch_x = 1;             // of the box in the scratchpad
    int64_t step_y = 1, step_x = 1;               // of the value, every so many lines and pixels are the box's
};

class Writer {
  public:
    explicit Writer(const Machine& machine) : machine_(machine) {}  // which must outlive it

    const Machine& machine() const { return machine_; }
    // Bytes of memory, which begin as `contents`, or as zeros.
    Result<uint32_t> place(int64_t bytes);
    Result<uint32_t> place(std::span<const uint8_t> contents);

    // The first of micro-ops that lie in the scratchpad one after the other. New ones are loaded by load_uops, which
    // the layer calls before it uses them.
    Result<uint16_t> uops(const std::vector<Uop>& list);
    Status load_uops(std::vector<Instruction>& loads);

    // Of planes of K (inp) or N (acc) channels into consecutive rows of a scratchpad.
    void load(std::vector<Instruction>& loads, Scratchpad to, int64_t row, const Place& from, const Box& box,
              int64_t padding) const;
    void store(std::vector<Instruction>& stores, int64_t row, const Place& to, const Box& box) const;

    void add(Instruction instruction) { program_.push_back(instruction); }
    // Gives the first instruction the token to wait for, the last one that to give.
    void add_loads(std::vector<Instruction> loads, bool wait);
    void add_compute(std::vector<Instruction> compute, Tokens tokens);
    void add_stores(std::vector<Instruction> stores, bool give_back);
    // All that the last layer has stored is there for the next one. `dummy`: a row of acc that nobody else uses.
    void barrier(int64_t dummy);

    std::vector<Instruction>& program() { return program_; }
    std::vector<uint8_t>& image() { return image_; }

  private:
    const Machine& machine_;
    std::vector<uint8_t> image_;
    std::vector<Instruction> program_;
    std::vector<std::pair<std::vector<Uop>, int64_t>> cached_;                   // where they begin
    std::vector<std::pair<std::vector<Uop>, int64_t>> wanted_ = {{{Uop{}}, 0}};  // entry 0 adds nothing
    int64_t next_uop_ = 1;
};

}  // namespace tessera::accelerator
