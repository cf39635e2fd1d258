// Models on many devices: a model is partitioned over a mesh of ranks, which compute the same program on their parts of
// the tensors.
#pragma once

#include "tessera/compile.h"

namespace tessera {

struct ShardOptions {
    std::string mesh;                          // named axes: "data=2,model=4"
    // Values, by name or by a pattern with stars ("layer*_w1"), and their shardings: for each dimension the axes that
    // divide it ("data", "model+data"), "_" where propagation decides, or "-" for none.
    std::vector<std::pair<std::string, std::string>> annotations = {};
    std::map<std::string, int64_t> sizes = {};  // of the symbols of the inputs: all of them
    bool search = false;                        // add annotations of inputs and weights that make a run cheaper
    std::optional<int64_t> memory = {};         // of a search: bytes of weights that a rank may keep
};

struct ShardedValue {
    std::string name, type, sharding;
    bool annotated = false, weight = false;
    int64_t bytes = 0, rank_bytes = 0;  // of the whole value; of a rank's part, at most
};

struct Collective {
    std::string kind;   // all_reduce, reduce_scatter, all_gather, all_to_all or halo_exchange
    std::string value, axes;
    int64_t bytes = 0;  // that a rank receives, at most
};

struct ShardReport {
    std::string mesh;
    int64_t ranks = 0;
    std::vector<ShardedValue> values;
    std::vector<Collective> collectives;  // in the order in which all ranks make them
    std::vector<std::string> conflicts;   // shardings that could not follow each other
    std::vector<std::pair<std::string, std::string>> whole;  // nodes that every rank computes whole; why
    int64_t weight_bytes = 0, rank_weight_bytes = 0;
    std::vector<std::pair<std::string, std::string>> found = {};  // annotations that a search added
    int plans = 0;                                                // that it compared
};

struct ShardRunOptions {
    CompileOptions compile = {};
    bool evaluate = false;     // by the reference evaluator
    double patience = 6;       // seconds to wait for another rank in a collective; E0702 beyond
    // What moves data between ranks: "host" (threads or MPI, through host memory), "nccl" (between GPUs, one for each
    // rank), or "auto": NCCL if the target is a GPU, NCCL is installed and every rank has a GPU of its own.
    std::string collectives = "auto";
};

struct ShardTimes {
    double compile = 0, run = 0;  // seconds
    std::string collectives = {};  // that were used: "host" or "nccl"
};

class ShardedModel {
   public:
    // E0501 for an invalid mesh, annotation or missing size; E0409 for control flow and random numbers; E0408 if a search
    // cannot make the weights fit.
    static Result<ShardedModel> make(const Model& model, const ShardOptions& options);

    const ShardReport& report() const;
    // The collectives on buffers that a rank asks of NCCL, as text. E0409 for element types that it does not reduce.
    Result<std::string> nccl_text(int64_t rank) const;

    // All ranks as threads of this process. The inputs are whole, as are the outputs.
    Result<std::vector<Datum>> run(const NamedData& inputs, const ShardRunOptions& options = {},
                                   ShardTimes* times = nullptr) const;
    // One rank of those that mpirun started, with Open MPI; once in a process. Every rank gives the same inputs and gets
    // the outputs. E0701 without Open MPI, E0702 if another rank stops, is silent, or runs something else.
    Result<std::vector<Datum>> run_with_mpi(const NamedData& inputs, const ShardRunOptions& options = {},
                                            ShardTimes* times = nullptr) const;

    struct State;
    explicit ShardedModel(std::shared_ptr<const State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<const State> state_;
};

}  // namespace tessera
