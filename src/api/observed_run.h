// A compiled model that also returns intermediate values.
#pragma once

#include "graph/graph.h"
#include "tessera/compile.h"

namespace tessera {

class ObservedRun {
  public:
    struct Values {
        std::vector<Datum> outputs;   // the model's
        std::vector<Datum> observed;  // by name, in order
    };
    // `names` are values of the graph. Without a cache folder in the options, nothing is cached.
    static Result<ObservedRun> create(const Graph& graph, const std::vector<std::string>& names,
                                      const CompileOptions& options);
    Result<Values> run(const NamedData& inputs, const std::atomic<bool>* cancel) const;

  private:
    ObservedRun(Executable executable, size_t outputs) : executable_(std::move(executable)), outputs_(outputs) {}
    Executable executable_;
    size_t outputs_;  // of the model
};

}  // namespace tessera
