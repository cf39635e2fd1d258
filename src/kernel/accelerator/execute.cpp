#include "kernel/accelerator/execute.h"

#include <algorithm>
#include <cstring>

#include "kernel/accelerator/accesses.h"
#include "kernel/accelerator/floats.h"

namespace tessera::accelerator {

namespace {

template <typename Inp>
void multiply_row(const Inp* x, const int8_t* w, const int32_t* start, int32_t* sums, int k, int n) {
    for (int o = 0; o < n; ++o) {
        int32_t sum = 0;
        for (int i = 0; i < k; ++i) sum += int32_t(x[i]) * int32_t(w[o * k + i]);
        sums[o] = int32_t(uint32_t(sum) + (start ? uint32_t(start[o]) : 0u));
    }
}

// a / 2^b, half to even.
int32_t shifted(int32_t a, int32_t b) {
    const int s = b & 31;
    if (s == 0) return a;
    const int32_t quotient = a >> s;
    const uint32_t rest = uint32_t(a) & ((1u << s) - 1), half = 1u << (s - 1);
    return quotient + int32_t(rest > half || (rest == half && (quotient & 1)));
}

int32_t wrapped(int64_t x) { return int32_t(uint32_t(uint64_t(x))); }

int32_t alu_lane(AluOp op, int32_t dst, int32_t a, int32_t b, int32_t addend) {
    switch (op) {
        case AluOp::Add: return wrapped(int64_t(a) + b + addend);
        case AluOp::Sub: return wrapped(int64_t(a) - b + addend);
        case AluOp::Mul: return wrapped(int64_t(a) * b + addend);
        case AluOp::Mac: return wrapped(int64_t(a) * b + dst + addend);
        case AluOp::Min: return wrapped(int64_t(std::min(a, b)) + addend);
        case AluOp::Max: return wrapped(int64_t(std::max(a, b)) + addend);
        case AluOp::Shr: return wrapped(int64_t(shifted(a, b)) + addend);
        case AluOp::Scale: return saturated(int64_t(to_integer(multiply(float(a), float_of(b)))) + addend);
        case AluOp::Dequantize: return bits_of(multiply(float(wrapped(int64_t(a) + addend)), float_of(b)));
        case AluOp::DequantizeAdd:
            return bits_of(add(float_of(dst), multiply(float(wrapped(int64_t(a) + addend)), float_of(b))));
        case AluOp::FloatAdd: return bits_of(add(float_of(a), float_of(b)));
        case AluOp::FloatMul: return bits_of(multiply(float_of(a), float_of(b)));
        case AluOp::Round: return saturated(int64_t(to_integer(multiply(float_of(a), float_of(b)))) + addend);
        case AluOp::Quantize: return saturated(int64_t(to_integer(divide(float_of(a), float_of(b)))) + addend);
    }
    return 0;
}

}  // namespace

Executor::Executor(const Machine& machine, std::span<uint8_t> memory)
    : machine_(machine),
      memory_(memory),
      inp_(size_t(machine.inp_rows) * size_t(machine.inputs)),
      wgt_(size_t(machine.wgt_tiles) * size_t(machine.inputs) * size_t(machine.outputs)),
      acc_(size_t(machine.acc_rows) * size_t(machine.outputs)),
      uop_(size_t(machine.uops)) {}

Status Executor::execute(const Instruction& instruction, size_t index) {
    TRY(check_accesses(machine_, instruction, index, uop_.data(), memory_.size()));
    std::visit([&](const auto& op) { run(op); }, instruction.op);
    return {};
}

void Executor::run(const Load& l) {
    const size_t bytes = size_t(machine_.row_bytes(l.to, l.element)), lanes = size_t(machine_.outputs);
    for_each_row(l, [&](uint32_t row, int64_t address) {
        const uint8_t* from = address < 0 ? nullptr : memory_.data() + address;
        if (l.to == Scratchpad::Acc) {
            int32_t* to = acc_.data() + row * lanes;
            const int32_t pad = l.element == Element::Uint8 ? int32_t(l.pad_value) : int32_t(int8_t(l.pad_value));
            for (size_t n = 0; n < lanes; ++n)
                if (!from)
                    to[n] = pad;
                else if (l.element == Element::Wide)
                    std::memcpy(to + n, from + 4 * n, 4);
                else
                    to[n] = l.element == Element::Uint8 ? int32_t(from[n]) : int32_t(int8_t(from[n]));
        } else if (l.to == Scratchpad::Uop) {
            uop_[row] = from ? decode_uop(from) : Uop{};
        } else {
            void* to =
                l.to == Scratchpad::Inp ? static_cast<void*>(inp_.data() + row * bytes) : wgt_.data() + row * bytes;
            if (from)
                std::memcpy(to, from, bytes);
            else
                std::memset(to, l.pad_value, bytes);
        }
    });
}

void Executor::run(const Store& s) {
    const size_t lanes = size_t(machine_.outputs);
    const int32_t low = s.element == Element::Int8 ? -128 : 0, high = s.element == Element::Int8 ? 127 : 255;
    for_each_row(s, [&](uint32_t row, int64_t address) {
        const int32_t* from = acc_.data() + row * lanes;
        uint8_t* to = memory_.data() + address;
        if (s.element == Element::Wide)
            std::memcpy(to, from, 4 * lanes);
        else
            for (size_t n = 0; n < lanes; ++n) to[n] = uint8_t(std::clamp(from[n], low, high));
    });
}

void Executor::run(const Gemm& g) {
    const int k = machine_.inputs, n = machine_.outputs;
    const size_t tile = size_t(k) * size_t(n);
    for_each_row(g, uop_.data(), [&](const GemmRows& r) {
        int32_t* sums = acc_.data() + size_t(r.acc) * size_t(n);
        const int32_t* bias = g.from_bias ? acc_.data() + size_t(g.bias) * size_t(n) : nullptr;
        const int32_t* start = r.starts ? bias : sums;
        const uint8_t* x = inp_.data() + size_t(r.inp) * size_t(k);
        const int8_t* w = wgt_.data() + size_t(r.wgt) * tile;
        if (g.unsigned_inp)
            multiply_row(x, w, start, sums, k, n);
        else
            multiply_row(reinterpret_cast<const int8_t*>(x), w, start, sums, k, n);
    });
}

void Executor::run(const Alu& alu) {
    const size_t lanes = size_t(machine_.outputs);
    for_each_row(alu, uop_.data(), [&](const AluRows& r) {
        int32_t* dst = acc_.data() + r.dst * lanes;
        const int32_t* a = acc_.data() + r.a * lanes;
        const int32_t* b = alu.b == SecondOperand::Row ? acc_.data() + r.b * lanes : dst;
        for (size_t n = 0; n < lanes; ++n) {
            const int32_t second = alu.b == SecondOperand::Immediate ? int32_t(alu.immediate) : b[n];
            const int32_t result = alu_lane(alu.op, dst[n], a[n], second, alu.addend);
            dst[n] = alu.clip ? std::min(std::max(result, int32_t(alu.low)), int32_t(alu.high)) : result;
        }
    });
}

}  // namespace tessera::accelerator
