// Training steps over a mesh. The graphs of a step are partitioned for the sizes of each batch; each rank keeps its
// part of every tensor that steps update, divided once, before the first step.
#pragma once

#include "api/mesh/annotations.h"
#include "runtime/bind_sizes.h"
#include "runtime/collectives/run_local.h"
#include "train/training_graph.h"

namespace tessera {

class MeshTraining {
  public:
    // `model`: by which ranks tell whether they train the same. E0501 for an invalid mesh; E0701 without Open MPI.
    static Result<std::unique_ptr<MeshTraining>> make(const TrainingOptions& options,
                                                      std::vector<TrainedTensor> tensors, size_t parameters,
                                                      const Graph& model);
    ~MeshTraining();

    // The outputs of a graph of the step, on the first rank here; those of tensors are left out. `whole`: the graph by
    // whose propagation tensors are divided. `position`: what else ranks have to agree on before the first run.
    Result<std::vector<Datum>> run(const StepGraph& step, const StepGraph& whole, const std::vector<Datum>& inputs,
                                   const std::string& position);

    // Tensors from all ranks; without `everywhere`, only the first rank gets them, and others get none.
    Result<std::vector<Tensor>> gather(size_t first, size_t end, bool everywhere);
    // New values, of which each rank takes its parts.
    Status set(const std::vector<Tensor>& values);
    // Does f on the first rank; the others wait, and fail if it does.
    Status on_first_rank(const std::function<Status()>& f);

    const TrainedTensor& tensor(size_t i) const { return tensors_[i]; }
    // Type and sizes of tensor i, without elements.
    Tensor shape_of(size_t i) const;
    int64_t rank() const;  // the first one here
    std::optional<TrainingMeshUse> use() const;
    void stop(const Error& error);

  private:
    struct Program;
    struct Rank {
        std::unique_ptr<shard::Transport> transport;
        std::vector<Tensor> parts;  // by tensor
    };

    MeshTraining() = default;
    Status connect();
    Result<shard::Shardings> annotated(const Graph& graph, const StepGraph& step, bool all) const;
    Status divide(const StepGraph& whole, const SymbolValues& sizes);
    Status divide_for_zero(const Graph& graph, const shard::Shardings& found, const StepGraph& whole);
    Status take_parts();
    Result<Program*> program(const StepGraph& step, const SymbolValues& sizes);
    Status agree_once(const std::vector<Datum>& inputs, const StepGraph& step, const std::string& position);
    Status on_ranks(const std::function<Status(size_t)>& f);

    TrainingOptions options_;
    shard::Mesh mesh_;
    std::vector<TrainedTensor> tensors_;  // initial values until they are divided
    std::vector<Sizes> sizes_;            // by tensor
    std::vector<DType> dtypes_;
    size_t parameters_ = 0;
    const Graph* model_ = nullptr;
    std::vector<shard::Sharding> shardings_;  // by tensor; none before the first run
    std::vector<Rank> ranks_;                 // of this process
    std::shared_ptr<RunMemory> memory_ = make_run_memory();
    std::map<std::string, std::unique_ptr<Program>> programs_;
    bool agreed_ = false, given_ = false;  // the ranks; the optimizer's tensors too have values
};

}  // namespace tessera
