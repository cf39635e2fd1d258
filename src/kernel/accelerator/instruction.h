// The instruction set of the accelerator: 256-bit instructions for a decoupled access-execute machine with a load, a
// compute and a store unit. Encoding, and the text form of programs. docs/accelerator.md is the reference.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace tessera::accelerator {

enum class Unit : uint8_t { Load, Compute, Store };
enum class Scratchpad : uint8_t { Inp, Wgt, Acc, Uop };

// What an instruction takes from and adds to the token queues between its unit and the previous and next one in the
// order load, compute, store. It takes before it starts and adds when its last row is written or read.
struct Tokens {
    bool pop_previous = false, pop_next = false, push_previous = false, push_next = false;
    bool operator==(const Tokens&) const = default;
};

// Memory holds a row of a scratchpad as consecutive little-endian elements. `Wide` is the scratchpad's own element
// (int8 for inp and wgt, int32 for acc, a Uop for uop); in acc, the others are converted to and from int32.
enum class Element : uint8_t { Wide, Int8, Uint8 };

// Reads z planes of y lines of x rows from memory into consecutive scratchpad rows. Every plane gets `top` and `bottom`
// lines and every line `left` and `right` rows of padding, which are filled with `pad_value`.
struct Load {
    Scratchpad to = Scratchpad::Inp;
    Element element = Element::Wide;
    uint8_t pad_value = 0;  // a byte of each element of inp and wgt; of acc, an integer signed unless Uint8
    uint32_t address = 0;   // bytes
    uint16_t row = 0;       // first row of the scratchpad (inp, acc: a row; wgt: a tile; uop: an entry)
    uint16_t x = 1, y = 1, z = 1;
    uint32_t x_stride = 0, y_stride = 0, z_stride = 0;  // bytes between rows, lines and planes
    uint8_t top = 0, bottom = 0, left = 0, right = 0;
    bool operator==(const Load&) const = default;
};

// Writes rows of acc to memory: row `row + z*z_pitch + y*y_pitch + x` to `address + z*z_stride + y*y_stride +
// x*x_stride`. Int8 and Uint8 saturate each int32.
struct Store {
    Element element = Element::Int8;
    uint32_t address = 0;
    uint16_t row = 0, y_pitch = 0, z_pitch = 0;
    uint16_t x = 1, y = 1, z = 1;
    uint32_t x_stride = 0, y_stride = 0, z_stride = 0;
    bool operator==(const Store&) const = default;
};

// for i < outer: for j < inner: for u in [uop, uop + uops): one row a cycle.
struct Loop {
    uint16_t uop = 0, uops = 1, outer = 1, inner = 1;
    bool operator==(const Loop&) const = default;
};

// Row base + i*outer + j*inner + the field of micro-op u, modulo 2^16, so that strides may be negative.
struct Operand {
    uint16_t base = 0, outer = 0, inner = 0;
    bool operator==(const Operand&) const = default;
};

struct Uop {
    uint16_t acc = 0, inp = 0, wgt = 0;  // an Alu instruction: offsets of dst, a and b
    bool operator==(const Uop&) const = default;
};

// acc[.] += inp[.] x wgt[.]: a row of K values times a tile of N x K weights (w[n*K + k]) gives a row of N sums,
// modulo 2^32. Where `init` says so, the sum starts from 0 or from row `bias` instead of the row's old value.
enum class Init : uint8_t { Never, Always, FirstUop, FirstOuter };
struct Gemm {
    Loop loop;
    Operand acc, inp, wgt;
    Init init = Init::Never;
    bool from_bias = false;
    uint16_t bias = 0;
    bool unsigned_inp = false;  // the row of inp is uint8
    bool operator==(const Gemm&) const = default;
};

// f32 operations round to nearest even. Subnormal operands and results are 0. See kAluOps for the text names.
enum class AluOp : uint8_t {
    Add,            // a + b + addend
    Sub,            // a - b + addend
    Mul,            // a * b + addend
    Mac,            // dst + a * b + addend
    Min,            // min(a, b) + addend
    Max,            // max(a, b) + addend
    Shr,            // a >> b, 0 <= b < 32, round half to even, + addend
    Scale,          // round(f32(a) * b) + addend, saturating; half to even
    Dequantize,     // bits of f32(a + addend) * b
    DequantizeAdd,  // bits of f32(dst) + f32(a + addend) * b
    FloatAdd,       // bits of f32 a + b
    FloatMul,       // bits of f32 a * b
    Round,          // round(f32 a * b) + addend, saturating
    Quantize,       // round(f32 a / b) + addend, saturating
};

// What b is: a row at `row + wgt field of the micro-op`, the same value for all lanes, or dst's old value.
enum class SecondOperand : uint8_t { Row, Immediate, Destination };

// dst[.] = op(a[.], b), one row of N int32 lanes a cycle; then, with `clip`, clamped to [low, high].
struct Alu {
    AluOp op = AluOp::Add;
    Loop loop;
    Operand dst, a;
    SecondOperand b = SecondOperand::Immediate;
    uint16_t row = 0;
    uint32_t immediate = 0;  // an int32, or the bits of an f32; only with SecondOperand::Immediate
    int16_t addend = 0;      // -2048 to 2047
    bool clip = false;
    int16_t low = 0, high = 0;
    bool operator==(const Alu&) const = default;
};

// Ends the program: nothing after it is fetched.
struct Finish {
    bool operator==(const Finish&) const = default;
};

struct Instruction {
    Tokens tokens;
    std::variant<Load, Store, Gemm, Alu, Finish> op;

    Unit unit() const;  // Finish: Store
    bool operator==(const Instruction&) const = default;
};

constexpr int kInstructionBytes = 32, kUopBytes = 8;
using Encoded = std::array<uint16_t, kInstructionBytes / 2>;  // in memory: little endian

// Fields that an instruction does not use are 0, and decode refuses anything else.
Encoded encode(const Instruction& instruction);
Result<Instruction> decode(const Encoded& encoded);
std::array<uint8_t, kUopBytes> encode(const Uop& uop);
Uop decode_uop(const uint8_t* bytes);
std::vector<uint8_t> encode(std::span<const Instruction> program);  // as memory holds it

std::string_view to_string(Unit unit);
std::string_view to_string(Scratchpad scratchpad);
std::string_view to_string(AluOp op);
bool is_float(AluOp op);  // b is an f32
bool reads_destination(const Alu& alu);

// One line for each instruction, fields at their defaults left out: "load inp[0] address=4096 x=14 y=14 ... pop_next".
std::string to_string(const Instruction& instruction);
std::string to_string(std::span<const Instruction> program);
Result<std::vector<Instruction>> parse_program(const std::string& text, const std::string& source);

}  // namespace tessera::accelerator
