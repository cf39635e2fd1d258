// Training: a model, a loss and an optimizer compiled into one step. The step owns the parameters and the optimizer
// state and updates them in place.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compile.h"

namespace tessera {

struct Loss {
    // "cross_entropy" (logits and labels), "mse", "l1", "bce_with_logits", or "output" (the model's scalar output).
    std::string kind = "cross_entropy";
    std::string output = {};             // the model output that the loss is computed from; empty: the first
    int64_t class_axis = 1;              // cross_entropy: the class dimension of the logits
    int64_t ignore_index = -100;         // cross_entropy: rows with this label are ignored
    double label_smoothing = 0;          // cross_entropy
    std::vector<double> class_weights = {};  // cross_entropy: one for each class
};

// The update rules are PyTorch's.
struct Optimizer {
    std::string kind = "sgd";  // "sgd", "adam", "adamw", "adagrad", "lion"
    double learning_rate = 1e-2;
    double momentum = 0;       // sgd
    bool nesterov = false;     // sgd
    double beta1 = 0.9, beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;   // added to the gradient by sgd, adam and adagrad; decoupled in adamw and lion

    static Optimizer sgd(double learning_rate, double momentum = 0, bool nesterov = false, double weight_decay = 0);
    static Optimizer adam(double learning_rate = 1e-3, double weight_decay = 0);
    static Optimizer adamw(double learning_rate = 1e-3, double weight_decay = 1e-2);
    static Optimizer adagrad(double learning_rate = 1e-2, double weight_decay = 0);
    static Optimizer lion(double learning_rate = 1e-4, double weight_decay = 0);
};

// A mesh of ranks over which a step is partitioned (docs/sharding.md). Each keeps its parts of parameters and optimizer
// state.
struct TrainingMesh {
    std::string axes = {};  // "data=2,model=2"; empty: one device
    // Of inputs, parameters and other values, as ShardOptions::annotations. The first dimension of inputs is divided
    // over the axis "data", if there is one.
    std::vector<std::pair<std::string, std::string>> shardings = {};
    // Divides over the axes of the batch: 1 the optimizer state, 2 also accumulated gradients, 3 also the parameters.
    int zero = 0;
    bool mpi = false;     // ranks are the processes that mpirun started; otherwise threads
    double patience = 6;  // seconds to wait for another rank in a collective
};

struct TrainingMeshUse {
    int64_t ranks = 1;
    // Bytes of parameters and running statistics, and of optimizer state: all of them, and a rank's at most.
    int64_t weight_bytes = 0, rank_weight_bytes = 0, state_bytes = 0, rank_state_bytes = 0;
    int64_t collectives = 0, received_bytes = 0;  // of a step; bytes that a rank receives, at most
};

struct TrainingOptions {
    Loss loss;
    Optimizer optimizer;
    // Patterns (*, ?) of initializers to train. Empty: all float ones of rank 1 or more that a gradient reaches.
    std::vector<std::string> parameters = {};
    std::vector<std::string> frozen = {};  // patterns of those not to train
    double clip_norm = 0;    // bound of the global gradient norm; 0: no clipping
    double clip_value = 0;   // bound of each element of a gradient; 0: no clipping
    std::string precision = "f32";  // of products: "f32", "bf16" or "f16"; parameters keep the model's types
    // Factor of the loss before gradients are computed. 0: dynamic for f16 (65536 at first, halved after a step with a
    // non-finite gradient, doubled after 2000 steps without one), and 1 otherwise.
    double loss_scale = 0;
    int accumulate = 1;          // calls of step() whose gradients are averaged for one update
    bool training_mode = true;   // batch normalization uses batch statistics, and dropout is active
    uint64_t seed = 0;           // of dropout and other random ops
    TrainingMesh mesh = {};      // on CPUs
    CompileOptions compile = {};
};

struct TrainingReport {
    double loss = 0;                       // before the update
    std::optional<double> gradient_norm;   // before clipping, if clip_norm is set
    bool updated = true;                   // false: gradients were only accumulated, or the update was skipped
    bool skipped = false;                  // a gradient was not finite; the loss scale was halved
};

using NamedTensorList = std::vector<std::pair<std::string, Tensor>>;

class Training {
   public:
    // Over a mesh of processes, all of them make the same calls in the same order. E0701 without Open MPI, E0702 if
    // another rank stops, is silent or trains something else.
    static Result<Training> create(const Model& model, const TrainingOptions& options);

    // The inputs of a step: the model's inputs, then "target" unless the loss is the model's output.
    std::vector<Port> inputs() const;
    // E0407 if the loss is not finite (the parameters are unchanged), E0406 if a label is out of range.
    Result<TrainingReport> step(const NamedData& batch);
    // The loss and the model's outputs in inference mode: batch normalization uses running statistics, no dropout.
    struct Evaluation {
        double loss = 0;
        std::vector<Datum> outputs;
    };
    Result<Evaluation> evaluate(const NamedData& batch);

    double learning_rate() const;
    void set_learning_rate(double rate);
    int64_t updates() const;  // number of updates so far
    int64_t skipped() const;  // number of skipped updates so far
    double loss_scale() const;

    // Aliases the memory that steps read and write. On a GPU these are copies that the next step reads; while one of them
    // is held, each step copies it to the GPU and back. Over a mesh they are copies, gathered from all ranks.
    Result<NamedTensorList> parameters() const;
    // The optimizer state by parameter and kind ("fc.weight.exp_avg"), and running statistics by name.
    Result<NamedTensorList> state() const;

    // Atomically writes parameters, state, counters and the seed to one file in the safetensors format. load() returns
    // the caller's text in `extra`.
    Status save(const std::string& path, const std::map<std::string, std::string>& extra = {}) const;
    // E0110 for a file of another model or optimizer; the state is then unchanged.
    Result<std::map<std::string, std::string>> load(const std::string& path);

    Result<Model> trained() const;  // the model with the current parameters
    // Of one step. Over a mesh there is no such executable: these abort.
    const CompileReport& report() const;
    const Executable& executable() const;
    std::optional<TrainingMeshUse> mesh_use() const;  // over a mesh, from the first step on
    void stop(const Error& error);                    // tells other processes of the mesh that this one cannot go on

    struct State;
    explicit Training(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

}  // namespace tessera
