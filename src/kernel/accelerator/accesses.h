// Which rows and bytes an instruction touches, in the order in which the machine touches them.
#pragma once

#include <cstdint>

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

// f(row of the scratchpad, address), with no address (-1) for padding.
template <typename F>
void for_each_row(const Load& l, F&& f) {
    const int width = l.left + l.x + l.right, height = l.top + l.y + l.bottom;
    uint32_t row = l.row;
    for (uint32_t z = 0; z < l.z; ++z)
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x, ++row) {
                const bool inside = y >= l.top && y < l.top + l.y && x >= l.left && x < l.left + l.x;
                const uint32_t address =
                    l.address + z * l.z_stride + uint32_t(y - l.top) * l.y_stride + uint32_t(x - l.left) * l.x_stride;
                f(row, inside ? int64_t(address) : -1);
            }
}

// f(row of acc, address).
template <typename F>
void for_each_row(const Store& s, F&& f) {
    for (uint32_t z = 0; z < s.z; ++z)
        for (uint32_t y = 0; y < s.y; ++y)
            for (uint32_t x = 0; x < s.x; ++x)
                f(uint32_t(uint16_t(s.row + z * s.z_pitch + y * s.y_pitch + x)),
                  int64_t(uint32_t(s.address + z * s.z_stride + y * s.y_stride + x * s.x_stride)));
}

// f(i, j, first row of each operand but for the micro-op's offset, entry of uop).
template <size_t kCount, typename F>
void for_each_iteration(const Loop& loop, const std::array<Operand, kCount>& operands, F&& f) {
    std::array<uint16_t, kCount> at;
    for (uint32_t i = 0; i < loop.outer; ++i)
        for (uint32_t j = 0; j < loop.inner; ++j) {
            for (size_t o = 0; o < kCount; ++o)
                at[o] = uint16_t(operands[o].base + i * operands[o].outer + j * operands[o].inner);
            for (uint32_t u = 0; u < loop.uops; ++u) f(i, u, at, uint32_t(loop.uop) + u);
        }
}

struct GemmRows {
    uint16_t acc, inp, wgt;
    bool starts;  // from 0 or the bias
};

template <typename F>  // f(GemmRows)
void for_each_row(const Gemm& g, const Uop* uops, F&& f) {
    for_each_iteration<3>(
        g.loop, {g.acc, g.inp, g.wgt}, [&](uint32_t i, uint32_t u, const std::array<uint16_t, 3>& at, uint32_t entry) {
            const Uop& uop = uops[entry];
            const bool starts = g.init == Init::Always || (g.init == Init::FirstUop && u == 0) ||
                                (g.init == Init::FirstOuter && i == 0);
            f(GemmRows{uint16_t(at[0] + uop.acc), uint16_t(at[1] + uop.inp), uint16_t(at[2] + uop.wgt), starts});
        });
}

struct AluRows {
    uint16_t dst, a, b;  // b: only if it is a row
};

template <typename F>  // f(AluRows)
void for_each_row(const Alu& alu, const Uop* uops, F&& f) {
    for_each_iteration<2>(
        alu.loop, {alu.dst, alu.a}, [&](uint32_t, uint32_t, const std::array<uint16_t, 2>& at, uint32_t entry) {
            const Uop& uop = uops[entry];
            f(AluRows{uint16_t(at[0] + uop.acc), uint16_t(at[1] + uop.inp), uint16_t(alu.row + uop.wgt)});
        });
}

// E0406 or E0212, with the instruction's index, for what the machine cannot execute: rows outside a scratchpad, bytes
// outside memory, loops without iterations, operations it does not have. `uops` are the entries as the instruction will
// find them.
Status check_accesses(const Machine& machine, const Instruction& instruction, size_t index, const Uop* uops,
                      uint64_t memory_bytes);

}  // namespace tessera::accelerator
