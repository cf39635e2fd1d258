// One op, or a few that count as one, on operands of fixed sizes, as straight-line code over residues modulo 2^61 - 1:
// the bodies of the graph's nodes, evaluated in part, with every index and condition on sizes computed in advance.
// Floats are ordered by representative and functions like exp are random functions of the key, as in rewrite/field.h.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace tessera {

class FieldProgram {
  public:
    // Of a graph with f32 inputs of constant sizes and one output. Nothing where a body is missing, needs the contents
    // of an input, or computes with infinities. `graph` is only read.
    static std::optional<FieldProgram> compile(const Graph& graph);

    // Fills out[0, size()); false where it divided by zero. `scratch` is reused between calls.
    bool run(const uint64_t* const* inputs, uint64_t* out, uint64_t key, std::vector<uint64_t>& scratch) const;

    int64_t size() const { return size_; }
    int64_t steps() const { return static_cast<int64_t>(code_.size() + pairs_.size()); }

  private:
    enum class Op : uint8_t {
        Copy,
        Add,
        Sub,
        Mul,
        Div,
        Neg,
        Min,
        Max,
        Less,
        LessEqual,
        Equal,
        Choose,
        Dot,
        Abs,
        Sign,
        Power,
        Opaque
    };
    struct Instruction {
        Op op;
        uint32_t to, a, b, c;  // places: a base (an input, temporaries, constants, the output) and an index into it
    };
    static constexpr uint32_t kBaseShift = 28, kIndexMask = (1u << kBaseShift) - 1;
    static constexpr uint32_t kTemporaries = 8, kConstants = 9, kOutput = 10;

    friend class FieldCompiler;
    std::vector<Instruction> code_;
    std::vector<std::pair<uint32_t, uint32_t>> pairs_;  // of Dot: the sum of the products of [a, a + b)
    std::vector<uint64_t> constants_;
    int64_t size_ = 0, temporaries_ = 0;
};

}  // namespace tessera
