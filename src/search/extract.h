// Takes the cheapest graph out of an e-graph: one member for each class that is needed, no cycles, a node that several
// read counted once. Starts from the input graph and from the cheapest trees, takes the rules' steps where they make it
// cheaper, alike places together, and then branches and bounds over what is left to choose until time is up.
#pragma once

#include "search/cost.h"
#include "search/saturate.h"

namespace tessera {

struct ExtractOptions {
    double seconds = 2;          // of trying steps
    double exact_seconds = 0.5;  // then of branch and bound
    double least_gain = 1e-9;    // seconds; what a step must save
};

struct Extraction {
    std::vector<Value*> chosen;  // by class; null where it is not needed
    double cost = 0;             // seconds, by the cost model
    std::vector<size_t> steps;   // that it uses, of the saturation
    bool exact = false;          // nothing cheaper is in the e-graph
};

class Extractor {
  public:
    Extractor(EGraph& egraph, const Saturation& saturation, CostModel& cost);

    Extraction input() const;  // as it came in
    Extraction greedy();       // the cheapest tree for each class, shared nodes counted as often as they are read
    Extraction best(const ExtractOptions& options);

    // Steps of one rule at places that are alike; each with all that it builds on.
    struct Alternative {
        std::vector<size_t> steps;
        double gain = 0;  // alone, from the input graph
    };
    const std::vector<Alternative>& alternatives() const { return alternatives_; }
    // The input graph with these alternatives.
    Extraction with(const std::vector<size_t>& alternatives) const;

    std::unique_ptr<Graph> build(const Extraction& extraction) const;

  private:
    using Chosen = std::vector<Value*>;
    Chosen defaults() const;                  // of every class, a node of the input graph where it has one
    double cost(const Chosen& chosen) const;  // infinite where it goes in a circle
    // What is known of a node once the e-graph no longer changes.
    struct Option {
        size_t number;
        double cost;
        std::vector<ClassId> inputs;  // but those from weights alone
    };
    const Option& option(const Node& node) const;
    double node_cost(const Node& node) const { return option(node).cost; }
    void take(size_t step, Chosen& chosen, std::vector<bool>& taken) const;
    Extraction finish(Chosen chosen, bool exact) const;
    void find_alternatives();
    bool improve(Chosen& chosen, double& best, const ExtractOptions& options) const;
    // Branch and bound from `chosen`, which it makes cheaper where it can; true where all was looked at.
    bool improve_exactly(Chosen& chosen, double seconds) const;

    EGraph& egraph_;
    const Saturation& saturation_;
    CostModel& cost_;
    std::unordered_map<const Node*, size_t> original_;  // nodes of the input graph, in its order
    mutable std::unordered_map<const Node*, Option> options_;
    std::vector<Alternative> alternatives_;
};

}  // namespace tessera
