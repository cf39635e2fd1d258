// What a kernel computes, independent of its schedule: stages in order, each filling one buffer from the expression of
// one element. A Schedule determines the loop nests, and lower() generates them.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// for axes: buffer[store(axes)] = combine over reduce of value, or just value. For a buffer that another stage reads,
// `store` equals the axes, so that the buffer's region is the region of the axes.
struct Stage {
    std::string name;                 // unique; prefix of the names of its loops
    int buffer = 0;
    std::vector<ReduceAxis> axes;     // the iteration space, outermost first
    std::vector<ReduceAxis> reduce;   // reduction axes; empty: a map
    ReduceOp combine = ReduceOp::Sum;
    std::vector<Expr> store;          // indices of the element written, over the axes; injective
    Expr value;                       // over axes, reduction variables and symbols; loads have slots of the Compute
    bool fold = false;                // each step sets the element to `value`, which reads its previous value
};

struct Compute {
    std::string name = "kernel";
    std::vector<std::string> symbols;
    std::vector<Buffer> buffers;      // parameters first, as in Kernel; intermediates after them
    size_t params = 0;
    std::vector<bool> known;          // by parameter: constant, so work on it is done at load time; may be short
    int halvings = 0;                 // number of Strassen levels of its product; 0: none
    std::vector<Stage> stages;        // producers before consumers; each intermediate buffer is written by one stage
};

bool is_product(const Expr& value);  // of two operands, in each of which it is linear

std::optional<ReduceOp> combine_of(const Stage& stage);  // how a store combines with the old value; none: replaces it
Expr identity(ReduceOp op, DType dtype);  // the result of an empty reduction: 0, 1, the largest or smallest value

// The same computation as unscheduled nests, one after the other, in the order of the axes. Intermediates are in Global
// scope and become scratch parameters.
Kernel plain_nests(const Compute& compute);

// Text. `parse_compute` parses the output of `to_string`, `parse_computes` several Computes; E0301 and E0302 with line
// and column.
std::string to_string(const Compute& compute);
Result<Compute> parse_compute(std::string_view text, std::string_view source = "text");
Result<std::vector<Compute>> parse_computes(std::string_view text, std::string_view source = "text");
Status verify(const Compute& compute);

}  // namespace tessera
