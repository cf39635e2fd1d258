// Models: load, build, inspect, run and save them.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"
#include "tessera/tensor.h"

namespace tessera {

class Graph;

// An input or output of a model.
struct Port {
    std::string name;
    std::string type;                  // f32[N,3,224,224]
    std::optional<DType> dtype;        // for tensors only
    bool ranked = false;               // the rank is known
    std::vector<std::string> dims;     // "N", "3", "2*N + 1"
    std::vector<int64_t> sizes;        // -1 where the dimension is symbolic
    bool has_default = false;          // may be omitted in a run
};

struct OpCount {
    std::string op;                    // the ONNX name if it has one
    int64_t nodes = 0;
    std::string flops, bytes;          // as expressions over the model's symbols
};

struct Summary {
    std::string name, source, producer;
    int opset = 0;
    int64_t nodes = 0;                 // including nested graphs
    int64_t parameters = 0, parameter_bytes = 0;
    std::string flops, bytes;          // arithmetic and memory traffic of one run, as expressions over the symbols
    bool complete = true;              // false: the counts omit some work (iterations of a loop, a sort)
    std::vector<std::string> symbols;  // of the inputs' dimensions
    std::vector<OpCount> ops;          // in descending order of nodes
};

// Metadata of the model file; empty or 0 if absent.
struct Metadata {
    std::string producer_name, producer_version, domain, description;
    std::string graph_name, graph_description;
    int64_t model_version = 0, ir_version = 0;
    std::map<std::string, std::string> custom;  // custom keys and values
};

struct RunOptions {
    uint64_t seed = 0;                           // of random ops
    int64_t max_work = int64_t{1} << 50;         // of the evaluator and of loops, in scalar operations; E0408 beyond it
    const std::atomic<bool>* cancel = nullptr;   // set the flag to stop the run with E0410
    std::function<void(std::string_view node, size_t done, size_t total)> progress = {};
    std::vector<Warning>* warnings = nullptr;    // receives the warnings of the run

    // For compiled models. Called once for each tensor output; returns memory for it (of this type and these sizes, on the
    // host or on the model's GPU), or nothing. An output that overlaps an input is written at the end.
    std::function<Result<std::optional<Tensor>>(size_t output, DType dtype, const Sizes& sizes)> place = {};
    // For compiled models on a GPU: the driver's stream (null: the default stream) to enqueue the run on. The call may
    // return before the run has completed. Outputs stay on the GPU.
    std::optional<void*> stream = {};
};

struct SaveOptions {
    int opset = 0;                // of the ONNX file; 0: the opset that the model was read with, or the newest
    int64_t external_from = -1;   // weights of at least this many bytes go to a file beside the model; negative: none
    std::string weights;          // file for the large constants of the text form; empty: they stay in the text
};

struct ReadOptions {
    bool strict = false;  // warnings are errors, as are runs that contradict declared sizes
};

using NamedData = std::map<std::string, Datum>;

class Model {
   public:
    // Reads ONNX (with external data beside the file) or the text form, by the file's suffix and contents.
    static Result<Model> load(const std::string& path, const ReadOptions& options = {});
    // Rejects models with external data, which needs a folder.
    static Result<Model> from_onnx(std::string_view bytes, const ReadOptions& options = {});
    static Result<Model> parse(std::string_view text, std::string source = "text");
    // A built-in model ("resnet50") with random weights from `seed`.
    static Result<Model> demo(std::string_view name, uint64_t seed = 0);
    static std::vector<std::string> demos();

    explicit Model(std::shared_ptr<Graph> graph);

    std::vector<Port> inputs() const;
    std::vector<Port> outputs() const;
    Summary summary() const;
    Metadata metadata() const;
    // The largest number of bytes that inputs, intermediate results and outputs occupy at the same time. `symbols` sets
    // the sizes of symbolic dimensions (1 by default). Nothing if a size is unknown.
    std::optional<int64_t> peak_bytes(const std::map<std::string, int64_t>& symbols = {}) const;

    // Runs the reference evaluator and returns the outputs in order. Thread-safe.
    Result<std::vector<Datum>> run(const NamedData& inputs, const RunOptions& options = {}) const;
    // Random inputs from `seed`. `symbols` sets the sizes of symbolic dimensions (1 by default).
    Result<NamedData> random_inputs(uint64_t seed, const std::map<std::string, int64_t>& symbols = {}) const;

    // Realistic sizes for the symbolic dimensions of its inputs, inferred from their names and positions: batches of 1,
    // images of 224 x 224, sequences of 128.
    std::map<std::string, int64_t> suggested_sizes() const;

    // Writes ONNX (.onnx) or the text form (.tsr); E0501 for other suffixes. A failed save leaves no file behind.
    Status save(const std::string& path, const SaveOptions& options = {}) const;
    Result<std::string> to_onnx() const;         // the bytes of an ONNX file
    std::string to_text() const;

    // The warnings of reading. Inferred types override declared ones; the sizes of a run override both.
    const std::vector<Warning>& warnings() const;
    bool strict() const;

    const Graph& graph() const { return *graph_; }
    // The graph as it was read, before rewriting. A run falls back to it if it contradicts the declared sizes that
    // rewriting relied on.
    const std::shared_ptr<Graph>& loaded() const;
    bool declared_sizes() const;                         // some ranks or sizes are declared, not inferred
    Model rewritten(std::shared_ptr<Graph> graph) const;  // the same model with an equivalent graph

   private:
    struct Origin;
    std::shared_ptr<Graph> graph_;
    std::shared_ptr<const Origin> origin_;
};

}  // namespace tessera
