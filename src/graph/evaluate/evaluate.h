// The reference: computes a graph by walking the ops' bodies, accumulating in higher precision. Slow by design, right
// by design; everything else is checked against it.
#pragma once

#include <atomic>
#include <functional>
#include <map>

#include "graph/graph.h"

namespace tessera {

struct EvaluateOptions {
    int64_t max_work = int64_t{1} << 50;        // scalar operations before E0408; bounds what a hostile loop can take
    uint64_t seed = 0;                          // of the run's random stream
    const std::atomic<bool>* cancel = nullptr;  // set it to stop between nodes with E0410
    // Called after each node of the outermost graph.
    std::function<void(const Node& node, size_t done, size_t total)> progress = {};
    // Set: one name may stand for several sizes of inputs, and what contradicts the first is said here. Only a graph that
    // nobody rewrote means the same then.
    std::optional<Error>* contradiction = nullptr;
    // Holds the sizes of every value of the outermost graph against its type: E0411.
    bool check_sizes = false;
    // Called with every value of the outermost graph as it is computed.
    std::function<void(const Value& value, const Datum& datum)> observe = {};
};

using Inputs = std::map<std::string, Datum>;

// The outputs in order, from inputs by name (those with a default may be left out). Wrong inputs: E0401 to E0405.
Result<std::vector<Datum>> evaluate(const Graph& graph, const Inputs& inputs, const EvaluateOptions& options = {});

// One op by itself, on values: for tests and constant folding.
Result<std::vector<Datum>> evaluate_op(const OpDef& op, const std::vector<std::optional<Datum>>& inputs, const AttrMap& attrs,
                                       size_t outputs = 1, const EvaluateOptions& options = {});

// What an op's own evaluation may use.
class EvalContext {
   public:
    virtual ~EvalContext() = default;
    virtual const Datum& in(size_t i) const = 0;          // CHECKs that it is given
    const Tensor& tensor(size_t i) const { return in(i).tensor(); }
    // Runs a nested graph of the op's attributes, with its inputs in order; outer values resolve as where the op stands.
    virtual Result<std::vector<Datum>> run(const Graph& nested, std::vector<Datum> inputs) = 0;
    virtual Status spend(int64_t work) = 0;               // counts against max_work and asks for cancellation
    virtual uint64_t next_random() = 0;                   // the run's stream
};

// The index variables that a body for evaluate_body is built over: i0, i1, ...
Indices output_indices(const Shape& shape);

// A body over output `op.output()`: fills a tensor of its type, whose sizes are constants. The strip engine of strip/.
// An index out of bounds is E0406. Strings and complex numbers can be moved (loads and selects), not computed with.
// With a context, the work is asked of its budget first.
Result<Tensor> evaluate_body(const OpView& op, const Expr& body, const std::vector<const Tensor*>& inputs,
                             EvalContext* context = nullptr);

}  // namespace tessera
