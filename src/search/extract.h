// Extracts the cheapest graph from an e-graph: one member for each required class, acyclic, shared nodes counted once.
// Local search from the input graph and from the cheapest trees over the rules' steps, similar locations together; then
// branch and bound over the remaining choices.
#pragma once

#include "base/deadline.h"
#include "search/cost.h"
#include "search/saturate.h"

namespace tessera {

struct ExtractOptions {
    Deadline until = {};          // when it passes, the best result so far is returned
    size_t exact_looks = 200000;  // places that branch and bound looks at
    double least_gain = 1e-9;     // seconds; the minimum gain of a step
};

struct Extraction {
    std::vector<Value*> chosen;  // by class; null where it is not needed
    double cost = 0;             // seconds, by the cost model
    std::vector<size_t> steps;   // that it uses, of the saturation
    bool exact = false;          // nothing cheaper is in the e-graph
};

class Extractor {
  public:
    // Asks for the costs of all that an output may need. What a rule that grows makes costs more by `margin` of what it
    // replaces: costs that were measured at different times are not that exact.
    Extractor(EGraph& egraph, const Saturation& saturation, CostModel& cost, double margin = 0);

    Extraction input() const;   // as it came in
    Extraction greedy() const;  // the cheapest tree for each class, shared nodes counted as often as they are read
    Extraction best(const ExtractOptions& options);

    // Steps of one rule at places that are alike; each with all that it builds on.
    struct Alternative {
        std::vector<size_t> steps;
        double gain = 0;  // alone, from the input graph
    };
    const std::vector<Alternative>& alternatives() const { return alternatives_; }
    // The input graph with these alternatives.
    Extraction with(const std::vector<size_t>& alternatives) const;
    // The input graph with these steps, and those of these alternatives that make it cheaper, the best first; after
    // best().
    Extraction cheapest_of(std::vector<size_t> alternatives, const std::vector<size_t>& from,
                           const ExtractOptions& options) const;

    std::unique_ptr<Graph> build(const Extraction& extraction) const;

  private:
    // The e-graph in tables: it no longer changes.
    struct Option {  // a node
        double cost = 0;
        std::vector<ClassId> inputs;  // each once, but those from weights alone
        size_t outputs = 1;
    };
    struct Member {
        Value* value;
        int option;  // -1: an input of the graph or a constant
    };
    using Chosen = std::vector<int>;  // by class: a member's number, -1 for none

    void list_members();
    void choose_weights();
    void ask_costs();
    void add_margins(double margin);
    void find_dominated();
    void find_alternatives();
    Chosen defaults() const;                  // of every class, a node of the input graph where it has one
    double cost(const Chosen& chosen) const;  // infinite if the choice is cyclic
    // False where all its choices stand already.
    bool take(size_t step, Chosen& chosen, std::vector<bool>& taken) const;
    bool take_all(const std::vector<size_t>& steps, Chosen& chosen) const;
    // Applies these steps if that lowers the cost; with `instead`, through members that are never worse.
    bool try_steps(const std::vector<size_t>& steps, Chosen& chosen, double& best, double least_gain,
                   bool instead) const;
    std::vector<size_t> by_gain(std::vector<size_t> alternatives) const;
    Extraction finish(const Chosen& chosen, bool exact) const;
    bool improve(Chosen& chosen, double& best, const ExtractOptions& options) const;
    // Branch and bound from `chosen`, which it makes cheaper where it can; true where all was looked at.
    bool improve_exactly(Chosen& chosen, const ExtractOptions& options) const;
    friend class BranchAndBound;

    EGraph& egraph_;
    const Saturation& saturation_;
    CostModel& cost_;
    std::unordered_map<const Node*, size_t> original_;  // nodes of the input graph, in its order
    std::vector<Option> options_;
    std::vector<Member> members_;
    std::unordered_map<const Value*, int> number_of_;  // of members
    std::vector<std::vector<int>> of_class_;           // members that may be chosen, by class
    std::vector<bool> needed_;                         // by class: an output may need it
    std::vector<int> weight_choice_;                   // by class that comes from weights alone
    std::vector<int> instead_;                         // by member: itself, or one that is never worse
    std::vector<ClassId> roots_;                       // of the outputs, but those from weights alone
    std::vector<Alternative> alternatives_;
    // Of cost(): what was seen in this walk.
    mutable std::vector<unsigned> opened_, closed_, counted_;
    mutable unsigned walk_ = 0;
};

}  // namespace tessera
