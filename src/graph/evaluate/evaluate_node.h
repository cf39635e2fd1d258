// The nodes of a graph one at a time, for someone who keeps the values: one budget and one random stream for all of them.
#pragma once

#include "graph/evaluate/evaluate.h"

namespace tessera {

class NodeEvaluator {
  public:
    // A value of the outermost graph that the node, or a graph nested in it, uses; null: there is none.
    using Find = std::function<const Datum*(const Value*)>;
    // Somebody else's way to run a nested graph; nothing: it has none, or it failed, and the evaluator shall do it.
    using RunNested = std::function<std::optional<std::vector<Datum>>(const Graph& nested, const std::vector<Datum>& inputs,
                                                                      const Find& outer)>;

    explicit NodeEvaluator(const EvaluateOptions& options = {}, RunNested nested = {});  // options must outlive it
    ~NodeEvaluator();
    NodeEvaluator(const NodeEvaluator&) = delete;

    // The node's results; unused outputs are empty.
    Result<std::vector<Datum>> run(const Node& node, const Find& find);
    // Only the op's own check of its inputs, and that nothing is read of what is empty. Inputs that `find` has not are of
    // their declared type, sized by `symbols`.
    Status check(const Node& node, const Find& find, const SymbolValues& symbols);
    // Only its outputs' types; inputs likewise.
    Result<std::vector<Type>> infer(const Node& node, const Find& find, const SymbolValues& symbols);

  private:
    Status made_of_nothing(const Node& node, const Find& find, const OpView& view);

    struct State;
    std::unique_ptr<State> state_;
};

// Values of the graph around it that the graphs nested in a node use, each once.
std::vector<const Value*> captured_values(const Node& node);

// The type with symbols replaced by their sizes, where they have one.
Type sized(const Type& type, const SymbolValues& symbols);

}  // namespace tessera
