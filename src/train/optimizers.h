// The update rules of optimizers as nodes: a parameter, its gradient and what is remembered of it, to the new ones.
#pragma once

#include "graph/builder.h"
#include "tessera/training.h"

namespace tessera {

// A scalar that a step computes anew for each update, so that no schedule needs another program.
enum class StepNumber : uint8_t { LearningRate, FirstCorrection, SecondCorrection };
std::string_view name_of(StepNumber number);
// Its value for the update with this number, from 1 on.
double value_of(StepNumber number, const Optimizer& optimizer, double learning_rate, int64_t update);

// E0501 for one that does not exist, or numbers that make no sense.
Status check_optimizer(const Optimizer& optimizer);
std::vector<StepNumber> numbers_of(const Optimizer& optimizer);
std::vector<std::string> slots_of(const Optimizer& optimizer);  // what is remembered for each parameter, zero at first

struct Update {
    Value* parameter;
    std::vector<Value*> slots;
};
// `number` gives a scalar of the parameter's element type; `kept` what is remembered, by what it is to become and what
// it was: the parameter is computed from that, so that one kernel can write both.
Update build_update(Builder& build, const Optimizer& optimizer, Value* parameter, Value* gradient,
                    const std::vector<Value*>& slots, const std::function<Value*(StepNumber)>& number,
                    const std::function<Value*(Value* now, Value* before)>& kept);

}  // namespace tessera
