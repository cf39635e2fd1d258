// Searches for an equivalent model that runs faster on this machine or its GPU, with rules that may grow the graph. The
// input is always one of the timed candidates, so it is returned if nothing faster is found.
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
    double seconds = 60;                    // limit of the whole search; candidates not timed by then are not chosen
    std::string strategy = "egraph";        // or "backtrack", TASO's search
    std::string cost = "measured";          // times of fused groups; "sum": times of single ops; "estimate": no timing
    std::string precision = "default";      // as in OptimizeOptions
    std::string target = "host";            // device to measure on: the host or a GPU ("cuda", "cuda:1")
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
    std::optional<std::string> cache = {};  // folder for costs and checked rules; none: the user's; empty: none
    // Seconds for mutants: rules derived for this model's own products from programs that equal them almost everywhere,
    // then corrected and proved (docs/corrected.md). The time covers deriving the rules, a second search, and timing
    // its candidates against the result of the first. 0: no mutants.
    double mutate = 0;
    bool keep_without_mutants = false;  // also return the result without mutants
    const std::atomic<bool>* cancel = nullptr;
    std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
};

// A rule derived for this model.
struct SearchedMutant {
    std::string rule, text;          // name, and text in the rule language
    std::string boxes;               // the parts of the output that are recomputed, over the sizes of its shapes
    std::string shapes;              // of its variables: "x: [N,C,2*H,2*W], w: [M,C,3,3]"
    double share = 0;                // recomputed share of the output, at this model's sizes
    bool for_all_sizes = true;       // proved, with a certificate; false: decided for this model's sizes only
    std::string certificate;
    std::string picture;             // the output with its boxes, as SVG
    std::vector<std::string> where;  // nodes to which it may be applied
};

struct SearchedRule {
    std::string rule, why;
    std::vector<std::string> where;  // nodes at its root
    double gain = 0;                 // estimated from the costs, in seconds
};

struct SearchedCandidate {
    std::string what;                 // "input", "all profitable rules", or a single rewrite
    double cost = 0;                  // in seconds, according to the cost model
    double seconds = 0, speedup = 0;  // measured; the speed-up is relative to the input; 0 if not timed
    double difference = 0;            // of its results from the input's, relative; if too large, it is not timed
    std::string refused = {};         // why the device cannot run it, in which case it was not timed
    std::vector<SearchedRule> rules = {};
};

struct SearchReport {
    std::string strategy, cost;
    std::string device;  // device of the measurements: "cpu", or a GPU's name
    size_t nodes = 0, classes = 0, steps = 0;  // e-graph nodes (backtracking: graphs) and classes (0); rules applied
    bool complete = false;                     // saturated
    std::string stopped_by;                    // the limit that was reached
    double search_seconds = 0;            // exploration and extraction, without measurements
    double search_processor_seconds = 0;  // the same in CPU time
    double measure_seconds = 0, timing_seconds = 0;  // measuring costs that were not cached; timing candidates
    size_t measured = 0;                             // kernels timed in this run
    std::vector<SearchedCandidate> candidates;  // the input first
    std::vector<SearchedMutant> mutants;        // rules derived for this model
    size_t mutate_targets = 0, mutate_candidates = 0;  // mutated products; programs that equal one almost everywhere
    size_t mutate_remembered = 0;                      // of these products, those whose rules were cached
    std::vector<std::string> mutate_refused;           // why programs were rejected
    double mutate_seconds = 0;        // deriving rules
    double mutate_whole_seconds = 0;  // additional time over a search without mutants
    bool mutate_complete = true;      // the time budget sufficed to derive all rules
    double mutate_gain = 1;           // measured speed-up of the result over the result without mutants
    size_t chosen = 0;                // index of the chosen candidate
    double speedup = 1;               // its measured speed-up
    // "nothing faster found", or the speed-up of the chosen candidate.
    std::string outcome() const;
    // The outcome, the search and its candidates as text; with `rules`, also the rules of each candidate, where they apply, and
    // their estimated gains.
    std::string to_text(bool rules = true) const;
};

struct Searched {
    Model model;
    SearchReport report;
    std::optional<Model> without_mutants = {};  // if keep_without_mutants
};

// E0501 for an unknown strategy, cost or precision; E0603 for a target that cannot be timed here; E0701 and E0702 for
// GPU errors. Graphs nested in control flow are not changed.
Result<Searched> search(const Model& model, const ModelSearchOptions& options = {});

}  // namespace tessera
