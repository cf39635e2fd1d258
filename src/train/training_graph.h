// A model, a loss and an optimizer as graphs: one that makes a step, one that only adds a batch's gradients up, and one
// that evaluates. Parameters, and what a step remembers, are inputs of theirs, and outputs of those that change them.
#pragma once

#include "graph/graph.h"
#include "tessera/training.h"
#include "train/optimizers.h"

namespace tessera {

std::string gradient_sum(const std::string& parameter);  // the name of what accumulates a parameter's gradients

// A tensor that a step updates in place.
struct TrainedTensor {
    std::string name;      // as users know it
    std::string constant;  // of the model, that it stands for; empty: the optimizer's own
    Tensor initial;
    // The parameter that it is a copy of, in the narrow type; nothing else is in `initial` or in a file.
    std::optional<size_t> copy_of = {};
};

// Where a tensor is among a graph's inputs and outputs; -1 where it is not.
struct TensorPlace {
    int input = -1, output = -1;
};

enum class StepKind : uint8_t {
    Whole,       // gradients, and the update
    Accumulate,  // gradients, added to what there is of them
    Evaluate,    // the loss and the model's outputs, the model as it is used
};

struct StepGraph {
    std::shared_ptr<Graph> graph;
    std::vector<TensorPlace> places;                     // by tensor of the plan
    std::vector<std::pair<StepNumber, size_t>> numbers;  // and their inputs
    // Inputs. `keep` says whether there are gradients of batches before; `seed` is of the random numbers of this step.
    int target = -1, scale = -1, keep = -1, seed = -1;
    int loss = -1, norm = -1, finite = -1;  // outputs; in Evaluate the model's come first
};

struct TrainingPlan {
    std::vector<TrainedTensor> tensors;  // parameters, then the rest, narrow copies of parameters last
    size_t parameters = 0;
    int64_t classes = 0;                 // of labels; 0: the target is no labels
    std::vector<std::string> untrained;  // float initializers that no gradient reaches
    StepGraph whole, accumulate, evaluate;
};

// E0501 where nothing is to be trained, a pattern names nothing or a parameter gets no gradient; E0202 where an op on
// the way has no derivative.
// `shares_memory`: users may write to parameters between steps, so that no copies of them are kept. `recognise` puts one
// op in the place of several where that has a better gradient; parameters are inputs of the graph by then.
Result<TrainingPlan> plan_training(const Graph& model, const TrainingOptions& options, bool shares_memory,
                                   const std::function<Status(Graph&)>& recognise);

// The model's graph with these tensors in place of its initializers; `now`: of the first of them.
std::shared_ptr<Graph> with_tensors(const Graph& model, const std::vector<TrainedTensor>& tensors,
                                    const std::vector<Tensor>& now);

}  // namespace tessera
