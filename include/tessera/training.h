// Training: a model, a loss and an optimizer as one compiled step. Parameters and the optimizer's state stay in memory of
// the step's own, and each step updates them there.
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
    // "cross_entropy" of logits and integer labels, "mse", "l1", "bce_with_logits", or "output": the model's own scalar.
    std::string kind = "cross_entropy";
    std::string output = {};             // of the model, that the loss is of; empty: its first
    int64_t class_axis = 1;              // cross_entropy: the dimension of the logits that counts classes
    int64_t ignore_index = -100;         // cross_entropy: rows with this label count for nothing
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

struct TrainingOptions {
    Loss loss;
    Optimizer optimizer;
    // Patterns with * and ? of the names of initializers. Empty: all float ones of rank 1 or more that a gradient reaches.
    std::vector<std::string> parameters = {};
    std::vector<std::string> frozen = {};  // which of those are not trained
    double clip_norm = 0;    // of all gradients together; 0: not clipped
    double clip_value = 0;   // of each element of a gradient
    std::string precision = "f32";  // of products: "f32", "bf16" or "f16"; parameters stay as the model has them
    // Of the loss, before gradients are computed; 0: 65536 for f16, which halves where a gradient is not finite and
    // doubles after 2000 steps without, and 1 otherwise.
    double loss_scale = 0;
    int accumulate = 1;          // calls of step() whose gradients are averaged for one update
    bool training_mode = true;   // batch normalization by the batch's statistics, dropout drops
    uint64_t seed = 0;           // of dropout and other random ops
    CompileOptions compile = {};
};

struct TrainingReport {
    double loss = 0;                       // before the update
    std::optional<double> gradient_norm;   // before clipping, where clip_norm is given
    bool updated = true;                   // false: gradients were only accumulated, or the update was skipped
    bool skipped = false;                  // a gradient was not finite; the loss scale is halved
};

using NamedTensorList = std::vector<std::pair<std::string, Tensor>>;

class Training {
   public:
    static Result<Training> create(const Model& model, const TrainingOptions& options);

    // What a step takes: the model's inputs, then "target" unless the loss is the model's own.
    std::vector<Port> inputs() const;
    // E0407 where the loss is not finite (parameters stay as they were), E0406 where a label is out of range.
    Result<TrainingReport> step(const NamedData& batch);
    // The loss and the model's outputs as they are used: batch normalization by its running statistics, no dropout.
    struct Evaluation {
        double loss = 0;
        std::vector<Datum> outputs;
    };
    Result<Evaluation> evaluate(const NamedData& batch);

    double learning_rate() const;
    void set_learning_rate(double rate);
    int64_t updates() const;  // that were made
    int64_t skipped() const;
    double loss_scale() const;

    // In place: steps read and write this memory. On a GPU these are copies that the next step reads; while one of them is
    // held, each step copies it to the GPU and back.
    Result<NamedTensorList> parameters() const;
    // What the optimizer remembers, by parameter and kind ("fc.weight.exp_avg"), and running statistics by name.
    Result<NamedTensorList> state() const;

    // Parameters, state, counts and the seed as one file in the safetensors format; it appears whole or not at all.
    // `extra` is text of the caller's that load gives back.
    Status save(const std::string& path, const std::map<std::string, std::string>& extra = {}) const;
    // E0110 where the file is of another model or optimizer; then nothing has changed.
    Result<std::map<std::string, std::string>> load(const std::string& path);

    Result<Model> trained() const;  // the model with the parameters as they are now
    const CompileReport& report() const;
    const Executable& executable() const;  // of one step

    struct State;
    explicit Training(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};

}  // namespace tessera
