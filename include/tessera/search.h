// The search: an equivalent model that runs faster on this machine or its GPU, by rules that may grow the graph. The input
// is always among the timed candidates, so the result is never slower.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/model.h"

namespace tessera {

struct ModelSearchOptions {
    double seconds = 60;                    // for exploration and timing; started work is finished
    std::string strategy = "egraph";        // or "backtrack", TASO's
    std::string cost = "measured";          // of fused groups; "sum": of every op alone; "estimate": no clock
    std::string precision = "default";      // as in OptimizeOptions
    std::string target = "host";            // device to measure on; or a GPU of this machine, "cuda", "cuda:1"
    std::vector<std::string> rules = {};    // additional rule files
    bool built_in_rules = true;             // use the built-in rules
    bool refute_rules = true;               // reject an additional rule if a counterexample is found
    bool tested_rules = false;              // also use discovered rules that are not proved
    int max_rule_ops = 0;                   // only rules with at most this many ops in the pattern; 0: all
    bool time_candidates = true;            // false: take the cheapest by cost
    size_t max_nodes = 20000;               // of the e-graph
    int threads = 1;                        // for timing candidates; 0: all
    std::map<std::string, int64_t> sizes = {};  // of symbols, for measurements; 1 by default
    double alpha = 1.05;                    // of backtracking
    size_t budget = 1000;                   // graphs that backtracking visits
    std::optional<std::string> cache = {};  // folder for measured costs; none: the user's; empty: none
    // Seconds for rules for this model's own products: programs that equal them almost everywhere, corrected and proved
    // (docs/corrected.md). To make them, to search again with them and to time what comes of it against what was chosen
    // without. 0: none are made.
    double mutate = 0;
    bool keep_without_mutants = false;  // give what would have been chosen without them, too
    const std::atomic<bool>* cancel = nullptr;
    std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
};

// A rule that was made for this model.
struct SearchedMutant {
    std::string rule, text;          // its name, and as a file of rules has it
    std::string boxes;               // what of the output is recomputed, over the sizes of its shapes; or that nothing is
    std::string shapes;              // of its variables: "x: [N,C,2*H,2*W], w: [M,C,3,3]"
    double share = 0;                // of the output that is recomputed, at this model's sizes
    bool for_all_sizes = true;       // proved with a certificate; false: tested exactly, and used, at this model's only
    std::string certificate;
    std::string picture;             // the output with its boxes, as SVG
    std::vector<std::string> where;  // nodes that it may be used at
};

struct SearchedRule {
    std::string rule, why;
    std::vector<std::string> where;  // nodes at its root
    double gain = 0;                 // seconds, by the costs
};

struct SearchedCandidate {
    std::string what;                 // "input", "all that pays", or one rewrite alone
    double cost = 0;                  // seconds, by the costs
    double seconds = 0, speedup = 0;  // by the clock, over the input; 0 where it was not timed
    double difference = 0;            // of its results from the input's, relative; too large, and it is not timed
    std::string refused = {};         // why it was not timed, where the device cannot run it
    std::vector<SearchedRule> rules = {};
};

struct SearchReport {
    std::string strategy, cost;
    std::string device;  // that was measured on: "cpu", or a GPU's name
    size_t nodes = 0, classes = 0, steps = 0;  // of the e-graph, and rules applied; backtracking: graphs, 0
    bool complete = false;                     // nothing more follows from the rules
    std::string stopped_by;                    // the limit that was met
    double search_seconds = 0;            // exploring and extraction, with costs that are known
    double search_processor_seconds = 0;  // of it: less where others use the machine
    double measure_seconds = 0, timing_seconds = 0;  // what costs nobody knew, and the candidates, end to end
    size_t measured = 0;                             // kernels timed for their cost in this run
    std::vector<SearchedCandidate> candidates;  // the input first
    std::vector<SearchedMutant> mutants;        // rules that were made for this model
    size_t mutate_targets = 0, mutate_candidates = 0;  // products that were mutated, and programs that agree with one mostly
    size_t mutate_remembered = 0;                      // products, of those, whose rules were kept from another search
    std::vector<std::string> mutate_refused;           // why programs were not taken
    double mutate_seconds = 0;        // making rules
    double mutate_whole_seconds = 0;  // and all else that the search without mutants does not do
    bool mutate_complete = true;      // the time to make them was enough
    double mutate_gain = 1;           // of what was chosen over what would have been without mutants, by the clock
    size_t chosen = 0;
    double speedup = 1;  // of the one that was chosen, by the clock
    // What was searched and which candidates there were; with `rules`, also which rules each takes, where, and what they
    // gain by the costs.
    std::string to_text(bool rules = true) const;
};

struct Searched {
    Model model;
    SearchReport report;
    std::optional<Model> without_mutants = {};  // where it was asked for
};

// E0501 for a strategy, cost or precision that there is not; E0603 for a target that cannot be timed here; E0701 and E0702
// of a GPU. Bodies of control flow stay as they are.
Result<Searched> search(const Model& model, const ModelSearchOptions& options = {});

}  // namespace tessera
