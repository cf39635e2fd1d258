// A tile program as data: instructions in order, each giving values that later ones use, with regions inside control
// flow. Values are numbered; each is given once. What an instruction of kind Map does to each element is an expression
// over its inputs: Load number i without indices is the element of input i.
#pragma once

#include "expr/expr.h"
#include "tessera/tile.h"

namespace tessera::tile {

enum class Kind : uint8_t {
    Constant,  // body
    Arange,    // numbers: begin, end
    ProgramId,
    ProgramCount,  // numbers: axis
    Map,           // body; inputs of the result's shape; word: "rounded" where a quotient is rounded as IEEE has it
    Bits,          // of a number, as one of another type of as many bits
    Offset,        // a pointer and how many elements further
    Address,       // of a pointer, as a number
    PointerAt,     // the other way round
    PlaceOf,       // of a pointer: how many elements it is behind the first of its array
    Choose,        // a condition and two pointers
    Broadcast,
    Reshape,  // to the result's shape; one element fills a tile
    Permute,  // numbers: order
    Join,
    Split,
    Concatenate,
    Gather,  // x, indices; numbers: axis
    Flip,    // numbers: axis
    Load,    // pointer, or pointer and mask, or pointer, mask and other
    Store,   // pointer and value, or with mask
    Dot,     // a, b, or a, b and what is added; numbers: none, or how many products may be added up with few digits;
             // word: of f32, "tf32" or "tf32x3" where that is enough
    Reduce,  // numbers: axis; word: sum, min, max, xor; or a region that combines two of each input
    Scan,    // numbers: axis, reverse; a region
    Atomic,  // pointer, value or two, mask; word: add, min, ..., exchange, compare; gives what was there
    If,      // condition; two regions
    For,     // begin, end, step, carried...; a region of the variable and what is carried
    While,   // carried...; a region of what is carried that gives a condition, and one that gives what is carried next
    Print,   // values; word: text; numbers: hexadecimal
    Assert,  // condition, or condition and mask; word: text
};

struct Place {
    int line = 0, column = 0, file = 0;
    std::string to_string() const;  // "file 0, line 7, column 5"
};

struct Instruction;
struct Region {
    std::vector<int> arguments;
    std::vector<Instruction> instructions;
    std::vector<int> results;
};
struct Instruction {
    Kind kind;
    std::vector<int> inputs = {}, outputs = {};
    Expr body = 0;
    std::vector<int64_t> numbers = {};
    std::string word = {};
    std::vector<Region> regions = {};
    Place place = {};
};

struct Parameter {
    std::string name;
    int value;
};
struct ProgramData {
    std::string name;
    std::vector<Type> types;  // of values
    std::vector<Parameter> parameters;
    Region body;
};

std::string_view kind_name(Kind kind);
int64_t element_count(const Type& type);

// The type in which two operands are computed with. A literal takes the other's type where its class (bool, integer,
// float) is not above it. `divided`: 16-bit floats are divided in f32, and integers of one signedness alone.
Result<DType> common_type(DType a, bool a_literal, DType b, bool b_literal, bool divided = false);
// Of a number in the source: i32, u32, i64 or u64, by its size; f32 or, out of its range, f64.
DType literal_type(const Operand& literal);
// The shape that both broadcast to; missing dimensions are added in front.
Result<std::vector<int64_t>> common_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

}  // namespace tessera::tile
