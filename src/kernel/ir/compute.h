// What a kernel computes, apart from how: stages in order, each filling one buffer from an expression of one element.
// A Schedule says how, and lower() gives the loop nests.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// for axes: buffer[store(axes)] = combine over reduce of value, or just value. Between stages of one Compute, a buffer
// that is written by one and read by others is written with `store` equal to its axes: its region is the axes' region.
struct Stage {
    std::string name;                 // unique; loops are named after it
    int buffer = 0;
    std::vector<ReduceAxis> axes;     // the iteration space, outermost first
    std::vector<ReduceAxis> reduce;   // combined over; none: a plain map
    ReduceOp combine = ReduceOp::Sum;
    std::vector<Expr> store;          // the element of the buffer, over the axes; different points, different elements
    Expr value;                       // over axes, reduction variables and symbols; loads have slots of the Compute
    bool fold = false;                // each step sets the element to `value`, which reads it as it was before
};

struct Compute {
    std::string name = "kernel";
    std::vector<std::string> symbols;
    std::vector<Buffer> buffers;      // parameters first, as in Kernel; intermediates after them
    size_t params = 0;
    std::vector<bool> known;          // by parameter: a constant, so that work on it alone can be done ahead; may be short
    int halvings = 0;                 // of its product, which Strassen computes; 0: plainly
    std::vector<Stage> stages;        // producers before consumers; every non-parameter buffer has one stage that writes it
};

bool is_product(const Expr& value);  // of two operands: zero where one of them is, and distributive over sums of either

std::optional<ReduceOp> combine_of(const Stage& stage);  // how a store changes what is there; none: replaces it
Expr identity(ReduceOp op, DType dtype);  // what combining over nothing gives: 0, 1, the largest, the smallest value

// The same computation as plain nests: one after the other, in the order of the axes, intermediates in Global scope (they
// become scratch parameters).
Kernel plain_nests(const Compute& compute);

// Text. `parse_compute` reads what `to_string` prints, `parse_computes` several of them; E0301 and E0302 with line and
// column.
std::string to_string(const Compute& compute);
Result<Compute> parse_compute(std::string_view text, std::string_view source = "text");
Result<std::vector<Compute>> parse_computes(std::string_view text, std::string_view source = "text");
Status verify(const Compute& compute);

}  // namespace tessera
