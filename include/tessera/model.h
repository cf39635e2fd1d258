// A model: loaded from a file or built, inspected, run, written back.
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

// One input or output as a user sees it.
struct Port {
    std::string name;
    std::string type;                  // f32[N,3,224,224]
    std::optional<DType> dtype;        // of a tensor
    bool ranked = false;
    std::vector<std::string> dims;     // "N", "3", "2*N + 1"
    std::vector<int64_t> sizes;        // -1 where the dimension is symbolic
    bool has_default = false;          // may be left out of a run
};

struct OpCount {
    std::string op;                    // the ONNX name where there is one
    int64_t nodes = 0;
    std::string flops, bytes;          // as expressions over the model's symbols
};

struct Summary {
    std::string name, source, producer;
    int opset = 0;
    int64_t nodes = 0;                 // also in nested graphs
    int64_t parameters = 0, parameter_bytes = 0;
    std::string flops, bytes;          // arithmetic and memory traffic of one run, over the model's symbols
    bool complete = true;              // false: some work is not in those counts (how often a loop runs, a sort)
    std::vector<std::string> symbols;  // of the inputs' dimensions
    std::vector<OpCount> ops;          // most nodes first
};

// What the file says about itself; empty or 0 where it says nothing.
struct Metadata {
    std::string producer_name, producer_version, domain, description;
    std::string graph_name, graph_description;
    int64_t model_version = 0, ir_version = 0;
    std::map<std::string, std::string> custom;  // the file's own keys and values
};

struct RunOptions {
    uint64_t seed = 0;                           // of random ops
    int64_t max_work = int64_t{1} << 50;         // scalar operations before E0408
    const std::atomic<bool>* cancel = nullptr;   // set it to stop with E0410
    std::function<void(std::string_view node, size_t done, size_t total)> progress = {};
    std::vector<Warning>* warnings = nullptr;    // what the run showed to be wrong is added here

    // The following are of compiled models. Asked once for each output that is a tensor: memory to leave it in, of its type
    // and sizes, the process's or the GPU's that computes it; or nothing. What shares memory with an input is written last.
    std::function<Result<std::optional<Tensor>>(size_t output, DType dtype, const Sizes& sizes)> place = {};
    // A stream of the GPU's driver (null: its first) that the run becomes part of: it begins after what the stream was given
    // before, and the call need not wait for its end. Outputs stay on the GPU.
    std::optional<void*> stream = {};
};

struct SaveOptions {
    int opset = 0;                // of the ONNX file; 0: the one the model came with, or the newest
    int64_t external_from = -1;   // weights of at least this many bytes go to a file beside the model; negative: none
    std::string weights;          // of the text form: the file its large constants go to; empty: they stay in the text
};

struct ReadOptions {
    bool strict = false;  // refuse what is otherwise used with a warning, and runs that contradict declared sizes
};

using NamedData = std::map<std::string, Datum>;

class Model {
   public:
    // By suffix and contents: .onnx (external data beside it), or Tessera's text form.
    static Result<Model> load(const std::string& path, const ReadOptions& options = {});
    // External data is refused: there is no folder.
    static Result<Model> from_onnx(std::string_view bytes, const ReadOptions& options = {});
    static Result<Model> parse(std::string_view text, std::string source = "text");
    // Built in: "resnet50", with weights from `seed`.
    static Result<Model> demo(std::string_view name, uint64_t seed = 0);
    static std::vector<std::string> demos();

    explicit Model(std::shared_ptr<Graph> graph);

    std::vector<Port> inputs() const;
    std::vector<Port> outputs() const;
    Summary summary() const;
    Metadata metadata() const;
    // Bytes that inputs, results and outputs take at the same time, at most; symbolic dimensions are sized by `symbols` (1
    // where not given). Nothing where a size is not known.
    std::optional<int64_t> peak_bytes(const std::map<std::string, int64_t>& symbols = {}) const;

    // The outputs in order. Safe to call from many threads at once.
    Result<std::vector<Datum>> run(const NamedData& inputs, const RunOptions& options = {}) const;
    // Inputs drawn from `seed`, symbolic dimensions sized by `symbols` (1 where not given).
    Result<NamedData> random_inputs(uint64_t seed, const std::map<std::string, int64_t>& symbols = {}) const;

    // .onnx, or text; a failed save leaves nothing behind.
    Status save(const std::string& path, const SaveOptions& options = {}) const;
    Result<std::string> to_onnx() const;         // bytes
    std::string to_text() const;

    // What the file got wrong. Inference decides against what is declared, and a run against both.
    const std::vector<Warning>& warnings() const;
    bool strict() const;

    const Graph& graph() const { return *graph_; }
    // What was read: of a model that was rewritten, the one that it came from. A run that contradicts declared sizes, which
    // rewriting believes, is left to it.
    const std::shared_ptr<Graph>& loaded() const;
    bool declared_sizes() const;                         // some ranks or sizes are as declared, not as inferred
    Model rewritten(std::shared_ptr<Graph> graph) const;  // the same model by another graph

   private:
    struct Origin;
    std::shared_ptr<Graph> graph_;
    std::shared_ptr<const Origin> origin_;
};

}  // namespace tessera
