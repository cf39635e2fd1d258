// A loss over a model's output as nodes, with its gradient in closed form: of cross entropy, softmax(x) - target, which
// is exact where differentiating a logarithm of a softmax would not be.
#pragma once

#include "graph/builder.h"
#include "tessera/training.h"

namespace tessera {

struct LossNodes {
    Value* loss = nullptr;      // f32 or f64 scalar
    Value* gradient = nullptr;  // with respect to the output, of the loss's element type
};

// The type that the target must have. E0501 for a loss that does not exist, E0210 for an output that it cannot take.
Result<Type> target_type(const Loss& loss, const Value& output);

int64_t class_count(const Loss& loss, const Value& output);  // of cross entropy, where target_type found no error

Result<LossNodes> build_loss(Builder& build, const Loss& loss, Value* output, Value* target);

}  // namespace tessera
