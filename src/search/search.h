// Looks for cheaper graphs that compute the same: with an e-graph, or as TASO does, by backtracking over whole graphs.
// What comes in is always the first candidate; which of them is fastest is for a clock to say (tune/).
#pragma once

#include "base/deadline.h"
#include "search/cost.h"
#include "search/saturate.h"

namespace tessera {

enum class Strategy { EGraph, Backtrack };

struct SearchOptions {
    Strategy strategy = Strategy::EGraph;
    SaturateOptions limits = {};
    double extract_seconds = 2;  // of all extractions together
    Deadline until = {};         // then candidates are weighed no more: those that were not are left out
    double alpha = 1.05;         // backtracking goes on from graphs that cost at most this much of the best
    size_t budget = 1000;        // graphs that backtracking looks at
    double margin = 0;           // of what it replaces, that a rule that grows must save
    CostModel* guide = nullptr;  // to what is worth looking at; null: an estimate
};

// A rule of a candidate, with all locations where it was applied for the same reason.
struct RuleUse {
    std::string rule;
    std::vector<std::string> where;
    double gain = 0;  // seconds, by the cost model, without the candidate's other rules
};

struct Candidate {
    std::unique_ptr<Graph> graph;
    double cost = 0;  // seconds, by the cost model: of the fused groups where it knows them
    std::vector<RuleUse> uses;
    std::string what;                       // "input", "all profitable rules", ...
    std::optional<double> group_cost = {};  // of the fused groups
};

struct Search {
    std::vector<Candidate> candidates;  // the input first, then the cheapest first
    size_t nodes = 0, classes = 0;      // of the e-graph; graphs seen by backtracking
    size_t steps = 0;                   // rules that were applied
    bool complete = false;
    std::string stopped_by;  // the limit that was met
    double seconds = 0;
};

// Control flow is one node; its nested graphs are unchanged.
Search search(const Graph& graph, const std::vector<const Rule*>& rules, CostModel& cost,
              const SearchOptions& options = {});

}  // namespace tessera
