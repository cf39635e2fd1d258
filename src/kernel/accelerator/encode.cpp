#include <type_traits>

#include "base/check.h"
#include "kernel/accelerator/fields.h"

namespace tessera::accelerator {

namespace {

constexpr int kOpcodeBits = 3;

void put_bits(Encoded& e, int first, int width, uint64_t value) {
    for (int i = 0; i < width; ++i)
        if (value >> i & 1) e[size_t(first + i) / 16] |= uint16_t(1u << (first + i) % 16);
}

uint64_t get_bits(const Encoded& e, int first, int width) {
    uint64_t value = 0;
    for (int i = 0; i < width; ++i) value |= uint64_t(e[size_t(first + i) / 16] >> (first + i) % 16 & 1) << i;
    return value;
}

template <typename T>
int64_t as_integer(T value) {
    return static_cast<int64_t>(value);
}

auto put_fields(Encoded& e) {
    return [&e](std::string_view name, const auto& member, int first, int width) {
        const int64_t value = as_integer(member);
        const bool is_signed = std::is_signed_v<std::remove_cvref_t<decltype(member)>>;
        const int64_t low = is_signed ? -(int64_t(1) << (width - 1)) : 0;
        const int64_t high = (int64_t(1) << (is_signed ? width - 1 : width)) - 1;
        CHECK(value >= low && value <= high, "{} = {} does not fit {} bits", name, value, width);
        put_bits(e, first, width, uint64_t(value));
    };
}

struct GetFields {
    const Encoded& e;
    Status& status;

    template <typename T>
    void operator()(std::string_view name, T& member, int first, int width) {
        uint64_t bits = get_bits(e, first, width);
        if constexpr (std::is_enum_v<T>) {
            if (bits >= names(T{}).size()) {
                status = Error(Code::E0110, "the instruction's field {} is {}, and has only {} values", name, bits,
                               names(T{}).size());
                bits = 0;
            }
        } else if constexpr (std::is_signed_v<T>) {
            if (bits >> (width - 1) & 1) bits |= ~uint64_t(0) << width;
        }
        member = static_cast<T>(bits);
    }
};

template <typename T>
Result<Instruction> decode_as(const Encoded& e) {
    Instruction made;
    T op{};
    Status status;
    GetFields get{e, status};
    fields(made.tokens, get);
    fields(op, get);
    TRY(std::move(status));
    made.op = op;
    if (encode(made) != e)
        return Error(Code::E0110, "the instruction sets bits that no field of {} has", kOpcodes[made.op.index() + 1]);
    return made;
}

}  // namespace

Encoded encode(const Instruction& instruction) {
    Encoded e{};
    put_bits(e, 0, kOpcodeBits, instruction.op.index() + 1);
    fields(instruction.tokens, put_fields(e));
    std::visit([&](const auto& op) { fields(op, put_fields(e)); }, instruction.op);
    return e;
}

Result<Instruction> decode(const Encoded& encoded) {
    switch (Opcode(get_bits(encoded, 0, kOpcodeBits))) {
        case Opcode::Load: return decode_as<Load>(encoded);
        case Opcode::Store: return decode_as<Store>(encoded);
        case Opcode::Gemm: return decode_as<Gemm>(encoded);
        case Opcode::Alu: return decode_as<Alu>(encoded);
        case Opcode::Finish: return decode_as<Finish>(encoded);
        default: break;
    }
    return Error(Code::E0110, "{} is not the opcode of an instruction", get_bits(encoded, 0, kOpcodeBits));
}

std::array<uint8_t, kUopBytes> encode(const Uop& uop) {
    return {uint8_t(uop.acc),
            uint8_t(uop.acc >> 8),
            uint8_t(uop.inp),
            uint8_t(uop.inp >> 8),
            uint8_t(uop.wgt),
            uint8_t(uop.wgt >> 8),
            0,
            0};
}

Uop decode_uop(const uint8_t* b) {
    return {uint16_t(b[0] | b[1] << 8), uint16_t(b[2] | b[3] << 8), uint16_t(b[4] | b[5] << 8)};
}

std::vector<uint8_t> encode(std::span<const Instruction> program) {
    std::vector<uint8_t> bytes;
    bytes.reserve(program.size() * kInstructionBytes);
    for (const Instruction& i : program)
        for (uint16_t half : encode(i)) {
            bytes.push_back(uint8_t(half));
            bytes.push_back(uint8_t(half >> 8));
        }
    return bytes;
}

Unit Instruction::unit() const {
    if (std::holds_alternative<Load>(op)) return Unit::Load;
    return std::holds_alternative<Gemm>(op) || std::holds_alternative<Alu>(op) ? Unit::Compute : Unit::Store;
}

std::string_view to_string(Unit unit) {
    constexpr std::array<std::string_view, 3> units{"load", "compute", "store"};
    return units[size_t(unit)];
}
std::string_view to_string(Scratchpad scratchpad) { return kScratchpads[size_t(scratchpad)]; }
std::string_view to_string(AluOp op) { return kAluOps[size_t(op)]; }

bool is_float(AluOp op) { return op >= AluOp::Scale; }

bool reads_destination(const Alu& alu) {
    return alu.op == AluOp::Mac || alu.op == AluOp::DequantizeAdd || alu.b == SecondOperand::Destination;
}

}  // namespace tessera::accelerator
