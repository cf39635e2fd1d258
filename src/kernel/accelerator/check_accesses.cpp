#include <algorithm>
#include <cstdlib>

#include "kernel/accelerator/accesses.h"

namespace tessera::accelerator {

namespace {

struct AccessCheck {
    const Machine& machine;
    const Instruction& instruction;
    size_t index;
    const Uop* uops;
    uint64_t memory_bytes;

    std::string where() const { return fmt::format("instruction {}: {}", index, to_string(instruction)); }

    Status rows(Scratchpad scratchpad, uint64_t first, uint64_t last) const {
        const uint64_t have = uint64_t(machine.rows(scratchpad));
        if (last < have) return {};
        return Error(Code::E0406, "row {} of {} is accessed, and {} has {} rows", std::max(first, have),
                     to_string(scratchpad), machine.name, have)
            .at(where());
    }

    Status memory(uint64_t first, uint64_t end) const {
        if (end <= memory_bytes) return {};
        return Error(Code::E0406, "bytes {} to {} of memory are accessed, and there are {}", first, end - 1,
                     memory_bytes)
            .at(where());
    }

    Error no_rows() const {
        return Error(Code::E0212, "the instruction has no rows; every instruction needs at least one").at(where());
    }

    Status neighbors() const {
        const Tokens& k = instruction.tokens;
        const Unit unit = instruction.unit();
        if (unit == Unit::Load && (k.pop_previous || k.push_previous))
            return Error(Code::E0212, "no unit comes before load, and the instruction exchanges tokens with it")
                .at(where());
        if (unit == Unit::Store && (k.pop_next || k.push_next))
            return Error(Code::E0212, "no unit comes after store, and the instruction exchanges tokens with it")
                .at(where());
        return {};
    }

    Status check(const Load& l) const {
        const uint64_t width = uint64_t(l.left) + l.x + l.right, height = uint64_t(l.top) + l.y + l.bottom;
        if (width * height * l.z == 0) return no_rows();
        if (l.element != Element::Wide && l.to != Scratchpad::Acc)
            return Error(Code::E0212, "element={} is for rows of acc, not of {}",
                         l.element == Element::Int8 ? "int8" : "uint8", to_string(l.to))
                .at(where());
        TRY(rows(l.to, l.row, l.row + width * height * l.z - 1));
        if (l.x == 0 || l.y == 0) return {};
        return region(l.address, l.x, l.y, l.z, l.x_stride, l.y_stride, l.z_stride,
                      uint64_t(machine.row_bytes(l.to, l.element)));
    }

    Status check(const Store& s) const {
        if (uint64_t(s.x) * s.y * s.z == 0) return no_rows();
        const uint64_t last = s.row + uint64_t(s.z - 1) * s.z_pitch + uint64_t(s.y - 1) * s.y_pitch + (s.x - 1u);
        TRY(rows(Scratchpad::Acc, s.row, last));
        return region(s.address, s.x, s.y, s.z, s.x_stride, s.y_stride, s.z_stride,
                      uint64_t(machine.row_bytes(Scratchpad::Acc, s.element)));
    }

    Status region(uint64_t address, uint64_t x, uint64_t y, uint64_t z, uint64_t x_stride, uint64_t y_stride,
                  uint64_t z_stride, uint64_t bytes) const {
        return memory(address, address + (x - 1) * x_stride + (y - 1) * y_stride + (z - 1) * z_stride + bytes);
    }

    Status loop(const Loop& l) const {
        if (uint64_t(l.uops) * l.outer * l.inner == 0) return no_rows();
        return rows(Scratchpad::Uop, l.uop, uint64_t(l.uop) + l.uops - 1);
    }

    Status check(const Gemm& g) const {
        TRY(loop(g.loop));
        if (g.init != Init::Never && g.from_bias) TRY(rows(Scratchpad::Acc, g.bias, g.bias));
        uint32_t acc = 0, inp = 0, wgt = 0;
        for_each_row(g, uops, [&](const GemmRows& r) {
            acc = std::max<uint32_t>(acc, r.acc);
            inp = std::max<uint32_t>(inp, r.inp);
            wgt = std::max<uint32_t>(wgt, r.wgt);
        });
        TRY(rows(Scratchpad::Acc, acc, acc));
        TRY(rows(Scratchpad::Inp, inp, inp));
        return rows(Scratchpad::Wgt, wgt, wgt);
    }

    Status check(const Alu& a) const {
        if (!machine.alu) return Error(Code::E0212, "{} has no vector ALU", machine.name).at(where());
        const bool sums = a.op == AluOp::Add || a.op == AluOp::Sub || a.op == AluOp::Min || a.op == AluOp::Max ||
                          a.op == AluOp::FloatAdd;
        if (a.b == SecondOperand::Destination && !sums)
            return Error(Code::E0212, "{} cannot take b from the destination; add, sub, min, max and float_add can",
                         to_string(a.op))
                .at(where());
        TRY(loop(a.loop));
        uint32_t most = 0;
        for_each_row(a, uops, [&](const AluRows& r) {
            most = std::max<uint32_t>({most, r.dst, r.a, a.b == SecondOperand::Row ? r.b : uint16_t(0)});
        });
        return rows(Scratchpad::Acc, most, most);
    }

    Status check(const Finish&) const {
        if (instruction.tokens == Tokens{}) return {};
        return Error(Code::E0212, "finish takes and adds no tokens").at(where());
    }
};

}  // namespace

Status check_accesses(const Machine& machine, const Instruction& instruction, size_t index, const Uop* uops,
                      uint64_t memory_bytes) {
    const AccessCheck c{machine, instruction, index, uops, memory_bytes};
    TRY(c.neighbors());
    return std::visit([&](const auto& op) { return c.check(op); }, instruction.op);
}

}  // namespace tessera::accelerator
