// Automatic discovery of rewrite rules. Small graphs over a set of ops are enumerated, redundant pairs of equivalent
// graphs are pruned, and the others are proved for all sizes. See docs/superoptimizer.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/error.h"

namespace tessera {

struct DiscoverProgress {
    std::string_view world, phase;  // "levels", "terms", "shards" or "proofs"
    int level = 0;                  // number of ops in the terms; 0 for proofs
    int64_t done = 0, total = 0;    // of this phase
    int64_t terms = 0, classes = 0, pairs = 0;
};

struct DiscoverRulesOptions {
    std::string ops = "taso";  // "taso", "extended", a file (mine.ops), or names of ops: "add,mul,relu"
    int max_ops = 3;           // maximum number of ops on either side of a rule, 1 to 4
    std::string out =
        {};             // file for proved rules; certificates go to .cert beside it, tested rules to .tested
    uint64_t seed = 0;  // of the random values
    int threads = 0;    // 0: all cores; the result does not depend on it
    std::string work_dir = {};                  // records progress here; repeating an interrupted call resumes
    bool prove = true;                          // false: enumerate and prune only
    bool all = false;                           // also prove and write redundant pairs
    // Instead of equal graphs, find programs that equal an original almost everywhere; correct and prove them
    // (docs/corrected.md). `ops` is then a file of originals, or "taso" for the built-in ones.
    bool corrected = false;
    bool shrinking = false;                     // write only rules that reduce the number of ops or merge siblings
    const std::atomic<bool>* cancel = nullptr;  // set the flag to stop with E0410
    std::function<void(const DiscoverProgress&)> progress = {};
};

struct DiscoveredCounts {
    double graphs = 0;            // graphs that a generator that adds one op at a time would visit
    int64_t terms = 0;            // terms evaluated
    int64_t classes = 0;          // classes of equivalent terms
    int64_t raw_pairs = 0;        // terms whose class already had a representative
    int64_t renamed = 0;          // of the raw pairs: equal to another one up to the names of variables
    int64_t common_subgraph = 0;  // of the raw pairs: dropped because both sides share a subgraph
    int64_t pruned = 0;           // pairs that remain after these two criteria, which are TASO's
    int64_t siblings = 0;         // of those: rules with several outputs
    int64_t irredundant = 0;      // of those: pairs that cannot be derived from others
    int64_t proved = 0, proved_irredundant = 0, refuted = 0, unknown = 0;
    double enumerate_seconds = 0, prune_seconds = 0, prove_seconds = 0;
};

struct DiscoveredRule {
    std::string name, text;  // text: in the rule language
    std::string shapes;      // of its variables: "x: [M,K], w: [K,N]"
    std::string verdict;     // proved, refuted or unknown
    std::string exactness;   // exact or reassociates
    std::string reason;      // why it is not proved
    std::string certificate;
    int tested_sizes = 0;                   // for unknown: assignments of sizes at which both sides were equal
    std::optional<double> error_log2 = {};  // log2 of the probability that a difference at one of them was missed
    bool irredundant = true;                // cannot be derived from other rules
    bool shrinks = false;                   // the right side has fewer ops, or merges siblings
    int ops = 0;                            // of the larger side
    std::string boxes = {};                 // for a corrected rule: the parts of the output that are recomputed
    std::string picture = {};               // for a corrected rule: the output with these boxes, as SVG
};

struct DiscoveredRules {
    std::string ops;
    int max_ops = 0;
    uint64_t seed = 0;
    double seconds = 0;
    DiscoveredCounts counts;
    std::vector<std::pair<std::string, DiscoveredCounts>> worlds;  // by name
    std::vector<DiscoveredRule> rules;                             // by world, in ascending order of size
    std::vector<std::string> files;                                // the files written
    std::vector<std::string> warnings;
};

// E0501 for unknown ops and ops without a body or an expansion, E0301 to E0303 for an invalid op-set file, E0105 for
// output files that cannot be written (detected before the enumeration), E0410 if cancelled.
Result<DiscoveredRules> discover_rules(const DiscoverRulesOptions& options = {});

}  // namespace tessera
