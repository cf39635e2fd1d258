// What one rank runs of a plan: ordinary graphs over its parts of tensors, with collectives between them.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

// A graph whose inputs and outputs are held tensors, in these orders.
struct Segment {
    std::shared_ptr<Graph> graph;
    std::vector<int> inputs, outputs;
};

// Waits for the collective that makes a held tensor; those of MoveStep and CombineStep only start it.
struct FinishStage {
    int made = 0;
};

// A buffer of one dimension, which segments pack and unpack. It is numbered after what the plan holds.
struct WireBuffer {
    DType dtype = DType::f32;
    int64_t elements = 0;
};

// A collective on whole buffers, as libraries for devices have it (NCCL). In place: of a gather `from` is this rank's
// part of `to`, of a reduce-scatter `to` is this rank's part of `from`, of an all-reduce they are one.
struct Wire {
    enum class Kind { AllReduce, AllGather, ReduceScatter, SendReceive };
    Kind kind = Kind::SendReceive;
    std::string name;
    ReduceOp op = ReduceOp::Sum;
    std::vector<size_t> axes = {};  // the group: the ranks that differ along these only, in ascending order
    int from = -1, to = -1;
    std::vector<std::pair<int64_t, int>> sends = {}, receives = {};  // rank, buffer
};

struct LocalProgram {
    int64_t rank = 0;
    std::vector<std::variant<Segment, MoveStep, CombineStep, FinishStage, Wire>> stages;
    std::vector<WireBuffer> buffers = {};
};

// What moves between ranks: boxes of tensors, which the transport cuts out and puts together, or buffers (Wire).
enum class Transfer { Boxes, Buffers };

// Constants are cut to what this rank needs of them. E0202 where a part of a body cannot be written as a node.
Result<LocalProgram> local_program(const Plan& plan, int64_t rank, Transfer transfer = Transfer::Boxes);

// The collectives of a program and their buffers, a line each.
std::string wires_text(const Plan& plan, const LocalProgram& program);

int64_t constant_bytes(const LocalProgram& program);

// The elements of a box, in row-major order: out of a tensor that holds `held`, and into one.
Result<Tensor> cut(const Tensor& tensor, const Box& held, const Box& box);
void paste(Tensor& tensor, const Box& held, const Box& box, const void* elements);

}  // namespace tessera::shard
