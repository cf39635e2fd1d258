// What one rank runs of a plan: ordinary graphs over its parts of tensors, with collectives between them.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

// A graph whose inputs and outputs are held tensors, in these orders.
struct Segment {
    std::shared_ptr<Graph> graph;
    std::vector<int> inputs, outputs;
};

struct LocalProgram {
    int64_t rank = 0;
    std::vector<std::variant<Segment, MoveStep, CombineStep>> stages;
};

// Constants are cut to what this rank needs of them. E0202 where a part of a body cannot be written as a node.
Result<LocalProgram> local_program(const Plan& plan, int64_t rank);

int64_t constant_bytes(const LocalProgram& program);

// The elements of a box, in row-major order: out of a tensor that holds `held`, and into one.
Result<Tensor> cut(const Tensor& tensor, const Box& held, const Box& box);
void paste(Tensor& tensor, const Box& held, const Box& box, const void* elements);

}  // namespace tessera::shard
