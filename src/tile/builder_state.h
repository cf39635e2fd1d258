// What a builder has written so far.
#pragma once

#include "tile/program.h"

namespace tessera::tile {

struct Builder::State {
    ProgramData program;
    Place place;
    // Regions that are being written, the innermost last. An instruction of control flow waits with its first region.
    struct Open {
        Instruction instruction;
        size_t region = 0;  // of the instruction
    };
    std::vector<Open> open;

    Region& region() { return open.empty() ? program.body : open.back().instruction.regions[open.back().region]; }
    Value fresh(Type type) {
        program.types.push_back(type);
        return {static_cast<int>(program.types.size()) - 1, std::move(type)};
    }
    void append(Instruction instruction) {
        instruction.place = place;
        region().instructions.push_back(std::move(instruction));
    }
    Value add(Instruction instruction, Type type) {
        Value value = fresh(std::move(type));
        instruction.outputs.push_back(value.number);
        append(std::move(instruction));
        return value;
    }
    Value map(const std::vector<Value>& inputs, const Expr& body, DType dtype) {
        Instruction instruction{.kind = Kind::Map, .body = body};
        for (const Value& v : inputs) instruction.inputs.push_back(v.number);
        return add(std::move(instruction), {.dtype = dtype, .pointer = false, .shape = inputs[0].type.shape});
    }
};

// The element of input number i of a map.
inline Expr element(int input, DType dtype) { return load(input, dtype, {}); }

inline bool is_literal(const Operand& x) { return !std::holds_alternative<Value>(x); }
inline const Type& type_of(const Operand& x) { return std::get<Value>(x).type; }
inline DType dtype_of(const Operand& x) { return is_literal(x) ? literal_type(x) : type_of(x).dtype; }

// An axis from the back where it is negative. E0212.
Result<size_t> checked_axis(int64_t axis, size_t rank);

}  // namespace tessera::tile
