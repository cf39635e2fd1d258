// A kernel as flat code for the interpreter: instructions over registers, with jumps. What reads no buffer is computed
// where the innermost of its variables is set, all else where it stands; branches not taken are jumped over.
#pragma once

#include <vector>

#include "kernel/ir/kernel.h"

namespace tessera {

// Floats are held as double, everything else as int64.
union FlatValue {
    double real;
    int64_t integer;
};

enum class FlatOp : uint8_t {
    AddInt,
    MulInt,
    LtInt,  // i64
    AddReal,
    SubReal,
    MulReal,     // then rounded as `dtype` says
    Apply,       // any other arithmetic: kind or fn of a (and b)
    Select,      // out = a ? b : c
    Move,        // out = a
    Jump,        // by c
    JumpUnless,  // a, by c
    LoopBegin,   // out = 0; without an iteration of a: by c
    LoopEnd,     // the next out below a: by c
    LoopBeginBack,
    LoopEndBack,  // the same from a - 1 down to 0
    Load,         // out = access b
    Store,        // access b = a
    Combine,      // access b = fn of it and a
    Allocate,     // buffer b
    Launch,       // of blocks, or (a is 1) of iterations of a Parallel loop, begins or has ended
    Block,        // of nest b begins
    Threads,      // of nest b run through what follows, up to ThreadsEnd: by c
    ThreadsEnd,
    Barrier,
    Bits,    // out = the bits of a
    Report,  // number b
};

struct FlatInstruction {
    FlatOp op;
    ExprKind kind{};  // Apply, Combine
    Fn fn{};
    DType dtype{}, from{};  // of out, and of a
    int out = 0, a = 0, b = 0, c = 0;
};

struct FlatAccess {
    int buffer;
    std::vector<int> indices;  // registers
    Stmt stmt;                 // for messages
    bool atomic = false;       // it meets no other
};

// Blocks or threads.
struct FlatNest {
    std::vector<int> vars, extents;  // registers
    std::vector<int> buffers = {};   // that each thread has for itself
};

// What a kernel says while it runs (base/reports.h).
struct FlatReport {
    int64_t number;
    std::vector<int> values;  // registers
};

struct FlatCode {
    std::vector<FlatInstruction> instructions;
    std::vector<FlatValue> registers;  // as they are at first: constants are set
    std::vector<FlatAccess> accesses;
    std::vector<FlatNest> nests;
    std::vector<FlatReport> reports;
    std::map<std::string, int> symbols;            // their registers
    std::vector<std::vector<int>> sizes, strides;  // by buffer that is no parameter: registers
};

// Of a kernel that `verify` passes. Backwards: Parallel, Bound and Vector loops run from their last iteration to the first.
// E0601 for an intrinsic without a meaning here.
Result<FlatCode> flatten(const Kernel& kernel, bool backwards);

}  // namespace tessera
