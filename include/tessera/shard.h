// Models on many devices: a model is partitioned over a mesh of ranks, which compute the same program on their parts of
// the tensors.
#pragma once

#include "tessera/compile.h"

namespace tessera {

// Estimates of a run are by these figures: the defaults are of GPUs with 100 Tflop/s and 2 TB/s, linked at 200 GB/s.
struct LinkSpeed {
    double latency = 5e-6, bandwidth = 200e9;  // seconds for a collective to begin; bytes a second that a rank receives
};
struct DeviceSpeed {
    double operations = 100e12, memory = 2e12;  // a second; bytes a second
    LinkSpeed link = {};
    std::map<std::string, LinkSpeed> axes = {};  // of axes of the mesh that differ
};

struct ShardOptions {
    std::string mesh;                          // named axes: "data=2,model=4"
    // Values, by name or by a pattern with stars ("layer*_w1"), and their shardings: for each dimension the axes that
    // divide it ("data", "model+data"), "_" where propagation decides, or "-" for none.
    std::vector<std::pair<std::string, std::string>> annotations = {};
    std::map<std::string, int64_t> sizes = {};  // of the symbols of the inputs: all of them
    bool search = false;                        // add annotations of inputs and weights that make a run cheaper
    std::optional<int64_t> memory = {};  // of a search: bytes that a rank may use for weights and live activations
    DeviceSpeed speed = {};
    std::function<void(std::string_view, size_t, size_t)> progress = {};  // of a search: step, done, of
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
    double seconds = 0;
};

// Collectives of one kind over the same axes.
struct CollectiveSum {
    std::string kind, axes;
    int count = 0;
    int64_t bytes = 0;
    double seconds = 0;
};

// What a run is estimated to take of a rank, the one that needs most.
struct ShardCost {
    double compute_seconds = 0, communicate_seconds = 0;
    std::vector<CollectiveSum> collectives;
    int64_t weight_bytes = 0, activation_bytes = 0;  // at the peak
    double seconds() const { return compute_seconds + communicate_seconds; }
    int64_t bytes() const { return weight_bytes + activation_bytes; }
};

using ShardAnnotations = std::vector<std::pair<std::string, std::string>>;  // values, their shardings

// The second best sharding of a search, which divides a good part of the arithmetic otherwise.
struct ShardSecond {
    ShardAnnotations annotations;  // those that the search added
    ShardCost cost;
    double different = 0;  // that part
};

struct ShardedNode {
    std::string op;
    std::vector<std::string> results, inputs;  // values
};

struct ShardReport {
    std::string mesh;
    int64_t ranks = 0;
    std::vector<ShardedValue> values;
    std::vector<Collective> collectives;  // in the order in which all ranks make them
    std::vector<std::string> conflicts;   // shardings that could not follow each other
    std::vector<std::pair<std::string, std::string>> whole;  // nodes that every rank computes whole; why
    int64_t weight_bytes = 0, rank_weight_bytes = 0;
    std::vector<ShardedNode> nodes = {};  // of the partitioned graph, in their order
    ShardCost cost = {};
    // Of a search: annotations that it added, the plans that it compared, seconds that no sharding is below as far as
    // readers share no copies, and the second best.
    ShardAnnotations found = {};
    int plans = 0;
    double bound_seconds = 0;
    std::optional<ShardSecond> second = {};
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
    // finds no sharding that fits into the memory.
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
