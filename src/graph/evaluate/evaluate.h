// The reference evaluator: interprets a graph through the bodies of its ops, with sums in higher precision. It is built
// for correctness, not speed; everything else is checked against it.
#pragma once

#include <atomic>
#include <functional>
#include <map>

#include "graph/graph.h"

namespace tessera {

struct EvaluateOptions {
    int64_t max_work = int64_t{1} << 50;        // scalar operations of a run; E0408 beyond. Bounds malicious loops
    uint64_t seed = 0;                          // of the run's random stream
    const std::atomic<bool>* cancel = nullptr;  // set the flag to stop between nodes with E0410
    // Called after each node of the outermost graph.
    std::function<void(const Node& node, size_t done, size_t total)> progress = {};
    // If set, one symbol may have several sizes in the inputs, and the first contradiction is returned here. Only
    // correct for graphs that were not rewritten.
    std::optional<Error>* contradiction = nullptr;
    // Checks the sizes of every value of the outermost graph against its type: E0411.
    bool check_sizes = false;
    // Called with every value of the outermost graph as it is computed.
    std::function<void(const Value& value, const Datum& datum)> observe = {};
};

using Inputs = std::map<std::string, Datum>;

// Returns the outputs in order. Inputs are by name; those with a default may be omitted. E0401 to E0405 for bad inputs.
Result<std::vector<Datum>> evaluate(const Graph& graph, const Inputs& inputs, const EvaluateOptions& options = {});

// Evaluates a single op; for tests and constant folding.
Result<std::vector<Datum>> evaluate_op(const OpDef& op, const std::vector<std::optional<Datum>>& inputs, const AttrMap& attrs,
                                       size_t outputs = 1, const EvaluateOptions& options = {});

// The interface for OpDef::evaluate.
class EvalContext {
   public:
    virtual ~EvalContext() = default;
    virtual const Datum& in(size_t i) const = 0;          // CHECKs that it is present
    const Tensor& tensor(size_t i) const { return in(i).tensor(); }
    // Runs a graph nested in the op's attributes. Captured values resolve as at the op.
    virtual Result<std::vector<Datum>> run(const Graph& nested, std::vector<Datum> inputs) = 0;
    virtual Status spend(int64_t work) = 0;               // counts work against max_work and checks for cancellation
    virtual uint64_t next_random() = 0;                   // from the run's random stream
};

// The index variables of a body for evaluate_body: i0, i1, ...
Indices output_indices(const Shape& shape);

// Evaluates a body for output `op.output()`, whose sizes must be constant, with the strip engine in strip/. E0406 for
// an out-of-bounds index. Strings and complex numbers can be moved (loads and selects) but not computed with. With a
// context, the work is first counted against its limit.
Result<Tensor> evaluate_body(const OpView& op, const Expr& body, const std::vector<const Tensor*>& inputs,
                             EvalContext* context = nullptr);

}  // namespace tessera
